"""When a new generation can take the place of the earlier one: heartbeats and ends of logs."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.control.test_admission import ONE, parsed

from slackwater.control.control_state import ControlState
from slackwater.control.generations import as_generation
from slackwater.model.names import UNPREFIXED
from slackwater.model.records import Position, RootState
from slackwater.registration import replacing
from slackwater.registration.replacing import ROOTS_S_MAX, Replacing
from slackwater.runtime.logs.transport import Log, Transport
from slackwater.runtime.service.heartbeats import HeartbeatListener

EARLIER = parsed(ONE).queries["one"]
_changed, _name = as_generation(
    parsed(ONE.replace("bound", "children: 2, bound")), "one", ControlState()
)
LATER = _changed.queries[_name]


class World:
    """Heartbeats and ends of logs, which a test sets; also the transport and the listener."""

    names = UNPREFIXED

    def __init__(self) -> None:
        self.details: dict[str, dict[str, int]] = {"root/one.0": {"answered_to": 1_000}}
        self.details["root/one.g1.0"] = {}
        self.now_s = 0.0
        self.ends: dict[Log, int] = {}
        for child, replica in ((0, 0), (0, 1), (1, 0), (1, 1)):
            self.ordered(child, replica, 100)
            self.deltas(child, replica, 0)
            self.reached(child, replica, 500)
        self.replacing = Replacing(
            cast(Transport, self), cast(HeartbeatListener, self), lambda: self.now_s
        )

    def ordered(self, child: int, replica: int, end: int) -> None:
        self.ends[f"sw.ordered.one.g1.{child}", 2 * replica] = end

    def deltas(self, child: int, replica: int, end: int) -> None:
        self.ends["sw.deltas.one.g1.0", (child * 2 + replica) * 2] = end

    def reached(self, child: int, replica: int, to: int, *, suppressed: int = 0) -> None:
        process = f"orderer/one.g1.{child}.{'ab'[replica]}"
        self.details[process] = {"stable_to": 0, "live_to": to, "mute": suppressed}

    def beginning_offsets(self, logs: Iterable[Log], **_: float) -> dict[Log, int]:
        return dict.fromkeys(logs, 0)

    def end_offsets(self, logs: Iterable[Log]) -> dict[Log, int]:
        return {log: self.ends.get(log, 0) for log in logs}

    def latest(self, process: str) -> Any:
        found = self.details.get(process)
        return None if found is None else SimpleNamespace(detail=found)

    def ready(self, process: str) -> bool:
        return process in self.details

    def is_ready(self) -> bool:
        return self.replacing.is_ready(LATER, EARLIER)


def test_one_replica_of_each_child_suffices() -> None:
    world = World()
    for child in (0, 1):
        world.reached(child, child, 1_000)
        world.deltas(child, child, 100)
    assert not world.is_ready(), "the ends of the ordered logs were not known before"
    assert world.is_ready()


def test_it_has_to_pass_the_answers_of_the_earlier_generation() -> None:
    world = World()
    for child in (0, 1):
        world.reached(child, 0, 1_000)
        world.deltas(child, 0, 100)
    assert not world.is_ready()
    world.details["root/one.0"]["answered_to"] = 1_001
    assert not world.is_ready()
    world.reached(0, 0, 1_001)
    assert not world.is_ready(), "the other child has not"
    world.reached(1, 0, 1_001)
    assert world.is_ready()


def test_a_replica_that_suppresses_tentative_output_does_not_count() -> None:
    world = World()
    for child in (0, 1):
        world.reached(child, 0, 1_000, suppressed=child)
        world.deltas(child, 0, 100)
    assert not world.is_ready()
    assert not world.is_ready()


def test_a_sliding_window_has_to_be_complete() -> None:
    """The last answered window ends behind T."""
    text = ONE.replace("size: 1s", "size: 2s, slide: 1s")
    changed, name = as_generation(parsed(text), "one", ControlState())
    world = World()
    world.details["root/one.0"]["answered_to"] = 5_000_000
    earlier = parsed(text).queries["one"]
    world.deltas(0, 0, 100)
    for to, is_ready in ((5_999_999, False), (6_000_000, False), (6_000_000, True)):
        world.reached(0, 0, to)
        assert world.replacing.is_ready(changed.queries[name], earlier) == is_ready


def test_without_heartbeats_of_the_earlier_roots_their_state_records_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = RootState("root/one.0", 1, 5, 0, 800, 900, (Position(0),), ())
    monkeypatch.setattr(replacing, "read_root_states", lambda *_: {state.fragment: state})
    world = World()
    del world.details["root/one.0"]
    for child in (0, 1):
        world.deltas(child, 0, 100)
        world.reached(child, 0, 899)
    assert not world.is_ready()
    assert not world.is_ready()
    for child in (0, 1):
        world.reached(child, 0, 900)
    assert not world.is_ready(), "the ends of the ordered logs are looked at first"
    assert world.is_ready()


def test_its_deltas_have_to_be_written() -> None:
    world = World()
    for child in (0, 1):
        world.reached(child, 0, 1_000)
        world.deltas(child, 0, 100)
    world.deltas(1, 0, 99)
    assert not world.is_ready()
    assert not world.is_ready(), "the aggregator is one record behind"
    world.deltas(1, 0, 100)
    assert world.is_ready()
    # The next change under this name begins anew.
    world.replacing.forget([])
    assert not world.is_ready()


def test_without_a_window_there_are_no_deltas() -> None:
    text = "  one: {from: [a], bound: 2s}\n"
    changed, name = as_generation(parsed(text), "one", ControlState())
    world = World()
    world.reached(0, 1, 1_000)
    assert world.replacing.is_ready(changed.queries[name], parsed(text).queries["one"])


def test_its_roots_are_waited_for_but_not_for_ever() -> None:
    world = World()
    for child in (0, 1):
        world.reached(child, 1, 2_000)
        world.deltas(child, 1, 100)
    del world.details["root/one.g1.0"]
    assert not world.is_ready()
    assert not world.is_ready(), "its deltas are there, and its root is not"
    world.details["root/one.g1.0"] = {}
    assert world.is_ready()
    del world.details["root/one.g1.0"]
    world.now_s = ROOTS_S_MAX
    assert world.is_ready()
    world.replacing.forget([])
    assert not world.is_ready()
