"""The event clock: maps event time to wall time (rule-15, trace-12).

The normal time of an event time e is wall(e + lateness), where ``wall`` is one function for the
whole deployment. It does not depend on arrivals: a window becomes due even if all sources are
silent, and a source whose clock is an hour ahead advances no deadline. The DPC paper measures the
delay from a tuple's arrival (section 4.2). With that rule nothing would become due while all
sources are silent, and a chain would wait once per stage.

There are three kinds: live (``WallClock``), accelerated replay (``AnchoredClock``), and replay of
an existing topic as fast as it can be read (``DataClock``), where nothing is due while all sources
are silent. None reads a clock: wall time is an argument, from a slewed monotonic clock.

For the first two, ``wall`` rounds up and ``event`` rounds down, which makes them adjoint:
wall(e) <= t exactly if e <= event(t). Both functions therefore agree on whether e is due at t, and
no answer is a microsecond early because of rounding.
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
        """Return the wall time at which event time e is reached; None while unknown."""
        ...

    def event(self, wall: int) -> int | None:
        """Return the event time reached at a wall time; None before the clock has started."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Encode the clock for another process."""
        ...


@dataclass(frozen=True, slots=True)
class WallClock:
    """Live: event time is wall time."""

    def wall(self, e: int) -> int:
        """Return e."""
        return e

    def event(self, wall: int) -> int:
        """Return the wall time."""
        return wall

    def to_json(self) -> dict[str, Any]:
        """Return only the kind."""
        return {"kind": "wall"}


@dataclass(frozen=True, slots=True)
class AnchoredClock:
    """Replay: reaches ``anchor_event_us`` at ``anchor_wall_us``, and runs ``speed`` times as fast.

    The results are exact: a float speed is a ratio of two integers, and the arithmetic uses
    integers only. ``end_event_us`` is the end of the replay. No watermark passes it, so nothing
    after it may become due: otherwise empty windows would be answered tentatively without end
    (trace-24).
    """

    anchor_wall_us: int
    anchor_event_us: int
    speed: float
    end_event_us: int | None = None

    def __post_init__(self) -> None:
        assert 0 < self.speed < float("inf"), f"a clock cannot run at speed {self.speed}"

    def wall(self, e: int) -> int:
        """Return the first microsecond at which event time e is reached."""
        fast, slow = self.speed.as_integer_ratio()
        return self.anchor_wall_us - (self.anchor_event_us - e) * slow // fast

    def event(self, wall: int) -> int:
        """Return the last event time reached."""
        fast, slow = self.speed.as_integer_ratio()
        return self.anchor_event_us + (wall - self.anchor_wall_us) * fast // slow

    def to_json(self) -> dict[str, Any]:
        """Return kind, anchor, speed and end."""
        return {
            "kind": "anchored",
            "anchor_wall_us": self.anchor_wall_us,
            "anchor_event_us": self.anchor_event_us,
            "speed": self.speed,
            "end_event_us": self.end_event_us,
        }


class DataClock:
    """``clock: data``: e is reached when the watermark of any stream reaches it.

    Records when the largest watermark rose, in at most ``observations_max`` pairs. When they are
    full, every second pair of the older half is dropped. Old times are then less exact, but never
    too early, since a dropped pair is replaced by the pair after it.
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
            self._boundaries[-1] = boundary  # reached at the same time: one pair suffices
            return
        if len(self._boundaries) >= self._observations_max:
            self._thin()
        self._boundaries.append(boundary)
        self._walls.append(now)

    def wall(self, e: int) -> int | None:
        """Return the wall time at which a watermark first reached e; None before that."""
        i = bisect_left(self._boundaries, e)
        return self._walls[i] if i < len(self._walls) else None

    def event(self, wall: int) -> int | None:
        """Return the largest watermark read up to a wall time; None before the first."""
        i = bisect_right(self._walls, wall)
        return self._boundaries[i - 1] if i else None

    def to_json(self) -> dict[str, Any]:
        """Return only the kind: each process makes its own observations."""
        return {"kind": "data"}

    def _thin(self) -> None:
        half = len(self._boundaries) // 2
        del self._boundaries[:half:2]
        del self._walls[:half:2]


def clock_from_json(data: Mapping[str, Any]) -> EventClock:
    """Return the inverse of ``to_json``; raises ``ValueError`` for other input."""
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


def normal_time_us(
    clock: EventClock, e: int, lateness_us: int, begin_us: int | None = None
) -> int | None:
    """Return the normal time of e (rule-15); None while unknown, and beyond the end of a replay.

    ``begin_us`` is the recorded begin of the query (us of wall time, trace-49), and nothing is due
    before it; None if it needs none.
    """
    if (
        isinstance(clock, AnchoredClock)
        and clock.end_event_us is not None
        and e > clock.end_event_us
    ):
        return None
    normal = clock.wall(e + lateness_us)
    return normal if normal is None or begin_us is None else max(normal, begin_us)
