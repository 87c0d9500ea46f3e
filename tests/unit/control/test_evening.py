"""Which copy resigns, so that nodes have equal numbers of answering copies (rule-27)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.test_placing import PERIOD, Record
from tests.unit.control.test_placing import placing as placing_of

from slackwater.control.control_object import ApplyQuery, DrainNode, MoveFragment
from slackwater.control.control_state import ControlState
from slackwater.control.evening import next_resignation
from slackwater.control.node_watch import SETTLE_US
from slackwater.control.placement import FragmentSpec, NodeReports, Standing
from slackwater.control.placing import RECONNECT_US_MAX, RESIGNATION_US_MIN, Placing

STEADY = Standing.STEADY
NODES = ("n1", "n2", "n3", "n4")
Pairs = Sequence[tuple[str, str]]
"""By part: the nodes of the copy that answers and of the one that follows."""


def recorded(pairs: Pairs) -> tuple[Record, tuple[FragmentSpec, ...], list[tuple[int, int]]]:
    """The record, its specs, and the numbers of each pair."""
    record, specs, numbers = Record(*NODES), list[FragmentSpec](), list[tuple[int, int]]()
    assert record.do(ApplyQuery("q", "a definition")) == ""
    for part, nodes in enumerate(pairs):
        names = [f"root.{part}.{letter}" for letter in "ab"]
        specs += [FragmentSpec("q", name, f"root.{part}") for name in names]
        for name, node in zip(names, nodes, strict=True):
            assert record.do(MoveFragment("q", name, node)) == ""
        placed = record.object.state.placement
        a, b = (placed["q", name].number for name in names)
        numbers.append((a, b))
    return record, tuple(specs), numbers


def reports_of(state: ControlState, answering: set[int]) -> NodeReports:
    every = frozenset(entry.number for entry in state.placement.values())
    standings = dict.fromkeys(NODES, STEADY)
    return NodeReports(standings, ready=every, answering=frozenset(answering))


TWO_ON_N1: Pairs = [("n1", "n2"), ("n1", "n2"), ("n3", "n2")]


def resigned(pairs: Pairs, **other: object) -> int | None:
    """The part whose copy is to resign, or None."""
    record, specs, numbers = recorded(pairs)
    state = record.object.state
    reports = replace(reports_of(state, {a for a, _ in numbers}), **other)  # type: ignore[arg-type]
    found = next_resignation(state, specs, reports)
    return None if found is None else [a for a, _ in numbers].index(found)


def test_a_copy_resigns_in_favour_of_a_node_that_answers_less() -> None:
    assert resigned(TWO_ON_N1) == 0


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("n1", "n2")],
        [("n1", "n2"), ("n2", "n1")],
        [("n1", "n2"), ("n1", "n2"), ("n2", "n1")],
        [("n1", "n1"), ("n1", "n1"), ("n1", "n1")],
    ],
    ids=["no part", "one part", "even", "as even as can be", "not apart"],
)
def test_nobody_resigns_where_it_would_not_help(pairs: Pairs) -> None:
    assert resigned(pairs) is None


def test_room_counts() -> None:
    """A node of a third of the room gets a third of the answers."""
    record, specs, numbers = recorded([("n1", "n2")] * 4)
    state = record.object.state
    small = {**state.nodes, "n2": state.nodes["n2"]._replace(room=3)}
    reports = reports_of(state, {a for a, _ in numbers[:3]} | {numbers[3][1]})
    assert next_resignation(replace(state, nodes=small), specs, reports) is None
    assert next_resignation(state, specs, reports) is not None


@pytest.mark.parametrize(
    "standing", [Standing.SETTLING, Standing.SUSPECTED], ids=["settling", "suspected"]
)
def test_a_node_that_is_not_steady_gets_no_answers(standing: Standing) -> None:
    assert resigned(TWO_ON_N1, standings={**dict.fromkeys(NODES, STEADY), "n2": standing}) is None


def test_a_node_that_drains_gets_no_answers() -> None:
    record, specs, numbers = recorded(TWO_ON_N1)
    assert record.do(DrainNode("n2")) == ""
    state = record.object.state
    assert next_resignation(state, specs, reports_of(state, {a for a, _ in numbers})) is None


def test_never_while_a_follower_is_not_ready() -> None:
    """Neither its own, nor another part's: that is about to start."""
    record, specs, numbers = recorded(TWO_ON_N1)
    state = record.object.state
    reports = reports_of(state, {a for a, _ in numbers})
    for number in (numbers[0][1], numbers[2][1]):
        starting = replace(reports, ready=reports.ready - {number})
        assert next_resignation(state, specs, starting) is None
        overdue = replace(starting, overdue=frozenset({number}))
        found = next_resignation(state, specs, overdue)
        assert found in {numbers[0][0], numbers[1][0]} - (
            {numbers[0][0]} if number == numbers[0][1] else set()
        )


def test_never_while_a_take_over_is_in_progress() -> None:
    record, specs, numbers = recorded(TWO_ON_N1)
    state = record.object.state
    both = {a for a, _ in numbers} | {numbers[2][1]}
    assert next_resignation(state, specs, reports_of(state, both)) is None


def test_what_no_node_can_take_does_not_matter() -> None:
    record, specs, numbers = recorded(TWO_ON_N1)
    state = record.object.state
    specs = (*specs, FragmentSpec("q", "orderer.0.a", "orderer.0"))
    assert next_resignation(state, specs, reports_of(state, {a for a, _ in numbers})) is not None


def test_a_part_with_one_copy_does_not_take_part() -> None:
    """It does not report that it answers."""
    assert resigned(TWO_ON_N1, answering=frozenset()) is None


@given(st.lists(st.permutations(NODES).map(lambda each: (each[0], each[1])), max_size=12))
def test_resignations_come_to_an_end_and_leave_no_pair_uneven(pairs: list[tuple[str, str]]) -> None:
    record, specs, numbers = recorded(pairs)
    state = record.object.state
    node_of = {entry.number: entry.node for entry in state.placement.values()}
    other = {**dict(numbers), **{b: a for a, b in numbers}}
    answering = {a for a, _ in numbers}
    for _ in range(len(pairs) ** 2 + 1):
        found = next_resignation(state, specs, reports_of(state, answering))
        if found is None:
            break
        answering = answering - {found} | {other[found]}
    else:
        raise AssertionError("it does not end")
    load: Mapping[str, int] = Counter(node_of[number] for number in answering)
    for number in answering:
        here, there = node_of[number], node_of[other[number]]
        assert load.get(here, 0) - load.get(there, 0) < 2


# --- the controller that asks ---------------------------------------------------------------------


def connected(pairs: Pairs) -> tuple[Record, Placing, list[tuple[int, int]]]:
    record, specs, numbers = recorded(pairs)
    return record, placing_of(specs=specs), numbers


def beat(of: Placing, record: Record, answering: set[int], now: int, *nodes: str) -> None:
    for node in nodes or NODES:
        on = {e.number for e in record.object.state.placement.values() if e.node == node}
        of.heartbeat(node, on, (), now, (), answering & on)


def beat_from(of: Placing, record: Record, answering: set[int], start: int, end: int) -> int:
    """Heartbeats of all nodes after a time and up to another one; the last one's time."""
    now = start
    while now < end:
        now += PERIOD
        beat(of, record, answering, now)
        of.moves(record.object.state, now)
    return now


def test_one_copy_at_a_time_at_a_bounded_rate() -> None:
    record, one, numbers = connected([("n1", "n2")] * 4)
    state, answering = record.object.state, {a for a, _ in numbers}
    now = beat_from(one, record, answering, 0, PERIOD)
    asked_at = now
    assert one.resignation(state, now) == ("n1", numbers[0][0])
    now = beat_from(one, record, answering, now, now + PERIOD)
    assert one.resignation(state, now) is None
    due = one.next_deadline(now)
    assert due is not None
    assert due <= asked_at + RESIGNATION_US_MIN, "it plans again by itself"
    answering = answering - {numbers[0][0]} | {numbers[0][1]}
    now = beat_from(one, record, answering, now, asked_at + RESIGNATION_US_MIN)
    assert one.resignation(state, now) == ("n1", numbers[1][0])
    answering = answering - {numbers[1][0]} | {numbers[1][1]}
    now = beat_from(one, record, answering, now, now + RESIGNATION_US_MIN)
    assert one.resignation(state, now) is None, "two and two"


def test_only_the_controller_that_plans_asks() -> None:
    record, specs, numbers = recorded([("n1", "n2")] * 2)
    other = placing_of("b", specs=specs)
    beat(other, record, {a for a, _ in numbers}, 0)
    assert other.resignation(record.object.state, 0) is None


def test_a_node_that_is_back_is_given_answers_once_it_has_settled() -> None:
    record, one, numbers = connected([("n1", "n2")] * 2)
    state, answering = record.object.state, {a for a, _ in numbers}
    beat(one, record, answering, 0)
    one.closed("n2", 0)
    later = RECONNECT_US_MAX + PERIOD
    beat(one, record, answering, later, "n1", "n3", "n4")
    one.moves(state, later)
    beat(one, record, answering, later + PERIOD)
    assert one.resignation(state, later + PERIOD) is None
    settled = later + PERIOD + SETTLE_US
    now = beat_from(one, record, answering, later + PERIOD, settled - PERIOD)
    assert one.resignation(state, now) is None
    now = beat_from(one, record, answering, now, settled)
    assert one.resignation(state, now) == ("n1", numbers[0][0])
