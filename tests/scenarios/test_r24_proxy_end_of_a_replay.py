"""trace-24 for a proxy: the end boundary, and readings before a query's start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.support.proxy_world import DataClock, S, World, anchored, grids

from slackwater.model.deployment import WindowSpec
from slackwater.primitives.windows import Grid


def test_the_boundary_goes_to_the_given_end_and_not_beyond(tmp_path: Path) -> None:
    world = World(tmp_path, anchored())
    path = world.file(["n,0,0", "n,4,4"])
    world.run(world.replay(path, end_boundary_us=10 * S), 60)
    assert world.boundary_s() == 10
    assert world.accepted()[-1].boundary == 10 * S


def test_a_proxy_restarted_after_its_files_end_keeps_to_it(tmp_path: Path) -> None:
    world = World(tmp_path, anchored())
    path = world.file(["n,0,0", "n,4,4"])
    world.run(world.replay(path, end_boundary_us=10 * S), 60)
    again = world.replay(path, end_boundary_us=10 * S)
    world.run(again, 60)
    assert again.detail()["ended"] == 1
    assert world.boundary_s() == 10
    assert len(world.readings()) == 2
    world.check()


def test_killed_before_its_end_boundary_was_written_it_is_written_after_all(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, anchored())
    path = world.file(["n,0,0", "n,4,4"])
    world.run(world.replay(path, end_boundary_us=10 * S), 3)
    assert world.boundary_s() < 4
    world.now_us += 30 * S
    world.run(world.replay(path, end_boundary_us=10 * S), 0)
    assert world.boundary_s() == 10
    assert len(world.readings()) == 2


def test_what_lies_beyond_the_duration_is_not_sent(tmp_path: Path) -> None:
    world = World(tmp_path, anchored())
    path = world.file(["n,0,0", "n,9,1", "n,3,2", "n,10,3", "n,11,4", "n,5,5"])
    world.run(world.replay(path, end_at_us=10 * S, end_boundary_us=12 * S), 60)
    assert [r[1] for r in world.readings()] == [0, 9, 10]
    assert world.counts() == {"late": 1}
    assert world.boundary_s() == 12


def test_nothing_is_sent_before_its_time(tmp_path: Path) -> None:
    world = World(tmp_path, anchored(speed=2, in_s=1))
    proxy = world.replay(world.file(["n,0,0", "n,9,1", "n,3,2", "n,10,3"]))
    world.run(proxy, 0.9)
    assert world.readings() == []
    world.run(proxy, 1)
    assert [r[1] for r in world.readings()] == [0]
    world.run(proxy, 3.7)
    assert [r[1] for r in world.readings()] == [0, 9]


def test_with_clock_data_the_end_is_that_of_the_last_window_with_a_reading(tmp_path: Path) -> None:
    world = World(tmp_path, DataClock(), clock="data")
    proxy = world.replay(world.file(["n,0,0", "n,4,4", "n,13,4"]))
    grids(proxy, Grid(S, WindowSpec(10 * S, 5 * S)))
    world.run(proxy, 1)
    assert world.boundary_s() == 20
    assert len(world.readings()) == 3


def test_before_start_is_counted_and_the_reading_is_in_the_log_all_the_same(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, anchored())
    proxy = world.replay(world.file(["n,0,0", "n,4,4"]))
    proxy.logs[0].core.read_by([Grid(S, None)], 2 * S)
    world.run(proxy, 10)
    assert world.counts() == {"before_start": 1}
    assert len(world.readings()) == 2
    assert np.isfinite(world.boundary_s())
