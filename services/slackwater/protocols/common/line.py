"""The two lines of a stage: what may be said for good, and what must be said in time.

DPC (section 4.4.3) keeps two replicas of a query diagram when a failure heals: one goes on
processing new tuples tentatively, the other reconciles. A stage here always has both, as two
*lines* over the same inputs. The **stable line** takes the next unit (the orderer's bucket, the
root's window) when every input is complete up to its end, however long that takes. The **live
line** answers every unit by its deadline: normally it is the stable line, and when the bound runs
out it *forks* and goes on alone, tentatively, until the stable line has caught up and they *join*.
Nothing is ever rolled back, and neither line waits for the other, but for lines that have met while
the roots are far behind (``reconcile/downstream.py``).

This module holds the decisions only (rule-14, rule-16, rule-17, rule-18 and rule-20): which unit is
next for which line, which input has failed, what is due. It is told how far each input has come for
each line and what time it is; content, positions and bytes belong to its callers. A deadline alone
does not make an input failed: its log must have been read to an end that was observed after the
deadline (trace-11), so a process that was itself asleep blames nobody else.

How long a unit is held back once the lines are apart is the query's *policy* (section 6.1): until
its deadline, in the hope that it needs no correction, or not at all, and in STABILIZATION also for
good. Only the stage whose own input is missing delays; one that is handed tentative input passes it
on at once, else the delays of a chain would add up (trace-13).

The paper's alternative, one copy that checkpoints, undoes and redoes (section 4.4.1), needs every
tentative tuple buffered or a second node for as long as the failure lasts (trace-5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from slackwater.model.deployment import FailurePolicy, StabilizationPolicy
from slackwater.protocols.common.states import LineEvent, LineState, moved


class LineName(IntEnum):
    """Which of a replica's two logs, or of a stage's two lines (rule-8)."""

    STABLE = 0
    LIVE = 1


LINES: Final = tuple(LineName)
"""For loops: iterating over an enum costs ten times as much as over a tuple."""


class Units(Protocol):
    """The fixed sequence of units: buckets, which touch, or windows, which may overlap."""

    def end(self, start: int) -> int:
        """Where the unit that starts at ``start`` ends (us of event time)."""
        ...

    def following(self, start: int) -> int:
        """Where the unit after the one that starts at ``start`` starts."""
        ...

    def news_from(self, start: int) -> int:
        """The end of the unit before: what lies from here on the unit is the first to hold."""
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """rule-15. ``normal_time(e)`` is wall(e + lateness) in us, or None while it is unknown.

    ``answer_within_us`` is X - (n - k + 1)m for stage k of n: the ladder of deadlines (trace-13).
    """

    normal_time: Callable[[int], int | None]
    answer_within_us: int

    def deadline(self, end: int) -> int | None:
        """When a unit that ends at ``end`` must have been answered by this stage."""
        normal = self.normal_time(end)
        return None if normal is None else normal + self.answer_within_us


@dataclass(frozen=True, slots=True)
class Policy:
    """What becomes of a unit that is not stable, once the lines are apart (section 6.1).

    ``failure``: while an input is missing. ``stabilization``: while nothing is missing any more,
    but the stable line has not caught up. *process* answers as soon as it may (rule-17), *delay*
    at the deadline, *suspend* not at all: it gives up the bound for fewer corrections.
    """

    failure: FailurePolicy = "process"
    stabilization: StabilizationPolicy = "process"


PROCESS: Final = Policy()


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due; ask again with new input, or at ``until`` (us of wall time; None: input)."""

    until: int | None


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    """Before ``inputs`` may be called failed, read their logs to an end fetched from now on."""

    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AnswerTentatively:
    """Answer the live line's next unit tentatively; ``missing`` inputs have not passed its end."""

    missing: tuple[int, ...]


Verdict = Wait | ReadToEnd | AnswerTentatively


class Line:
    """The decisions of one stage. Positions are unit starts in us of event time.

    Args:
        inputs: how many inputs (streams of an orderer, children of a root) there are.
        units: the grid.
        schedule: normal times and deadlines.
        stable_next: first unit without a stable answer (S of rule-22).
        live_next: first unit without any answer (T of rule-22), not before ``stable_next``.
        policy: of the query.
    """

    __slots__ = (
        "_event", "_policy", "_read_through", "_schedule", "_units", "_watched",
        "failed", "live_next", "stable_next", "state",
    )  # fmt: skip

    def __init__(
        self,
        inputs: int,
        units: Units,
        schedule: Schedule,
        stable_next: int,
        live_next: int,
        policy: Policy = PROCESS,
    ) -> None:
        assert inputs > 0
        assert stable_next <= live_next
        self._units = units
        self._schedule = schedule
        self._policy = policy
        self._read_through: list[int | None] = [None] * inputs
        self._event = LineEvent.INPUT_MISSING
        self._watched = live_next
        self.stable_next = stable_next
        self.live_next = live_next
        self.failed: set[int] = set()
        # What a line that was apart lacked before its restart is found out at the first judgement.
        self.state = LineState.UP_FAILURE if live_next > stable_next else LineState.STABLE
        """What the heartbeats say of the output (dpc-6)."""

    def copy(self) -> Line:
        """Another one at the same place, to decide on: this one is as it was until it is replaced.

        What has been read is no decision, and both know it.
        """
        other = object.__new__(Line)
        # Attribute by attribute: once or twice a step, a loop over names costs three times as much.
        other._units, other._schedule, other._policy = self._units, self._schedule, self._policy
        other._read_through = self._read_through
        other._event, other._watched = self._event, self._watched
        other.stable_next, other.live_next = self.stable_next, self.live_next
        other.failed, other.state = set(self.failed), self.state
        return other

    @property
    def forked(self) -> bool:
        """Are the lines apart?"""
        return self.state is not LineState.STABLE

    def note_read(self, input_: int, fetched_at: int) -> None:
        """The live line has read ``input_`` to an end that was fetched at ``fetched_at``.

        Also called when the broker gave no answer in time: then there is nothing to wait for.
        """
        before = self._read_through[input_]
        self._read_through[input_] = fetched_at if before is None else max(before, fetched_at)

    # Stable line.

    def stable_ready(self, stable_to: int) -> bool:
        """May the stable line take its next unit (rule-16)? ``stable_to``: the least of inputs."""
        return stable_to >= self._units.end(self.stable_next)

    def stable_answered(self, following: int) -> None:
        """The stable line has taken all units before ``following``; the live line skips them."""
        assert following > self.stable_next
        self.stable_next = following
        self.live_next = max(self.live_next, following)

    def try_join(self, now: int, stable_to: int, *, attached: bool) -> bool:
        """Join if the stable line is where the live line is, and in time (rule-18)."""
        if not self.forked or self.stable_next != self.live_next or not attached:
            return False
        end = self._units.end(self.live_next)
        deadline = self._schedule.deadline(end)
        if stable_to < end or (deadline is not None and now >= deadline):
            return False
        self.state = moved(self.state, LineEvent.JOINED)
        self.failed.clear()
        return True

    # Live line.

    def judge(
        self,
        now: int,
        live_to: Sequence[int],
        *,
        tentative: Callable[[int], bool] | None = None,
        excused: Collection[int] = (),
        start: int | None = None,
    ) -> Verdict:
        """What is to be done about the live line's next unit (rule-14, rule-17, rule-20).

        ``start`` is another one, if all up to that shall be answered at once.

        ``live_to[i]`` is how far input i has come for the live line. ``tentative(i)`` tells whether
        input i passes the unit's end only tentatively; then nobody waits for the deadline
        (trace-13). ``excused`` inputs hold back because the policy says so: their silence is no
        failure.
        """
        start = self.live_next if start is None else start
        end = self._units.end(start)
        normal = self._schedule.normal_time(end)
        if normal is None:
            return Wait(None)
        news_from = self._units.news_from(start)
        self.failed = {
            i
            for i in self.failed
            if live_to[i] < news_from and i not in excused and not self._in_time(live_to[i], now)
        }
        lagging = tuple(i for i, to in enumerate(live_to) if to < end)
        awaited = tuple(i for i in lagging if i not in self.failed)
        is_tentative = tentative is not None and any(map(tentative, range(len(live_to))))
        if now < normal:
            # Nothing tentative before its normal time: with every stream silent, or the boundary
            # of the only living one an hour ahead, the future would be answered at once (trace-36).
            return Wait(normal)
        is_complete = not is_tentative and all(i in excused for i in lagging)
        if is_complete:
            if self.forked:
                self.state = moved(self.state, LineEvent.INPUT_COMPLETE)
            silence = self._listen_ahead(now, live_to, excused) if self._suspends else None
            if silence is not None:
                return silence
        self._event = (
            LineEvent.INPUT_MISSING if lagging or is_tentative else LineEvent.INPUT_COMPLETE
        )
        deadline = normal + self._schedule.answer_within_us
        if awaited or self._delays(lagging, is_complete=is_complete):
            if now < deadline:
                return Wait(deadline)
            unread = tuple(i for i in awaited if not self._was_read_since(i, deadline))
            if unread:
                return ReadToEnd(unread)
            self.failed.update(awaited)
        return AnswerTentatively(lagging)

    def live_answered(self) -> None:
        """The live line has answered its next unit: from here on it is alone."""
        self.live_next = self._units.following(self.live_next)
        self.state = moved(self.state, self._event)

    def live_skipped(self, following: int, *, complete: bool) -> None:
        """The live line has answered all units before ``following`` at once, and computed none.

        ``complete``: no input lacks any of them; they are only overdue.
        """
        assert following > self.live_next
        self.live_next = following
        self._event = LineEvent.INPUT_COMPLETE if complete else LineEvent.INPUT_MISSING
        self.state = moved(self.state, self._event)

    def _delays(self, lagging: tuple[int, ...], *, is_complete: bool) -> bool:
        """Is the unit held back until its deadline, though no input is awaited?

        If all is there and the lines are one, the stable line will answer, as soon as its own
        cursors get there. What is tentative already has been held back where that came about.
        """
        if is_complete:
            return not self.forked or self._policy.stabilization != "process"
        return bool(lagging) and self._policy.failure == "delay"

    @property
    def _suspends(self) -> bool:
        return self._policy.stabilization == "suspend"

    def _listen_ahead(
        self, now: int, live_to: Sequence[int], excused: Collection[int]
    ) -> Verdict | None:
        """Suspended: nothing is answered, unless an input fails again in what comes after.

        The next unit lacks nothing and stays where it is, so the deadlines that count are those of
        the first unit that some input has not passed. None: one of them is over, speak again.
        """
        unit = max(self._watched, self.live_next)
        waited_for = [i for i in range(len(live_to)) if i not in excused]
        while waited_for:
            self._watched = unit
            end = self._units.end(unit)
            deadline = self._schedule.deadline(end)
            if deadline is None or now < deadline:
                return Wait(deadline)
            silent = tuple(i for i in waited_for if live_to[i] < end)
            if silent:
                unread = tuple(i for i in silent if not self._was_read_since(i, deadline))
                return ReadToEnd(unread) if unread else None
            unit = self._units.following(unit)
        return Wait(None)

    def _in_time(self, to: int, now: int) -> bool:
        """Does an input that has come as far as ``to`` keep its deadlines?

        One whose latency is longer than a unit never passes the beginning of the unit that is due.
        By that sign alone it would stay failed for good, and so would the whole chain behind it.
        """
        deadline = self._schedule.deadline(to)
        return deadline is not None and now < deadline

    def _was_read_since(self, input_: int, deadline: int) -> bool:
        through = self._read_through[input_]
        return through is not None and through >= deadline
