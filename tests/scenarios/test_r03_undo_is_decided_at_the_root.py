"""trace-3: the root decides UNDO and REC_DONE from S and T, whatever the cause of the failure."""

from __future__ import annotations

from tests.support.answer_history import History

from slackwater.model.deployment import WindowSpec
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import (
    Answered,
    AnswerPlanner,
    Effect,
    Ready,
    RecDone,
    Undo,
)

GRID = Grid(1, WindowSpec(1, 1))  # window n is [n, n + 1)


def root(snapshot: Answered) -> AnswerPlanner[str]:
    return AnswerPlanner(snapshot, GRID, lambda end: end)


def exact(*windows: int) -> list[Ready[str]]:
    return [Ready(w, f"W{w}", rows=1) for w in windows]


def partial(*windows: int) -> list[Ready[str]]:
    return [Ready(w, f"W{w}, child 1 missing", rows=1, missing=("s1",)) for w in windows]


def kinds(effects: tuple[Effect[str], ...]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_an_aggregator_ends_and_no_orderer_ever_emits_tentative() -> None:
    history = History(10, 1)
    primary = root(Answered.start(10))
    without_child_1 = primary.plan([], partial(10))
    history.transaction(without_child_1.effects)
    primary.committed(without_child_1.after)

    back = primary.plan(exact(10, 11))
    history.transaction(back.effects)
    assert kinds(back.effects) == ["Undo", "StableWindow", "StableWindow", "RecDone"]
    assert not history.unrevoked


def test_corrections_pass_from_one_orderers_epoch_into_the_next() -> None:
    # W10-W59 in one outage, W60-W80 during its correction: one REC_DONE, at the end.
    history = History(10, 1)
    primary = root(Answered.start(10))
    offers = [
        ([], partial(*range(10, 60))),
        (exact(*range(10, 40)), partial(*range(60, 81))),
        (exact(*range(40, 81)), []),
    ]
    done = []
    for stable, tentative in offers:
        planned = primary.plan(stable, tentative)
        history.transaction(planned.effects)
        primary.committed(planned.after)
        done += [e.epoch for e in planned.effects if isinstance(e, RecDone)]
    assert done == [1]
    assert not history.unrevoked


def test_a_secondary_that_never_was_tentative_takes_over() -> None:
    history = History(10, 1)
    primary = root(Answered.start(10))
    tentative = primary.plan([], partial(10))
    history.transaction(tentative.effects)

    # The secondary had child 1's deltas in time. The log is decisive (rule-24).
    secondary = root(Answered.start(10))
    secondary.committed(tentative.after)
    stable = secondary.plan(exact(10))
    history.transaction(stable.effects)
    assert kinds(stable.effects) == ["Undo", "StableWindow", "RecDone"]


def test_a_root_restarts_with_a_tentative_tail_after_all_has_healed() -> None:
    history = History(10, 1)
    primary = root(Answered.start(10))
    tentative = primary.plan([], partial(10, 11))
    history.transaction(tentative.effects)

    restarted = root(tentative.after)  # only the state record
    stable = restarted.plan(exact(10, 11))
    history.transaction(stable.effects)
    assert isinstance(stable.effects[0], Undo)
    assert isinstance(stable.effects[-1], RecDone)
