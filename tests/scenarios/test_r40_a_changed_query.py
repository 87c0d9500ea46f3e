"""trace-40: a query is changed while a source is missing.

Query q reads three sources, of which the third has been removed for good, so its answers stay
tentative. It is changed to read the other two. The new generation continues q's results: it undoes
the tentative answers and replaces them by exact ones. Without that it would begin a sequence of its
own: readers would see a seq and a window twice, and what was tentative would stay so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.paper.stage import MS, Emitted, Orderer, Root, Settings, Stage

from slackwater.model.errors import SupersededError
from slackwater.protocols.dpc.soutput.answers import (
    EmptyRun,
    GapNote,
    RecDone,
    StableWindow,
    TentativeWindow,
    Undo,
)
from slackwater.protocols.dpc.soutput.config import start_of_generation

SETTINGS = Settings()
REMOVED, CHANGED, READY, END = 4_000, 8_000, 9_000, 12_000


class Change:
    """Query q until it is replaced, and then its generation 1, over the same sources."""

    def __init__(self, settings: Settings = SETTINGS, *, is_removed: bool = True) -> None:
        self.settings = settings
        self.stage = Stage(settings=settings)
        self.stage.run_to(REMOVED)
        if is_removed:
            self.stage.sources["s3"].disconnect()
        self.stage.run_to(CHANGED)
        state = self.stage.root.state
        assert state is not None
        looks_back_us = (settings.join_within_ms or 0) * MS
        self.begins = start_of_generation(state.stable_from, 0, looks_back_us)
        kept = [self.stage.sources[name] for name in ("s1", "s2")]
        self.orderer = Orderer(kept, settings, query="q.g1", start_time=self.begins)

    def run_both_to(self, end_ms: int) -> None:
        """Run to a time, in which generation 0 answers and generation 1 computes."""
        while self.stage.now_ms < end_ms:
            self.stage.run_to(self.stage.now_ms + self.stage.tick_ms)
            self.orderer.listen()
            self.orderer.step(self.stage.now_ms)

    def replaced(self) -> Root:
        """Generation 1 takes over; it must be able to."""
        state = self.stage.root.state
        assert state is not None
        return Root([self.orderer], self.settings, "q.g1", self.begins, {0: state})

    def run_later_to(self, root: Root, end_ms: int) -> None:
        """Run generation 1 to a time."""
        while self.stage.now_ms < end_ms:
            for source in self.orderer.sources:
                source.emit([self.stage.now_ms + 1], self.stage.now_ms + self.stage.tick_ms)
            self.stage.now_ms += self.stage.tick_ms
            self.orderer.listen()
            self.orderer.step(self.stage.now_ms)
            root.listen()
            state = self.orderer.core.line.state
            root.core.update_replica(0, 0, state, self.stage.now_ms * MS)
            root.step(self.stage.now_ms)


def first_seq(effect: object) -> int:
    assert isinstance(effect, StableWindow | TentativeWindow | Undo | RecDone | GapNote | EmptyRun)
    return effect.first_seq if isinstance(effect, StableWindow | TentativeWindow) else effect.seq


WindowAnswer = type[StableWindow[Any]] | type[TentativeWindow[Any]]


def windows(emitted: Sequence[Emitted], kind: WindowAnswer) -> list[int]:
    """The starts of windows with this kind of answer, in ms and in the order of the answers."""
    return [e.effect.window_start // MS for e in emitted if isinstance(e.effect, kind)]


def count_of(answer: StableWindow[Any], root: Root) -> float:
    """The number of rows in a window of one key."""
    assert answer.content is not None
    _, figures = answer.content.slice.sorted(root.core.keys)
    return float(figures[0][0][0])


def test_a_new_generation_continues_the_results() -> None:
    change = Change()
    change.run_both_to(READY)
    before = list(change.stage.emitted)
    root = change.replaced()
    change.run_later_to(root, END)
    after = root.emitted

    size = SETTINGS.window_ms
    stable_before, stable = windows(before, StableWindow), windows(after, StableWindow)
    assert stable_before[-1] < REMOVED, "q cannot complete a window without the third source"
    assert stable_before + stable == list(range(0, stable[-1] + 1, size)), "each window once"
    assert stable[-1] >= END - 2 * size
    # The tentative answers in force are undone, in the transaction that replaces them.
    tentative = windows(before, TentativeWindow)
    assert tentative[-1] > REMOVED
    undone = [e for e in after if isinstance(e.effect, Undo)]
    assert undone
    assert undone[0].effect.undo_from == stable[0] * MS  # type: ignore[union-attr]
    replaced = next(e for e in after if isinstance(e.effect, StableWindow))
    assert replaced.transaction == undone[0].transaction
    assert [e for e in after if isinstance(e.effect, RecDone)]
    assert not windows(after, TentativeWindow), "generation 1 lacks nothing"
    # One sequence, without a gap or a repetition.
    (last,) = before[-1:]
    assert isinstance(last.effect, TentativeWindow)
    assert first_seq(after[0].effect) == last.effect.seq + 1
    rows = {r for e in after if isinstance(e.effect, StableWindow) for r in [e.effect.rows]}
    assert rows == {1}


@pytest.mark.parametrize(
    "settings",
    [SETTINGS, Settings(rows=True), Settings(window_ms=300, slide_ms=100)],
    ids=["tumbling", "no window", "sliding"],
)
def test_nothing_is_answered_twice_or_left_out_while_nothing_is_missing(settings: Settings) -> None:
    """The earlier generation answers on while the later one computes, whose start is then past."""
    change = Change(settings, is_removed=False)
    change.run_both_to(READY)
    state = change.stage.root.state
    assert state is not None
    assert state.stable_from > change.begins
    root = change.replaced()
    change.run_later_to(root, END)
    stable = windows(change.stage.emitted, StableWindow) + windows(root.emitted, StableWindow)
    first = settings.grid.first_window_holding(0) // MS
    assert stable == list(range(first, stable[-1] + 1, 100)), "each window once"
    assert stable[-1] >= END - 500
    assert not windows([*change.stage.emitted, *root.emitted], TentativeWindow)
    assert not [e for e in root.emitted if isinstance(e.effect, EmptyRun | Undo)]
    rows = {e.effect.rows for e in root.emitted if isinstance(e.effect, StableWindow)}
    assert rows == {4 if settings.rows else 1}, "two sources, two readings each in a bucket"


def test_a_join_has_its_pairs_across_the_cut() -> None:
    """The first window of the new generation has readings that pair with those before it."""
    change = Change(Settings(join_within_ms=200))
    change.run_both_to(READY)
    root = change.replaced()
    change.run_later_to(root, END)
    answers = [e.effect for e in root.emitted if isinstance(e.effect, StableWindow)]
    assert answers[0].window_start // MS == REMOVED
    pairs = {count_of(answer, root) for answer in answers}
    assert len(pairs) == 1, f"each window has as many pairs as the next: {pairs}"


def test_nothing_before_the_query_s_start_is_answered() -> None:
    """S is the start of a window, which may begin before the query does."""
    assert start_of_generation(-40 * MS, 0) == 0
    assert start_of_generation(500 * MS, 0, 200 * MS) == 300 * MS
    assert start_of_generation(100 * MS, 0, 200 * MS) == 0


def test_the_earlier_generation_stays_down_when_the_later_one_has_answered() -> None:
    change = Change()
    change.run_both_to(READY)
    root = change.replaced()
    change.run_later_to(root, END)
    assert root.state is not None
    earlier = change.stage.root
    earlier.others = {1: root.state}
    reason = ""
    try:
        earlier.crash()
    except SupersededError as error:
        reason = str(error)
    assert reason == "query q.g1 has replaced q: root/q.0 stays down"


def test_the_later_generation_restarts_from_its_own_state() -> None:
    change = Change()
    change.run_both_to(READY)
    root = change.replaced()
    change.run_later_to(root, END - 1_000)
    answered = windows(root.emitted, StableWindow)[-1]
    root.crash()
    change.run_later_to(root, END)
    assert windows(root.emitted, StableWindow)[-1] > answered
    stable = windows(root.emitted, StableWindow)
    assert stable == sorted(set(stable)), "each window once"
