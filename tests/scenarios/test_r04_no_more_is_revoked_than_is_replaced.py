"""trace-4: a source flaps; answers without a replacement remain tentative."""

from __future__ import annotations

from tests.support.answer_history import History

from slackwater.model.deployment import WindowSpec
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import (
    Answered,
    AnswerPlanner,
    Ready,
    RecDone,
    StableWindow,
    Undo,
)

GRID = Grid(1, WindowSpec(1, 1))  # window n is [n, n + 1)


def root(snapshot: Answered) -> AnswerPlanner[str]:
    return AnswerPlanner(snapshot, GRID, lambda end: end)


def exact(*windows: int) -> list[Ready[str]]:
    return [Ready(w, f"W{w}", rows=1) for w in windows]


def partial(*windows: int) -> list[Ready[str]]:
    return [Ready(w, f"W{w} without s1", rows=1, missing=("s1",)) for w in windows]


def test_a_source_returns_with_three_windows_and_dies_again() -> None:
    history = History(10, 1)
    answers = root(Answered.start(10))
    outage = answers.plan([], partial(*range(10, 60)))
    history.transaction(outage.effects)
    answers.committed(outage.after)

    flap = answers.plan(exact(10, 11, 12))
    history.transaction(flap.effects)
    answers.committed(flap.after)
    undo = flap.effects[0]
    assert isinstance(undo, Undo)
    assert (undo.undo_from, undo.undo_to) == (10, 12)
    assert not any(isinstance(e, RecDone) for e in flap.effects)
    assert sorted(history.unrevoked) == list(range(13, 60))

    again = answers.plan([], partial(60))
    history.transaction(again.effects)
    answers.committed(again.after)
    assert set(history.unrevoked.values()) == {1}

    healed = answers.plan(exact(*range(13, 61)))
    history.transaction(healed.effects)
    assert isinstance(healed.effects[-1], RecDone)
    assert not history.unrevoked


def test_a_root_that_restarts_in_an_outage_of_ten_hours_revokes_nothing() -> None:
    history = History(0, 1)
    answers = root(Answered.start(0))
    outage = answers.plan([], partial(*range(36_000)))
    history.transaction(outage.effects)

    restarted = root(outage.after)
    assert not restarted.plan([])
    goes_on = restarted.plan([], partial(36_000))
    history.transaction(goes_on.effects)
    restarted.committed(goes_on.after)
    assert len(history.unrevoked) == 36_001

    first = restarted.plan(exact(*range(36_001)))
    history.transaction(first.effects)
    assert sum(isinstance(e, StableWindow) for e in first.effects) == 100
    assert first.more
