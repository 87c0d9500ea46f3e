"""The spool, and the sensors' proxy with it: killed, full, or without a disk."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.proxy_world import SPEC, DataClock, S, World, grids, replace

from slackwater.codec import encode_source
from slackwater.model.deployment import WindowSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.primitives.windows import Grid
from slackwater.proxy.quarantine import Quarantine
from slackwater.proxy.sensors import (
    SensorInput,
    hand_over,
    hand_over_end,
    inbox_of,
    job_from,
    stop_jobs,
)
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.spool import PushBackError, Spool, Spooled
from slackwater.status.observed import phrases

AHEAD = replace(SPEC, ahead_us=86_400 * S)
"""A stream whose files may be ahead of the clock by a day."""


def record(first: int, readings: int = 10) -> SourceRecord:
    stimes = np.arange(first, first + readings, dtype=np.int64)
    index = np.zeros(readings, np.int32)
    columns = SourceColumns(stimes, index, ["k"], ("t",), (stimes.astype(np.float64),))
    last = first + readings - 1
    return SourceRecord(Kind.INSERTION, "room", 0, first, last, last, first, last, columns=columns)


def test_what_was_appended_is_there_after_a_crash_byte_for_byte(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path / "s.sqlite")
    records = [record(0), record(10)]
    spool.append(records, largest=19, positions={"job": 21})
    # Not closed: a second connection sees the state left by a killed process.
    again = Spool.open(tmp_path / "s.sqlite")
    assert [encode_source(r) for r in again.unsent()] == [encode_source(r) for r in records]
    assert again.identity == spool.identity
    assert again.spooled() == Spooled(next_id=20, watermark=19, largest=19)
    assert again.position("job") == 21
    assert again.bytes_held == spool.bytes_held > 0


def test_two_spools_have_two_identities(tmp_path: Path) -> None:
    assert Spool.open(tmp_path / "a.sqlite").identity != Spool.open(tmp_path / "b.sqlite").identity


def test_acknowledged_prefixes_are_deleted(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path / "s.sqlite")
    spool.append([record(0), record(10), record(20)], 29)
    spool.acknowledge(19)
    assert [r.first_id for r in spool.unsent()] == [20]
    spool.acknowledge(29)
    assert spool.bytes_held == 0
    assert spool.spooled().next_id == 30


def test_full_is_push_back_and_changes_nothing(tmp_path: Path) -> None:
    size = len(encode_source(record(0)))
    spool = Spool.open(tmp_path / "s.sqlite", bytes_max=2 * size + 10)
    spool.append([record(0), record(10)], 19)
    with pytest.raises(PushBackError, match="is full"):
        spool.append([record(20)], 29)
    assert spool.spooled().next_id == 20
    spool.acknowledge(9)
    spool.append([record(20)], 29)
    assert [r.first_id for r in spool.unsent()] == [10, 20]


def test_a_full_disk_is_push_back_too(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path / "s.sqlite")
    spool.append([record(0)], 9)
    pages = spool._db.execute("PRAGMA page_count").fetchone()[0]
    spool._db.execute(f"PRAGMA max_page_count={pages + 1}")
    with pytest.raises(PushBackError, match="full"):
        spool.append([record(10, 5_000)], 5_009)
    assert spool.spooled().next_id == 10
    assert [r.first_id for r in spool.unsent()] == [0]
    spool._db.execute("PRAGMA max_page_count=100000")
    spool.append([record(10, 5_000)], 5_009)
    assert spool.spooled().next_id == 5_010


def test_a_place_that_cannot_be_written_ends_the_start_with_code_3(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot be opened") as error:
        Spool.open(tmp_path / "file" / "s.sqlite")
    assert error.value.exit_code == 3


class Killed(BaseException):
    """Raised to simulate a kill."""


def dying(call: Callable[..., Any], nth: int, *, before: bool) -> Callable[..., Any]:
    calls = 0

    def wrapped(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and before:
            raise Killed
        result = call(*args, **named)
        if calls == nth:
            raise Killed
        return result

    return wrapped


STEPS = [
    (Spool, "append"),
    (Spool, "acknowledge"),
    (Spool, "keep_watermark"),
    (Spool, "keep_hints"),
    (SourceLog, "append"),
    (SourceLog, "begin"),
    (Quarantine, "put"),
]
TIMES = [1100 + i // 2 for i in range(40)]


def ingest(world: World, **more: object) -> None:
    path = world.file([f"n,{t},{i}" for i, t in enumerate(TIMES)] + ["n,bad,1"])
    inbox = inbox_of(world.folder / "a", "room")
    inbox.mkdir(parents=True, exist_ok=True)
    (inbox / "job.json").write_text(json.dumps({"file": str(path)} | more))


def test_a_file_that_plays_a_sensor_is_taken_in_once_over_all_restarts(tmp_path: Path) -> None:
    world = World(tmp_path)
    path = world.file(["n,1100,1", "n,1101,2"])
    for _ in range(3):
        hand_over(world.folder / "a", "room", "sensor", path)
        world.run(world.sensors(), 8)
        world.contexts[-1].spool.close()
    assert len(world.readings()) == 2


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("nth", [1, 2, 3, 5])
@pytest.mark.parametrize(("owner", "name"), STEPS)
def test_killed_between_any_two_steps_nothing_is_lost_or_doubled(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    nth: int,
    before: bool,
) -> None:
    world = World(tmp_path)
    ingest(world, as_now=True)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying(getattr(owner, name), nth, before=before))
        try:
            world.run(world.sensors(), 8, hints=True)
        except Killed:
            world.contexts[-1].spool.close()
    last = world.sensors()
    world.run(last, 40)
    # From the file's first reading on, shifted to the start of the job.
    assert [value for _, _, value in world.readings()] == [float(i) for i in range(40)]
    first = world.readings()[0][1]
    assert [stime - first for _, stime, _ in world.readings()] == [t - 1100 for t in TIMES]
    assert world.counts() == {"malformed": 1}
    assert last._context.spool.bytes_held == 0
    world.check()


def test_a_shared_start_shifts_a_file_by_what_others_are_shifted_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    start_us = world.now_us + 500_000
    ingest(world, as_now=True, event_us=1_090_000_000, wall_us=start_us)
    world.run(world.sensors(), 60)
    shifted = [stime for _, stime, _ in world.readings()]
    # The first reading is 10 s after the time that is the start.
    assert shifted == [start_us / S + t - 1_090 for t in TIMES]
    bad = tmp_path / "bad.json"
    bad.write_text('{"file": "a", "event_us": 1}')
    with pytest.raises(ValueError, match="not two whole numbers"):
        job_from(bad)


def test_without_kafka_the_spool_fills_and_the_file_waits(tmp_path: Path) -> None:
    world = World(tmp_path, spec=AHEAD)
    path = world.file([f"n,{1100 + i},{i}" for i in range(50_000)])
    proxy = world.sensors(spool_bytes_max=600_000)
    inbox = inbox_of(tmp_path / "a", "room")
    (inbox / "job.json").write_text(json.dumps({"file": str(path)}))
    world.broker.go_away()
    world.run(proxy, 3)
    assert 200_000 < proxy._context.spool.bytes_held <= 600_000
    world.broker.come_back()
    world.run(proxy, 30)
    assert [value for _, _, value in world.readings()] == [float(i) for i in range(50_000)]
    assert (inbox / "job.done").exists()
    world.check()


def test_a_job_that_cannot_be_done_is_refused_and_the_next_one_runs(tmp_path: Path) -> None:
    world = World(tmp_path, spec=AHEAD)
    proxy = world.sensors()
    inbox = inbox_of(tmp_path / "a", "room")
    (inbox / "a.json").write_text('{"file": "/nowhere.csv"}')
    (inbox / "b.json").write_text("not JSON")
    (inbox / "c.json").write_text(json.dumps({"file": str(world.file(["n,1100,5"]))}))
    world.run(proxy, 3)
    assert sorted(p.name for p in inbox.iterdir()) == ["a.refused", "b.refused", "c.done"]
    assert [value for _, _, value in world.readings()] == [5.0]


def test_a_file_that_is_read_is_counted_and_stopped_where_it_is(tmp_path: Path) -> None:
    world = World(tmp_path, spec=AHEAD)
    path = world.file([f"n,{1_000 + i},{i}" for i in range(100)])
    hand_over(tmp_path / "a", "room", "job", path, speed=1.0, as_now=False, lines=101)
    proxy = world.sensors()
    world.run(proxy, 30)
    read = len(world.readings())
    assert 20 < read < 40
    assert phrase(proxy) == [f"reads a file: {proxy.detail()['ingest_line']} of 101 lines"]
    assert read <= proxy.detail()["ingest_line"] <= read + 3
    assert stop_jobs(tmp_path / "a", "room") == [path.resolve()]
    assert stop_jobs(tmp_path / "a", "room") == []
    world.run(proxy, 30)
    assert len(world.readings()) <= read + 1
    assert phrase(proxy) == []
    world.run(world.sensors(), 30)
    assert len(world.readings()) <= read + 1, "nor after a restart"
    path = world.file(["n,1200,5"], "next.csv")
    hand_over(tmp_path / "a", "room", "next", path, speed=None, as_now=False)
    world.run(world.sensors(), 3)
    assert world.readings()[-1][2] == 5.0
    world.check()


def phrase(proxy: SensorInput) -> list[str]:
    """What `status` says of the file that is read."""
    return [text.strip() for text in phrases(proxy.detail()) if "file" in text]


def test_sqlite_is_as_durable_as_it_is_said_to_be(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path / "s.sqlite")
    normal, full = 1, 2
    assert spool._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    spool.keep_watermark(5)
    assert spool._db.execute("PRAGMA synchronous").fetchone()[0] == normal
    spool.append([record(0)], 9)
    assert spool._db.execute("PRAGMA synchronous").fetchone()[0] == full


def test_with_clock_data_a_file_goes_as_fast_as_it_can_and_ends_its_last_window(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, DataClock(), clock="data")
    proxy = world.sensors()
    grids(proxy, Grid(S, WindowSpec(60 * S, 60 * S)))
    ingest(world)
    world.run(proxy, 2)
    assert [stime for _, stime, _ in world.readings()] == TIMES
    assert world.boundary_s() == 1140, "the end of the window that holds 1119 s"
    assert world.counts() == {"malformed": 1}
    world.check()


def test_a_history_that_ends_before_its_queries_are_known_ends_their_last_window(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, DataClock(), clock="data")
    ingest(world)
    proxy = world.sensors()
    world.run(proxy, 2)
    assert world.boundary_s() == max(TIMES)
    grids(proxy, Grid(S, WindowSpec(60 * S, 60 * S)))
    world.run(proxy, 2)
    assert world.boundary_s() == 1140
    world.check()


def test_a_history_ends_where_it_is_told_to_after_its_file(tmp_path: Path) -> None:
    """Another stream's history is longer (``slackwater backfill``)."""
    world = World(tmp_path, DataClock(), clock="data")
    world.ingest([1_110, 1_111], "a")
    hand_over_end(tmp_path / "a", "room", "b", 9_000 * S)
    proxy = world.sensors()
    world.run(proxy, 3)
    assert [stime for _, stime, _ in world.readings()] == [1_110, 1_111]
    assert world.boundary_s() == 9_000
    world.run(world.sensors(), 3)
    assert world.boundary_s() == 9_000
    inbox = inbox_of(tmp_path / "a", "room")
    assert sorted(p.name for p in inbox.iterdir()) == ["a.done", "b.done"]
    world.check()


def test_a_history_in_two_files_ends_with_the_second(tmp_path: Path) -> None:
    """The second file's readings are in the window that the first one ends in."""
    world = World(tmp_path, DataClock(), clock="data")
    world.ingest([1_110, 1_111], "a")
    world.ingest([1_112, 1_131], "b")
    proxy = world.sensors()
    grids(proxy, Grid(S, WindowSpec(60 * S, 60 * S)))
    world.run(proxy, 3)
    assert [stime for _, stime, _ in world.readings()] == [1_110, 1_111, 1_112, 1_131]
    assert world.boundary_s() == 1140
    world.check()


@pytest.mark.parametrize(
    "job",
    ["[1]", '{"file": 5}', '{"file": "x", "speed": 0}', '{"speed": 1}', "[" * 100_000, "\xff"],
)
def test_a_job_of_any_content_is_refused_with_a_reason(tmp_path: Path, job: str) -> None:
    world = World(tmp_path)
    proxy = world.sensors()
    inbox = inbox_of(tmp_path / "a", "room")
    (inbox / "a.json").write_bytes(job.encode("latin-1"))
    (inbox / "c.json").write_text(json.dumps({"file": str(world.file(["n,1100,5"]))}))
    world.run(proxy, 3)
    assert sorted(p.name for p in inbox.iterdir()) == ["a.refused", "c.done"]
    assert json.loads((inbox / "a.refused").read_text())["refused"]


@pytest.mark.parametrize("kill_after", [None, 0, 1, 2, 3])
def test_what_comes_before_a_late_damage_is_taken_in_once_and_the_rest_refused(
    tmp_path: Path, kill_after: int | None
) -> None:
    """A truncated archive ended the live stream's proxy at each start."""
    rows = [f"n,{1_100 + i / 1e6:.6f},{hash((i, 1)) % 10**9}" for i in range(200_000)]
    complete = gzip.compress(world_file(tmp_path, rows))
    path = tmp_path / "late.csv.gz"
    path.write_bytes(complete[: len(complete) * 3 // 4])
    world = World(tmp_path, spec=AHEAD)
    inbox = inbox_of(tmp_path / "a", "room")
    inbox.mkdir(parents=True)
    (inbox / "late.json").write_text(json.dumps({"file": str(path)}))
    (inbox / "next.json").write_text(json.dumps({"file": str(world.file(["n,1200,5"]))}))
    proxy = world.sensors()
    if kill_after is not None:
        for _ in range(kill_after):
            proxy.step(world.now_us)
        proxy = world.sensors()
    world.run(proxy, 5)
    assert sorted(p.name for p in inbox.iterdir()) == ["late.refused", "next.done"]
    reported = json.loads((inbox / "late.refused").read_text())["refused"]
    assert "late.csv.gz is damaged: " in reported
    match = re.search(r"the lines before (\d+) have been ingested", reported)
    assert match is not None
    values = [value for _, _, value in world.readings()]
    assert len(values) == int(match[1]) - 2 + 1 > 10_000
    assert values[:-1] == [float(row.split(",")[2]) for row in rows[: len(values) - 1]]
    world.check()


def test_an_inch_mark_and_a_huge_cell_cost_their_own_lines_and_no_process(tmp_path: Path) -> None:
    """Either ended the live stream's proxy at each start, as a cell beyond 131,072."""
    rows = [f"n,{1_100 + i / 1e3:.3f},{i}" for i in range(30_000)]
    rows[5] = '"' + rows[5]
    rows[7] = f'n,{1_100.007},"{"x" * 2_000_000}"'
    world = World(tmp_path, spec=AHEAD)
    inbox = inbox_of(tmp_path / "a", "room")
    inbox.mkdir(parents=True)
    (inbox / "a.json").write_text(json.dumps({"file": str(world.file(rows))}))
    (inbox / "b.json").write_text(json.dumps({"file": str(world.file(["n,1200,5"], "next.csv"))}))
    world.run(world.sensors(), 60)
    assert sorted(p.name for p in inbox.iterdir()) == ["a.done", "b.done"]
    good = [float(i) for i in range(30_000) if i not in (5, 7)]
    assert [value for _, _, value in world.readings()] == [*good, 5.0]
    assert world.counts() == {"malformed": 2}
    assert [entry["position"] for entry in world.quarantined()] == ["a:7", "a:9"]
    world.check()


def test_a_job_of_a_header_alone_is_done(tmp_path: Path) -> None:
    world = World(tmp_path)
    proxy = world.sensors()
    inbox = inbox_of(tmp_path / "a", "room")
    (inbox / "a.json").write_text(json.dumps({"file": str(world.file([], "empty.csv"))}))
    (inbox / "b.json").write_text(json.dumps({"file": str(world.file(["n,1100,5"]))}))
    world.run(proxy, 3)
    assert sorted(p.name for p in inbox.iterdir()) == ["a.done", "b.done"]


def world_file(folder: Path, rows: list[str]) -> bytes:
    """Return the bytes of a file of the world's stream."""
    return World(folder).file(rows, "whole.csv").read_bytes()
