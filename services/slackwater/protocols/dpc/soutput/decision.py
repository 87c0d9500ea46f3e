"""A root's decision for one step, as a value; nothing changes until it is applied.

A step finds the windows that are complete and those that are due (rule-20), assembles
their answers, and plans one transaction (rule-22 and rule-23). It works on copies of the state that
answers change: the ``Line``, and the slices chosen for each child's live answers (``Chosen``). A
decision holds the transaction and those copies; the core adopts all of them together.

Live answers may be discarded within a step: windows without rows wait a while to be answered as one
run, so that an idle query does not write continuously. Then their copies are dropped. The
alternative, changing the core and reverting, would have to name each field that a decision may
change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from slackwater.primitives.contents import Contents, folded
from slackwater.primitives.live_panes import LivePanes
from slackwater.primitives.panes import (
    Notes,
    PaneShare,
    PaneStore,
    empty_windows,
    window_of,
)
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.ends import STEP_US_MAX
from slackwater.protocols.common.line import (
    AnswerTentatively,
    Line,
    Policy,
    ReadToEnd,
    Schedule,
    Verdict,
    Wait,
)
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.answers import Answered, AnswerPlanner, Ready, Transaction
from slackwater.protocols.dpc.soutput.config import RootConfig
from slackwater.protocols.dpc.soutput.live_input import LiveInput
from slackwater.protocols.dpc.soutput.overload import Overload
from slackwater.protocols.dpc.soutput.stable_input import StableInput
from slackwater.protocols.dpc.soutput.upstream import Upstream, suspends

CORRECTED_ROWS_MAX: Final = 20_000
LIVE_ROWS_MAX: Final = 20_000
"""Rows in a transaction, unless one window has more: each row takes time."""
LIVE_ALONE_MAX: Final = 10
"""Most live windows answered in succession while corrections wait. Then these starve, and the next
transaction begins with them."""
STARVING_ROOM: Final = 4
"""Corrections that starve may take a quarter of X. The live answers that wait for them have the
rest."""


@dataclass(slots=True)
class Windows:
    """The windows of a query as the units of a ``Line``."""

    grid: Grid

    def end(self, start: int) -> int:
        """End of the window that starts at ``start``."""
        return self.grid.window_end(start)

    def following(self, start: int) -> int:
        """Start of the next window."""
        return self.grid.later(start)

    def news_from(self, start: int) -> int:
        """The end of the window before."""
        return self.grid.window_end(self.grid.later(start, -1))


def line_from(config: RootConfig, answered: Answered) -> Line:
    """The lines of a root that continues where this is answered."""
    return Line(
        len(config.children),
        Windows(config.grid),
        config.schedule,
        answered.stable_from,
        answered.answered_to,
        config.policy,
    )


class Chosen:
    """The versions of one child's buckets that its live answers use; final up to ``to``."""

    def __init__(self, contents: Contents[Any], panes: LivePanes[Any], to: int) -> None:
        self._contents = contents
        self.panes = panes
        self.to = to

    def copy(self) -> Chosen:
        """A copy; choices made on it do not change this one."""
        return Chosen(self._contents, self.panes.copy(), self.to)

    def choose(self, live: LiveInput, start: int, end: int) -> None:
        """Choose the versions of [start, end), immediately before they are answered."""
        for found in live.ingredients(start, end):
            notes = Notes.of(found.missing, found.gap)
            if found.pieces:
                value = folded(self._contents, map(self._contents.of, found.pieces))
                self.panes.put(found.start, found.end, value, notes, stable=found.stable)
            else:
                stop = min(found.end, end)
                self.panes.put_empty(found.start, stop, notes, stable=found.stable)
        self.to = max(self.to, end)

    def leave_out(self, live: LiveInput, end: int) -> None:
        """Choose up to ``end`` without rows, which no answer uses; what is missing is kept."""
        for found in live.ingredients(self.to, end):
            notes, stop = Notes.of(found.missing, found.gap), min(found.end, end)
            self.panes.put_empty(found.start, stop, notes, stable=found.stable)
        self.to = max(self.to, end)


@dataclass(slots=True)
class Child:
    """A root's view of one child of its part."""

    stable: StableInput
    panes: PaneStore[Any]
    live: LiveInput
    chosen: Chosen
    upstream: Upstream


@dataclass(frozen=True, slots=True)
class Decision:
    """The effects of one step and the resulting state of the core."""

    transaction: Transaction[PaneShare[Any]]
    line: Line
    chosen: Sequence[Chosen]
    """Per child; the core's own object if no live answer was made."""
    unread: tuple[int, ...]
    """Children whose logs must be read to their ends before they count as failed (rule-14)."""
    doubted: frozenset[int]
    """Children missing in an answer: their replicas that report STABLE are doubted
    (``upstream.py``)."""
    live_alone: int
    """Live windows answered in succession while corrections waited."""
    wake_at: int | None
    busy: bool


@dataclass(slots=True)
class _Live:
    """The live part of a decision under construction."""

    line: Line
    chosen: Sequence[Chosen]
    answers: list[Ready[PaneShare[Any]]] = field(default_factory=list)
    unread: tuple[int, ...] = ()
    doubted: set[int] = field(default_factory=set)
    wake_at: int | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Decider:
    """Makes decisions from the given state, without changing it.

    ``empty_wait_us`` is how long after its normal time an answer without rows may wait for others
    to form a run. ``bound_us`` is X. ``is_history``: the event clock follows the data.
    """

    grid: Grid
    schedule: Schedule
    policy: Policy
    contents: Contents[Any]
    empty_wait_us: int
    children: Sequence[Child]
    answers: AnswerPlanner[PaneShare[Any]]
    overload: Overload
    bound_us: int
    is_history: bool

    def decide(
        self, line: Line, now: int, *, suppress_tentative: bool, live_alone: int
    ) -> Decision:
        """Decide at ``now`` about the windows from the positions of ``line`` on."""
        line = line.copy()
        over = self._passed_over(line, now, suppress_tentative=suppress_tentative)
        # If windows are shorter than a transaction takes, a live answer is always due: corrections
        # must come first, and in greater numbers, or the lines would never join.
        have_met = _have_met(line) and not over
        starves = not have_met and live_alone >= LIVE_ALONE_MAX
        stable_first = have_met or starves
        room_us = self.bound_us // STARVING_ROOM if starves else 0
        stable, held_until = self._complete(line, now, room_us) if stable_first else ([], None)
        if stable:
            over = self._passed_over(line, now, suppress_tentative=suppress_tentative)
        windows_max = self.overload.windows_max
        if starves and stable:
            windows_max = 1 if over else max(windows_max // 2, 1)
        live = self._due(line, over, now, windows_max, suppress_tentative=suppress_tentative)
        if live.answers:
            held_until = self._held_until(live.answers, now)
            if held_until is not None:  # the answer is then made from the input up to that time
                live.answers, live.line, live.chosen = [], line, self._chosen
        tentative = self._in_runs(live.answers) if self.empty_wait_us else live.answers
        if not (stable or tentative or stable_first):
            # Corrections are gathered only when no live answer is due (rule-23).
            stable, held_until = self._complete(live.line, now)
        return Decision(
            self.answers.plan(stable, tentative),
            live.line,
            live.chosen,
            live.unread,
            frozenset(live.doubted),
            len(tentative) + (0 if stable else live_alone) if tentative else 0,
            earliest(live.wake_at, held_until),
            live.busy and held_until is None,
        )

    # Stable answers.

    def _complete(
        self, line: Line, now: int, room_us: int = 0
    ) -> tuple[list[Ready[PaneShare[Any]]], int | None]:
        """The next stable answers, as many as one transaction holds, and None (rule-23).

        ``line`` is moved past them. If they wait to form a run: no answers, and the time until
        which they wait. They may take ``room_us``, if that is more than the tolerance.
        """
        stable_to = self._stable_to
        if not line.stable_ready(stable_to):
            return [], None
        line.try_join(now, stable_to, attached=True)
        windows_max = self.overload.fitting_finally(self.answers.corrections_max, room_us)
        found = list(self._complete_windows(line.stable_next, stable_to, windows_max))
        held_until = self._held_until(found, now)
        if held_until is not None:
            return [], held_until
        line.stable_answered(self.answers.stable_after(found))
        return found, None

    def _complete_windows(
        self, start: int, stable_to: int, windows_max: int
    ) -> Iterator[Ready[PaneShare[Any]]]:
        """Complete windows in order, up to slightly more than a transaction holds, not across T."""
        rows = 0
        answered_to = self.answers.state.answered_to
        for _ in range(windows_max):
            if rows > CORRECTED_ROWS_MAX or self.grid.window_end(start) > stable_to:
                return
            ready = self._stable_window(start)
            yield ready
            rows += ready.computed
            correcting = start < answered_to
            start = self.grid.later(start, ready.windows)
            if correcting and start >= answered_to:
                return

    def _stable_window(self, start: int) -> Ready[PaneShare[Any]]:
        run = empty_windows([c.panes for c in self.children], self.grid, start)
        before = self.grid.windows_between(start, self.answers.state.answered_to)
        if before > 0:
            run = min(run, before)
        if run > 1:
            return Ready(start, None, 0, windows=run)
        end = self.grid.window_end(start)
        share = self._combined([c.panes.window(start, end) for c in self.children])
        return self._answer(start, share)

    def _held_until(self, found: Sequence[Ready[PaneShare[Any]]], now: int) -> int | None:
        """The time until which new empty windows wait, so that idle queries write rarely.

        None if they do not wait. Corrections and windows with rows never wait; nor do empty windows
        that precede rows.
        """
        if not self.empty_wait_us or not found:
            return None
        start = found[0].window_start
        if start < self.answers.state.answered_to or any(r.rows or r.gap for r in found):
            return None
        normal = self.schedule.normal_time(self.grid.window_end(start))
        if normal is None or now >= normal + self.empty_wait_us:
            return None
        return normal + self.empty_wait_us

    # Tentative answers.

    def _due(
        self, line: Line, over: int, now: int, windows_max: int, *, suppress_tentative: bool
    ) -> _Live:
        """The windows due on the live line, ``windows_max`` after ``over`` that are skipped."""
        live = _Live(line.copy() if self.empty_wait_us else line, self._chosen)
        line, rows = live.line, 0
        stable_to = self._stable_to
        for _ in range(windows_max + bool(over)):
            if rows >= LIVE_ROWS_MAX:
                break
            if _have_met(line) and not over and line.stable_ready(stable_to):
                break  # the stable line answers this window
            if suppress_tentative:
                return live
            match self._verdict(live, over, now):
                case Wait(until):
                    live.wake_at = until
                    return live
                case ReadToEnd(inputs):
                    live.unread, live.wake_at = inputs, now + STEP_US_MAX
                    return live
                case AnswerTentatively(missing):
                    if not live.answers:
                        live.chosen = [chosen.copy() for chosen in live.chosen]
                    answer = self._pass_over(live, over) if over else self._live_window(live)
                    live.answers.append(answer)
                    live.doubted.update(missing)
                    over, rows = 0, rows + answer.computed
        live.busy = True
        return live

    def _verdict(self, live: _Live, over: int, now: int) -> Verdict:
        """The line's verdict on the next window, or on the last of the skipped ones."""
        start = self.grid.later(live.line.live_next, max(over - 1, 0))
        end = self.grid.window_end(start)
        states = [
            child.upstream.states(now, doubting=i in live.doubted)
            for i, child in enumerate(self.children)
        ]
        live_to = [
            child.live.live_to([state is LineState.STABLE for state in of])
            for child, of in zip(self.children, states, strict=True)
        ]
        suspended = (
            [i for i, of in enumerate(states) if suspends(of)]
            if self.policy.stabilization == "suspend"
            else []
        )
        return live.line.judge(
            now,
            live_to,
            tentative=lambda i: live_to[i] >= end > self.children[i].live.stable_to,
            excused=suspended,
            start=start,
        )

    def _live_window(self, live: _Live) -> Ready[PaneShare[Any]]:
        """Assemble the window from present input, and name what is missing (rule-20)."""
        start = live.line.live_next
        end = self.grid.window_end(start)
        for child, chosen in zip(self.children, live.chosen, strict=True):
            chosen.choose(child.live, chosen.to, end)
        share = self._combined([chosen.panes.window(start, end) for chosen in live.chosen])
        missing = tuple(sorted(share.notes.missing))
        live.line.live_answered()
        return self._answer(start, share, missing)

    def _in_runs(self, answers: Sequence[Ready[PaneShare[Any]]]) -> list[Ready[PaneShare[Any]]]:
        """Merge neighbouring windows without rows and with equal ``missing`` into runs."""
        runs: list[Ready[PaneShare[Any]]] = []
        for ready in answers:
            last = runs[-1] if runs else None
            alone = last is None or last.rows or last.gap or ready.rows or ready.gap
            differs = last is not None and (
                last.missing != ready.missing or last.skipped != ready.skipped
            )
            if last is None or alone or differs:
                runs.append(ready)
            else:
                runs[-1] = replace(last, content=None, windows=last.windows + 1)
        return runs

    # What is overdue.

    def _passed_over(self, line: Line, now: int, *, suppress_tentative: bool) -> int:
        """Number of overdue windows that the live line skips before it computes one.

        0 if the lines have met, and tentative answers are suppressed or the policy is ``suspend``:
        the windows then have no tentative answer, however late (section 6.1). 0 if the next window
        of a history is complete: all of it is due at once, and no window waits for the present.
        """
        start = line.live_next
        if _have_met(line) and (suppress_tentative or self.policy.stabilization == "suspend"):
            return 0
        if self.is_history and _have_met(line) and line.stable_ready(self._stable_to):
            return 0
        return self.overload.passed_over(now, start, lambda n: self._to_compute(line, n))

    def _to_compute(self, line: Line, windows: int) -> int:
        """How many of the next ``windows`` must be computed.

        Windows that are complete and empty on the stable line need not be. The count stops at the
        first number that is too many for one transaction.
        """
        start = line.live_next
        end, count = self.grid.later(start, windows), 0
        if not _have_met(line):
            return windows
        while start < end and count <= self.overload.windows_max:
            run = empty_windows([c.panes for c in self.children], self.grid, start)
            start = self.grid.later(start, max(run, 1))
            count += not run
        return count

    def _pass_over(self, live: _Live, windows: int) -> Ready[PaneShare[Any]]:
        """One answer without rows for a run of overdue windows.

        Buckets of no later window are not folded, but their missing inputs are named.
        """
        start = live.line.live_next
        last = self.grid.later(start, windows - 1)
        following, end = self.grid.later(last), self.grid.window_end(last)
        missing: set[str] = set()
        for child, chosen in zip(self.children, live.chosen, strict=True):
            chosen.leave_out(child.live, following)
            chosen.choose(child.live, chosen.to, end)
            missing |= chosen.panes.notes(start, end).missing
        live.line.live_skipped(following, complete=not missing)
        return Ready(start, None, 0, windows, tuple(sorted(missing)), skipped=True)

    # Helpers.

    @property
    def _stable_to(self) -> int:
        """The event time up to which the stable line has read all children."""
        return min(child.stable.frontier.bucket_start for child in self.children)

    def _answer(
        self, start: int, share: PaneShare[Any], missing: tuple[str, ...] = ()
    ) -> Ready[PaneShare[Any]]:
        """An answer with the rows of a window that ``having`` keeps."""
        kept = PaneShare(self.contents.kept(share.slice), share.notes)
        return Ready(
            start,
            kept,
            len(kept.slice),
            missing=missing,
            gap=share.notes.lost,
            dropped=len(share.slice) - len(kept.slice),
        )

    def _combined(self, shares: Sequence[PaneShare[Any]]) -> PaneShare[Any]:
        return window_of(shares, self.contents)

    @property
    def _chosen(self) -> list[Chosen]:
        return [child.chosen for child in self.children]


def _have_met(line: Line) -> bool:
    return line.stable_next == line.live_next


def earliest(*times: int | None) -> int | None:
    """The earliest of the times that are not None."""
    return min((at for at in times if at is not None), default=None)
