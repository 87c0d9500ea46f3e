"""The readings for all peers, and their way to the broker.

`backlog` fills a topic, partitioned by sensor as by Kafka's own partitioner. `Feeder` sends in real
time: each partition is a source (a gateway), and every sensor sends through all of them, so that a
window needs them all; one source may be silent for a while, and then delivers its readings, with
their original times.
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
"""Rate of the live load."""
BACKLOG_SENSORS: Final = 1_000
BACKLOG_PER_S: Final = 100_000
"""Readings a second of event time: 100 in a window."""
SIZE_BYTES_ABOUT: Final = 52
"""Maximum readings of a message."""
CLOSING_MS: Final = 60_000
"""Distance of the last reading of each sensor, which closes the backlog's windows."""

WorkloadReading = tuple[int, str, float]
"""Time in ms, sensor, value."""


def producer(bootstrap: str) -> Producer:
    """A producer that keeps the order and loses nothing."""
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
    """A message as written by sensors' gateways."""
    return b'{"ts":%d,"sensor":"%s","value":%.2f}' % (
        reading[0],
        reading[1].encode(),
        reading[2],
    )


def value_of(number: int) -> float:
    """A value, evenly distributed, with two digits."""
    return (1_500 + number * 7919 % 1_000) / 100  # as exact as a value parsed from its text


def backlog(count: int, start_ms: int) -> Iterator[WorkloadReading]:
    """Return ``count`` readings in the order of their times."""
    for number in range(count):
        ts = start_ms + number * 1_000 // BACKLOG_PER_S
        yield ts, f"s{number % BACKLOG_SENSORS:04d}", value_of(number)


def fill(bootstrap: str, count: int, start_ms: int) -> None:
    """Write the backlog, and the readings that close its windows."""
    writer = producer(bootstrap)
    for number, reading in enumerate(backlog(count, start_ms)):
        _put(writer, number % BACKLOG_SENSORS % SOURCES, reading)
    end_ms = start_ms + count * 1_000 // BACKLOG_PER_S
    for number in range(BACKLOG_SENSORS):
        sensor = f"s{number:04d}"
        _put(writer, number % SOURCES, (end_ms + CLOSING_MS, sensor, 0.0))
    writer.flush()


def _put(writer: Producer, partition: int, reading: WorkloadReading) -> None:
    put(writer, partition, message(reading), reading[1])


def put(writer: Producer, partition: int, value: bytes, key: str | None = None) -> None:
    """Write a message; wait while the producer's queue is full."""
    while True:
        try:
            writer.produce(TOPIC, value, key, partition)
            return
        except BufferError:
            writer.poll(0.05)


class Feeder(threading.Thread):
    """Sends ``per_s`` readings per second, stamped evenly, from the sources in turn."""

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
        """Run until stopped."""
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
        """Stop, with everything delivered."""
        self._ending.set()
        self.join()
        self._writer.flush()
