"""The two lines of a stage: the stable line answers finally, the live line answers in time.

DPC (section 4.4.3) keeps two replicas of a query diagram when a failure heals: one continues to
process new tuples tentatively, the other reconciles. A stage here always has both, as two *lines*
over the same inputs. The **stable line** takes the next unit (the orderer's bucket, the
root's window) when every input is complete up to its end, however long that takes. The **live
line** answers every unit by its deadline. Normally the two are *joined*: one stable answer serves
both. If an input is missing when the bound expires, the live line *forks*: it continues alone,
tentatively, until the stable line has caught up and the lines *join*. Nothing is rolled back. The
lines do not wait for each other, with one exception: lines that have met stay apart while the roots
are far behind (``reconcile/downstream.py``).

This module only decides: which unit is next for each line, which input has failed, what is due.
Callers pass the progress of each input per line and the time, and keep content, positions and
bytes. A missed deadline alone does not make an input failed: its log must have been read to an end
offset fetched after the deadline, so that a process that was itself suspended does not fail its
inputs (rule-14, rule-16, rule-17, rule-18 and rule-20; trace-11).

The query's *policy* (section 6.1) sets how long a unit is held back while the lines are forked:
not at all, or until its deadline, since the unit may then need no correction, or, in STABILIZATION
only, until the lines join. Only the stage whose own input is missing delays. A stage with tentative
input forwards it at once; otherwise the delays of a chain would add up (trace-13).

The paper's alternative, one copy that checkpoints, undoes and redoes (section 4.4.1), needs all
tentative tuples buffered, or a second node, for as long as the failure lasts (trace-5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from slackwater.model.deployment import FailurePolicy, StabilizationPolicy
from slackwater.protocols.common.states import LineEvent, LineState, moved


class LineName(IntEnum):
    """Names one of a replica's two logs, or of a stage's two lines (rule-8)."""

    STABLE = 0
    LIVE = 1


LINES: Final = tuple(LineName)
"""For loops: iteration over an enum costs ten times as much as over a tuple."""


class Units(Protocol):
    """The fixed sequence of units: buckets, which touch, or windows, which may overlap."""

    def end(self, start: int) -> int:
        """End of the unit that starts at ``start`` (us of event time)."""
        ...

    def following(self, start: int) -> int:
        """Start of the unit after the unit that starts at ``start``."""
        ...

    def news_from(self, start: int) -> int:
        """End of the unit before; no earlier unit has readings from here on."""
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """Normal times and deadlines of units.

    ``normal_time(e)`` is wall(e + lateness) in us, or None while it is unknown. A deadline is
    ``answer_within_us`` after it: X - (n - k + 1)m for stage k of n (rule-15, trace-13).
    """

    normal_time: Callable[[int], int | None]
    answer_within_us: int

    def deadline(self, end: int) -> int | None:
        """The time by which this stage must answer a unit that ends at ``end``."""
        normal = self.normal_time(end)
        return None if normal is None else normal + self.answer_within_us


@dataclass(frozen=True, slots=True)
class Policy:
    """How units that are not stable are answered while the lines are forked (section 6.1).

    ``failure`` applies while an input is missing, ``stabilization`` while no input is missing but
    the stable line has not caught up. *process* answers as soon as allowed (rule-17), *delay* at
    the deadline. *suspend* gives no answer until the lines join or an input fails again: it gives
    up the bound for fewer corrections.
    """

    failure: FailurePolicy = "process"
    stabilization: StabilizationPolicy = "process"


PROCESS: Final = Policy()


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due: retry on new input, or at ``until`` (us of wall time) unless it is None."""

    until: int | None


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    """Read the logs of ``inputs`` to an end fetched from now on, before the inputs may fail."""

    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AnswerTentatively:
    """Answer the live line's next unit tentatively; ``missing`` inputs have not passed its end."""

    missing: tuple[int, ...]


Verdict = Wait | ReadToEnd | AnswerTentatively


class Line:
    """The decisions of one stage. Positions are unit starts in us of event time.

    Args:
        inputs: number of inputs (streams of an orderer, children of a root).
        units: the sequence of units.
        schedule: normal times and deadlines.
        stable_next: first unit without a stable answer (S of rule-22).
        live_next: first unit without any answer (T of rule-22), not before ``stable_next``.
        policy: the query's policy.
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
        # Whether an input is missing is unknown at a start; the first ``judge`` determines it.
        self.state = LineState.UP_FAILURE if live_next > stable_next else LineState.STABLE
        """The output's state, as heartbeats report it (dpc-6)."""

    def copy(self) -> Line:
        """A copy on which a decision is prepared; this line does not change with it.

        How far the inputs have been read is shared with the copy: no decision changes it.
        """
        other = object.__new__(Line)
        # Attribute by attribute: called once or twice a step, and a loop over names takes three
        # times as long.
        other._units, other._schedule, other._policy = self._units, self._schedule, self._policy
        other._read_through = self._read_through
        other._event, other._watched = self._event, self._watched
        other.stable_next, other.live_next = self.stable_next, self.live_next
        other.failed, other.state = set(self.failed), self.state
        return other

    @property
    def forked(self) -> bool:
        """True while the lines are apart."""
        return self.state is not LineState.STABLE

    def note_read(self, input_: int, fetched_at: int) -> None:
        """Record that the live line has read ``input_`` to an end fetched at ``fetched_at``.

        Also called when the broker gave no answer in time: there is nothing to wait for then.
        """
        before = self._read_through[input_]
        self._read_through[input_] = fetched_at if before is None else max(before, fetched_at)

    # Stable line.

    def stable_ready(self, stable_to: int) -> bool:
        """True if the stable line may take its next unit (rule-16).

        ``stable_to`` is the least progress of any input on the stable line.
        """
        return stable_to >= self._units.end(self.stable_next)

    def stable_answered(self, following: int) -> None:
        """Record stable answers to all units before ``following``; the live line skips them."""
        assert following > self.stable_next
        self.stable_next = following
        self.live_next = max(self.live_next, following)

    def try_join(self, now: int, stable_to: int, *, attached: bool) -> bool:
        """Join if the stable line has reached the live line before the deadline (rule-18).

        ``attached``: whether every cursor of the stable line is attached. True if the lines joined.
        """
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
        """Decide on the live line's next unit, or on the unit at ``start``.

        ``start`` is given if all units up to it are answered together. ``live_to[i]`` is the
        progress of input i on the live line. ``tentative(i)`` is true if input i passes the unit's
        end only tentatively; the line then does not wait for the deadline (trace-13). ``excused``
        inputs are held back by policy: they do not fail while they send nothing (rule-14, rule-17,
        rule-20).
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
        if now < normal:
            # No tentative answer before its normal time: with all streams silent, or the watermark
            # of the only live stream an hour ahead, future units would be answered (trace-36).
            return Wait(normal)
        lagging = tuple(i for i, to in enumerate(live_to) if to < end)
        awaited = tuple(i for i in lagging if i not in self.failed)
        is_tentative = tentative is not None and any(map(tentative, range(len(live_to))))
        is_complete = not is_tentative and all(i in excused for i in lagging)
        if is_complete:
            if self.forked:
                self.state = moved(self.state, LineEvent.INPUT_COMPLETE)
            withheld = self._suspended(now, live_to, excused) if self._suspends else None
            if withheld is not None:
                return withheld
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

    def live_answered(self, following: int | None = None) -> None:
        """Record a tentative answer to the live line's next unit; the lines are then forked.

        ``following``: if several units were answered alike, the unit after the last of them.
        """
        self.live_next = self._units.following(self.live_next) if following is None else following
        self.state = moved(self.state, self._event)

    def live_skipped(self, following: int, *, complete: bool) -> None:
        """Record that all units before ``following`` were answered together and not computed.

        ``complete``: no input is missing in any of them; they are only overdue.
        """
        assert following > self.live_next
        self.live_next = following
        self._event = LineEvent.INPUT_COMPLETE if complete else LineEvent.INPUT_MISSING
        self.state = moved(self.state, self._event)

    def _delays(self, lagging: tuple[int, ...], *, is_complete: bool) -> bool:
        """True if the unit is held back until its deadline although no input is awaited.

        If the unit is complete and the lines are joined, the stable line answers as soon as its
        cursors have read as far. Tentative input was already held back by the stage that sent it.
        """
        if is_complete:
            return not self.forked or self._policy.stabilization != "process"
        return bool(lagging) and self._policy.failure == "delay"

    @property
    def _suspends(self) -> bool:
        return self._policy.stabilization == "suspend"

    def _suspended(
        self, now: int, live_to: Sequence[int], excused: Collection[int]
    ) -> Verdict | None:
        """While suspended, check whether an input fails again in a later unit.

        The next unit is complete and stays unanswered, so its own deadline has no effect. The
        deadline that counts is that of the first unit that some input has not passed. Returns None
        if that deadline has passed and the input's log has been read to its end: the suspension
        ends, and the line answers again.
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
        """True if an input with progress ``to`` keeps its deadlines.

        An input whose latency exceeds a unit never passes the beginning of the unit that is due.
        By that test alone it would stay failed forever, and so would all queries that read this
        one.
        """
        deadline = self._schedule.deadline(to)
        return deadline is not None and now < deadline

    def _was_read_since(self, input_: int, deadline: int) -> bool:
        through = self._read_through[input_]
        return through is not None and through >= deadline
