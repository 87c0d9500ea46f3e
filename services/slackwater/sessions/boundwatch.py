"""Monitors whether a part's first answers meet their bound, measured at its root.

The root has both times of each window: when it was due, and when the transaction with its answer
was committed. It therefore measures in every deployment, with or without an exporter. It logs one
line when answers begin to be late and one when they are in time again, with the number of late
windows and the worst delay. Heartbeats carry the same numbers for ``slackwater status``. An overdue
window without an answer is reported too, so that a root that does not answer at all is noticed.
Windows whose bound had passed before the part began do not count: a query that starts in the past
answers them as fast as it can.

Pure: transactions and times are arguments, log lines are results. Times are us of wall time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import EmptyRun, StableWindow, TentativeWindow

QUIET_US: Final = 5_000_000
"""A spell of late answers ends after so long without one. Each spell logs two lines, however many
windows it has."""
LATENCIES_MAX: Final = 1_000
"""The percentile is that of so many first answers, the last ones."""
PERCENTILE_PERIOD_US: Final = 1_000_000
"""The percentile is computed once in this time."""
COMMIT_PERIOD_US: Final = 1_000_000
"""``commit_ms`` is the longest transaction of about this time."""


@dataclass(slots=True)
class Spell:
    """A period in which first answers were late: its start and end, late windows, worst delay."""

    began_at: int
    last_at: int
    windows: int = 0
    worst_us: int = 0
    logged: bool = False


class BoundWatch:
    """Lateness of one part's first answers.

    ``normal_time`` returns the normal time of an event time, or None while it is unknown (rule-15).
    """

    def __init__(self, bound_us: int, grid: Grid, normal_time: Callable[[int], int | None]) -> None:
        self._bound_us = bound_us
        self._grid = grid
        self._normal_time = normal_time
        self._begun_at: int | None = None
        self._spell: Spell | None = None
        self._late_windows, self._late_at = 0, 0
        self._overdue_us = 0
        self._committing_since: int | None = None
        self._commit_us, self._commit_at = 0, 0
        self._watched_from: int | None = None
        """The first look. Answers that were due before it waited for the start of this process."""
        self._latencies_us: deque[int] = deque(maxlen=LATENCIES_MAX)
        self._p99: dict[str, int] = {}
        self._p99_at = 0

    def began(self, now: int) -> None:
        """Record the first start of the part, which has no answer yet."""
        self._begun_at = now

    def committing(self, now: int) -> None:
        """Record the start of a transaction."""
        self._committing_since = now

    def committed(self, effects: Iterable[Any], now: int) -> None:
        """Record that the answers in ``effects`` can be read from ``now`` on."""
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
        """Return the line to be logged now, if any.

        ``next_window`` is the start of the first window without an answer.
        """
        if self._watched_from is None:
            self._watched_from = now
        due = self._normal_time(self._grid.window_end(next_window))
        if due is None or not self._counts(due):
            self._overdue_us = 0
        else:
            self._overdue_us = max(0, now - due - self._bound_us)
        if self._overdue_us:
            self._late(0, self._bound_us + self._overdue_us, now)
        spell, bound = self._spell, _seconds(self._bound_us)
        if spell is None:
            return None
        if not spell.logged:
            spell.logged = True
            return f"first answers exceed their bound of {bound}"
        if now - spell.last_at < QUIET_US:
            return None
        self._spell = None
        return (
            f"first answers meet their bound of {bound} again. They exceeded it for"
            f" {_seconds(spell.last_at - spell.began_at)}: {spell.windows} windows,"
            f" the worst {_seconds(spell.worst_us)} after its normal time"
        )

    def detail(self, now: int) -> dict[str, int]:
        """Return counters for the heartbeat.

        ``beyond_bound`` is the number of late windows since the start, ``beyond_bound_at`` the time
        of the last one; ``overdue_ms`` and ``commit_ms`` are current values. ``p99_ms`` is that of
        the last first answers; a run of empty windows counts once, with its longest time.
        """
        self._measure_commit(now)
        if self._latencies_us and now - self._p99_at >= PERCENTILE_PERIOD_US:
            ranked = sorted(self._latencies_us)
            p99_us = ranked[-1 - len(ranked) // 100]
            self._p99, self._p99_at = {"p99_ms": -(-p99_us // 1000)}, now
        return {
            "beyond_bound": self._late_windows,
            "beyond_bound_at": self._late_at,
            "overdue_ms": self._overdue_us // 1000,
            "commit_ms": self._commit_us // 1000,
            **self._p99,
        }

    def _answered(self, first_end: int, last_end: int, windows: int, now: int) -> None:
        """Record the first answer of a run of windows whose ends are equally spaced."""
        first, last = self._normal_time(first_end), self._normal_time(last_end)
        if first is None or last is None:
            return
        if self._watched_from is not None and first >= self._watched_from:
            self._latencies_us.append(max(0, now - first))
        excess = now - self._bound_us - first  # how much the first window is late
        if excess <= 0:
            return
        # Normal times are linear in event time, except with a clock that follows the data.
        spacing = (last - first) // (windows - 1) if windows > 1 else 0
        late = min(windows, -(-excess // spacing)) if spacing > 0 else windows
        if not self._counts(first):
            early = self._begun_after(first)
            before = -(-early // spacing) if spacing > 0 else windows
            if before >= late:
                return
            late, first = late - before, first + before * spacing
        self._late_windows, self._late_at = self._late_windows + late, now
        self._late(late, now - first, now)

    def _begun_after(self, due: int) -> int:
        """How long after a window's bound the part began, us; at most 0 if the window counts."""
        return 0 if self._begun_at is None else self._begun_at - self._bound_us - due

    def _counts(self, due: int) -> bool:
        return self._begun_after(due) <= 0

    def _late(self, windows: int, worst_us: int, now: int) -> None:
        spell = self._spell = self._spell or Spell(now, now)
        spell.last_at = now
        spell.windows += windows
        spell.worst_us = max(spell.worst_us, worst_us)

    def _measure_commit(self, now: int) -> None:
        """Update the longest transaction of the last second; includes the one in progress."""
        since = self._committing_since
        lasted_us = 0 if since is None else now - since
        if lasted_us >= self._commit_us or now - self._commit_at > COMMIT_PERIOD_US:
            self._commit_us, self._commit_at = lasted_us, now


def _seconds(us: int) -> str:
    return f"{us / 1e6:.3f}".rstrip("0").rstrip(".") + " s"
