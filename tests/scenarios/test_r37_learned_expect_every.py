"""trace-37: ``expect_every: auto`` is learned once for all processes, and not for the past."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.proxy_world import SPEC, S, World, anchored

from slackwater.primitives.lateness import Lateness, Step
from slackwater.proxy.expecting import AHEAD_US
from slackwater.runtime.service.registry import Registry

LEARNS = replace(SPEC, expect_every_us=5 * S, learns_gaps=True, disorder_us=S)


def learning(folder: Path, speed: float = 10) -> World:
    world = World(folder, anchored(speed=speed), spec=LEARNS)
    world.broker.create_topic(world.broker.names.registry)
    return world


def recorded(world: World) -> tuple[Step, ...]:
    return Registry(world.broker).expected().get(SPEC.name, ())


def test_its_boundary_comes_from_readings_alone(tmp_path: Path) -> None:
    world = learning(tmp_path, speed=1)
    proxy = world.replay(world.file(["n,0,1", "n,3,1", "n,40,1"]))
    world.run(proxy, 30)
    assert world.boundary_s() == 2, "no watermark advances in 30 s without readings"
    world.run(proxy, 15)
    assert world.boundary_s() == 39
    world.check()


def test_a_longer_gap_is_recorded_for_a_time_that_has_not_come(tmp_path: Path) -> None:
    world = learning(tmp_path)
    rows = [f"n,{t},1" for t in [*range(100), *range(100, 400, 20), *range(400, 700, 30)]]
    proxy = world.replay(world.file(rows))
    world.contexts[-1].expecting.restore(recorded(world))
    found: list[Step] = []
    for _ in range(700):
        event_us = world.event_clock.event(world.now_us)
        assert event_us is not None
        before = len(found)
        world.run(proxy, 0.1)
        found = list(recorded(world))
        for step in found[before:]:
            assert step.from_us >= event_us + AHEAD_US * 10, "every process has read it by then"
    assert [step.expect_every_us // S for step in found] == [20, 30]
    assert found[0].from_us > 120 * S
    assert not world.failures


def test_a_proxy_that_starts_again_takes_nothing_back(tmp_path: Path) -> None:
    world = learning(tmp_path)
    path = world.file([f"n,{t},1" for t in range(0, 12_000, 20)])
    proxy = world.replay(path)
    world.contexts[-1].expecting.restore(())
    world.run(proxy, 400, turns_max=100_000)
    (known,) = recorded(world)
    assert known.expect_every_us == 20 * S
    # Its successor counts the file's gaps again, and finds the recorded steps.
    successor = world.replay(path)
    world.contexts[-1].expecting.restore(recorded(world))
    world.run(successor, 100, turns_max=100_000)
    assert recorded(world) == (known,)


def test_nothing_is_recorded_before_the_registry_was_read(tmp_path: Path) -> None:
    """Otherwise earlier steps would be recorded again at each start."""
    world = learning(tmp_path)
    proxy = world.replay(world.file([f"n,{t},1" for t in range(0, 12_000, 20)]))
    world.run(proxy, 400, turns_max=100_000)
    assert recorded(world) == ()
    world.contexts[-1].expecting.restore((Step(100 * S, 25 * S),))
    world.run(proxy, 100, turns_max=100_000)
    assert recorded(world) == (), "25 s cover it"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_two_writers_steps_are_one_function_in_whatever_order_they_are_read(
    order: tuple[int, ...],
) -> None:
    """A zombie learns less than its successor has recorded: the larger value is effective."""
    steps = ((100, 20), (150, 12), (200, 30))
    lateness = Lateness(5, [steps[i] for i in order])
    assert [lateness.at(e) for e in (99, 100, 150, 199, 200)] == [5, 20, 20, 20, 30]
