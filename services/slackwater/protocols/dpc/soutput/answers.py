"""Answers: which results one transaction of a root holds, and in which order.

DPC's SOutput (section 4.4.2) stands at a node's exit: after a reconciliation it drops what it has
sent as stable before, revokes the tentative rest with one UNDO, and marks the end of the
corrections with REC_DONE. Here it stands at the root, the only place a consumer sees, and decides
from two numbers that are in the log, never from a memory of what was computed (rule-22 to rule-24,
trace-3):

    S   first window without a stable answer           before S: final
    T   first window without any answer, S <= T        [S, T): tentative, not revoked yet
                                                       from T on: nothing has been said

    ------- stable -------|------ tentative ------|------ unanswered ------>
                          S                       T

A transaction that moves S revokes the windows it passes and answers them again, and no others:
the paper's single UNDO would take away answers that a second failure makes irreplaceable (trace-4).
When S reaches T nothing is unrevoked, and REC_DONE says so.

*Epochs.* The epoch grows by one at a tentative answer given while S = T. So all windows of [S, T)
were answered in the present epoch: a greater one begins only when that range is empty. One number
is enough to know the epoch of each answer that a correction replaces.

*Two-step use.* ``plan`` changes nothing. It returns the transaction and the state after it; when
the log has it, ``committed`` takes that state over. A secondary calls ``committed`` with what it
reads in the log, and both go on from there: what the log says counts (rule-24). An aborted
transaction is forgotten by doing nothing.

What a window contains is opaque here (``content``): only its number of rows matters, for ``seq``
and for the bounds of rule-23. Times are event times in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Final, Generic, TypeVar

from slackwater.model.records import Gap
from slackwater.primitives.windows import Grid

C = TypeVar("C")

CORRECTED_WINDOWS_MAX: Final = 100
STABLE_ROWS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Answered:
    """The snapshot: what the log says has been answered. Part of ``RootState`` (rule-23)."""

    next_seq: int
    epoch: int
    stable_from: int
    """S: start of the first window without a stable answer."""
    answered_to: int
    """T: start of the first window without any answer."""

    def __post_init__(self) -> None:
        assert self.next_seq >= 0
        assert self.epoch >= 0
        assert self.stable_from <= self.answered_to, "a stable answer is an answer"

    @classmethod
    def start(cls, first_window: int) -> Answered:
        """Before the first transaction; ``first_window`` is the first that holds E0 (trace-24)."""
        return cls(0, 0, first_window, first_window)


@dataclass(frozen=True, slots=True)
class Ready(Generic[C]):
    """A window whose content is known, or a run of ``windows`` without rows (``rows`` is 0).

    ``missing`` names what a tentative answer lacks; a stable one lacks nothing. ``gap`` is what
    retention took away from it (rule-28). The windows of a run are empty, or, if it is
    ``skipped``, overdue and never computed (rule-20).
    """

    window_start: int
    content: C | None
    rows: int
    windows: int = 1
    missing: tuple[str, ...] = ()
    gap: tuple[Gap, ...] = ()
    skipped: bool = False

    def __post_init__(self) -> None:
        assert self.rows >= 0
        assert self.windows >= 1
        assert self.windows == 1 or not self.rows, "only windows without rows form a run"
        assert not (self.skipped and self.rows), "what was skipped has no rows"
        assert self.windows == 1 or not self.gap, "a window with a gap is told by itself"


@dataclass(frozen=True, slots=True)
class Undo:
    """Revokes the tentative answers from window ``undo_from`` to ``undo_to``, both included."""

    seq: int
    epoch: int
    undo_from: int
    undo_to: int


@dataclass(frozen=True, slots=True)
class GapNote:
    """Precedes a stable window that retention has taken readings from (trace-15)."""

    seq: int
    epoch: int
    window_start: int
    window_end: int
    gap: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class StableWindow(Generic[C]):
    """The stable answer: rows ``first_seq`` .. ``seq - 1`` in key order, boundary at ``seq``.

    ``epoch`` is that of the tentative answer it replaces, else 0.
    """

    first_seq: int
    seq: int
    epoch: int
    window_start: int
    window_end: int
    due_at: int | None
    rows: int
    content: C | None
    gap: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class TentativeWindow(Generic[C]):
    """The tentative answer: rows ``first_seq`` .. ``seq - 1``, boundary at ``seq``."""

    first_seq: int
    seq: int
    epoch: int
    window_start: int
    window_end: int
    due_at: int | None
    rows: int
    content: C | None
    missing: tuple[str, ...]
    gap: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class EmptyRun:
    """One boundary that answers ``windows`` windows without rows: they are empty, or ``skipped``.

    ``window_end`` is that of the last, and ``due_at`` belongs to it.
    """

    seq: int
    epoch: int
    stable: bool
    window_start: int
    window_end: int
    windows: int
    due_at: int | None
    missing: tuple[str, ...]
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class RecDone:
    """All that was undone up to ``epoch`` has been replaced: nothing is unrevoked."""

    seq: int
    epoch: int


Effect = Undo | GapNote | StableWindow[C] | TentativeWindow[C] | EmptyRun | RecDone


@dataclass(frozen=True, slots=True)
class Transaction(Generic[C]):
    """What is written in one transaction, in the order of ``effects``, then the state record.

    ``after`` goes into that record and, once the log has it, into ``AnswerPlanner.committed``.
    ``more`` says that stable windows were left over for the next one (rule-23).
    """

    effects: tuple[Effect[C], ...]
    before: Answered
    after: Answered
    more: bool

    def __bool__(self) -> bool:
        """Is there anything to write?"""
        return bool(self.effects)


def rows_of(transaction: Transaction[C]) -> list[int]:
    """Of each window that is computed for it; runs cost nothing."""
    computed = (StableWindow, TentativeWindow)
    return [effect.rows for effect in transaction.effects if isinstance(effect, computed)]


class AnswerPlanner(Generic[C]):
    """Holds the last committed state.

    ``due_at`` gives the normal time of a window's end (rule-15), None while it is unknown.
    """

    def __init__(self, snapshot: Answered, grid: Grid, due_at: Callable[[int], int | None]) -> None:
        assert grid.window is not None, "a query without a window has no windows to answer"
        self._slide = grid.window.slide_us
        for start in (snapshot.stable_from, snapshot.answered_to):
            assert start % self._slide == 0, "no window starts there"
        self._state = snapshot
        self._grid = grid
        self._due_at = due_at

    @property
    def state(self) -> Answered:
        """What the log says."""
        return self._state

    def committed(self, snapshot: Answered) -> None:
        """The log has this state, written by this copy or by another one."""
        was, now = astuple(self._state), astuple(snapshot)
        if any(new < old for old, new in zip(was, now, strict=True)):
            raise ValueError(f"the log went back from {self._state} to {snapshot}")
        self._state = snapshot

    def plan(
        self, stable: Iterable[Ready[C]], tentative: Iterable[Ready[C]] = ()
    ) -> Transaction[C]:
        """One transaction; changes nothing.

        Both inputs are in window order without holes: the stable ones from S on, the tentative
        ones from T on, as far as they are due. What is answered already is skipped, so a caller
        may offer what it still holds; likewise a tentative window that this transaction answers
        for good. Offering it as both matters: while corrections are left over, a new window that
        is stable has to wait for them, and its tentative answer, being due, must not.

        If new stable windows are left over, no tentative ones follow: those left over are next.
        A caller whose corrections take long to compute offers none when a live answer is due.
        """
        draft = _Draft[C](self._state, self._grid, self._due_at)
        chosen, more = self._within_bounds(_from(stable, self._state.stable_from, self._slide))
        if chosen:
            draft.answer_stable(chosen)
        if not more or draft.stable_from < draft.answered_to:
            for ready in _from(tentative, draft.answered_to, self._slide):
                draft.answer_tentative(ready)
        return Transaction(tuple(draft.effects), self._state, draft.state, more)

    def stable_after(self, stable: Iterable[Ready[C]]) -> int:
        """S behind the transaction that ``plan`` would make of these stable windows."""
        chosen, _ = self._within_bounds(_from(stable, self._state.stable_from, self._slide))
        return _end(chosen, self._slide) if chosen else self._state.stable_from

    def _within_bounds(self, stable: Iterable[Ready[C]]) -> tuple[list[Ready[C]], bool]:
        """The first stable windows that fit, cut at T, and whether some are left (rule-23).

        The bound on rows holds for new windows too: a root that starts with a long backlog must
        not build one huge transaction. Runs of new empty windows cost one record and no bound.
        """
        chosen: list[Ready[C]] = []
        state, corrected, rows = self._state, 0, 0
        pieces = _cut(stable, state.answered_to, self._slide)
        for ready in pieces:
            if chosen and rows + ready.rows > STABLE_ROWS_MAX:
                return chosen, True
            if ready.window_start < state.answered_to:
                room = CORRECTED_WINDOWS_MAX - corrected
                if room < ready.windows:
                    if room:
                        chosen.append(replace(ready, windows=room))
                    return chosen, True
                corrected += ready.windows
            chosen.append(ready)
            rows += ready.rows
        return chosen, False


class _Draft(Generic[C]):
    """A transaction in the making: numbers its records and moves S, T and the epoch along."""

    def __init__(self, state: Answered, grid: Grid, due_at: Callable[[int], int | None]) -> None:
        assert grid.window is not None
        self.next_seq, self.epoch = state.next_seq, state.epoch
        self.stable_from, self.answered_to = state.stable_from, state.answered_to
        self.effects: list[Effect[C]] = []
        self._slide = grid.window.slide_us
        self._grid = grid
        self._due_at = due_at

    @property
    def state(self) -> Answered:
        """Where it has come to."""
        return Answered(self.next_seq, self.epoch, self.stable_from, self.answered_to)

    def answer_stable(self, chosen: Sequence[Ready[C]]) -> None:
        """rule-22: UNDO of what is replaced, the stable answers, REC_DONE if that is all."""
        before, to = self.state, _end(chosen, self._slide)
        correcting = before.stable_from < before.answered_to
        if correcting:
            undo_to = min(to, before.answered_to) - self._slide
            self.effects.append(Undo(self._take(1), before.epoch, before.stable_from, undo_to))
        for ready in chosen:
            replaces = ready.window_start < before.answered_to
            self._stable(ready, before.epoch if replaces else 0)
        self.stable_from, self.answered_to = to, max(before.answered_to, to)
        if correcting and to == self.answered_to:
            self.effects.append(RecDone(self._take(1), before.epoch))

    def answer_tentative(self, ready: Ready[C]) -> None:
        """rule-22: the first tentative answer after all is corrected begins an epoch."""
        self.epoch += self.stable_from == self.answered_to
        epoch = self.epoch
        start, end = ready.window_start, self._end_of(ready)
        if ready.rows or (ready.windows == 1 and not ready.skipped):
            first = self._take(ready.rows + 1)
            window = TentativeWindow(
                first, first + ready.rows, epoch, start, end, self._due_at(end),
                ready.rows, ready.content, ready.missing, ready.gap,
            )  # fmt: skip
            self.effects.append(window)
        else:
            self._run(ready, epoch, stable=False)
        self.answered_to = start + ready.windows * self._slide

    def _stable(self, ready: Ready[C], epoch: int) -> None:
        assert not ready.missing, "what lacks a source is not stable"
        assert not ready.skipped, "what was not computed is not stable"
        start, end = ready.window_start, self._end_of(ready)
        if ready.gap:
            self.effects.append(GapNote(self._take(1), epoch, start, end, ready.gap))
        if ready.windows > 1:
            self._run(ready, epoch, stable=True)
            return
        first = self._take(ready.rows + 1)
        window = StableWindow(
            first, first + ready.rows, epoch, start, end, self._due_at(end),
            ready.rows, ready.content, ready.gap,
        )  # fmt: skip
        self.effects.append(window)

    def _run(self, ready: Ready[C], epoch: int, *, stable: bool) -> None:
        end = self._end_of(ready)
        run = EmptyRun(
            self._take(1), epoch, stable, ready.window_start, end,
            ready.windows, self._due_at(end), ready.missing, ready.skipped,
        )  # fmt: skip
        self.effects.append(run)

    def _end_of(self, ready: Ready[C]) -> int:
        return self._grid.window_end(ready.window_start + (ready.windows - 1) * self._slide)

    def _take(self, records: int) -> int:
        """The first of the next ``records`` seqs."""
        first = self.next_seq
        self.next_seq += records
        return first


def _end(chosen: Sequence[Ready[C]], slide: int) -> int:
    """Where the window behind the last of these starts."""
    last = chosen[-1]
    return last.window_start + last.windows * slide


def _from(items: Iterable[Ready[C]], at: int, slide: int) -> Iterable[Ready[C]]:
    """The items from window ``at`` on: what lies before has been answered. No holes."""
    for ready in items:
        end = ready.window_start + ready.windows * slide
        if end <= at:
            continue
        late = max(at - ready.window_start, 0) // slide
        rest = replace(ready, window_start=ready.window_start + late * slide,
                       windows=ready.windows - late) if late else ready  # fmt: skip
        assert rest.window_start == at, f"window {at} is next, not {rest.window_start}"
        yield rest
        at = end


def _cut(items: Iterable[Ready[C]], at: int, slide: int) -> Iterable[Ready[C]]:
    """A run of empty windows never spans ``at``."""
    for ready in items:
        before = (at - ready.window_start) // slide
        if 0 < before < ready.windows:
            yield replace(ready, windows=before)
            yield replace(ready, window_start=at, windows=ready.windows - before)
        else:
            yield ready
