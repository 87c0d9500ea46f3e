"""The load of ``bench.sites``: readings that are a function of their time.

A process sends the readings of one site, in ticks. A reading's value depends on its tick and its
key alone, so the right figures of a window are known without a record of what was sent. Values are
about normal, with two digits, as most sensors send them.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
from confluent_kafka import Producer

STREAMS: Final = 3
"""Streams of a site, each a topic of its own."""
TICK_MS: Final = 25
"""Readings of one tick are sent when it is over."""


@dataclass(frozen=True)
class SiteLoad:
    """The readings of a site: each key has ``per_tick`` in each tick, from its streams in turn."""

    site: str
    keys: int
    per_tick: int

    @property
    def per_s(self) -> int:
        """Readings a second."""
        return self.keys * self.per_tick * 1_000 // TICK_MS

    @property
    def streams(self) -> list[str]:
        """The names of its streams, and topics."""
        return [f"{self.site}-{number}" for number in range(STREAMS)]

    @property
    def names(self) -> list[str]:
        """Its keys."""
        return [f"{self.site}/sensor-{key:05d}" for key in range(self.keys)]

    def values(self, tick: int, ticks: int) -> npt.NDArray[np.float64]:
        """Return the values of some ticks, of shape (readings of a key, keys)."""
        number = np.arange(tick * self.per_tick, (tick + ticks) * self.per_tick, dtype=np.uint64)
        seed = np.uint64(sum(self.site.encode()))
        key = np.arange(self.keys, dtype=np.uint64) + seed * np.uint64(1_000_003)
        with np.errstate(over="ignore"):
            mixed = number[:, None] * np.uint64(0x9E3779B97F4A7C15)
            mixed = mixed + key * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
        quarters = sum((mixed >> np.uint64(at)) & np.uint64(1_023) for at in (20, 30, 40, 50))
        return np.asarray(quarters, np.float64) / 100

    def figures(self, start_ms: int, size_ms: int) -> dict[str, dict[str, float]]:
        """Return the right figures of a window, by key."""
        of = self.values(start_ms // TICK_MS, size_ms // TICK_MS)
        rows = zip(self.names, of.mean(0), of.min(0), of.max(0), strict=True)
        return {
            name: {"avg": float(avg), "min": float(low), "max": float(high), "count": len(of)}
            for name, avg, low, high in rows
        }

    def messages(self, tick: int) -> list[bytes]:
        """Return the message of each stream for a tick."""
        values = self.values(tick, 1)
        of_stream = np.add.outer(np.arange(self.per_tick), np.arange(self.keys) + tick) % STREAMS
        rows = np.arange(self.per_tick)[:, None] * TICK_MS // self.per_tick
        times = np.broadcast_to(tick * TICK_MS + rows, values.shape)
        found, names = [], np.array(self.names)
        for number in range(STREAMS):
            here = of_stream == number
            columns = {
                "at": times[here].tolist(),
                "key": names[np.nonzero(here)[1]].tolist(),
                "x": values[here].tolist(),
            }
            found.append(orjson.dumps(columns))
        return found


def send(load: SiteLoad, bootstrap: str, stopped: Any, began: Any, sent_to: Any) -> None:
    """Send ticks in time until ``stopped`` is set.

    ``began`` gets the time of the first one, ``sent_to`` the end of each, in ms.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "max.in.flight": 1,
            "log_level": 0,
        }
    )
    tick = int(time.time() * 1_000) // TICK_MS
    began.value = tick * TICK_MS
    while not stopped.is_set():
        over_s = (tick + 1) * TICK_MS / 1_000
        time.sleep(max(over_s - time.time(), 0.0))
        for stream, message in zip(load.streams, load.messages(tick), strict=True):
            producer.produce(stream, message)
        producer.poll(0)
        tick += 1
        sent_to.value = tick * TICK_MS
    producer.flush()


class Sending:
    """A process that sends the load of a site."""

    def __init__(self, load: SiteLoad, bootstrap: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._stopped = context.Event()
        self.began, self.sent_to = context.Value("q", 0), context.Value("q", 0)
        given = (load, bootstrap, self._stopped, self.began, self.sent_to)
        self._process = context.Process(target=send, args=given, daemon=True)
        self._process.start()

    def stop(self) -> None:
        """Stop it after its last tick."""
        self._stopped.set()
        self._process.join(30)
