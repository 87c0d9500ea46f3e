"""The event clock: maps event time to wall time (rule-15, trace-12).

The normal time of an event time e is wall(e + lateness), where ``wall`` is one function for the
whole deployment. It is independent of arrivals: a window is due even if all sources are silent, and
a source whose clock is an hour ahead advances no deadline. The DPC paper measures the delay from a
tuple's arrival (section 4.2); with that, a silence of all sources would never end a wait, and a
chain would wait once a stage.

Three kinds: live (``WallClock``), accelerated replay (``AnchoredClock``), and replay of an old
topic at whatever speed it can be read (``DataClock``), where nothing is due while all are silent.
None reads a clock: wall time comes in as an argument, from a slewed monotonic clock.

For the first two, ``wall`` rounds up and ``event`` down, which makes them adjoint:
wall(e) <= t exactly if e <= event(t). So "is e due at t" has one answer, whichever is asked, and
no answer is early by a rounded microsecond.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

OBSERVATIONS_DEFAULT_MAX = 8192


class EventClock(Protocol):
    """Wall time of an event time, and back. All times are whole microseconds since the epoch."""

    def wall(self, e: int) -> int | None:
        """Wall time at which the event clock shows e; None while unknown."""
        ...

    def event(self, wall: int) -> int | None:
        """Event time that the clock shows at a wall time; None before it has begun."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Encode the clock for another process."""
        ...


@dataclass(frozen=True, slots=True)
class WallClock:
    """Live: event time is wall time."""

    def wall(self, e: int) -> int:
        """The time itself."""
        return e

    def event(self, wall: int) -> int:
        """The time itself."""
        return wall

    def to_json(self) -> dict[str, Any]:
        """Only its kind."""
        return {"kind": "wall"}


@dataclass(frozen=True, slots=True)
class AnchoredClock:
    """Replay: at ``anchor_wall_us`` it shows ``anchor_event_us``, and runs ``speed`` times as fast.

    Exact: a float speed is a ratio of two integers, and integers do the rest. ``end_event_us`` is
    where the replay ends (trace-24): no boundary goes beyond it, so nothing beyond it may become
    due either, or windows that nobody will ever fill would be answered tentatively without end.
    """

    anchor_wall_us: int
    anchor_event_us: int
    speed: float
    end_event_us: int | None = None

    def __post_init__(self) -> None:
        assert 0 < self.speed < float("inf"), f"a clock cannot run at speed {self.speed}"

    def wall(self, e: int) -> int:
        """The first microsecond at which the clock shows e or more."""
        fast, slow = self.speed.as_integer_ratio()
        return self.anchor_wall_us - (self.anchor_event_us - e) * slow // fast

    def event(self, wall: int) -> int:
        """The last event time that has been reached."""
        fast, slow = self.speed.as_integer_ratio()
        return self.anchor_event_us + (wall - self.anchor_wall_us) * fast // slow

    def to_json(self) -> dict[str, Any]:
        """Its kind, anchor, speed and end."""
        return {
            "kind": "anchored",
            "anchor_wall_us": self.anchor_wall_us,
            "anchor_event_us": self.anchor_event_us,
            "speed": self.speed,
            "end_event_us": self.end_event_us,
        }


class DataClock:
    """``clock: data``: e is reached when the first stream's boundary reaches it.

    Remembers when the largest boundary grew, in at most ``observations_max`` pairs. When they are
    full, every second one of the older half goes: what is long past is then known less exactly,
    but never too early, since what was forgotten is answered by the next pair that is left.
    """

    __slots__ = ("_boundaries", "_observations_max", "_walls")

    def __init__(self, observations_max: int = OBSERVATIONS_DEFAULT_MAX) -> None:
        assert observations_max >= 4
        self._observations_max = observations_max
        self._boundaries: list[int] = []
        self._walls: list[int] = []

    def __len__(self) -> int:
        return len(self._boundaries)

    def observe(self, boundary: int, now: int) -> None:
        """Record that a boundary of some stream was read at wall time ``now``."""
        if self._boundaries and boundary <= self._boundaries[-1]:
            return
        if self._walls:
            now = max(now, self._walls[-1])
        if self._walls and now == self._walls[-1]:
            self._boundaries[-1] = boundary  # reached at the same moment: one pair says both
            return
        if len(self._boundaries) >= self._observations_max:
            self._thin()
        self._boundaries.append(boundary)
        self._walls.append(now)

    def wall(self, e: int) -> int | None:
        """When a boundary first reached e; None while none has."""
        i = bisect_left(self._boundaries, e)
        return self._walls[i] if i < len(self._walls) else None

    def event(self, wall: int) -> int | None:
        """The largest boundary that had been read by then; None before the first."""
        i = bisect_right(self._walls, wall)
        return self._boundaries[i - 1] if i else None

    def to_json(self) -> dict[str, Any]:
        """Only its kind: what it has observed is each process's own."""
        return {"kind": "data"}

    def _thin(self) -> None:
        half = len(self._boundaries) // 2
        del self._boundaries[:half:2]
        del self._walls[:half:2]


def clock_from_json(data: Mapping[str, Any]) -> EventClock:
    """The clock that ``to_json`` described; raises ``ValueError`` for anything else."""
    match data:
        case {"kind": "wall"}:
            return WallClock()
        case {"kind": "data"}:
            return DataClock()
        case {
            "kind": "anchored",
            "anchor_wall_us": int(wall),
            "anchor_event_us": int(event),
            "speed": int() | float() as speed,
        } if 0 < speed < float("inf"):
            end = data.get("end_event_us")
            if end is None or isinstance(end, int):
                return AnchoredClock(wall, event, float(speed), end)
    raise ValueError(f"not an event clock: {dict(data)}")


def normal_time_us(clock: EventClock, e: int, lateness_us: int) -> int | None:
    """Wall time at which e is due, without a failure (rule-15); None while it is not known.

    It never is for what lies beyond the end of a replay.
    """
    if isinstance(clock, AnchoredClock) and clock.end_event_us is not None:
        return None if e > clock.end_event_us else clock.wall(e + lateness_us)
    return clock.wall(e + lateness_us)
