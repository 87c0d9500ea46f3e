"""trace-21: a query without a window has a root too, which passes its rows on.

Its R ordered logs have different tentative contents and no common seq; the root selects, merges the
children, and writes each bucket at most once tentatively and exactly once for good (rule-22).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.paper.stage import Orderer, Root, Settings, Source, Stage, label, labels, readings

from slackwater.model.records import Kind, OrderedRecord
from slackwater.primitives.eventclock import DataClock
from slackwater.primitives.rows import RowContents
from slackwater.protocols.common.line import LineName, Schedule
from slackwater.protocols.dpc.soutput.answers import EmptyRun, StableWindow, TentativeWindow, Undo

ROWS = Settings(bucket_ms=10, rows=True)


def world(names: tuple[str, ...], children: int = 1, replicas: int = 1) -> tuple[
    dict[str, Source], list[Orderer], Root
]:  # fmt: skip
    sources = {name: Source(name) for name in names}
    share = len(names) // children
    orderers = [
        Orderer(
            list(sources.values())[c * share : (c + 1) * share], ROWS, child=c, replica=r
        )
        for c in range(children)
        for r in range(replicas)
    ]  # fmt: skip
    return sources, orderers, Root(orderers, ROWS)


def work(orderers: list[Orderer], root: Root, now_ms: float) -> None:
    for orderer in orderers:
        orderer.listen()
        orderer.step(now_ms)
    root.listen()
    root.step(now_ms)


def test_children_are_merged_by_time_and_then_by_child() -> None:
    sources, orderers, root = world(("s1", "s2"), children=2)
    sources["s1"].emit([1, 5, 9], 20, value=1.0, key="a")
    sources["s2"].emit([0, 5, 15], 20, value=2.0, key="b")
    work(orderers, root, 21)
    assert readings(root, root.emitted) == [
        ("stable", 0, "b", 2.0),
        ("stable", 1, "a", 1.0),
        ("stable", 5, "a", 1.0),
        ("stable", 5, "b", 2.0),
        ("stable", 9, "a", 1.0),
        ("stable", 15, "b", 2.0),
    ]
    buckets = [one.effect for one in root.emitted if isinstance(one.effect, StableWindow)]
    assert [(b.window_start, b.window_end, b.rows) for b in buckets] == [
        (0, 10_000, 5),
        (10_000, 20_000, 1),
    ]


def test_a_failure_is_answered_tentatively_undone_and_replaced_in_one_transaction() -> None:
    sources, orderers, root = world(("s1", "s2"))
    sources["s2"].disconnect()
    sources["s1"].emit([3], 3_000, value=1.0)
    sources["s2"].emit([2], 3_000, value=2.0)
    deadline_ms = 10 + 2_000
    for now in (11, deadline_ms - 101, deadline_ms - 99, deadline_ms):
        work(orderers, root, now)
    assert readings(root, root.emitted) == [("tentative", 3, "k", 1.0)]
    emitted = root.emitted[0].effect
    assert isinstance(emitted, TentativeWindow)
    assert emitted.missing == ("s2",)
    sources["s2"].reconnect()
    work(orderers, root, deadline_ms + 1)
    # Two seconds are 200 buckets, of which the empty ones are one correction (rule-23).
    assert labels(root.emitted) == ["tentative", "undo", "stable", "rec_done", "stable"]
    assert readings(root, root.emitted)[1:] == [("stable", 2, "k", 2.0), ("stable", 3, "k", 1.0)]
    undo, first = (
        next(one for one in root.emitted if isinstance(one.effect, kind))
        for kind in (Undo, StableWindow)
    )
    assert undo.transaction == first.transaction


def test_replicas_tell_one_story_and_the_second_takes_over_without_a_seam() -> None:
    sources, orderers, root = world(("s1",), replicas=2)
    a, b = orderers
    sources["s1"].emit([1, 11], 20)
    work([a, b], root, 21)
    sources["s1"].emit([21, 31], 40)
    work([b], root, 41)  # a has ended
    assert [stime for _, stime, _, _ in readings(root, root.emitted)] == [1, 11, 21, 31]
    assert labels(root.emitted) == ["stable"]


def test_the_parts_share_the_keys_and_lose_none() -> None:
    sources, orderers, complete = world(("s1",))
    parts = [Root(orderers, ROWS) for _ in range(3)]
    for part, root in enumerate(parts):
        contents = partial(RowContents, part=part, parts=3)
        root.config = replace(root.config, part=part, contents=contents)
        root.crash()
    for i in range(9):
        sources["s1"].emit([i], i, key=f"room-{i}")
    sources["s1"].emit([], 10)
    for root in (complete, *parts):
        work(orderers, root, 11)
    reported = [readings(root, root.emitted) for root in parts]
    assert all(0 < len(one) < 9 for one in reported)
    assert sorted(row for one in reported for row in one) == readings(complete, complete.emitted)


def test_a_run_of_empty_buckets_is_one_boundary() -> None:
    sources, orderers, root = world(("s1",))
    sources["s1"].emit([5], 10)
    sources["s1"].emit([], 60_000)
    work(orderers, root, 60_001)
    assert len(root.emitted) == 2
    run = root.emitted[-1].effect
    assert isinstance(run, EmptyRun)
    assert (run.window_start, run.window_end, run.windows) == (10_000, 60_000_000, 5_999)


@pytest.mark.parametrize("spacing_s", [1, 60, 3_600])
def test_corrections_take_no_more_transactions_than_readings(spacing_s: int) -> None:
    """With ``clock: data`` a whole file is due at once, including readings not yet ordered."""
    count = 300
    clock = DataClock()
    source = Source("s1")

    def schedule(stage: int) -> Schedule:
        return Schedule(clock.wall, ROWS.schedule(stage).answer_within_us)

    orderer = Orderer([source], ROWS)
    orderer.config = replace(orderer.config, schedule=schedule(1))
    orderer.crash()
    root = Root([orderer], ROWS)
    root.config = replace(root.config, schedule=schedule(2))
    root.crash()
    for at_s in range(spacing_s, (count + 1) * spacing_s, spacing_s):
        source.emit([at_s * 1_000 - 1], at_s * 1_000)
    end_us = count * spacing_s * 1_000_000
    clock.observe(end_us, 0)
    root.listen()
    root.step(5_000)
    assert root.core.line.live_next == end_us, "all windows are overdue, and answered without rows"
    begun = root.transactions
    work([orderer], root, 5_000)
    assert root.core.line.stable_next == root.core.line.live_next == end_us
    assert labels(root.emitted)[-1] == "rec_done"
    rows = [e for e in root.emitted if isinstance(e.effect, StableWindow) and e.effect.rows]
    assert len(rows) == count
    # Each reading makes a bucket and a run of empty ones; logs are not read further ahead than H.
    assert root.transactions - begun <= count + 1


@pytest.mark.parametrize("spacing_s", [1, 60, 3_600])
def test_a_silent_stream_makes_no_more_records_than_there_are_readings(spacing_s: int) -> None:
    """With ``clock: data`` an hour of event time is due at once: 360,000 buckets."""
    count = 300
    clock = DataClock()
    sources = [Source("s1"), Source("s2")]
    orderer = Orderer(sources, ROWS)
    within_us = ROWS.schedule(1).answer_within_us
    orderer.config = replace(orderer.config, schedule=Schedule(clock.wall, within_us))
    orderer.crash()
    stimes = range(spacing_s, (count + 1) * spacing_s, spacing_s)
    for at_s in stimes:
        sources[0].emit([at_s * 1_000 - 1], at_s * 1_000)
    end_us = count * spacing_s * 1_000_000
    clock.observe(end_us, 0)
    turns = 0
    while orderer.core.line.live_next < end_us:
        orderer.listen()
        orderer.step(5_000, turns_max=1)
        turns += 1
    assert turns <= count + 10
    records = written(orderer, LineName.LIVE)
    # Each reading makes a bucket and a run of empty ones.
    assert len(records) <= 2 * count + 1
    assert {record.missing for record in records} == {("s2",)}
    ends = [record.bucket_end for record in records]
    assert [record.bucket_start for record in records] == [0, *ends[:-1]], "none is omitted"
    with_rows = [record for record in records if record.kind is Kind.TENTATIVE]
    assert {record.bucket_end - record.bucket_start for record in with_rows} == {10_000}
    assert [int(t) for record in with_rows for t in record.stimes] == [
        at_s * 1_000_000 - 1_000 for at_s in stimes
    ]


def test_a_silent_stream_widens_no_bucket_with_a_reading() -> None:
    test_a_silent_stream_makes_no_more_records_than_there_are_readings(60)


def test_a_run_ends_where_the_next_bucket_is_not_due() -> None:
    clock = DataClock()
    sources = [Source("s1"), Source("s2")]
    orderer = Orderer(sources, ROWS)
    within_us = ROWS.schedule(1).answer_within_us
    orderer.config = replace(orderer.config, schedule=Schedule(clock.wall, within_us))
    orderer.crash()
    for source in sources:
        source.emit([], 5_000)
    sources[0].emit([], 60_000)
    clock.observe(40_000_000, 0)
    clock.observe(60_000_000, 4_900_000)
    for now_ms in (2_000, 6_900):
        orderer.listen()
        orderer.step(now_ms)
    (stable,) = written(orderer, LineName.STABLE)
    assert (stable.bucket_start, stable.bucket_end) == (0, 5_000_000)
    runs = [(r.bucket_start, r.bucket_end, r.missing) for r in written(orderer, LineName.LIVE)]
    assert runs == [(5_000_000, 40_000_000, ("s2",)), (40_000_000, 60_000_000, ("s2",))]


def written(orderer: Orderer, line: LineName) -> list[OrderedRecord]:
    """Return the records of one of its logs, without STARTs."""
    return [record for record in orderer.logs[line] if record.kind is not Kind.START]


def test_r32_a_bucket_in_several_pieces_counts_when_all_are_there() -> None:
    _sources, orderers, root = world(("s1",))
    log = orderers[0].logs[LineName.STABLE]

    def piece(number: int, stimes: list[int]) -> OrderedRecord:
        n = len(stimes)
        return OrderedRecord(
            Kind.INSERTION, 0, 0, 0, 0, 10_000, number, 2, keys=("k",), fields=("v",),
            values=(np.full(n, float(number)),), stimes=np.array(stimes),
            key_index=np.zeros(n, np.int32),
        )  # fmt: skip

    log.append(piece(0, [1_000, 4_000]))
    root.listen()
    root.step(11)
    assert root.emitted == []
    log.append(piece(1, [4_000, 9_000]))
    root.listen()
    root.step(12)
    reported = [(stime, value) for _, stime, _, value in readings(root, root.emitted)]
    assert reported == [(1, 0.0), (4, 0.0), (4, 1.0), (9, 1.0)]


def test_r27_a_restarted_root_goes_on_where_the_log_ends() -> None:
    stage = Stage(settings=ROWS, tick_ms=10)
    stage.run_to(100)
    before = readings(stage.root, stage.emitted)
    stage.root.crash()
    stage.run_to(200)
    reported = readings(stage.root, stage.emitted)
    assert reported[: len(before)] == before
    assert [stime for _, stime, _, _ in reported] == sorted(stime for _, stime, _, _ in reported)
    assert len(reported) == 3 * 20
    assert labels(stage.emitted) == ["stable"]


IDLE = replace(ROWS, empty_wait_ms=100)


def idle_stage() -> tuple[Source, Source, Stage]:
    stage = Stage(names=("s1", "s2"), settings=IDLE, tick_ms=10)
    one, two = stage.sources.values()
    return one, two, stage


def test_an_idle_query_writes_runs_and_a_reading_waits_for_none() -> None:
    one, two, stage = idle_stage()
    for now in range(10, 1_010, 10):
        one.emit([now - 5] if now == 500 else [], now)
        two.emit([], now)
        stage.now_ms = now
        stage.work()
    rows = [
        one for one in stage.emitted if isinstance(one.effect, StableWindow) and one.effect.rows
    ]
    assert [one.at_ms for one in rows] == [500]
    assert stage.root.transactions <= 12, "not a hundred"
    assert labels(stage.emitted) == ["stable"]
    runs = [(one.at_ms, one.effect) for one in stage.emitted if isinstance(one.effect, EmptyRun)]
    assert max(at_ms - run.window_start / 1_000 for at_ms, run in runs) <= 120


def test_an_idle_query_in_a_failure_writes_runs_too() -> None:
    one, two, stage = idle_stage()
    two.disconnect()
    for now in range(10, 4_010, 10):
        one.emit([now - 5] if now == 3_500 else [], now)
        two.emit([], now)
        stage.now_ms = now
        stage.work()
    reported = [one for one in stage.emitted if label(one.effect) == "tentative"]
    assert {getattr(one.effect, "missing") for one in reported} == {("s2",)}  # noqa: B009
    (row,) = (
        one for one in reported if isinstance(one.effect, TentativeWindow) and one.effect.rows
    )
    assert row.at_ms == 3_500
    late = [one for one in reported if one.at_ms > 2_100]
    assert 10 < len(late) < 40, "runs of a tenth of a second, over two seconds"
    two.reconnect()
    stage.now_ms += 10
    stage.work()
    assert labels(stage.emitted)[-2:] == ["stable", "rec_done"]
