"""``slackwater up``: runs a deployment on this machine until Ctrl-C.

The first line is the broker's address, for programs that wait for it; the supervisor's events
follow. During the start, errors that a restart cannot resolve (a missing column, a missing topic)
end the command; afterwards every process that fails is restarted.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Final

from slackwater.cli.alerts import receivers_of
from slackwater.cli.common import check_address, emit, warn
from slackwater.cli.plan import warn_of
from slackwater.cli.quarantine import FirstReadings
from slackwater.cli.web import choose_web
from slackwater.codec.results import format_time
from slackwater.deployment.parse import check_deployment, load_deployment, site_of
from slackwater.machine.broker_security import CLIENT_FILE, KCAT_FILE
from slackwater.machine.starting import LOOK_S, Everything, StartLines, repeatedly
from slackwater.model.kinds import BROKER
from slackwater.registration.registration import Registration
from slackwater.runtime.logs.cluster import Cluster, find_cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.settings import settings
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

FIRST_READINGS: Final = "the first readings: with clock: data a query begins with them"
TOPICS_S_MAX: Final = 120.0
"""Maximum wait for topics; a cluster that has just started creates them slowly."""


def run_up(
    deployment: Path,
    data_dir: Path,
    port: int | None,
    bootstrap: str | None,
    kafka_config: Path | None = None,
    *,
    secure: bool = False,
    web: str | None = None,
    notify: bool = False,
    site: str | None = None,
) -> None:
    """Start the deployment, print events until stopped, and stop it.

    ``web`` is the address of the page; None: there is none, empty: the first that is free.
    ``notify``: also send alerts to the receivers of the settings. ``site``: what runs here.
    """
    if notify:
        receivers_of(settings())  # it refuses what its process would refuse
    micro_batch = settings().aggregator_mode == "micro-batch"
    checked = check_deployment(deployment, micro_batch=micro_batch, site=site)
    if site is not None and (bootstrap, kafka_config, port) == (None, None, None):
        bootstrap = site_of(deployment, site).bootstrap
    if bootstrap is not None or kafka_config is not None:
        given = find_cluster(bootstrap, kafka_config, Role.ADMIN)
        check_address(given.bootstrap, "--bootstrap" if bootstrap else str(kafka_config))
    for warning in checked.warnings:
        warn(f"warning: {warning}")
    is_elsewhere = (bootstrap, kafka_config) != (None, None)
    warn_of(checked.deployment, data_dir, own_broker=not is_elsewhere)
    page = choose_web(web)
    stopping, started = threading.Event(), threading.Event()

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if not (stopping.is_set() or started.is_set()):
            stopping.set()
            raise KeyboardInterrupt  # a start may wait for minutes if a broker hangs
        stopping.set()

    options = StackOptions(
        deployment,
        checked.deployment,
        data_dir,
        port,
        bootstrap,
        kafka_config,
        secure,
        runs_long=True,
        web=page,
        notify=notify,
        site=site,
    )
    thread = StackThread(options)
    is_refused = True
    try:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, on_signal)
        lines = StartLines(_now_s())
        with repeatedly(lambda: _emit_all(lines.waiting("Kafka", _now_s()))):
            opened = thread.open()
        emit(f"bootstrap {opened}")
        emit(lines.reached("Kafka", _now_s()))
        if checked.deployment.is_posted:
            emit(f"readings are posted to {checked.deployment.http.url}NAME")
        if page is not None:
            emit(f"the page is at {page.url}")
        if secure:
            emit(f"clients read {data_dir / CLIENT_FILE}; kcat: -F {data_dir / KCAT_FILE}")
        shown = _Shown(thread, lines)
        with repeatedly(shown.starts):  # ends before the stack's loop, which it asks
            thread.start_up()
        started.set()
        _watch(thread, stopping, shown)
        is_refused = False
    except KeyboardInterrupt:
        is_refused = False  # stopped during the start
    finally:
        stopping.set()
        if not is_refused:
            emit("stopping")
        thread.stop()


def make_topics(
    deployment: Path, cluster: Cluster, inputs: int | None, site: str | None = None
) -> None:
    """Run the command ``slackwater topics``."""
    checked = load_deployment(deployment, site=site)
    registration = Registration(KafkaTransport(cluster, checked.names), checked, deployment)
    registration.make_topics(input_partitions=inputs, within_s=TOPICS_S_MAX)
    emit(f"all topics of {deployment} exist")


def _now_s() -> float:
    return SystemClock().now_us() / 1e6


def _emit_all(lines: Iterable[str]) -> None:
    for line in lines:
        emit(line)


class _Shown:
    """Prints events and the lines of the start. For one thread at a time."""

    def __init__(self, thread: StackThread, lines: StartLines) -> None:
        self.lines = lines
        self._thread = thread
        self._events = 0

    def events(self) -> None:
        """Print the new events."""
        events = self._thread.events()
        for event in events[self._events :]:
            emit(f"{format_time(event.wall_us)[11:23]} {event.process}: {event.event}")
            self.lines.printed(_now_s())
        self._events = len(events)

    def starts(self) -> None:
        """Print the new events, or what is awaited if nothing was printed for a while."""
        self.events()
        for line in self.lines.waiting("topics, queries and the first processes", _now_s()):
            emit(line)


def _watch(thread: StackThread, stopping: threading.Event, shown: _Shown) -> None:
    """Print events, each stage that is ready, and streams without a usable reading."""
    is_up, everything, first = False, Everything(), FirstReadings()
    while not stopping.wait(LOOK_S):
        shown.events()
        for line in first.look(thread.stack.listener.all()):
            emit(line)
        if is_up:
            continue
        thread.check()
        ready, waiting = thread.ready(), thread.stack.waiting
        for line in shown.lines.look(ready, _now_s(), first=FIRST_READINGS if waiting else ""):
            emit(line)
        is_up = everything.runs(ready, waiting, _now_s())
        if is_up:
            running = len(thread.pids().keys() - {BROKER})
            emit(f"up: {running} processes are ready; Ctrl-C stops them")
