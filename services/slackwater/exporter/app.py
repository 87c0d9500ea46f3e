"""``python -m slackwater.exporter NAME --listen HOST:PORT``: serves ``/metrics``.

One thread per query follows its results from the present end; a listener receives heartbeats; a
scrape reads both.
"""

from __future__ import annotations

import argparse
import logging
import threading
from functools import partial

from prometheus_client import CollectorRegistry, start_http_server

from slackwater.client.follow import Client
from slackwater.exporter.metrics import HeartbeatCollector, ResultMetrics
from slackwater.model.errors import EnvironmentProblem, SlackwaterError, UsageError
from slackwater.runtime.local.layout import process_names
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.entry import ProcessContext
from slackwater.runtime.service.heartbeats import HeartbeatListener, HeartbeatSender

_log = logging.getLogger(__name__)

AGAIN_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that are specific to the exporter."""
    parser.add_argument("--listen", default="127.0.0.1:9100", help="host:port of the page")


def main(context: ProcessContext) -> None:
    """Serve until stopped."""
    deployment, clock = context.deployment, SystemClock()
    host, port = _address(context.arguments.listen)
    registry = CollectorRegistry()
    results = ResultMetrics(registry, deployment)
    listener = HeartbeatListener(context.transport()).start()
    by_wall = deployment.clock == "wall"
    registry.register(
        HeartbeatCollector(
            listener,
            lambda: clock.now_us() if by_wall else None,
            process_names(deployment, broker=False),
        )
    )
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise EnvironmentProblem(
            f"{host}:{port} cannot be listened on: {error.strerror}"
        ) from error
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
            _log.info("results of %s are not read now: %s", query, error)
        context.stopping.wait(AGAIN_S)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--listen {text}: write host:port")
    return host, int(port)
