"""The replicated object: laws, numbers, responses, and mutants that these tests must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.mutation import Edit, Mutant, applied

from slackwater.control.control_object import (
    RANK_BITS,
    AcknowledgeView,
    ApplyQuery,
    ControlObject,
    DeleteQuery,
    DrainNode,
    JoinNode,
    LeaveController,
    LeaveNode,
    MoveFragment,
    Operation,
    PauseQuery,
    ResumeQuery,
    placement_number,
)
from slackwater.control.control_state import ControlState, join, join_all
from slackwater.model.limits import CONTROL_STATE_BYTES_MAX
from slackwater.protocols.iads.messages import Stamp

ROSTER: Final = frozenset("abc")
NAMES: Final = st.sampled_from(("climate", "doors"))
NODES: Final = st.sampled_from(("n1", "n2"))
TEXTS: Final = st.sampled_from(("one", "two"))
OPERATIONS: Final[st.SearchStrategy[Operation]] = st.one_of(
    st.builds(ApplyQuery, NAMES, TEXTS),
    st.builds(DeleteQuery, NAMES),
    st.builds(PauseQuery, NAMES),
    st.builds(ResumeQuery, NAMES),
    st.builds(JoinNode, NODES, st.integers(0, 3)),
    st.builds(LeaveNode, NODES),
    st.builds(DrainNode, NODES),
    st.builds(MoveFragment, NAMES, st.sampled_from(("0.a", "1.b")), NODES),
)


@st.composite
def halves(draw: st.DrawFn) -> list[ControlState]:
    """States of members that began as one, were cut apart, and merged in pairs now and then."""
    view, states = 1, dict.fromkeys(sorted(ROSTER), ControlState())
    for _ in range(draw(st.integers(1, 4))):
        for name in states:
            obj = ControlObject(ROSTER, states[name])
            for n, operation in enumerate(draw(st.lists(OPERATIONS, max_size=6)), 1):
                obj.apply(operation, Stamp(view, n, name))
            states[name] = obj.state
        connected = draw(st.sets(st.sampled_from(sorted(ROSTER)), max_size=3))
        merged = join_all(states[name] for name in sorted(connected))
        states |= dict.fromkeys(connected, merged)
        view += 1
    return list(states.values())


@given(halves())
def test_merge_is_idempotent_commutative_and_associative(states: list[ControlState]) -> None:
    one, other, third = states
    assert join(one, one) == one
    assert join(one, ControlState()) == one
    assert join(one, other) == join(other, one)
    assert join(join(one, other), third) == join(one, join(other, third))


@given(halves())
def test_a_merge_takes_every_entry_from_one_of_the_states(states: list[ControlState]) -> None:
    merged = join_all(states)
    assert merged.stamps() <= frozenset().union(*(state.stamps() for state in states))
    for state in states:
        assert state.queries.keys() <= merged.queries.keys()
        assert all(merged.queries[name] >= entry for name, entry in state.queries.items())


def test_a_placement_number_is_given_once_in_two_halves_and_rises_with_the_order() -> None:
    stamps = [Stamp(v, t, s) for v in (4, 5) for t in (1, 2, 3) for s in sorted(ROSTER)]
    numbers = []
    for stamp in stamps:
        state = _after(
            [(ApplyQuery("climate", "x"), Stamp(1, 1, "a")), (JoinNode("n1", 9), Stamp(1, 2, "a"))]
        )
        half = ControlObject(ROSTER, state)
        numbers.append(half.apply(MoveFragment("climate", "0.a", "n1"), stamp).number)
    times = [number >> RANK_BITS for number in numbers]
    assert times == sorted(times)
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < 2**63


def test_a_number_above_what_nodes_have_seen_or_none() -> None:
    seen = placement_number(Stamp(8, 3, "b"), 1)
    obj = ControlObject(ROSTER, ControlState())
    obj.apply(ApplyQuery("climate", "x"), Stamp(2, 1, "a"))
    obj.apply(JoinNode("n1", 9, number_seen=seen), Stamp(2, 2, "a"))
    refused = obj.apply(MoveFragment("climate", "0.a", "n1"), Stamp(2, 3, "a"))
    assert "view 8" in refused.refusal
    assert not obj.state.placement
    assert obj.apply(MoveFragment("climate", "0.a", "n1"), Stamp(9, 1, "a")).number > seen


def test_of_two_placements_at_one_time_the_second_is_refused_if_its_number_is_smaller() -> None:
    refused = 0
    for pair in (("a", "b"), ("b", "c"), ("a", "c")):
        obj = ControlObject(ROSTER, ControlState())
        obj.apply(ApplyQuery("climate", "x"), Stamp(1, 1, "a"))
        obj.apply(JoinNode("n1", 9), Stamp(1, 2, "a"))
        greatest = 0
        for sender in pair:
            response = obj.apply(MoveFragment("climate", "0.a", "n1"), Stamp(1, 3, sender))
            refused += "try again" in response.refusal
            if not response.refusal:
                assert response.number > greatest
                greatest = response.number
        assert obj.state.placement["climate", "0.a"].number == obj.state.number_greatest == greatest
    assert refused


def test_a_deletion_outlives_a_merge_with_a_half_that_has_not_received_it() -> None:
    state = _after([(ApplyQuery("climate", "x"), Stamp(1, 1, "a"))])
    here, there = ControlObject(ROSTER, state), ControlObject(ROSTER, state)
    assert not here.apply(DeleteQuery("climate"), Stamp(2, 1, "a")).refusal
    here.apply(AcknowledgeView(2), Stamp(2, 2, "a"))
    here.apply(AcknowledgeView(2), Stamp(2, 3, "b"))
    here.apply(AcknowledgeView(3), Stamp(3, 1, "b"))
    here.merge({"a": here.state, "c": there.state})
    assert here.state.live_queries() == ()


def test_a_tombstone_is_dropped_when_every_controller_that_has_not_left_acknowledged_the_view() -> (
    None
):
    obj = ControlObject(ROSTER, _after([(ApplyQuery("climate", "x"), Stamp(1, 1, "a"))]))
    obj.apply(DeleteQuery("climate"), Stamp(1, 2, "a"))
    for ts, name in enumerate("ab", 1):
        assert not obj.apply(AcknowledgeView(2), Stamp(2, ts, name)).refusal
    assert "climate" in obj.state.queries
    assert obj.apply(AcknowledgeView(1), Stamp(2, 3, "c")).refusal
    assert "climate" in obj.state.queries
    obj.apply(AcknowledgeView(2), Stamp(2, 4, "c"))
    assert "climate" not in obj.state.queries
    assert obj.apply(ApplyQuery("climate", "x"), Stamp(2, 5, "a")).number == 1, (
        "generation 0 is used"
    )


def test_a_controller_that_left_is_not_waited_for() -> None:
    obj = ControlObject(ROSTER, _after([(ApplyQuery("climate", "x"), Stamp(1, 1, "a"))]))
    obj.apply(DeleteQuery("climate"), Stamp(1, 2, "a"))
    obj.apply(AcknowledgeView(2), Stamp(2, 1, "a"))
    assert obj.apply(LeaveController("z"), Stamp(2, 2, "a")).known == ("a", "b", "c")
    obj.apply(LeaveController("c"), Stamp(2, 2, "a"))
    obj.apply(AcknowledgeView(2), Stamp(2, 3, "b"))
    assert "climate" not in obj.state.queries


def test_a_controller_can_leave_before_it_has_acknowledged_anything() -> None:
    obj = ControlObject(ROSTER, ControlState())
    assert not obj.apply(LeaveController("c"), Stamp(1, 1, "a")).refusal
    again = obj.apply(LeaveController("c"), Stamp(1, 2, "a"))
    assert (again.refusal, again.known) == ("unknown controller 'c'", ("a", "b"))


def test_a_leave_outlives_a_merge_with_an_acknowledgement_of_an_earlier_view() -> None:
    """The controller acknowledged view 6 to another half before it left for good."""
    here, there = ControlObject(ROSTER, ControlState()), ControlObject(ROSTER, ControlState())
    here.apply(AcknowledgeView(5), Stamp(5, 1, "a"))
    there.apply(AcknowledgeView(6), Stamp(6, 1, "c"))
    assert not here.apply(LeaveController("c"), Stamp(9, 1, "a")).refusal
    here.merge({"a": here.state, "b": there.state})
    assert here.state.controllers["c"].left


def test_one_name_registered_in_both_halves_one_definition_survives_and_the_other_is_named() -> (
    None
):
    here, there = ControlObject(ROSTER, ControlState()), ControlObject(ROSTER, ControlState())
    here.apply(ApplyQuery("climate", "a's"), Stamp(5, 1, "a"))
    there.apply(ApplyQuery("climate", "b's"), Stamp(4, 9, "b"))
    states = {"a": here.state, "b": there.state}
    here.merge(states)
    there.merge(states)
    assert here.state == there.state
    assert here.state.queries["climate"].definition == "a's"
    assert here.take_overridden() == ()
    assert there.take_overridden() == (Stamp(4, 9, "b"),)
    assert there.take_overridden() == ()


def test_a_definition_that_a_merge_replaces_is_named_also_if_its_query_was_paused_since() -> None:
    here, there = ControlObject(ROSTER, ControlState()), ControlObject(ROSTER, ControlState())
    here.apply(ApplyQuery("climate", "a's"), Stamp(5, 9, "a"))
    there.apply(ApplyQuery("climate", "b's"), Stamp(4, 1, "b"))
    there.apply(PauseQuery("climate"), Stamp(4, 2, "b"))
    states = {"a": here.state, "b": there.state}
    there.merge(states)
    assert there.state.queries["climate"].definition == "a's"
    assert there.take_overridden() == (Stamp(4, 1, "b"), Stamp(4, 2, "b"))
    there.merge(states)
    assert there.take_overridden() == (), "each is named once"


def test_a_definition_that_both_halves_had_is_not_named_if_only_a_pause_is_replaced() -> None:
    common = _after([(ApplyQuery("climate", "x"), Stamp(1, 1, "a"))])
    here, there = ControlObject(ROSTER, ControlState()), ControlObject(ROSTER, common)
    here.apply(ApplyQuery("climate", "x"), Stamp(1, 1, "a"))
    here.apply(PauseQuery("climate"), Stamp(2, 1, "a"))
    there.apply(PauseQuery("climate"), Stamp(3, 1, "b"))
    here.merge({"a": here.state, "b": there.state})
    assert here.take_overridden() == (Stamp(2, 1, "a"),)


def test_unknown_names_are_refused_with_what_there_is() -> None:
    obj = ControlObject(ROSTER, ControlState())
    obj.apply(ApplyQuery("climate", "x"), Stamp(1, 1, "a"))
    obj.apply(JoinNode("n1", 2), Stamp(1, 2, "a"))
    before = obj.state
    for operation, known in (
        (DeleteQuery("door"), ("climate",)),
        (PauseQuery("door"), ("climate",)),
        (ResumeQuery("door"), ("climate",)),
        (DrainNode("n9"), ("n1",)),
        (LeaveNode("n9"), ("n1",)),
        (MoveFragment("door", "0.a", "n1"), ("climate",)),
        (MoveFragment("climate", "0.a", "n9"), ("n1",)),
    ):
        response = obj.apply(operation, Stamp(1, 3, "a"))
        assert response.refusal
        assert response.known == known
    for bad in (ApplyQuery("a/b", "x"), ApplyQuery("", "x"), JoinNode("n1", -1)):
        assert obj.apply(bad, Stamp(1, 3, "a")).refusal
    assert obj.state == before


def test_a_drained_or_departed_node_takes_no_fragment() -> None:
    obj = ControlObject(ROSTER, ControlState())
    obj.apply(ApplyQuery("climate", "x"), Stamp(1, 1, "a"))
    for ts, name in enumerate(("n1", "n2", "n3"), 2):
        obj.apply(JoinNode(name, 2), Stamp(1, ts, "a"))
    obj.apply(DrainNode("n1"), Stamp(1, 5, "a"))
    obj.apply(LeaveNode("n2"), Stamp(1, 6, "a"))
    for name in ("n1", "n2"):
        assert obj.apply(MoveFragment("climate", "0.a", name), Stamp(1, 7, "a")).known == ("n3",)
    assert obj.apply(MoveFragment("climate", "0.a", "n3"), Stamp(1, 7, "a")).number
    for ts, name in enumerate(("n1", "n2"), 8):
        obj.apply(JoinNode(name, 2), Stamp(1, ts, "a"))  # it is started again
        assert obj.apply(MoveFragment("climate", "0.a", name), Stamp(1, ts, "b")).number


def test_what_carries_out_a_deletion_is_moved_by_a_plan_and_not_by_an_operator() -> None:
    obj = ControlObject(ROSTER, ControlState())
    operations = (
        *(JoinNode("n1", 1), JoinNode("n2", 1), ApplyQuery("climate", "x")),
        *(MoveFragment("climate", "0", "n1", replaces=0), DeleteQuery("climate")),
    )
    for at, operation in enumerate(operations, 1):
        assert not obj.apply(operation, Stamp(1, at, "a")).refusal
    number = obj.state.placement["climate", "0"].number
    refused = obj.apply(MoveFragment("climate", "0", "n2"), Stamp(1, 6, "a"))
    assert "unknown query 'climate'" in refused.refusal
    other = obj.apply(MoveFragment("climate", "1", "n2", replaces=0), Stamp(1, 7, "a"))
    assert "unknown query 'climate'" in other.refusal, "nothing of a deleted query begins"
    moved = obj.apply(MoveFragment("climate", "0", "n2", replaces=number), Stamp(1, 8, "a"))
    assert not moved.refusal
    assert obj.state.placement["climate", "0"].node == "n2"


def test_a_changed_definition_is_a_new_generation_and_the_same_one_is_not() -> None:
    obj = ControlObject(ROSTER, ControlState())
    texts = ("x", "x", "y")
    numbers = [
        obj.apply(ApplyQuery("q", x), Stamp(1, n, "a")).number for n, x in enumerate(texts, 1)
    ]
    obj.apply(DeleteQuery("q"), Stamp(1, 4, "a"))
    assert [*numbers, obj.apply(ApplyQuery("q", "y"), Stamp(1, 5, "a")).number] == [0, 0, 1, 2]


def test_an_operation_that_would_make_the_state_too_large_is_refused_and_a_deletion_is_not() -> (
    None
):
    obj = ControlObject(ROSTER, ControlState())
    large = "x" * (CONTROL_STATE_BYTES_MAX - 1_000)
    assert not obj.apply(ApplyQuery("q", large), Stamp(1, 1, "a")).refusal
    refused = obj.apply(ApplyQuery("r", "x" * 1_000), Stamp(1, 2, "a")).refusal
    assert str(CONTROL_STATE_BYTES_MAX) in refused
    assert "r" not in obj.state.queries
    queries = {**obj.state.queries, "r": obj.state.queries["q"]}
    obj.state = replace(obj.state, queries=queries)  # two halves may add up to more
    assert not obj.apply(DeleteQuery("r"), Stamp(2, 1, "a")).refusal


def _after(operations: list[tuple[Operation, Stamp]]) -> ControlState:
    obj = ControlObject(ROSTER, ControlState())
    for operation, stamp in operations:
        assert not obj.apply(operation, stamp).refusal
    return obj.state


_STATE: Final = "slackwater.control.control_state"
_OBJECT: Final = "slackwater.control.control_object"


def _mutant(name: str, target: str, old: str, new: str, scenario: Callable[[], None]) -> Mutant:
    here = f"{__name__}:{getattr(scenario, '__name__', '')}"
    return Mutant(name, "control", (Edit(target, old, new),), here)


MUTANTS: Final = (
    _mutant(
        "a merge keeps what arrived last", f"{_STATE}:_join_maps",
        "max(mine, entry)", "entry",
        test_merge_is_idempotent_commutative_and_associative,
    ),
    _mutant(
        "a merge compares wall clocks", f"{_STATE}:_join_maps",
        "max(mine, entry)", "max(mine, entry, key=lambda _: __import__('time').time_ns())",
        test_merge_is_idempotent_commutative_and_associative,
    ),
    _mutant(
        "a deletion leaves no tombstone", f"{_OBJECT}:ControlObject._set_query",
        "name: entry}", "name: entry}; queries = {n: q for n, q in queries.items() if q[3]}",
        test_a_deletion_outlives_a_merge_with_a_half_that_has_not_received_it,
    ),
    _mutant(
        "tombstones are dropped by whom is here", f"{_OBJECT}:ControlObject._acknowledge",
        "if all(", "if any(",
        test_a_deletion_outlives_a_merge_with_a_half_that_has_not_received_it,
    ),
    _mutant(
        "a generation is used again", f"{_STATE}:drop_tombstones",
        "max([state.generation_unused, *generations])", "state.generation_unused",
        test_a_tombstone_is_dropped_when_every_controller_that_has_not_left_acknowledged_the_view,
    ),
    _mutant(
        "two halves give one number", f"{_OBJECT}:placement_number",
        "<< RANK_BITS | rank", "<< RANK_BITS",
        test_a_placement_number_is_given_once_in_two_halves_and_rises_with_the_order,
    ),
    _mutant(
        "a number that a node has seen is given again", f"{_OBJECT}:ControlObject._move",
        "if number <= self.state.number_greatest:", "if False:",
        test_a_number_above_what_nodes_have_seen_or_none,
    ),
    _mutant(
        "what carries out a deletion is not moved", f"{_OBJECT}:ControlObject._move",
        "and not is_planned", "",
        test_what_carries_out_a_deletion_is_moved_by_a_plan_and_not_by_an_operator,
    ),
    _mutant(
        "an operator moves what is deleted", f"{_OBJECT}:ControlObject._move",
        "is_placed and operation.replaces != ANY_NUMBER", "is_placed",
        test_what_carries_out_a_deletion_is_moved_by_a_plan_and_not_by_an_operator,
    ),
    _mutant(
        "what a merge overrides is not named", f"{_OBJECT}:ControlObject.merge",
        "(old.stamps() - self.state.stamps())", "set()",
        test_a_definition_that_both_halves_had_is_not_named_if_only_a_pause_is_replaced,
    ),
    _mutant(
        "only the last change of a query is named", f"{_OBJECT}:ControlObject._note_applied",
        "self._applied[query] = stamp", "pass",
        test_a_definition_that_a_merge_replaces_is_named_also_if_its_query_was_paused_since,
    ),
    _mutant(
        "a definition that stays is named", f"{_OBJECT}:ControlObject._is_replaced",
        "(now.generation, now.definition)", "(now.stamp, now.definition)",
        test_a_definition_that_both_halves_had_is_not_named_if_only_a_pause_is_replaced,
    ),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_each_mutant_is_noticed(mutant: Mutant) -> None:
    with applied(mutant), pytest.raises((AssertionError, ExceptionGroup)):
        mutant.run()
