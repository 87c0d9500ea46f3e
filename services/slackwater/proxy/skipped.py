"""Counts the numbers that devices have skipped, by the counter in their readings.

A sensor of Fargo tags each event with an offset (section 3.3.1), which shows a node what it lacks.
Here a counter is optional (``sequence``). A number between two that have come is skipped: the
reading was lost before it reached the proxy, where nothing can bring it back, so it is counted and
reported. A number that comes later is taken off. A counter that begins again, which a later time
shows, has skipped nothing.

Each device has its largest number and its latest gaps; a batch of numbers without a gap is a few
operations of numpy. What devices skip while the proxy is away is not seen: after a start the first
number of a device is where it begins.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from slackwater.model.deployment import FieldSpec, StreamSpec
from slackwater.model.records import type_f64, type_i64
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.runtime.service.parts import SKIPPED, SKIPPED_BY, SKIPPED_DEVICES

_log = logging.getLogger(__name__)
DEVICES_MAX: Final = 100_000
"""Devices of a stream that are followed, those with the most recent readings: about 30 MB."""
GAPS_PER_DEVICE_MAX: Final = 8
"""Gaps of a device into which a number that comes later is put; older ones stay counted."""
DEVICES_SHOWN_MAX: Final = 10
NAME_CHARS_MAX: Final = 64
NUMBER_MAX: Final = 2**53
COUNTER: Final = "sequence"


def with_counter(spec: StreamSpec) -> StreamSpec:
    """Return the stream as its messages are parsed: the counter is a field after the others."""
    if spec.counter is None:
        return spec
    return replace(spec, fields=(*spec.fields, FieldSpec(COUNTER, spec.counter)))


@dataclass(slots=True)
class _Device:
    """The largest number, the latest time, and the gaps, each with its first and last number."""

    largest: int
    stime: int
    skipped: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def skip(self, first: int, last: int) -> None:
        """Record that these numbers have not come."""
        self.skipped += last - first + 1
        self.gaps = [*self.gaps, (first, last)][-GAPS_PER_DEVICE_MAX:]

    def fill(self, number: int) -> bool:
        """Take off a number that has come later; False if it was not skipped."""
        for at, (first, last) in enumerate(self.gaps):
            if first <= number <= last:
                rest = [(first, number - 1), (number + 1, last)]
                self.gaps[at : at + 1] = [gap for gap in rest if gap[0] <= gap[1]]
                self.skipped -= 1
                return True
        return False


class SkippedNumbers:
    """The skipped numbers of one stream since the start of its proxy."""

    def __init__(self, stream: str, devices_max: int = DEVICES_MAX) -> None:
        self._stream, self._devices_max = stream, devices_max
        self._devices: OrderedDict[str, _Device] = OrderedDict()
        self._skipping: set[str] = set()
        """Devices that have skipped numbers."""
        self._total = 0
        self._reported = 0

    def taken(self, arrived: Arrived) -> Arrived:
        """Count the numbers in the last column, and return the readings without it."""
        *values, numbers = arrived.values
        self.note(arrived.keys, arrived.key_index.astype(np.int64), numbers, arrived.stimes)
        return replace(arrived, values=tuple(values))

    def note(
        self, devices: Sequence[str], index: type_i64, numbers: type_f64, stimes: type_i64
    ) -> None:
        """Compare numbers, (n,), of ``devices[index]``; those that are not whole are left out."""
        with np.errstate(invalid="ignore"):
            is_integer = (numbers == np.trunc(numbers)) & (np.abs(numbers) <= NUMBER_MAX)
        order = np.flatnonzero(is_integer)
        if not len(order):
            return
        order = order[np.lexsort((numbers[order], index[order]))]
        owners, found, times = index[order], numbers[order].astype(np.int64), stimes[order]
        starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
        steps = np.concatenate(([1], np.diff(found)))
        steps[starts] = 1
        has_gap = np.logical_or.reduceat(steps > 1, starts)
        ends = np.append(starts[1:], len(found))
        latest = np.maximum.reduceat(times, starts)
        columns = (owners[starts], starts, ends, found[starts], found[ends - 1], latest, has_gap)
        for owner, start, end, low, high, at, gap in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            name = devices[owner]
            known = self._devices.get(name)
            if known is not None:
                self._devices.move_to_end(name)
            if not gap and (known is None or known.largest + 1 == low):
                if known is None:
                    self._devices[name] = _Device(high, at)
                else:
                    known.largest, known.stime = high, max(at, known.stime)
            else:
                of_device = np.unique(found[start:end]).tolist()
                self._compare(name, known, of_device, int(times[start:end].min()), at)
        self._forget()
        if self._total >= max(1, 2 * self._reported):
            self._report()

    def _compare(
        self, name: str, known: _Device | None, numbers: list[int], first_us: int, last_us: int
    ) -> None:
        """Compare the numbers of a device, ascending, of readings between two times."""
        if known is None:
            known = self._devices[name] = _Device(numbers[0] - 1, last_us)
        before = known.skipped
        later = [number for number in numbers if number > known.largest]
        unknown = [n for n in numbers if n <= known.largest and not known.fill(n)]
        if unknown and not later and first_us > known.stime:
            known.largest, known.gaps = numbers[-1], []  # the counter has begun again
        for number in later:
            if number > known.largest + 1:
                known.skip(known.largest + 1, number - 1)
            known.largest = number
        known.stime = max(last_us, known.stime)
        self._total += known.skipped - before
        if known.skipped:
            self._skipping.add(name)
        else:
            self._skipping.discard(name)

    def _forget(self) -> None:
        while len(self._devices) > self._devices_max:
            name, _ = self._devices.popitem(last=False)
            self._skipping.discard(name)

    def _report(self) -> None:
        """Warn the first time, and when there are twice as many as the last time."""
        self._reported = self._total
        worst = ", ".join(f"{_shown(name)} {count}" for name, count in self._worst())
        _log.warning(
            "stream %s: devices have skipped %d numbers (%s)", self._stream, self._total, worst
        )

    def _worst(self) -> list[tuple[str, int]]:
        counts = [(name, self._devices[name].skipped) for name in self._skipping]
        return sorted(counts, key=lambda each: (-each[1], each[0]))[:DEVICES_SHOWN_MAX]

    def detail(self) -> dict[str, int]:
        """Return the counts for the heartbeat, of the ten worst devices each; empty without any."""
        if not self._devices:
            return {}
        found = {SKIPPED: self._total, SKIPPED_DEVICES: len(self._skipping)}
        return found | {SKIPPED_BY + _shown(name): count for name, count in self._worst()}


def _shown(name: str) -> str:
    """Return a name as it can be shown in a line."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    return shown if len(shown) <= NAME_CHARS_MAX else shown[: NAME_CHARS_MAX - 3] + "..."
