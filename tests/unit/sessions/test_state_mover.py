"""When a root's session cuts a head, what it asks for, and what it tells when it has none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.paper.stage import MS
from tests.unit.sessions.test_root_session import Host, answered

from slackwater.model.heads import StoredState
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.dpc.soutput.answers import Answered
from slackwater.protocols.dpc.soutput.heads import HeadCut
from slackwater.sessions.effects import Perform, StorePane
from slackwater.sessions.requests import ReadPanes
from slackwater.sessions.state_mover import StateMover

CONFIG = replace(Host().config, reread_us_max=1_000, head_period_us=10)
CUT = HeadCut(Answered(0, 0, 0, 0), (0,), ((),), {}, ())


def core(reread_us: int = 1_000, *, awaits_commit: bool = False) -> Any:
    """Return what a mover needs of a core."""
    movable = SimpleNamespace(kept=None, reread_us=lambda _: reread_us, cut=lambda: CUT)
    return SimpleNamespace(
        movable=movable,
        awaits_commit=awaits_commit,
        contents=Aggregates(KeyTable(), ("v",)),
        answers=SimpleNamespace(state=CUT.answered),
    )


def started(of: Any, *, windowed: bool = True) -> StateMover:
    """Return a mover that has seen what is stored: nothing."""
    mover = StateMover(CONFIG, windowed=windowed)
    for effect in mover.step(of, 1, 100):
        assert isinstance(effect, Perform)
        assert isinstance(effect.procedure.send(None), ReadPanes)
        try:
            effect.procedure.send(StoredState())
        except StopIteration:
            continue
    return mover


def test_a_head_is_cut_between_two_transactions() -> None:
    of = core()
    mover = started(of)
    of.awaits_commit = True
    assert mover.step(of, 1, 200) == []
    of.awaits_commit = False
    assert any(isinstance(effect, StorePane) for effect in mover.step(of, 1, 300))


def test_nothing_is_asked_for_while_a_start_would_be_fast() -> None:
    assert StateMover(CONFIG, windowed=True).step(core(999), 1, 100) == []


def test_a_query_without_a_window_stores_nothing() -> None:
    assert StateMover(CONFIG, windowed=False).step(core(), 1, 100) == []


def test_each_state_record_has_what_two_heads_need() -> None:
    of = core()
    mover = started(of)
    for now in range(200, 400, 20):
        for effect in mover.step(of, 1, now):
            assert isinstance(effect, StorePane)
            mover.delivered()
        if now < 220:
            assert of.movable.kept is None, "there is one head"
    assert of.movable.kept is not None


def test_a_root_that_needs_more_than_the_heads_says_so_before_its_first_answer() -> None:
    """Else orderers would send again from the older head (trace-62)."""
    state = replace(answered(100, 1), kept_from=(5, 5), moved_to=(300 * MS,))
    host = Host(state).started()
    assert [(each.kept_from, each.moved_to) for each in host.claimed] == [((), ())]
    host = Host(replace(state, moved_to=(100 * MS,))).started()
    assert host.claimed == [], "it has read as far"
