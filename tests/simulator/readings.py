"""The readings of a simulated sensor, drawn from the seed.

A stream has its own keys, whose rows show exactly which readings a result lacks, and keys shared by
all streams, whose rows show whether the merge is correct. Values are eighths of small integers, so
sums are exact in any order and can be compared bit for bit; they include negative numbers, zeros
and missing values.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from random import Random
from typing import NamedTuple

shared_keys = ("all", "both")


class SensorReading(NamedTuple):
    """One reading of one stream."""

    stime: int
    key: str
    value: float


@dataclass(frozen=True, slots=True)
class Habits:
    """A sensor's behaviour: a reading every ``every_us``, up to ``jitter_us`` late."""

    every_us: int = 50_000
    jitter_us: int = 0
    keys: int = 2
    nan_every: int = 17
    late_every: int = 0
    """One in this many readings is later than its stream's watermark allows; 0: none."""
    late_us: int = 0
    speed: int = 1
    """How fast event time passes from one reading to the next (a history)."""


class Sensor:
    """Returns its readings in the order in which they arrive at the proxy."""

    def __init__(self, stream: str, seed: int, habits: Habits, start_us: int) -> None:
        self._rng = Random(f"{stream}/{seed}")
        self._habits = habits
        self._start_us = start_us
        self._at = start_us + self._rng.randrange(max(habits.every_us, 1))
        self.extra: list[tuple[int, SensorReading]] = []
        """Readings added by a scenario, and their times of arrival."""
        self.wrong: list[tuple[int, int, int]] = []
        """When the clock of its first device is wrong: from, until, and by how much."""
        self._again: list[SensorReading] = []
        own = [f"{stream}/{i}" for i in range(habits.keys)]
        self._keys = [*own, *shared_keys]

    def again(self, unkept: list[SensorReading]) -> None:
        """Return readings to the sensor: the process that read them ended before it stored them."""
        self._again += unkept
        unkept.clear()

    def until(self, now_us: int) -> list[SensorReading]:
        """Return the readings that have arrived since the last call."""
        readings, self._again = self._again, []
        if self.extra:
            readings += [reading for at, reading in self.extra if at < now_us]
            self.extra = [(at, reading) for at, reading in self.extra if at >= now_us]
        chance, habits, keys = self._rng.random, self._habits, self._keys
        while self._at < now_us:
            stime = self._start_us + (self._at - self._start_us) * habits.speed
            stime -= int(chance() * habits.jitter_us)
            if habits.late_every and chance() * habits.late_every < 1:
                stime -= int(chance() * habits.late_us)
            value = nan if chance() * habits.nan_every < 1 else int(chance() * 160 - 80) / 8
            key = keys[int(chance() * len(keys))]
            if key == keys[0]:
                stime += sum(by for start, end, by in self.wrong if start <= self._at < end)
            readings.append(SensorReading(stime, key, value))
            self._at += max(1, int((chance() + 0.5) * habits.every_us))
        return readings
