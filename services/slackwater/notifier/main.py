"""Runs a notifier in this process until Ctrl-C or SIGTERM, with a heartbeat.

A heartbeat has the state of each receiver, so `status`, the page and the exporter show from any
machine whether alerts are sent, how far behind that is, and the last error. A receiver that is away
is no fault of the process: it stays ready.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from slackwater.model.kinds import NOTIFIER
from slackwater.notifier.app import Notifier
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.heartbeats import HeartbeatSender


def run_notifier(notifier: Notifier, transport: KafkaTransport, say: Callable[[str], None]) -> None:
    """Send alerts until stopped; ``say`` prints a line at the begin and at the end."""

    def stop(signum: int, frame: FrameType | None) -> None:
        notifier.stopping.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, stop)
    notifier.open()
    sender = HeartbeatSender(transport.cluster, NOTIFIER, names=transport.names).start()
    say("notify: sends alerts until Ctrl-C")
    try:
        while not notifier.stopping.is_set():
            notifier.turn()
            sender.update(ready=True, states=notifier.states, detail=notifier.detail)
    finally:
        sender.stop()
        notifier.close()
    say("notify: stopped")
