"""The readings that all peers are given, and how they come to the broker.

`backlog` writes a topic full, partitioned by sensor as Kafka's own partitioner would. `Feeder`
sends as time passes: each partition is a source (a gateway), and every sensor is heard by all of
them, so that a window needs them all; one source may be silent for a while, and then delivers what
it has, with the times it has stamped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer

TOPIC: Final = "readings"
SOURCES: Final = 4
SENSORS: Final = 10
"""Of the live load."""
BACKLOG_SENSORS: Final = 1_000
BACKLOG_PER_S: Final = 100_000
"""Readings a second of event time: 100 in a window."""
SIZE_BYTES_ABOUT: Final = 52
"""Of a message."""
CLOSING_MS: Final = 60_000
"""How far ahead a reading of each sensor lies that closes the backlog's windows."""

WorkloadReading = tuple[int, str, float]
"""Time in ms, sensor, value."""


def producer(bootstrap: str) -> Producer:
    """Keeps order, loses nothing."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )


def message(reading: WorkloadReading) -> bytes:
    """As sensors' gateways write it."""
    return b'{"ts":%d,"sensor":"%s","value":%.2f}' % (
        reading[0],
        reading[1].encode(),
        reading[2],
    )


def value_of(number: int) -> float:
    """Spread evenly, two digits."""
    return (1_500 + number * 7919 % 1_000) / 100  # as exact as what is read from its text


def backlog(count: int, start_ms: int) -> Iterator[WorkloadReading]:
    """``count`` readings in the order of their times."""
    for number in range(count):
        ts = start_ms + number * 1_000 // BACKLOG_PER_S
        yield ts, f"s{number % BACKLOG_SENSORS:04d}", value_of(number)


def fill(bootstrap: str, count: int, start_ms: int) -> None:
    """Write the backlog, and what closes its windows."""
    writer = producer(bootstrap)
    for number, reading in enumerate(backlog(count, start_ms)):
        _put(writer, number % BACKLOG_SENSORS % SOURCES, reading)
    end_ms = start_ms + count * 1_000 // BACKLOG_PER_S
    for number in range(BACKLOG_SENSORS):
        sensor = f"s{number:04d}"
        _put(writer, number % SOURCES, (end_ms + CLOSING_MS, sensor, 0.0))
    writer.flush()


def _put(writer: Producer, partition: int, reading: WorkloadReading) -> None:
    while True:
        try:
            writer.produce(TOPIC, message(reading), reading[1], partition)
            return
        except BufferError:
            writer.poll(0.05)


class Feeder(threading.Thread):
    """Sends ``per_s`` readings a second, stamped evenly, the sources by turns."""

    def __init__(self, bootstrap: str, per_s: int) -> None:
        super().__init__(daemon=True)
        self.sent: list[WorkloadReading] = []
        self._per_s = per_s
        self._writer = producer(bootstrap)
        self._held: deque[WorkloadReading] = deque()
        self._silent_ms = (0, 0)
        self._ending = threading.Event()

    def silence(self, from_ms: int, to_ms: int) -> None:
        """The last source sends nothing in this time, and all of it afterwards."""
        self._silent_ms = (from_ms, to_ms)

    def run(self) -> None:
        """Until it is told to stop."""
        start_ms, number = int(time.time()) * 1_000 + 1_000, 0
        while not self._ending.wait(0.005):
            now_ms = time.time() * 1e3
            while (ts := start_ms + number * 1_000 // self._per_s) <= now_ms:
                # Each source in its turn goes through all sensors.
                sensor = number // SOURCES % SENSORS
                self._send(number % SOURCES, (ts, f"s{sensor:04d}", value_of(number)))
                number += 1
            if self._held and now_ms >= self._silent_ms[1]:
                while self._held:
                    _put(self._writer, SOURCES - 1, self._held.popleft())
            self._writer.poll(0)

    def _send(self, source: int, reading: WorkloadReading) -> None:
        self.sent.append(reading)
        low, high = self._silent_ms
        if source == SOURCES - 1 and (self._held or low <= reading[0] < high):
            self._held.append(reading)
        else:
            _put(self._writer, source, reading)

    def stop(self) -> None:
        """End, with everything delivered."""
        self._ending.set()
        self.join()
        self._writer.flush()
