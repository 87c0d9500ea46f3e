"""The health file of a node: touched while all that the record has placed on it is ready."""

from __future__ import annotations

import pytest
from tests.support.definitions import apply

from slackwater.control.control_object import ControlObject, JoinNode, MoveFragment, Operation
from slackwater.control.control_state import ControlState
from slackwater.control.recorded import assignment, fragment_specs
from slackwater.node.app import is_ready
from slackwater.protocols.iads.messages import Stamp


class Record:
    """What a controller records, step by step."""

    def __init__(self) -> None:
        self._object, self._time = ControlObject(frozenset("a"), ControlState()), 0

    @property
    def state(self) -> ControlState:
        return self._object.state

    def add(self, *operations: Operation) -> ControlState:
        for operation in operations:
            self._time += 1
            refusal = self._object.apply(operation, Stamp(1, self._time, "a")).refusal
            assert not refusal
        return self.state

    def place(self, node: str) -> ControlState:
        specs = fragment_specs(self.state)
        return self.add(*(MoveFragment(s.query, s.fragment, node) for s in specs))


@pytest.fixture(name="record")
def _record() -> Record:
    record = Record()
    record.add(JoinNode("n1", 9), JoinNode("n2", 9))
    return record


def test_a_node_without_queries_is_ready(record: Record) -> None:
    assert is_ready("n1", record.state, set())


def test_a_node_that_is_about_to_get_something_is_not_ready(record: Record) -> None:
    assert not is_ready("n1", record.add(apply("q")), set())


def test_a_node_is_ready_once_all_is_that_is_placed_on_it(record: Record) -> None:
    record.add(apply("q"))
    placed = record.place("n1")
    numbers = {*assignment(placed, "n1").numbers().values()}
    assert len(numbers) > 2
    assert is_ready("n1", placed, numbers)
    assert is_ready("n2", placed, set()), "all is placed elsewhere"
    for number in numbers:
        assert not is_ready("n1", placed, numbers - {number})
    moved = record.place("n2")
    assert not is_ready("n2", moved, numbers), "these are the numbers on n1"
