"""Metrics of controllers and nodes, for an exporter that is started with ``--controllers``.

The controllers are asked every ``ASK_EVERY_S``, not at a scrape: a controller that does not answer
delays no scrape. What no controller has reported in the last round has no value.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slackwater.controller.app import parse_addresses, read_secret
from slackwater.controller.tls import read_tls
from slackwater.model.errors import UsageError
from slackwater.status.asking import ControllersAsked
from slackwater.status.overview import Overview, overview_of

_log = logging.getLogger(__name__)

ASK_EVERY_S: Final = 5.0
"""Nodes measure their clocks with the same period."""
NODES_MAX: Final = 200
"""Nodes with metrics, the first by name; each has one up, and two of its clock per controller."""


def add_controller_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options with which controllers are reached."""
    parser.add_argument("--controllers", help="host:port,...: adds metrics of these controllers")
    parser.add_argument("--secret-file", type=Path, help="file with the secret of the controllers")
    parser.add_argument("--tls-dir", type=Path, help="directory with ca.pem, cert.pem and key.pem")


class ControllerCollector(Collector):
    """Asks the controllers in a thread of its own, and returns the metrics of the last round."""

    def __init__(self, asked: ControllersAsked) -> None:
        self._asked = asked
        self._overview: Overview | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> ControllerCollector | None:
        """Return that of the options; None without ``--controllers``.

        Raises:
            UsageError: an option is wrong.
        """
        if arguments.controllers is None:
            for option in ("secret_file", "tls_dir"):
                if getattr(arguments, option) is not None:
                    raise UsageError(f"--{option.replace('_', '-')} needs --controllers")
            return None
        addresses = parse_addresses(arguments.controllers)
        secret = b"" if arguments.secret_file is None else read_secret(arguments.secret_file)
        tls = None if arguments.tls_dir is None else read_tls(arguments.tls_dir)
        return cls(ControllersAsked(addresses, "exporter", secret, tls))

    def start(self, stopping: threading.Event) -> ControllerCollector:
        """Ask until ``stopping`` is set."""
        asking = threading.Thread(
            target=lambda: asyncio.run(self._ask(stopping)), name="controllers", daemon=True
        )
        asking.start()
        return self

    async def _ask(self, stopping: threading.Event) -> None:
        reported: tuple[str, ...] = ()
        while not stopping.is_set():
            try:
                overview = overview_of(await self._asked.ask())
            except Exception:  # noqa: BLE001 -- logged; the other metrics go on, the next round may be well
                _log.exception("the controllers' answers cannot be used")
                self._overview = None
            else:
                self._overview = overview
                problems = tuple(
                    f"controller {row.address}: {row.problem}"
                    for row in overview.controllers
                    if row.problem
                )
                for problem in problems if problems != reported else ():
                    _log.warning("%s", problem)
                reported = problems
            await asyncio.sleep(ASK_EVERY_S)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the last round."""
        return controller_metrics(self._overview)


def controller_metrics(overview: Overview | None) -> Iterable[Metric]:
    """Return the metrics of an overview; None if the controllers have not been read, or in vain."""
    up = GaugeMetricFamily(
        "slackwater_controller_up", "1 if the controller answers.", labels=["controller"]
    )
    view = GaugeMetricFamily(
        "slackwater_view_number", "Number of the controller's view.", labels=["controller"]
    )
    node_up = GaugeMetricFamily(
        "slackwater_node_up", "1 if a controller receives the node's heartbeats.", labels=["node"]
    )
    offset = GaugeMetricFamily(
        "slackwater_node_clock_offset_seconds", "The node's clock less the controller's.",
        labels=["node", "controller"],
    )  # fmt: skip
    error = GaugeMetricFamily(
        "slackwater_node_clock_error_seconds", "Largest error of the offset.",
        labels=["node", "controller"],
    )  # fmt: skip
    allowed = GaugeMetricFamily(
        "slackwater_clock_offset_max_seconds",
        "Half the smallest margin of the queries: a greater offset endangers a bound.",
    )
    not_running = GaugeMetricFamily(
        "slackwater_fragments_not_running", "Fragments that no controller knows to be ready."
    )
    if overview is not None:
        for row in overview.controllers:
            up.add_metric([row.address], float(not row.problem))
        for row in overview.answering:
            view.add_metric([row.address], row.view_number)
        for node in overview.nodes[:NODES_MAX]:
            node_up.add_metric([node.name], float(node.is_up))
            for address, clock in node.clocks.items():
                offset.add_metric([node.name, address], clock.offset_us / 1e6)
                error.add_metric([node.name, address], clock.error_us / 1e6)
        if overview.clock_offset_us_max is not None:
            allowed.add_metric([], overview.clock_offset_us_max / 1e6)
        if overview.answering:
            not_running.add_metric([], len(overview.not_running))
    return up, view, node_up, offset, error, allowed, not_running
