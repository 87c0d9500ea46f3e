"""``python -m slackwater.exporter NAME --listen HOST:PORT``: serves ``/metrics``.

One thread per query follows its results from the present end, one thread follows the queries in the
registry; a listener receives heartbeats; a scrape reads all of it.
"""

from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, start_http_server

from slackwater.client.follow import Follower, Seen
from slackwater.exporter.controllers import ControllerCollector, add_controller_arguments
from slackwater.exporter.metrics import HeartbeatCollector, ResultMetrics
from slackwater.exporter.queries import QUERIES_MAX, answering, fragments_to_run
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem, SlackwaterError, UsageError
from slackwater.model.names import base_of
from slackwater.runtime.logs.topics import partition_count
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.entry import ProcessContext
from slackwater.runtime.service.heartbeats import HeartbeatListener, HeartbeatSender
from slackwater.runtime.service.registry import QueryDefinition, Registry

_log = logging.getLogger(__name__)

AGAIN_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that are specific to the exporter."""
    parser.add_argument("--listen", default="127.0.0.1:9100", help="host:port of the page")
    add_controller_arguments(parser)


class Queries:
    """Keeps metrics, followers and expected processes those of the queries that there are.

    Args:
        deployment: the deployment file.
        results: gets the queries that have results.
        follow: reads the results of a query until its event is set; called in a thread of its own.
    """

    def __init__(
        self,
        deployment: Deployment,
        results: ResultMetrics,
        follow: Callable[[str, threading.Event], None],
    ) -> None:
        self._deployment = deployment
        self._results = results
        self._follow = follow
        self._ended: dict[str, threading.Event] = {}
        self._processes: Sequence[str] = ()
        self.take({})

    @property
    def processes(self) -> Sequence[str]:
        """Names of the processes that are to run."""
        return self._processes

    def take(self, found: Mapping[str, QueryDefinition]) -> None:
        """Take over all registered queries, deleted ones too."""
        self._processes = fragments_to_run(self._deployment, found)
        present = answering(self._deployment, found)
        live = {base_of(name) for name, each in found.items() if each.state != "deleted"}
        if without := len(live - present.queries.keys()):
            _log.warning("%d queries have no metrics: at most %d", without, QUERIES_MAX)
        for query in self._ended.keys() - present.queries.keys():
            self._ended.pop(query).set()
        self._results.report(present)
        for query in present.queries.keys() - self._ended.keys():
            ended = self._ended[query] = threading.Event()
            args = (query, ended)
            threading.Thread(
                target=self._follow, args=args, name=f"follow {query}", daemon=True
            ).start()

    def run(self, registry: Registry, stopping: threading.Event) -> None:
        """Follow the registry until stopped."""
        for found in registry.follow_queries(stopping):
            self.take(found)


def main(context: ProcessContext) -> None:
    """Serve until stopped."""
    deployment, clock = context.deployment, SystemClock()
    host, port = _address(context.arguments.listen)
    registry = CollectorRegistry()
    if (controllers := ControllerCollector.of(context.arguments)) is not None:
        registry.register(controllers.start(context.stopping))
    results = ResultMetrics(registry, deployment)
    queries = Queries(deployment, results, partial(_follow, context, results))
    listener = HeartbeatListener(context.transport()).start()
    by_wall = deployment.clock == "wall"
    following = (Registry(context.transport()), context.stopping)
    threading.Thread(target=queries.run, args=following, name="registered", daemon=True).start()
    registry.register(
        HeartbeatCollector(
            listener,
            lambda: clock.now_us() if by_wall else None,
            lambda: queries.processes,
        )
    )
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise EnvironmentProblem(f"cannot listen on {host}:{port}: {error.strerror}") from error
    sender = HeartbeatSender(context.cluster, context.process, names=deployment.names).start()
    while not context.stopping.wait(AGAIN_S):
        sender.update(ready=True)
    sender.stop()
    listener.stop()


def _follow(
    context: ProcessContext, results: ResultMetrics, query: str, ended: threading.Event
) -> None:
    """Read the query's results, from the present end, until it has ended."""
    names = context.deployment.names
    while not ended.is_set():
        try:
            parts = partition_count(context.cluster, names.results(query, "stable"))
            follower = Follower(context.transport(), query, parts, "end")
            try:
                while not ended.is_set():
                    for item in follower.poll(AGAIN_S):
                        if isinstance(item, Seen):
                            results.take(item.line())
            finally:
                follower.close()
        except SlackwaterError as error:
            _log.info("cannot read results of %s, will retry: %s", query, error)
        ended.wait(AGAIN_S)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--listen {text}: write host:port")
    return host, int(port)
