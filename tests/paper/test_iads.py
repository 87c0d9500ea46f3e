"""The cores against the text of Khazan and Lynch, section by section."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.iads_simulator.world import Fault, LogObject, Plan, run

from slackwater.protocols.iads.detector import PhiAccrual
from slackwater.protocols.iads.endpoint import MODE_MOVES, Endpoint, Mode, ModeEvent
from slackwater.protocols.iads.messages import (
    ConfirmBlock,
    EndpointEffect,
    LtMsg,
    OpMsg,
    RefreshClient,
    RespondToClient,
    SendPayload,
    StMsg,
    View,
)
from slackwater.protocols.iads.topology import Process, ReachReport, group_of


def view(number: int, names: str) -> View:
    return View(number, frozenset(Process(name, 1) for name in names))


def endpoint(names: str = "ab", *, synchronised: bool = True) -> Endpoint:
    """Return end-point a in a view of these members."""
    point = Endpoint("a", LogObject(), view(1, "a"))
    point.view(view(2, names), frozenset(names if synchronised else "a"))
    return point


def of(kind: type, effects: list[EndpointEffect]) -> list[Any]:
    sent = [e.payload if isinstance(e, SendPayload) else e for e in effects]
    return [e for e in sent if isinstance(e, kind)]


def test_iii_condition_b_asks_the_others_only() -> None:
    """Section III, (b): "all other application end-points"; in a view of one there are none."""
    effects = endpoint("a").request("r", "x")

    assert [r.response for r in of(RespondToClient, effects)] == [1]


def test_iii_an_operation_waits_for_later_logical_times_of_all_others() -> None:
    """Section III, (a) and (b)."""
    a = endpoint("abc")
    assert of(OpMsg, a.request("r", "x")) == [OpMsg("x", 1)]
    assert not of(RespondToClient, a.deliver("b", LtMsg(2)))
    assert not of(RespondToClient, a.deliver("c", LtMsg(1))), "a time must exceed the timestamp"

    assert len(of(RespondToClient, a.deliver("c", LtMsg(2)))) == 1


def test_iii_a_logical_time_is_sent_at_once_on_an_operation() -> None:
    """Section III, heartbeats: here each receiver sends its time at once, so 2d suffices."""
    assert of(LtMsg, endpoint().deliver("b", OpMsg("x", 5))) == [LtMsg(6)]


def test_iii_equal_timestamps_are_ordered_by_member() -> None:
    """Section III, total order through logical time."""
    a = endpoint("abc")
    a.request("r", "mine")
    a.deliver("b", OpMsg("theirs", 1))
    a.deliver("b", LtMsg(9))
    a.deliver("c", LtMsg(9))

    assert isinstance(a.obj, LogObject)
    assert [stamp.sender for stamp in a.obj.applied] == ["a", "b"]


def test_iii_a_view_processes_all_operations() -> None:
    """Section III: at a view, operations run although (b) does not hold."""
    a = endpoint()
    a.request("r", "x")
    a.block()

    effects = a.view(view(3, "a"), frozenset("a"))

    assert [r.stamp.view_number for r in of(RespondToClient, effects)] == [2]


def test_figure_4_nothing_is_sent_while_blocked() -> None:
    a = endpoint()
    assert isinstance(a.block()[-1], ConfirmBlock)
    assert a.request("r", "x") == []
    assert a.deliver("b", OpMsg("y", 4)) == []

    assert of(OpMsg, a.view(view(3, "ab"), frozenset("ab"))) == [OpMsg("x", 1)]


def test_figure_4_no_state_is_sent_while_blocked() -> None:
    """Nothing follows block_ok in a view; here a state is sent with the view that needs it."""
    a = endpoint()
    a.block()
    a.send_state = True
    assert not of(StMsg, a.deliver("b", LtMsg(1)))


def test_iii_the_whole_view_moved_together_so_no_state_is_sent() -> None:
    """Section I, second observation: v.set = T."""
    a = endpoint()
    a.block()
    effects = a.view(view(3, "ab"), frozenset("ab"))

    assert not of(StMsg, effects)
    assert len(of(RefreshClient, effects)) == 1


def test_iii_one_member_of_ss_sends_the_state_and_the_merge_is_refreshed() -> None:
    """Section III, state-transfer protocol."""
    a = endpoint(synchronised=False)
    a.deliver("a", StMsg(frozenset("a"), frozenset()))
    effects = a.deliver("b", StMsg(frozenset("b"), frozenset({"theirs"})))

    assert [r.state for r in of(RefreshClient, effects)] == [frozenset({"theirs"})]
    assert a.mode is Mode.NORMAL


def test_iii_operations_wait_for_the_end_of_a_state_transfer() -> None:
    """Section III: requests are processed in normal mode; meanwhile they are sent and received."""
    a = endpoint(synchronised=False)
    assert of(OpMsg, a.request("r", "x")) == [OpMsg("x", 1)]
    assert not of(RespondToClient, a.deliver("b", LtMsg(9)))
    assert not of(RespondToClient, a.deliver("a", StMsg(frozenset("a"), frozenset())))

    effects = a.deliver("b", StMsg(frozenset("b"), frozenset()))
    assert [r.response for r in of(RespondToClient, effects)] == [1]


def test_iii_ss_is_an_intersection_over_interrupted_transfers() -> None:
    """Section III: members that move together during a transfer are not synchronised by it."""
    a = endpoint(synchronised=False)
    a.block()
    a.view(view(3, "ab"), frozenset("ab"))

    assert {"a"} == a.SS
    assert a.mode is Mode.ST


def test_the_normal_branch_resets_the_transfer() -> None:
    """A difference from Figure 4: a state that was not sent is not sent in a later view."""
    a = endpoint(synchronised=False)
    a.send_state = True  # as if the block had come first
    a.block()
    effects = a.view(view(3, "a"), frozenset("a"))

    assert not of(StMsg, effects)
    assert (a.send_state, a.States_Await) == (False, set())


def test_a_refresh_after_a_merge_names_what_was_answered_before() -> None:
    a = endpoint("a")
    stamp = of(RespondToClient, a.request("r", "x"))[0].stamp
    a.block()
    a.view(view(3, "ab"), frozenset("a"))
    a.deliver("a", StMsg(frozenset("a"), a.obj.snapshot()))
    effects = a.deliver("b", StMsg(frozenset("b"), frozenset()))

    assert of(RefreshClient, effects)[0].overridable == (stamp,)


def test_figure_3_the_table_of_modes_is_complete() -> None:
    missing = set(product(Mode, ModeEvent)) - set(MODE_MOVES)
    assert missing == {(Mode.NORMAL, ModeEvent.STATES_COMPLETE)}


@pytest.mark.parametrize("delay_us", [100, 10_000, 50_000])
def test_iv_a_response_takes_two_latencies(delay_us: int) -> None:
    """Section IV states about one latency; the printed order needs two."""
    plan = Plan(1, ("a", "b", "c"), delay_us, 0.0, (), ((3_000_000, "a"),), 4_000_000)
    history = run(plan)

    assert history.answered[0][0] - 3_000_000 <= 2 * delay_us * 6 // 5 + 2


def test_a_split_goes_on_in_both_halves_and_merges() -> None:
    """Section I: non-atomic while unstable, one state a bounded time after."""
    cuts = tuple(Fault(1_000_000, "cut", "a", other, 1) for other in "bc")
    requests = ((2_000_000, "a"), (2_000_000, "b"))
    history = run(Plan(1, ("a", "b", "c"), 1_000, 0.0, cuts, requests, 8_000_000))

    assert {at < 2_010_000 for at, _, _ in history.answered} == {True}
    assert len({state for _, _, state in history.final.values()}) == 1
    assert all(len(state) == 2 for _, _, state in history.final.values())


@given(st.lists(st.integers(50_000, 300_000), max_size=30))
def test_the_detector_suspects_at_its_deadline(intervals: list[int]) -> None:
    detector, now = PhiAccrual(0), 0
    for interval in intervals:
        now += interval
        detector.heartbeat(now)

    assert detector.phi(detector.suspect_at()) >= 8 > detector.phi(detector.suspect_at() - 2)


@given(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4))))
def test_groups_are_a_partition_into_cliques(cuts: set[tuple[int, int]]) -> None:
    everyone = [Process(name, 1) for name in "abcde"]
    reports: Mapping[Process, ReachReport] = {
        p: ReachReport(
            1, frozenset(q for j, q in enumerate(everyone) if i == j or (i, j) not in cuts)
        )
        for i, p in enumerate(everyone)
    }
    groups = {p: group_of(p, reports) for p in everyone}

    for p, group in groups.items():
        assert p in group
        assert all(q in reports[r].reaches for q in group for r in group)
        assert all(groups[q] == group for q in group)
