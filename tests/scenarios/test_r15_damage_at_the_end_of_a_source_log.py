"""trace-15, rule-28: the last records of a source log are damaged, and its proxy restarts.

1. The last two readings of a sensor become undecodable. One replica has read them before, another
   has not.
2. The proxy starts. Usually the ids of the next record show a loss; here there is no next record,
   so the log seems to end before the two, and their ids to be free.
3. The sensor's next readings get these ids. The first replica drops them as repeats, and for the
   other nothing was lost: both lack two readings, without a report.

The spool decides, not the log: an id that it has assigned is never used again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulator.story import Story
from tests.support.proxy_world import AHEAD, S, World, anchored, grids

from slackwater.model.records import Gap, Kind, SourcePosition, SourceRecord
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.sunion.cursor import SourceCursor

Raw = list[tuple[int, SourceRecord]]


def damaged(world: World) -> Raw:
    """Damage the last readings; return the records before the damage."""
    complete = world.raw()
    world.damage(max(offset for offset, record in complete if record.readings))
    return complete


def gaps(raw: Raw) -> list[tuple[int, Gap]]:
    """Return the losses and their start, as found by a strict reader."""
    cursor = SourceCursor(SourcePosition(0, 0, -1, -(2**62)), strict=True)
    for offset, record in raw:
        cursor.offer(offset, record)
    assert cursor.hole_inc is None, "a hole would remain for ever"
    return [(start, gap) for start, _, gap in cursor.gaps]


@pytest.mark.parametrize("hinted", [False, True])
@pytest.mark.parametrize("given_up", [False, True])
def test_ids_of_a_sensor_s_readings_are_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_up: bool, hinted: bool
) -> None:
    world = World(tmp_path, spec=AHEAD)
    first = world.sensors("a")
    world.ingest([1100, 1101], "one")
    world.run(first, 1)
    world.ingest([1102, 1103], "two")
    if not given_up:
        monkeypatch.setattr(first._spooled, "acknowledge", lambda: None)
    world.run(first, 1, hints=hinted)
    first._context.spool.close()
    complete = damaged(world)

    again = world.sensors("a")
    world.ingest([1104, 1105], "three")
    world.run(again, 1)

    read_before = [*complete, *world.raw()[len(complete) :]]
    expected = [(i, 1100.0 + i, 1100.0 + i) for i in range(6)]
    assert world.readings(read_before) == expected
    assert gaps(read_before) == []
    if given_up:
        assert world.readings() == expected[:2] + expected[4:]
        assert [gap for _, gap in gaps(world.raw())] == [Gap("room", 2)]
    else:
        assert world.readings() == expected, "the spool still had them"
        assert gaps(world.raw()) == []


def test_the_gap_is_felt_as_far_as_was_promised(tmp_path: Path) -> None:
    world = World(tmp_path, spec=AHEAD)
    first = world.sensors("a")
    world.ingest([1001, 1002], "one")
    world.run(first, 4)
    watermark_us = max(record.boundary for _, record in world.raw())
    first._context.spool.close()
    damaged(world)
    world.sensors("a")

    *_, start = [record for _, record in world.raw() if record.kind is Kind.START]
    assert start.boundary <= 1_001 * S < 1_002 * S < watermark_us <= start.stime_max


def test_another_spool_s_ids_say_nothing(tmp_path: Path) -> None:
    """Ids that were never in this log would be a hole for a reader that has read it completely."""
    world = World(tmp_path, spec=AHEAD)
    other = world.sensors("b")
    other._context.spool.replace_unsent([], next_id=50, watermark=0)
    other._context.spool.close()
    first = world.sensors("a")
    world.ingest([1100, 1101], "one")
    world.run(first, 1)
    first._context.spool.close()
    complete = damaged(world)

    world.sensors("b")
    assert gaps([*complete, *world.raw()[len(complete) :]]) == []


def test_a_file_goes_on_behind_what_a_hint_remembers(tmp_path: Path) -> None:
    world = World(tmp_path, anchored(event_s=1100), spec=AHEAD)
    path = world.file([f"n,{t},{t}" for t in range(1100, 1106)])
    first = world.replay(path)
    grids(first, Grid(2 * S, None))
    world.run(first, 7, hints=True)
    readings = world.readings()
    assert len(readings) == 6
    first._context.spool.close()
    complete = damaged(world)

    again = world.replay(path)
    grids(again, Grid(2 * S, None))
    world.run(again, 1)
    read_before = [*complete, *world.raw()[len(complete) :]]
    assert world.readings(read_before) == readings
    assert gaps(read_before) == []
    lost = sum(gap.lost for _, gap in gaps(world.raw()))
    assert len(world.readings()) == 6 - lost < 6


@pytest.mark.parametrize("seed", range(4))
def test_in_the_simulator_two_replicas_and_one_of_them_is_down(seed: int) -> None:
    story = Story(seed, replicas=2, bound_us=1_000_000)
    story.time_passes(3)
    story.silence("s1", for_s=3)
    story.kill_for_good("orderer/q.0.a")
    story.time_passes(0.3)
    story.world.damage("sw.source.s1")
    story.kill("proxy/s1")
    story.time_passes(1)
    story.start_again("orderer/q.0.a")
    story.all_is_well_again(10)
    story.every_guarantee_holds()
