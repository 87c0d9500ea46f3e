"""Plans the transactions of a root: the results in each, and their order.

DPC's SOutput (section 4.4.2) is at a node's output: after a reconciliation it drops tuples already
sent as stable, revokes the tentative rest with one UNDO, and marks the end of the corrections with
REC_DONE. Here it is at the root, whose output is the only one that consumers read. It decides from
two numbers in the log, independent of what a process has computed (rule-22 to rule-24, trace-3):

    S   first window without a stable answer           before S: final
    T   first window without any answer, S <= T        [S, T): tentative, not revoked yet
                                                       from T on: unanswered

    ------- stable -------|------ tentative ------|------ unanswered ------>
                          S                       T

A transaction that moves S revokes only the windows that S passes, and answers these again. The
paper's single UNDO would also revoke answers that cannot be replaced until a second failure ends
(trace-4). When S reaches T all tentative answers have been replaced, and REC_DONE is written.

*Epochs.* The epoch grows by one at a tentative answer given while S = T. The next epoch begins only
when [S, T) is empty, so all windows of that range were answered in the current one. One number
therefore gives the epoch of every answer that a correction replaces.

*Two-step use.* ``plan`` changes nothing. It returns the transaction and the state after it; once
the transaction is in the log, ``committed`` adopts that state. An aborted transaction needs no
action. A restarted root builds the planner from the state record in the log (rule-24).

A window's ``content`` is opaque here: only its number of rows matters, for ``seq`` and for the
bounds of rule-23. Times are event times in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import ClassVar, Final, Generic, TypeVar

from slackwater.model.records import Gap
from slackwater.primitives.windows import Grid

C = TypeVar("C")

CORRECTIONS_MAX: Final = 100
"""Most windows that a transaction corrects; a run of empty ones counts as one."""
STABLE_ROWS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Answered:
    """Snapshot of what is answered according to the log; part of ``RootState`` (rule-23)."""

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
        """The state before the first transaction; ``first_window`` holds E0 (trace-24)."""
        return cls(0, 0, first_window, first_window)


@dataclass(frozen=True, slots=True)
class Ready(Generic[C]):
    """A window whose content is known, or a run of ``windows`` without rows (``rows`` is 0).

    ``missing`` names the inputs a tentative answer lacks; it is empty for a stable one. ``gap``
    lists readings lost to retention (rule-28). The windows of a run are empty, or, if it is
    ``skipped``, overdue and not computed (rule-20).
    """

    window_start: int
    content: C | None
    rows: int
    windows: int = 1
    missing: tuple[str, ...] = ()
    gap: tuple[Gap, ...] = ()
    skipped: bool = False
    dropped: int = 0
    """Keys that were computed, and have no row (``having``)."""

    def __post_init__(self) -> None:
        assert self.rows >= 0
        assert self.windows >= 1
        assert self.windows == 1 or not self.rows, "only windows without rows form a run"
        assert not (self.skipped and self.rows), "a skipped window has no rows"
        assert self.windows == 1 or not self.gap, "a window with a gap is in no run"

    @property
    def computed(self) -> int:
        """Number of keys that were computed, which takes the time of an answer."""
        return self.rows + self.dropped


@dataclass(frozen=True, slots=True)
class Undo:
    """Revokes the tentative answers from window ``undo_from`` to ``undo_to``, both included."""

    seq: int
    epoch: int
    undo_from: int
    undo_to: int


@dataclass(frozen=True, slots=True)
class GapNote:
    """Precedes a stable window that lost readings to retention (trace-15)."""

    seq: int
    epoch: int
    window_start: int
    window_end: int
    gap: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class StableWindow(Generic[C]):
    """The stable answer: rows ``first_seq`` .. ``seq - 1`` in key order, boundary at ``seq``.

    ``epoch`` is the epoch of the tentative answer it replaces, else 0.
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
    stable: ClassVar[bool] = True
    windows: ClassVar[int] = 1
    missing: ClassVar[tuple[str, ...]] = ()
    skipped: ClassVar[bool] = False


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
    stable: ClassVar[bool] = False
    windows: ClassVar[int] = 1
    skipped: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class EmptyRun:
    """One boundary that answers ``windows`` windows without rows: empty ones, or ``skipped`` ones.

    ``window_end`` and ``due_at`` are those of the last window.
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
    rows: ClassVar[int] = 0
    gap: ClassVar[tuple[Gap, ...]] = ()


@dataclass(frozen=True, slots=True)
class RecDone:
    """All tentative answers up to ``epoch`` have been replaced."""

    seq: int
    epoch: int


Effect = Undo | GapNote | StableWindow[C] | TentativeWindow[C] | EmptyRun | RecDone


@dataclass(frozen=True, slots=True)
class Transaction(Generic[C]):
    """The contents of one transaction: ``effects`` in order, then the state record.

    ``after`` goes into that record and, once it is in the log, to ``AnswerPlanner.committed``.
    ``more`` is true if stable windows are left for the next transaction (rule-23).
    """

    effects: tuple[Effect[C], ...]
    before: Answered
    after: Answered
    more: bool

    def __bool__(self) -> bool:
        """True if there is anything to write."""
        return bool(self.effects)


def rows_of(transaction: Transaction[C]) -> list[int]:
    """Row counts of the windows computed for the transaction; runs are not counted."""
    computed = (StableWindow, TentativeWindow)
    return [effect.rows for effect in transaction.effects if isinstance(effect, computed)]


def units_of(transaction: Transaction[C]) -> int:
    """Windows computed for the transaction, whether or not they were merged into runs.

    A run of final or of skipped windows, which is not computed, counts as one.
    """
    tentative = [of for of in transaction.effects if isinstance(of, EmptyRun) and not of.stable]
    merged = sum(run.windows - 1 for run in tentative if not run.skipped)
    answers = (StableWindow, TentativeWindow, EmptyRun)
    return merged + sum(isinstance(effect, answers) for effect in transaction.effects)


class AnswerPlanner(Generic[C]):
    """Plans transactions from the last committed state.

    ``due_at`` gives the normal time of a window's end (rule-15), None while it is unknown.
    ``corrections_max``: most windows that a transaction corrects (rule-23).
    """

    def __init__(
        self,
        snapshot: Answered,
        grid: Grid,
        due_at: Callable[[int], int | None],
        corrections_max: int = CORRECTIONS_MAX,
    ) -> None:
        assert grid.window is not None, "a query without a window has no windows to answer"
        for start in (snapshot.stable_from, snapshot.answered_to):
            assert grid.is_start(start), "no window starts there"
        self._state = snapshot
        self._grid = grid
        self._due_at = due_at
        self.corrections_max = corrections_max

    @property
    def state(self) -> Answered:
        """The last state in the log."""
        return self._state

    def committed(self, snapshot: Answered) -> None:
        """Adopt the state that is in the log, written by this copy or another.

        Raises:
            ValueError: a number of the state is smaller than before.
        """
        was, now = astuple(self._state), astuple(snapshot)
        if any(new < old for old, new in zip(was, now, strict=True)):
            raise ValueError(f"the log went back from {self._state} to {snapshot}")
        self._state = snapshot

    def plan(
        self, stable: Iterable[Ready[C]], tentative: Iterable[Ready[C]] = ()
    ) -> Transaction[C]:
        """Plan one transaction, without changing the state.

        Both inputs are in window order without holes: the stable windows from S on, the tentative
        ones from T on, as far as they are due. Windows that are answered already are left out, and
        tentative windows that this transaction answers finally are too. A caller should offer a
        complete window in both: while corrections remain, its stable answer waits for them, and its
        tentative answer, which is due, does not.

        If stable windows from T on are left for the next transaction, this one has no tentative
        answers: the windows left are next. A caller whose corrections take long to compute offers
        none if a live answer is due.
        """
        draft = _Draft[C](self._state, self._grid, self._due_at)
        chosen, more = self._within_bounds(_from(stable, self._state.stable_from, self._grid))
        if chosen:
            draft.answer_stable(chosen)
        if not more or draft.stable_from < draft.answered_to:
            for ready in _from(tentative, draft.answered_to, self._grid):
                draft.answer_tentative(ready)
        return Transaction(tuple(draft.effects), self._state, draft.state, more)

    def stable_after(self, stable: Iterable[Ready[C]]) -> int:
        """S after the transaction that ``plan`` would make of these stable windows."""
        chosen, _ = self._within_bounds(_from(stable, self._state.stable_from, self._grid))
        return _end(chosen, self._grid) if chosen else self._state.stable_from

    def _within_bounds(self, stable: Iterable[Ready[C]]) -> tuple[list[Ready[C]], bool]:
        """The first stable windows that fit, cut at T, and whether some are left (rule-23).

        The bound on rows applies to new windows too: a root that starts with a long backlog must
        not build one huge transaction. A run of empty windows is one record, and counts as one.
        """
        chosen: list[Ready[C]] = []
        state, corrected, rows = self._state, 0, 0
        for ready in _cut(stable, state.answered_to, self._grid):
            if chosen and rows + ready.rows > STABLE_ROWS_MAX:
                return chosen, True
            if ready.window_start < state.answered_to:
                if corrected == self.corrections_max:
                    return chosen, True
                corrected += 1
            chosen.append(ready)
            rows += ready.rows
        return chosen, False


class _Draft(Generic[C]):
    """A transaction under construction: numbers its records and advances S, T and the epoch."""

    def __init__(self, state: Answered, grid: Grid, due_at: Callable[[int], int | None]) -> None:
        self.next_seq, self.epoch = state.next_seq, state.epoch
        self.stable_from, self.answered_to = state.stable_from, state.answered_to
        self.effects: list[Effect[C]] = []
        self._grid = grid
        self._due_at = due_at

    @property
    def state(self) -> Answered:
        """The state after the effects so far."""
        return Answered(self.next_seq, self.epoch, self.stable_from, self.answered_to)

    def answer_stable(self, chosen: Sequence[Ready[C]]) -> None:
        """Append UNDO for replaced windows, the stable answers, and REC_DONE if S = T (rule-22)."""
        before, to = self.state, _end(chosen, self._grid)
        correcting = before.stable_from < before.answered_to
        if correcting:
            undo_to = self._grid.later(min(to, before.answered_to), -1)
            self.effects.append(Undo(self._take(1), before.epoch, before.stable_from, undo_to))
        for ready in chosen:
            replaces = ready.window_start < before.answered_to
            self._stable(ready, before.epoch if replaces else 0)
        self.stable_from, self.answered_to = to, max(before.answered_to, to)
        if correcting and to == self.answered_to:
            self.effects.append(RecDone(self._take(1), before.epoch))

    def answer_tentative(self, ready: Ready[C]) -> None:
        """Append a tentative answer; the first one given while S = T begins an epoch (rule-22)."""
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
        self.answered_to = self._grid.later(start, ready.windows)

    def _stable(self, ready: Ready[C], epoch: int) -> None:
        assert not ready.missing, "a window that lacks a source is not stable"
        assert not ready.skipped, "a skipped window is not stable"
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
        return self._grid.window_end(self._grid.later(ready.window_start, ready.windows - 1))

    def _take(self, records: int) -> int:
        """Reserve ``records`` seqs; return the first."""
        first = self.next_seq
        self.next_seq += records
        return first


def _end(chosen: Sequence[Ready[C]], grid: Grid) -> int:
    """Start of the window after the last of these."""
    last = chosen[-1]
    return grid.later(last.window_start, last.windows)


def _from(items: Iterable[Ready[C]], at: int, grid: Grid) -> Iterable[Ready[C]]:
    """The items from window ``at`` on, without earlier windows; a run may lose its beginning."""
    for ready in items:
        end = grid.later(ready.window_start, ready.windows)
        if end <= at:
            continue
        late = max(grid.windows_between(ready.window_start, at), 0)
        rest = replace(ready, window_start=grid.later(ready.window_start, late),
                       windows=ready.windows - late) if late else ready  # fmt: skip
        assert rest.window_start == at, f"window {at} is next, not {rest.window_start}"
        yield rest
        at = end


def _cut(items: Iterable[Ready[C]], at: int, grid: Grid) -> Iterable[Ready[C]]:
    """Split runs of empty windows that span ``at``."""
    for ready in items:
        before = grid.windows_between(ready.window_start, at)
        if 0 < before < ready.windows:
            yield replace(ready, windows=before)
            yield replace(ready, window_start=at, windows=ready.windows - before)
        else:
            yield ready
