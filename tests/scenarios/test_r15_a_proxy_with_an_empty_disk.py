"""trace-15, rule-28: retention has deleted a whole source log, and its proxy has lost its disk.

1. A sensor is silent for weeks: its gateway is broken. Retention deletes all its readings.
2. A new gateway starts, with an empty disk. Its log has an end but no records, so the used ids are
   unknown, and it begins at 0.
3. A reader of the old readings waits for id 4711, and drops lower ids as repeats: 4,711 readings
   are lost without a report.

START therefore marks that ids begin again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.proxy_world import AHEAD, LOG, STREAM, World

from slackwater.model.records import Gap, Kind, SourcePosition, SourceRecord
from slackwater.protocols.dpc.source.scan import LogScan
from slackwater.protocols.dpc.sunion.cursor import SourceCursor

Raw = list[tuple[int, SourceRecord]]


def silent_for_weeks(world: World) -> Raw:
    """Return the old proxy's records, which are deleted now."""
    old = world.sensors("old")
    world.ingest([1100, 1101, 1102], "old", "old")
    world.run(old, 1)
    old._context.spool.close()
    gone = world.raw()
    world.broker.delete_records({LOG: len(gone)})
    return gone


def with_a_new_disk(world: World) -> Raw:
    new = world.sensors("new")
    world.ingest([1200, 1201], "new", "new")
    world.run(new, 1)
    return world.raw()


def read(cursor: SourceCursor, raw: Raw) -> list[float]:
    """Return the values that count."""
    taken = [record for offset, record in raw if cursor.offer(offset, record)]
    columns = [r.columns.load() for r in taken if r.columns is not None and r.readings]
    return [float(value) for of in columns for value in of.values[0]]


def reader(*, strict: bool) -> SourceCursor:
    return SourceCursor(SourcePosition(0, 0, -1, -(2**62)), strict=strict)


@pytest.mark.parametrize("strict", [True, False])
def test_a_reader_of_all_readings_lacks_nothing(tmp_path: Path, strict: bool) -> None:
    world = World(tmp_path, spec=AHEAD)
    cursor = reader(strict=strict)
    assert read(cursor, silent_for_weeks(world)) == [1100, 1101, 1102]
    assert read(cursor, with_a_new_disk(world)) == [1200, 1201]
    assert cursor.gaps == []
    assert cursor.hole_inc is None


def test_a_reader_of_some_readings_reports_the_loss(tmp_path: Path) -> None:
    world = World(tmp_path, spec=AHEAD)
    cursor = reader(strict=True)
    gone = silent_for_weeks(world)
    read(cursor, gone[:1])
    cursor.jump(len(gone))
    assert read(cursor, with_a_new_disk(world)) == [1200, 1201]
    assert [gap for _, _, gap in cursor.gaps] == [Gap(STREAM, 1)], "at least one"


def test_with_its_disk_it_goes_on_where_it_was(tmp_path: Path) -> None:
    world = World(tmp_path, spec=AHEAD)
    old = world.sensors("old")
    world.ingest([1100, 1101, 1102], "old", "old")
    world.run(old, 1, hints=True)
    old._context.spool.close()
    world.broker.delete_records({LOG: len(world.raw())})

    world.sensors("old")
    *_, (_, start) = [(at, r) for at, r in world.raw() if r.kind is Kind.START]
    assert (start.first_id, start.gap) == (3, ())


def with_an_old_hint(world: World) -> tuple[Raw, list[float]]:
    """Return the records of a proxy that died, and what a reader of all of them has counted.

    Its hint is 5 s old then: three readings are known to it, and eight are in the log.
    """
    old = world.sensors("old")
    world.ingest([1100, 1101, 1102], "old", "old")
    world.run(old, 1, hints=True)
    for stimes in ([1103, 1104], [1105], [1106, 1107]):
        world.ingest(stimes, f"from-{stimes[0]}", "old")
        world.run(old, 1)
    old._context.spool.close()
    raw = world.raw()
    return raw, read(reader(strict=True), raw)


@pytest.mark.parametrize("left", [1, 2, 3])
def test_an_old_hint_does_not_give_ids_that_have_been_used(tmp_path: Path, left: int) -> None:
    """The records behind the hint are deleted, except for some: these tell the ids."""
    world = World(tmp_path, spec=AHEAD)
    raw, counted = with_an_old_hint(world)
    assert counted == [1100, 1101, 1102, 1103, 1104, 1105, 1106, 1107]
    cursor = reader(strict=True)
    read(cursor, raw)
    world.broker.delete_records({LOG: len(raw) - left})

    new = world.sensors("old")
    world.ingest([1200, 1201], "more", "old")
    world.run(new, 1)
    behind = [(at, record) for at, record in world.raw() if at >= len(raw)]
    assert read(cursor, behind) == [1200, 1201], "none is taken for a repeat, none comes twice"
    assert cursor.gaps == []


def test_nothing_is_left_behind_an_old_hint(tmp_path: Path) -> None:
    """Then nobody knows the ids, and START marks that they begin again."""
    world = World(tmp_path, spec=AHEAD)
    raw, _ = with_an_old_hint(world)
    cursor = reader(strict=True)
    read(cursor, raw)
    world.broker.delete_records({LOG: len(raw)})

    new = world.sensors("old")
    world.ingest([1200, 1201], "more", "old")
    world.run(new, 1)
    assert read(cursor, world.raw())[-2:] == [1200, 1201]
    assert cursor.gaps == []


def test_a_proxy_that_starts_again_reads_it_as_readers_do(tmp_path: Path) -> None:
    world = World(tmp_path, spec=AHEAD)
    scan = LogScan()
    for offset, record in [*silent_for_weeks(world), *with_a_new_disk(world)]:
        scan.see(offset, record)
    assert scan.ids.next_id == 2
    new = world.sensors("new")
    assert new.logs[0].core.next_id == 2
