"""trace-5: after hours of silence the memory of every process is unchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.paper.stage import MS, Orderer, Settings, Source
from tests.simulator.readings import Habits
from tests.simulator.story import Story

from slackwater.model.records import DeltaRecord, Kind, Position
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import Commit, DeltaLog, initial_state
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.soutput.upstream import ONLY_STALE_US_MAX

HOUR_S = 3_600
SLOW = Habits(every_us=2_000_000)


def test_an_hour_without_a_source_leaves_memory_flat() -> None:
    memory_stays_flat_without_a_source(HOUR_S)


def memory_stays_flat_without_a_source(silent_s: int) -> None:
    story = Story(
        children=(("s1", "s2"), ("s3",)), replicas=1, habits=SLOW,
        w_us=5_000_000, window_us=10_000_000, slide_us=10_000_000, ahead_buckets_max=20,
        stale_us=ONLY_STALE_US_MAX,
    )  # fmt: skip
    story.time_passes(60)
    story.silence("s1", for_s=silent_s)
    story.time_passes(600)
    early = story.held(since_s=300)
    story.time_passes(silent_s - 660)
    late = story.held(since_s=silent_s - 600)
    for process, held in early.items():
        assert late[process] <= 1.5 * held + (1_000 if "orderer" in process else 10), process
    assert story.root().line.state.value == "UP_FAILURE"
    story.all_is_well_again(120)
    assert story.rec_done == [1]
    story.every_guarantee_holds()


def test_a_long_life_without_failure_leaves_memory_flat() -> None:
    story = Story(
        replicas=1, habits=SLOW, w_us=1_000_000, window_us=2_000_000, slide_us=2_000_000,
        stale_us=ONLY_STALE_US_MAX,
    )  # fmt: skip
    story.time_passes(100)
    early = story.held()
    story.time_passes(500)
    late = story.held(since_s=500)
    for process, held in early.items():
        assert late[process] <= 1.5 * held + (1_000 if "orderer" in process else 10), process
    story.every_guarantee_holds()


def test_a_child_whose_sources_run_ahead_of_time_is_parked() -> None:
    story = Story(children=(("s1",), ("s2",)), replicas=1, ahead_buckets_max=20, bound_us=500_000)
    world = story.world
    story.time_passes(2)
    world.proxies["s2"].skew_us = 60_000_000  # an hour would give the same result
    story.time_passes(4)
    held = story.held(since_s=5)
    assert held["root/q.0"] < 250
    story.time_passes(3)
    assert not story.tentative, "a stream with a fast clock is not missing"
    story.kill("root/q.0")
    story.silence("s1", for_s=4)
    story.time_passes(4)
    assert {a.missing for a in story.tentative} == {("s1",)}, (
        "suppression ends despite a parked log"
    )


def test_a_stream_that_runs_ahead_of_its_orderer_is_parked_for_both_lines() -> None:
    """H is 600 buckets with one reading each (rule-12); the log has ten times as many."""
    behind, ahead = Source("s1"), Source("s2")
    orderer = Orderer([behind, ahead], Settings())
    for at in range(0, 600_000, 100):
        ahead.emit([at], at + 100)
    behind.emit([50], 1_000)
    orderer.listen()
    orderer.step(1_000)

    held = [
        c.bytes_held for line in (orderer.core.logs.stable, orderer.core.logs.live) for c in line
    ]
    assert 0 < max(held) < 700 * 60
    behind.emit([], 600_000)
    orderer.listen()
    orderer.step(600_000)
    assert orderer.core.line.stable_next == 600_000 * MS
    assert orderer.core.counters.readings == 6_001


@pytest.mark.parametrize("window_s", [3_600, 1])
def test_h_of_a_root_is_bytes_too(window_s: int) -> None:
    """All data of an hour's window is tentative: 600 buckets of 10,000 keys are a GB.

    The same holds for a short window whose transaction takes very long: no step answers meanwhile.
    """
    window_us = window_s * 1_000_000
    story = Story(replicas=1, window_us=window_us, slide_us=window_us, bound_us=1_000_000)
    config = replace(story.world.q.root_config(0, 1), ahead_bytes_max=1_000_000)
    core = RootCore(config, initial_state(config), suppress_until={})
    stable, live = (DeltaLog(0, 0, line) for line in LineName)
    first = config.grid.bucket_start(config.start_time)
    start = Position(first)
    core.receive(stable, 0, DeltaRecord(Kind.START, 0, 0, -1, 0, 0, 0, frontier=start))
    core.receive(live, 0, DeltaRecord(Kind.START, 0, 0, 0, 0, 0, 0, frontier=start))
    keys, ones = tuple(f"k{i}" for i in range(1_000)), np.ones((1, 1_000))
    held, commits = [], 0
    for n in range(400):
        at = first + n * config.grid.w_us
        bucket = DeltaRecord(
            Kind.TENTATIVE, 0, 0, 0, at, at + config.grid.w_us, n + 1, missing=("s1",),
            keys=keys, keys_hash=5, fields=config.fields,
            count=ones, sum=ones, m2=ones, min=ones, max=ones,
        )  # fmt: skip
        core.receive(live, n + 1, bucket)
        now = config.schedule.normal_time(at + config.grid.w_us)
        assert now is not None
        commits += sum(isinstance(effect, Commit) for effect in core.step(now))
        held.append(core.held_bytes)
    assert commits == (window_s == 1), "and it is not in the log yet"
    younger_than_the_bound = 10 * bucket.nbytes
    assert 500_000 < max(held) <= 1_000_000 + 1.3 * younger_than_the_bound
