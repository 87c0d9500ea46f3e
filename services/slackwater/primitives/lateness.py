"""Lateness: how long after wall(e) an event time e is due (rule-15), partly learned.

The watermark of a stream within its declared ``disorder`` and ``expect_every`` has passed e by
wall(e + ``disorder`` + ``expect_every``). With ``expect_every: auto`` the value is learned, so that
it covers nearly all gaps between the stream's readings. The normal time depends on the learned
value and must be one function for all processes. The proxy therefore records the value in the
registry as a *step*: a value, and the event time from which it holds. The lateness of e is the
maximum over the steps that hold at or before e. Further steps can only raise it, in whatever order
they are read, so it never decreases. A step holds from an event time in the future, so no past
deadline moves.

A gap is the amount by which a reading raises the largest event time of its source log. It is event
time: a backlog that arrives late with its own times has no gap, and every reader of the same input
finds the same gaps. Gaps up to the initial value of 5 s share one counter, and longer ones have one
for each second up to the maximum of 60 s, so 56 counters suffice.

Rejected: learning from arrivals. An outage would then raise the tolerance for the next one, and two
runs over the same input would differ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.records import type_i64


@dataclass(frozen=True, slots=True)
class Learning:
    """Parameters of learning the quantile 1 - 1/``rare`` of a stream's gaps.

    The value is one of ``first_us``, ``first_us + step_us``, ... up to ``most_us``.

    ``first_us`` holds until ``gaps_min`` gaps have been counted.
    """

    first_us: int = 5_000_000
    most_us: int = 60_000_000
    step_us: int = 1_000_000
    gaps_min: int = 100
    rare: int = 10_000

    @property
    def values_max(self) -> int:
        """Number of possible values, an upper bound on a stream's steps."""
        return -((self.first_us - self.most_us) // self.step_us) + 1


LEARNING: Final = Learning()


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """From event time ``from_us`` on, ``expect_every`` of the stream is ``expect_every_us``."""

    from_us: int
    expect_every_us: int


class Gaps:
    """A histogram of a source log's gaps; its first count is of gaps up to ``first_us``."""

    __slots__ = ("_counts", "learning")

    def __init__(self, learning: Learning = LEARNING) -> None:
        self.learning = learning
        self._counts: npt.NDArray[np.int64] = np.zeros(learning.values_max, np.int64)

    def add(self, gaps: type_i64) -> None:
        """Count the gaps above 0: only a reading that is the newest so far ends a gap."""
        learning = self.learning
        gaps = gaps[gaps > 0]
        above = -((learning.first_us - gaps) // learning.step_us)
        places = np.clip(above, 0, len(self._counts) - 1)
        self._counts += np.bincount(places, minlength=len(self._counts))

    def __add__(self, other: Gaps) -> Gaps:
        """Combine the counts of two logs of a stream."""
        both = Gaps(self.learning)
        both._counts = self._counts + other._counts
        return both

    @property
    def expect_every_us(self) -> int:
        """The smallest possible value that covers all gaps but one in ``rare``."""
        learning, within = self.learning, np.cumsum(self._counts)
        n = int(within[-1])
        if n < learning.gaps_min:
            return learning.first_us
        place = int(np.searchsorted(within, n - n // learning.rare))
        return min(learning.first_us + place * learning.step_us, learning.most_us)


class Lateness:
    """The lateness of a query: a step function of event time that never decreases."""

    __slots__ = ("_base_us", "_from", "_us")

    def __init__(self, base_us: int, steps: Iterable[tuple[int, int]] = ()) -> None:
        self._base_us = base_us
        self._from: list[int] = []
        self._us: list[int] = []
        for from_us, lateness_us in sorted(steps):
            if lateness_us > self.at(from_us):
                self._from.append(from_us)
                self._us.append(lateness_us)

    def at(self, e: int) -> int:
        """Return the lateness at event time e (us)."""
        held = bisect_right(self._from, e)
        return self._us[held - 1] if held else self._base_us

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """The event times at which the lateness rises, with the new values."""
        return tuple(zip(self._from, self._us, strict=True))


def lateness_of(
    deployment: Deployment, query: str | QuerySpec, learned: Mapping[str, Iterable[Step]]
) -> Lateness:
    """Return the lateness of a query, with the recorded steps of its streams."""
    streams = [deployment.streams[name] for name in deployment.source_streams(query)]
    steps = [
        (step.from_us, stream.disorder_us + step.expect_every_us)
        for stream in streams
        if stream.learns_gaps
        for step in learned.get(stream.name, ())
    ]
    return Lateness(deployment.lateness_us(query), steps)
