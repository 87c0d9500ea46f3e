"""Reports the end of a process to those that wait for its heartbeats.

A fragment whose heartbeats stop is taken for dead after three intervals. Its supervisor knows at
once that the process has ended, and sends a last heartbeat in its name, of each of its parts: a
root's other copy takes over (rule-27), and readers of a replica turn to the other one (trace-34).

A report saves time, and nothing depends on it. It names the process that has ended by pid and
start, so it does not concern one that was started since (trace-55). If Kafka cannot be reached it
is dropped after ``REPORT_MS_MAX``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaException, Producer

from slackwater.codec.state_records import encode_heartbeat
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.cluster import confluent_client
from slackwater.runtime.logs.kafka import KafkaTransport, unpolled_config
from slackwater.runtime.service.beat import part_of
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeats import HeartbeatListener

REPORT_MS_MAX: Final = 1_000
REPORTS_MAX: Final = 1_000
"""Reports that wait to be sent, at most; further ones are dropped."""


class DeathReports:
    """Sends the reports of one machine.

    Args:
        transport: to the logs of the deployment.
        listener: has received the heartbeats of the processes that end.
    """

    def __init__(
        self,
        transport: KafkaTransport,
        listener: HeartbeatListener,
        clock: SystemClock | None = None,
    ) -> None:
        self._transport, self._listener = transport, listener
        self._clock = clock or SystemClock()
        self._producer: Producer | None = None

    def connect(self) -> None:
        """Connect to Kafka, so that the first report is not later than others."""
        settings = {
            "acks": 1,
            "linger.ms": 0,
            "message.timeout.ms": REPORT_MS_MAX,
            "queue.buffering.max.messages": REPORTS_MAX,
        }
        self._producer = Producer(
            confluent_client(self._transport.cluster) | unpolled_config | settings
        )
        self._producer.poll(0)

    def report(self, process: str, parts: Sequence[str], pid: int) -> None:
        """Report that ``process`` has ended, which served ``parts``. Does not block."""
        beats = [beat for part in parts if (beat := self._listener.latest(part)) is not None]
        dead = [beat.as_dead() for beat in beats if beat.pid == pid]
        if self._producer is None or not dead:
            return
        now = self._clock.now_us()
        record = Heartbeat(
            process, pid, 0, now, -1, ready=False, states={}, parts=tuple(map(part_of, dead))
        )
        with contextlib.suppress(BufferError, KafkaException):
            self._producer.produce(
                self._transport.names.heartbeats,
                encode_heartbeat(record),
                process.encode(),
                partition=0,
            )
            self._producer.poll(0)
