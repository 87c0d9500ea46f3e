"""``slackwater up``: runs a deployment on this machine until Ctrl-C.

The first line is the broker's address, for programs that wait for it; the supervisor's events
follow. During the start, errors that a restart cannot resolve (a missing column, a missing topic)
end the command; afterwards every process that fails is restarted.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Final

from slackwater.cli.common import check_address, emit, warn
from slackwater.cli.local_control import LocalControl
from slackwater.cli.plan import warn_of
from slackwater.codec.results import format_time
from slackwater.deployment.parse import check_deployment, load_deployment
from slackwater.runtime.local.broker_security import CLIENT_FILE, KCAT_FILE
from slackwater.runtime.local.registration import Registration
from slackwater.runtime.local.stack import StackOptions
from slackwater.runtime.local.stack_thread import StackThread
from slackwater.runtime.local.supervisor import BROKER
from slackwater.runtime.logs.cluster import Cluster, find_cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.service.settings import settings

LOOK_S: Final = 0.2
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
) -> None:
    """Start the deployment, print events until stopped, and stop it."""
    if bootstrap is not None or kafka_config is not None:
        given = find_cluster(bootstrap, kafka_config, Role.ADMIN)
        check_address(given.bootstrap, "--bootstrap" if bootstrap else str(kafka_config))
    micro_batch = settings().aggregator_mode == "micro-batch"
    checked = check_deployment(deployment, micro_batch=micro_batch)
    for warning in checked.warnings:
        warn(f"warning: {warning}")
    is_elsewhere = (bootstrap, kafka_config) != (None, None)
    warn_of(checked.deployment, data_dir, own_broker=not is_elsewhere)
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
    )
    thread = StackThread(options)
    control = LocalControl(thread.stack, data_dir)
    try:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, on_signal)
        emit(f"bootstrap {thread.open()}")
        if any(stream.http is not None for stream in checked.deployment.streams.values()):
            emit(f"readings are posted to {checked.deployment.http.url}NAME")
        if secure:
            emit(f"clients read {data_dir / CLIENT_FILE}; kcat: -F {data_dir / KCAT_FILE}")
        thread.start_up()
        thread.run(control.start())
        started.set()
        _watch(thread, stopping)
    except KeyboardInterrupt:
        pass  # stopped during the start
    finally:
        stopping.set()
        emit("stopping")
        thread.run(control.stop())
        thread.stop()


def make_topics(deployment: Path, cluster: Cluster, inputs: int | None) -> None:
    """Run the command ``slackwater topics``."""
    checked = load_deployment(deployment)
    registration = Registration(KafkaTransport(cluster, checked.names), checked, deployment)
    registration.make_topics(input_partitions=inputs, within_s=TOPICS_S_MAX)
    emit(f"all topics of {deployment} exist")


def _watch(thread: StackThread, stopping: threading.Event) -> None:
    """Print events, and once that all processes are ready."""
    all_ready, printed = False, 0
    while not stopping.wait(LOOK_S):
        events = thread.events()
        for event in events[printed:]:
            emit(f"{format_time(event.wall_us)[11:23]} {event.process}: {event.event}")
        printed = len(events)
        if not all_ready:
            thread.check()
            names = [name for name in thread.stack.process_names if name != BROKER]
            all_ready = all(map(thread.stack.listener.ready, names))
            if all_ready:
                running = len(thread.pids().keys() - {BROKER})
                emit(f"up: {running} processes are ready; Ctrl-C stops them")
