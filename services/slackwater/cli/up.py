"""``slackwater up``: a deployment on this machine, until Ctrl-C.

The first line says where the broker answers, for those who wait for it; then come the supervisor's
events. Errors that no restart mends (a missing column, a topic that is not there) end the command
while the processes come up; later everything is kept running, whatever dies.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Final

from slackwater.cli.common import say, warn
from slackwater.codec.results import format_time
from slackwater.runtime.deployment import check_deployment, load_deployment
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.registration import Registration
from slackwater.runtime.settings import settings
from slackwater.runtime.stack import StackOptions, StackThread

look_s: Final = 0.2
topics_s_max: Final = 120.0
"""A cluster that has just started makes topics slowly."""


def run_up(deployment: Path, data_dir: Path, port: int | None, bootstrap: str | None) -> None:
    """Start, tell, wait, stop."""
    micro_batch = settings().aggregator_mode == "micro-batch"
    checked = check_deployment(deployment, micro_batch=micro_batch)
    for warning in checked.warnings:
        warn(f"warning: {warning}")
    stopping, started = threading.Event(), threading.Event()

    def told(signum: int, frame: FrameType | None) -> None:
        if not (stopping.is_set() or started.is_set()):
            stopping.set()
            raise KeyboardInterrupt  # a start may wait for minutes, for a broker that hangs
        stopping.set()

    options = StackOptions(deployment, checked.deployment, data_dir, port, bootstrap)
    thread = StackThread(options)
    try:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, told)
        say(f"bootstrap {thread.open()}")
        thread.start_up()
        started.set()
        _watch(thread, stopping)
    except KeyboardInterrupt:
        pass  # told to stop while it was being started
    finally:
        stopping.set()
        say("stopping")
        thread.stop()


def make_topics(deployment: Path, bootstrap: str, inputs: int | None) -> None:
    """What ``slackwater topics`` does."""
    checked = load_deployment(deployment)
    registration = Registration(KafkaTransport(bootstrap), checked, deployment)
    registration.make_topics(input_partitions=inputs, within_s=topics_s_max)
    say(f"the topics of {deployment} are there")


def _watch(thread: StackThread, stopping: threading.Event) -> None:
    """Tell what happens, and once that all are ready."""
    names = [name for name in thread.stack.process_names if name != "broker"]
    all_ready, told = False, 0
    while not stopping.wait(look_s):
        events = thread.events()
        for event in events[told:]:
            say(f"{format_time(event.wall_us)[11:23]} {event.process}: {event.event}")
        told = len(events)
        if not all_ready:
            thread.check()
            all_ready = all(map(thread.stack.listener.ready, names))
            if all_ready:
                say(f"up: {len(names)} processes are ready; Ctrl-C stops them")
