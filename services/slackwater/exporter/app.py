"""``python -m slackwater.exporter NAME --listen HOST:PORT``: serves ``/metrics``.

One thread per query follows its results from the present end; a listener receives heartbeats; a
scrape reads both.
"""

from __future__ import annotations

import argparse
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from prometheus_client import CollectorRegistry, start_http_server

from slackwater.client.follow import Client
from slackwater.deployment.sharing import share
from slackwater.exporter.controllers import ControllerCollector, add_controller_arguments
from slackwater.exporter.metrics import HeartbeatCollector, ResultMetrics
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem, SlackwaterError, UsageError
from slackwater.model.names import base_of, kind_of
from slackwater.runtime.local.layout import process_names
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


class Expected:
    """The processes that the deployment needs. A query's orderers are known once it is registered.

    Queries that read the same children have one set of orderers; only the registry shows which
    queries do.
    """

    def __init__(self, deployment: Deployment, registry: Registry) -> None:
        self._deployment = deployment
        self._registry = registry
        self._names = self._known({})

    def __call__(self) -> Sequence[str]:
        """Return their names."""
        return self._names

    def run(self) -> None:
        """Complete the names until all queries are registered."""
        while not self.look():
            time.sleep(AGAIN_S)

    def look(self) -> bool:
        """Read the registry; True if all queries are registered."""
        try:
            found = self._registry.all_queries()
        except SlackwaterError as error:
            _log.info("the registry cannot be read: %s", error)
            return False
        self._names = self._known(found)
        return self._deployment.queries.keys() <= found.keys()

    def _known(self, found: Mapping[str, QueryDefinition]) -> Sequence[str]:
        """The names; without those of deleted queries, of which another generation may run."""
        registered = {name: each.spec for name, each in found.items() if each.state != "deleted"}
        declared = self._deployment.queries
        live = {name: query for name, query in declared.items() if name not in found}
        live |= {name: query for name, query in registered.items() if base_of(name) in declared}
        deployment = share(replace(self._deployment, queries=live), registered)
        queries = {n: query for n, query in deployment.queries.items() if n in registered}
        known = {*process_names(replace(deployment, queries=queries), broker=False)}
        names = process_names(deployment, broker=False)
        return [name for name in names if name in known or kind_of(name) != "orderer"]


def main(context: ProcessContext) -> None:
    """Serve until stopped."""
    deployment, clock = context.deployment, SystemClock()
    host, port = _address(context.arguments.listen)
    registry = CollectorRegistry()
    if (controllers := ControllerCollector.of(context.arguments)) is not None:
        registry.register(controllers.start(context.stopping))
    results = ResultMetrics(registry, deployment)
    listener = HeartbeatListener(context.transport()).start()
    by_wall = deployment.clock == "wall"
    expected = Expected(deployment, Registry(context.transport()))
    threading.Thread(target=expected.run, name="registered", daemon=True).start()
    registry.register(
        HeartbeatCollector(
            listener,
            lambda: clock.now_us() if by_wall else None,
            expected,
        )
    )
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise EnvironmentProblem(f"cannot listen on {host}:{port}: {error.strerror}") from error
    sender = HeartbeatSender(context.cluster, context.process, names=deployment.names).start()
    for query in deployment.queries:
        follow = partial(_follow, context, query, results)
        threading.Thread(target=follow, name=f"follow {query}", daemon=True).start()
    while not context.stopping.wait(AGAIN_S):
        sender.update(ready=True)
    sender.stop()
    listener.stop()


def _follow(context: ProcessContext, query: str, results: ResultMetrics) -> None:
    while not context.stopping.is_set():
        try:
            for record in Client(context.cluster, prefix=context.deployment.names.prefix).follow(
                query, from_="end"
            ):
                results.take(record)
        except SlackwaterError as error:
            _log.info("cannot read results of %s, will retry: %s", query, error)
        context.stopping.wait(AGAIN_S)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--listen {text}: write host:port")
    return host, int(port)
