"""Monitors whether a part's first answers meet their bound, measured at its root.

The root knows when each window was due and when the transaction with its answer was committed; it
runs in every deployment, with or without an exporter. One line is logged when answers begin to be
late and one when they are in time again, with the count and the worst; heartbeats carry the same as
numbers, for ``slackwater status``. A window that is overdue and has no answer yet counts as
lateness that has begun, so a root that hangs is reported too.

Pure: transactions and times come in, lines come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import EmptyRun, StableWindow, TentativeWindow

QUIET_US: Final = 5_000_000
"""Lateness has ended when nothing was late for so long: one line, not one for each window."""
COMMIT_PERIOD_US: Final = 1_000_000


@dataclass(slots=True)
class Spell:
    """A time of lateness: since when, until when, how many windows, the worst of them."""

    began_at: int
    last_at: int
    windows: int = 0
    worst_us: int = 0
    logged: bool = False


class BoundWatch:
    """Lateness of one part. ``normal_time`` maps an event time, None while unknown (rule-15)."""

    def __init__(self, bound_us: int, grid: Grid, normal_time: Callable[[int], int | None]) -> None:
        self._bound_us = bound_us
        self._grid = grid
        self._normal_time = normal_time
        self._spell: Spell | None = None
        self._late_windows, self._late_at = 0, 0
        self._overdue_us = 0
        self._committing_since: int | None = None
        self._commit_us, self._commit_at = 0, 0

    def committing(self, now: int) -> None:
        """Note the start of a transaction."""
        self._committing_since = now

    def committed(self, effects: Iterable[Any], now: int) -> None:
        """Readers can see the answers of that transaction from ``now`` on."""
        self._measure_commit(now)
        self._committing_since = None
        for effect in effects:
            match effect:
                case TentativeWindow() | StableWindow(epoch=0):
                    self._answered(effect.window_end, effect.window_end, 1, now)
                case EmptyRun(stable=False) | EmptyRun(epoch=0):
                    first_end = self._grid.window_end(effect.window_start)
                    self._answered(first_end, effect.window_end, effect.windows, now)

    def look(self, next_window: int, now: int) -> str | None:
        """A line to be logged, if one is due; ``next_window`` is the first without an answer."""
        due = self._normal_time(self._grid.window_end(next_window))
        self._overdue_us = 0 if due is None else max(0, now - due - self._bound_us)
        if self._overdue_us:
            self._late(0, self._bound_us + self._overdue_us, now)
        spell, bound = self._spell, _seconds(self._bound_us)
        if spell is None:
            return None
        if not spell.logged:
            spell.logged = True
            return f"first answers are later than their bound of {bound} allows"
        if now - spell.last_at < QUIET_US:
            return None
        self._spell = None
        return (
            f"first answers are within their bound of {bound} again. For"
            f" {_seconds(spell.last_at - spell.began_at)} they were not: {spell.windows} windows,"
            f" the worst {_seconds(spell.worst_us)} after its normal time"
        )

    def detail(self, now: int) -> dict[str, int]:
        """For the heartbeat: counts since the start, and what is true now."""
        self._measure_commit(now)
        return {
            "beyond_bound": self._late_windows,
            "beyond_bound_at": self._late_at,
            "overdue_ms": self._overdue_us // 1000,
            "commit_ms": self._commit_us // 1000,
        }

    def _answered(self, first_end: int, last_end: int, windows: int, now: int) -> None:
        """These windows, ends equally far apart, have got their first answer."""
        first, last = self._normal_time(first_end), self._normal_time(last_end)
        if first is None or last is None:
            return
        excess = now - self._bound_us - first  # how far the first one is beyond its bound
        if excess <= 0:
            return
        # Normal times are linear in event time, but for a clock that follows the data.
        spacing = (last - first) // (windows - 1) if windows > 1 else 0
        late = min(windows, -(-excess // spacing)) if spacing > 0 else windows
        self._late_windows, self._late_at = self._late_windows + late, now
        self._late(late, now - first, now)

    def _late(self, windows: int, worst_us: int, now: int) -> None:
        spell = self._spell = self._spell or Spell(now, now)
        spell.last_at = now
        spell.windows += windows
        spell.worst_us = max(spell.worst_us, worst_us)

    def _measure_commit(self, now: int) -> None:
        """The longest transaction of the last second, or the one under way."""
        since = self._committing_since
        lasted_us = 0 if since is None else now - since
        if lasted_us >= self._commit_us or now - self._commit_at > COMMIT_PERIOD_US:
            self._commit_us, self._commit_at = lasted_us, now


def _seconds(us: int) -> str:
    return f"{us / 1e6:.3f}".rstrip("0").rstrip(".") + " s"
