"""The difference between a node's wall clock and that of a controller.

Deadlines and the times of sources are wall time. On one machine they come from one clock. On
several machines the offset of a clock that is ahead or behind reduces the margin of each stage. The
offset is measured as in NTP: the controller's time is assumed to be that of the middle of the
exchange, with half the round trip as the error. Of several exchanges the shortest counts.

The offset is only reported. Synchronising clocks is the task of the operating system.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from slackwater.model.deployment import QuerySpec
from slackwater.model.durations import format_duration_us

CLOCK_PERIOD_S: Final = 5.0
EXCHANGES: Final = 3
"""Per measurement."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Own clock less the controller's, and the largest possible error of that, in us."""

    offset_us: int
    error_us: int

    @property
    def least_us(self) -> int:
        """The smallest possible size of the offset; 0 if the clocks may be equal."""
        return max(0, abs(self.offset_us) - self.error_us)

    def __str__(self) -> str:
        """Offset and error in ms."""
        offset_ms = round(self.offset_us / 1e3, 1) + 0.0  # no negative zero
        return f"{offset_ms:+.1f} ms (± {self.error_us / 1e3:.1f} ms)"


@dataclass(frozen=True, slots=True)
class ClockExchange:
    """A request for a controller's time and its answer.

    Args:
        sent_us: own wall clock when the request was sent.
        answered_us: the controller's wall clock.
        round_trip_us: from the request to the answer by a monotonic clock.
    """

    sent_us: int
    answered_us: int
    round_trip_us: int

    def offset(self) -> ClockOffset:
        """The offset that this exchange shows, with its error."""
        half_us = (self.round_trip_us + 1) // 2
        return ClockOffset(self.sent_us + half_us - self.answered_us, half_us)


def measured(exchanges: Iterable[ClockExchange]) -> ClockOffset:
    """The offset that the shortest of the exchanges shows; there must be one."""
    return min(exchanges, key=lambda exchange: exchange.round_trip_us).offset()


def offset_us_max(queries: Mapping[str, QuerySpec]) -> int | None:
    """The allowed offset: half the smallest margin of the queries; None without a query."""
    return min((query.margin_us // 2 for query in queries.values()), default=None)


def why_too_far(clocks: Mapping[str, ClockOffset], queries: Mapping[str, QuerySpec]) -> str:
    """Why a clock endangers a query's bound; empty if it does not.

    An offset of up to half a margin is allowed: the other half is for the stage's own work.

    Args:
        clocks: this machine's offset, by controller.
        queries: the recorded queries, by name.
    """
    query = min(queries, key=lambda name: (queries[name].margin_us, name), default=None)
    if query is None:
        return ""
    half_us = queries[query].margin_us // 2
    for controller, clock in sorted(clocks.items()):
        if clock.least_us > half_us:
            offset = format_duration_us(round(abs(clock.offset_us), -3))
            side = "ahead of" if clock.offset_us > 0 else "behind"
            return (
                f"the clock of this machine is {offset} {side} "
                f"that of controller {controller}; more than half the margin of query {query} "
                f"({format_duration_us(half_us)}) makes its answers late or needlessly tentative. "
                "Synchronise the clocks (NTP)"
            )
    return ""
