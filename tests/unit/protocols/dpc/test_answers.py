"""The contents of the root's transactions (rule-22 to rule-24; DPC, section 4.4.2).

Deliberate differences from the paper: the UNDO is the root's and revokes no more than the same
transaction replaces (trace-3, trace-4), where SOutput sends one UNDO and later one REC_DONE.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.answer_history import History

from slackwater.model.deployment import WindowSpec
from slackwater.model.records import Gap
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import (
    Answered,
    AnswerPlanner,
    EmptyRun,
    GapNote,
    Ready,
    RecDone,
    StableWindow,
    TentativeWindow,
    Transaction,
    Undo,
)

SLIDE = 10
GRID = Grid(10, WindowSpec(30, SLIDE))


def answers_from(snapshot: Answered) -> AnswerPlanner[str]:
    return AnswerPlanner(snapshot, GRID, lambda end: end + 1_000)


def ready(window: int, rows: int = 1, windows: int = 1, gap: tuple[Gap, ...] = ()) -> Ready[str]:
    return Ready(window * SLIDE, f"W{window}" if rows else None, rows, windows, gap=gap)


def lacking(window: int, rows: int = 1, windows: int = 1) -> Ready[str]:
    content = f"W{window}?" if rows else None
    return Ready(window * SLIDE, content, rows, windows, missing=("s1",))


def commit(answers: AnswerPlanner[str], transaction: Transaction[str]) -> Transaction[str]:
    answers.committed(transaction.after)
    return transaction


def test_a_stable_window_is_its_rows_and_its_boundary() -> None:
    answers = answers_from(Answered(7, 3, 0, 0))
    transaction = answers.plan([ready(0, rows=4)])
    (window,) = transaction.effects
    assert window == StableWindow(7, 11, 0, 0, 30, 1_030, 4, "W0", ())
    assert transaction.after == Answered(12, 3, SLIDE, SLIDE)
    assert not transaction.more


def test_planning_changes_nothing_and_a_commit_does() -> None:
    answers = answers_from(Answered.start(0))
    first = answers.plan([ready(0)])
    assert answers.plan([ready(0)]) == first  # the first one was aborted
    answers.committed(first.after)
    assert not answers.plan([ready(0)])
    assert not answers.plan([])


def test_the_order_is_undo_stable_rec_done_tentative() -> None:
    answers = answers_from(Answered.start(0))
    commit(answers, answers.plan([], [lacking(0), lacking(1)]))
    transaction = answers.plan([ready(0), ready(1), ready(2)], [lacking(3)])
    kinds = [type(effect) for effect in transaction.effects]
    assert kinds == [Undo, StableWindow, StableWindow, StableWindow, RecDone, TentativeWindow]
    undo, w0, w1, w2, done, w3 = transaction.effects
    assert isinstance(undo, Undo)
    assert (undo.undo_from, undo.undo_to) == (0, SLIDE)
    assert [e.epoch for e in (undo, w0, w1, w2, done, w3)] == [1, 1, 1, 0, 1, 2]
    assert transaction.after == Answered(4 + 1 + 6 + 1 + 2, 2, 30, 40)


def test_a_tentative_answer_among_unrevoked_ones_stays_in_their_epoch() -> None:
    answers = answers_from(Answered(0, 4, 10, 30))
    transaction = answers.plan([ready(1)], [lacking(3)])
    assert [e.epoch for e in transaction.effects] == [4, 4, 4]
    assert not any(isinstance(e, RecDone) for e in transaction.effects)


def test_what_was_answered_in_the_meantime_is_skipped() -> None:
    # A secondary offers its computed answers; by the log the primary has written some of them.
    answers = answers_from(Answered(50, 1, 20, 40))
    transaction = answers.plan([ready(0), ready(1), ready(2)], [lacking(2), lacking(3), lacking(4)])
    starts = [e.window_start for e in transaction.effects if not isinstance(e, Undo | RecDone)]
    assert starts == [20, 40]


def test_a_tentative_answer_is_superfluous_when_the_stable_one_is_there() -> None:
    answers = answers_from(Answered.start(0))
    transaction = answers.plan([ready(0)], [lacking(0), lacking(1)])
    assert [type(e) for e in transaction.effects] == [StableWindow, TentativeWindow]


def test_a_hole_between_the_answers_is_a_fault_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="is next"):
        answers_from(Answered.start(0)).plan([ready(1)])
    with pytest.raises(AssertionError, match="is next"):
        answers_from(Answered.start(0)).plan([ready(0)], [lacking(2)])


def test_at_most_a_hundred_windows_are_corrected_at_once_and_live_answers_go_out() -> None:
    answers = answers_from(Answered(0, 1, 0, 250 * SLIDE))
    backlog = [ready(w) for w in range(250)]
    lengths = []
    for live in range(250, 253):
        transaction = commit(answers, answers.plan(backlog, [lacking(live)]))
        lengths.append(sum(isinstance(e, StableWindow) for e in transaction.effects))
        assert isinstance(transaction.effects[-1], TentativeWindow)
    assert lengths == [100, 100, 50]
    assert not transaction.more


def test_at_most_20000_rows_or_one_window() -> None:
    answers = answers_from(Answered(0, 1, 0, 4 * SLIDE))
    backlog = [ready(0, 30_000), ready(1, 15_000), ready(2, 5_000), ready(3, 1)]
    sizes = []
    for _ in range(3):
        transaction = commit(answers, answers.plan(backlog))
        sizes.append([e.rows for e in transaction.effects if isinstance(e, StableWindow)])
    assert sizes == [[30_000], [15_000, 5_000], [1]]
    assert isinstance(transaction.effects[-1], RecDone)


def test_a_run_of_empty_windows_is_cut_at_t_and_counts_as_one_correction() -> None:
    answers = answers_from(Answered(0, 1, 0, 150 * SLIDE))
    reported = commit(answers, answers.plan([ready(0, rows=0, windows=1_000_000)]))
    assert not reported.more
    runs = [e for e in reported.effects if isinstance(e, EmptyRun)]
    assert [r.windows for r in runs] == [150, 999_850]
    assert [r.epoch for r in runs] == [1, 0]
    last = runs[-1]
    assert last.window_end == 999_999 * SLIDE + 30
    assert last.due_at == last.window_end + 1_000
    assert answers.state.stable_from == answers.state.answered_to == 1_000_000 * SLIDE


def test_a_hundred_runs_of_empty_windows_are_corrected_at_once() -> None:
    """Between two distant readings there may be any number of windows."""
    spacing = 10_000
    answers = answers_from(Answered(0, 1, 0, 150 * spacing * SLIDE))
    backlog = [
        one
        for at in range(0, 150 * spacing, spacing)
        for one in (ready(at, rows=1), ready(at + 1, rows=0, windows=spacing - 1))
    ]
    corrected = []
    while answers.state.stable_from < answers.state.answered_to:
        reported = commit(answers, answers.plan(backlog))
        corrected.append(sum(isinstance(e, StableWindow | EmptyRun) for e in reported.effects))
    assert corrected == [100, 100, 100]


def test_skipped_windows_are_one_line_and_are_undone_like_any_tentative_answer() -> None:
    answers = answers_from(Answered(0, 0, 0, 0))
    skipped: Ready[str] = Ready(0, None, 0, 5, ("s1",), skipped=True)
    reported = commit(answers, answers.plan([], [skipped, lacking(5)]))
    run, window = reported.effects
    assert run == EmptyRun(0, 1, False, 0, 70, 5, 1_070, ("s1",), skipped=True)
    assert isinstance(window, TentativeWindow)
    reported = commit(answers, answers.plan([ready(0), ready(1), ready(2)]))
    assert reported.effects[0] == Undo(3, 1, 0, 20)
    reported = commit(answers, answers.plan([ready(3), ready(4), ready(5)]))
    assert reported.effects[0] == Undo(10, 1, 30, 50)
    assert isinstance(reported.effects[-1], RecDone)


def test_one_skipped_window_is_no_empty_one() -> None:
    answers = answers_from(Answered(0, 0, 0, 0))
    run: Ready[str] = Ready(0, None, 0, 3, skipped=True)
    answers.committed(Answered(0, 0, 20, 20))
    (rest,) = answers.plan([], [run]).effects
    assert rest == EmptyRun(0, 1, False, 20, 50, 1, 1_050, (), skipped=True)


def test_a_window_with_a_gap_is_preceded_by_a_note() -> None:
    gap = (Gap("s1", 500),)
    transaction = answers_from(Answered.start(0)).plan([ready(0, gap=gap)])
    note, window = transaction.effects
    assert note == GapNote(0, 0, 0, 30, gap)
    assert isinstance(window, StableWindow)
    assert (window.first_seq, window.gap) == (1, gap)


def test_a_log_that_goes_back_is_refused() -> None:
    answers = answers_from(Answered(10, 1, 20, 30))
    with pytest.raises(ValueError, match="went back"):
        answers.committed(Answered(9, 1, 20, 30))
    with pytest.raises(ValueError, match="went back"):
        answers.committed(Answered(12, 1, 10, 30))


class Flapping(RuleBasedStateMachine):
    """Sources fail and return; transactions abort; copies end, and others take over from the log.

    ``complete`` is the frontier of every child. A new copy gets only the last committed snapshot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = Answered.start(0)
        self.answers = answers_from(self.snapshot)
        self.secondary = answers_from(self.snapshot)
        self.history = History(0, SLIDE)
        self.complete = 0
        self.now = 0

    @rule(
        passes=st.sampled_from([0, 1, 2, 7, 40, 250]),
        heals=st.sampled_from([0.0, 0.0, 0.3, 0.7, 1.0]),
        lags=st.integers(0, 3),
        seed=st.integers(0, 2**16),
        fate=st.sampled_from(["commit", "commit", "abort", "die after commit"]),
    )
    def transaction(self, passes: int, heals: float, lags: int, seed: int, fate: str) -> None:
        self.now += passes
        self.complete += round((self.now - self.complete) * heals)
        state = self.answers.state
        stable = self._items(Random(seed), ready, state.stable_from // SLIDE, self.complete)
        first, last = state.answered_to // SLIDE, max(self.complete, self.now - lags)
        tentative = self._items(Random(seed + 1), lacking, first, last)
        planned = self.answers.plan(stable, tentative)
        if not planned.more or planned.after.stable_from < planned.after.answered_to:
            assert planned.after.answered_to >= last * SLIDE, "due, and not answered"
        if fate == "abort" or not planned:
            return
        self.history.transaction(planned.effects)
        self.snapshot = planned.after
        if fate == "die after commit":
            self.answers = answers_from(self.snapshot)
        else:
            self.answers.committed(planned.after)

    @rule()
    def the_secondary_reads_the_log_and_takes_over(self) -> None:
        self.secondary.committed(self.snapshot)
        self.answers, self.secondary = self.secondary, answers_from(self.snapshot)

    @rule()
    def all_heals(self) -> None:
        self.complete = self.now
        while True:
            stable = [ready(w) for w in range(self.complete)]
            planned = self.answers.plan(stable)
            if planned:
                self.history.transaction(planned.effects)
            self.snapshot = planned.after
            self.answers.committed(planned.after)
            if not planned.more:
                break
        assert not self.history.unrevoked
        assert self.history.stable == [w * SLIDE for w in range(self.complete)]

    @invariant()
    def the_state_follows_from_the_history(self) -> None:
        state, history = self.snapshot, self.history
        assert state.next_seq == history.next_seq
        assert state.answered_to == history.next_unanswered()
        assert sorted(history.unrevoked) == list(range(state.stable_from, state.answered_to, SLIDE))
        assert set(history.unrevoked.values()) <= {state.epoch}

    @staticmethod
    def _items(
        random: Random, make: Callable[[int, int, int], Ready[str]], first: int, last: int
    ) -> list[Ready[str]]:
        """Return windows [first, last), single and in runs of empty ones, beginning early."""
        items, at = [], max(0, first - random.randrange(4))
        while at < last:
            rows = random.choice([0, 1, 3, 3, 3, 3, 3, 900, 9_000, 25_000])
            windows = random.randint(1, last - at) if rows == 0 else 1
            items.append(make(at, rows, windows))
            at += windows
        return items


TestFlapping = Flapping.TestCase
TestFlapping.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
