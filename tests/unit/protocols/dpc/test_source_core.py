"""The pure core of the source log: ids, watermarks, lateness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.deployment import WindowSpec
from slackwater.model.limits import NEVER
from slackwater.model.records import Gap, Kind, SourceColumns, SourcePosition, SourceRecord
from slackwater.primitives.ids import ANY, Contiguous
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.protocols.dpc.source.core import SourceCore, SourceRules
from slackwater.protocols.dpc.source.scan import LogScan, Resume
from slackwater.protocols.dpc.sunion.cursor import SourceCursor

DISORDER = 7


def rules(
    late: str = "input",
    *,
    clock: bool = True,
    readings_max: int = 10_000,
    disorder: int = DISORDER,
    ahead: int | None = None,
) -> SourceRules:
    return SourceRules("room", ("t",), disorder, late, clock, ahead, readings_max)  # type: ignore[arg-type]


def arrived(stimes: list[int], first: int = 0, keys: list[str] | None = None) -> Arrived:
    names = keys or [f"k{s % 3}" for s in stimes]
    places = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return Arrived(
        np.array(stimes, np.int64),
        np.array([places[name] for name in names], np.int32),
        list(places),
        (np.array(stimes, np.float64),),
        np.arange(first + 1, first + len(stimes) + 1, dtype=np.int64),
        first + len(stimes),
    )


def columns(record: SourceRecord) -> SourceColumns:
    assert record.columns is not None
    return record.columns.load()


def readings(records: list[SourceRecord]) -> list[tuple[int, int, str, float]]:
    """(id, stime, key, value) of all records."""
    found = []
    for record in records:
        if record.readings:
            c = columns(record)
            for i in range(record.readings):
                key = c.keys[int(c.key_index[i])]
                found.append((record.first_id + i, int(c.stimes[i]), key, float(c.values[0][i])))
    return found


def late_by_definition(stimes: list[int]) -> list[int]:
    late, largest = [], None
    for i, stime in enumerate(stimes):
        if largest is not None and stime < largest - DISORDER:
            late.append(i)
        largest = stime if largest is None else max(largest, stime)
    return late


stimes_lists = st.lists(st.integers(0, 60), min_size=1, max_size=60)


@given(stimes_lists, st.lists(st.integers(1, 9), max_size=30), st.data())
def test_any_chunking_gives_the_same_ids_and_the_same_late_ones(
    stimes: list[int], sizes: list[int], data: st.DataObject
) -> None:
    core = SourceCore(rules(readings_max=data.draw(st.integers(1, 7))))
    records: list[SourceRecord] = []
    late: list[int] = []
    at = 0
    for size in [*sizes, len(stimes)]:
        part = stimes[at : at + size]
        for refused in core.offer(arrived(part, at)):
            assert refused.reason == "late"
            late += [at + int(i) for i in refused.indices]
        at += len(part)
        if data.draw(st.booleans()):
            # Paced: the clock has reached the largest time read, but not the next larger one.
            reached = max(stimes[:at])
            records += core.flush(1, reached if data.draw(st.booleans()) else None)
    records += core.flush(1)
    wanted = set(range(len(stimes))) - set(late_by_definition(stimes))
    assert late == late_by_definition(stimes)
    assert [r[1] for r in readings(records)] == [stimes[i] for i in sorted(wanted)]
    assert [r[0] for r in readings(records)] == list(range(len(wanted)))
    check_watermarks(records)


def check_watermarks(records: list[SourceRecord]) -> None:
    watermark = NEVER
    for record in records:
        if record.readings:
            assert record.stime_min >= watermark, "a reading below the watermark"
            assert record.stime_min == columns(record).stimes.min()
            assert record.stime_max == columns(record).stimes.max()
        assert record.boundary >= watermark, "the watermark decreased"
        watermark = record.boundary


@given(st.lists(st.tuples(stimes_lists, st.integers(0, 80)), max_size=12))
def test_with_clock_boundaries_late_is_below_the_promise(
    steps: list[tuple[list[int], int]],
) -> None:
    core = SourceCore(rules("promise"))
    records: list[SourceRecord] = []
    late = sent = 0
    for stimes, clock in steps:
        watermark = core.watermark
        refused = core.offer(arrived(stimes, core.position))
        below = sum(s < watermark for s in stimes)
        assert sum(len(r.indices) for r in refused) == below
        late += below
        sent += len(stimes)
        records += core.flush(1, clock)
        assert core.watermark == max(watermark, clock - DISORDER)
    check_watermarks(records)
    assert len(readings(records)) == sent - late


def test_the_first_id_goes_on_where_the_log_ends() -> None:
    core = SourceCore(rules(), Resume(next_id=110, watermark=5, largest=20, position=9))
    core.offer(arrived([21], 9))
    (record,) = core.flush(77)
    assert (record.first_id, record.last_id, record.inc) == (110, 110, 77)
    assert record.boundary == 21 - DISORDER


def test_every_data_record_carries_the_boundary_and_a_boundary_alone_needs_no_data() -> None:
    core = SourceCore(rules("promise"))
    core.offer(arrived([50, 51]))
    assert [r.kind for r in core.flush(1, 60)] == [Kind.INSERTION]
    assert core.flush(1, 60) == ()
    (alone,) = core.flush(1, 61)
    assert (alone.kind, alone.boundary) == (Kind.BOUNDARY, 61 - DISORDER)
    assert (alone.first_id, alone.last_id) == (2, 1)
    assert core.flush(1, 40) == ()


def test_full_records_are_cut_and_promise_only_what_their_followers_allow() -> None:
    core = SourceCore(rules("promise", readings_max=2))
    core.offer(arrived([50, 51, 40, 41, 45]))
    records = core.flush(1, 100)
    assert [r.readings for r in records] == [2, 2, 1]
    assert [r.boundary for r in records] == [40, 45, 93]
    assert [r.input_position for r in records] == [2, 4, 5]


def test_long_keys_make_records_smaller() -> None:
    core = SourceCore(
        SourceRules("room", ("t",), 0, "input", clock_boundaries=True, bytes_max=4096)
    )
    core.offer(arrived(list(range(16)), keys=[f"{i:03d}" * 300 for i in range(16)]))
    records = core.flush(1)
    assert len(records) == 4
    assert [columns(r).keys[0][:3] for r in records] == ["000", "004", "008", "012"]


class TestAhead:
    """Readings, and boundaries of the input, that are ahead of the clock (trace-45)."""

    @pytest.mark.parametrize("late", ["input", "promise"])
    @pytest.mark.parametrize("ahead", [0, 60])
    def test_a_reading_too_far_ahead_is_refused_and_moves_nothing(
        self, late: str, ahead: int
    ) -> None:
        core = SourceCore(rules(late, ahead=ahead))
        (refused,) = core.offer(arrived([99, 100 + ahead + 1, 100 + ahead]), now_us=100)
        assert (refused.reason, refused.indices.tolist()) == ("ahead", [1])
        assert refused.clock_us == 100
        assert core.largest == 100
        assert [r[1] for r in readings(list(core.flush(1)))] == [99, 100 + ahead]

    def test_a_replay_is_compared_with_no_clock(self) -> None:
        core = SourceCore(rules(ahead=0))
        assert core.offer(arrived([10**15])) == ()
        assert core.flush(1)[-1].boundary == 10**15 - DISORDER

    def test_a_device_that_is_ahead_makes_nobody_late_and_its_readings_are_kept(self) -> None:
        core = SourceCore(rules(clock=False, ahead=60))
        records: list[SourceRecord] = []
        for now in range(1_000, 1_100, 10):
            assert core.offer(arrived([now + 55, now - DISORDER], core.position), now) == ()
            records += core.flush(1)
            assert core.watermark == now - DISORDER
        assert len(readings(records)) == 20
        check_watermarks(records)

    def test_a_boundary_that_is_ahead_counts_as_far_as_the_clock_has_come(self) -> None:
        core = SourceCore(rules(clock=False, ahead=60))
        assert core.advance_watermark(150, now_us=100)
        assert core.claim(100) == 100
        assert core.offer(arrived([99, 100]), now_us=100)[0].indices.tolist() == [0]
        assert core.claim(130) == 130
        assert core.claim(1_000) == 150

    def test_a_boundary_too_far_ahead_is_refused(self) -> None:
        core = SourceCore(rules(clock=False, ahead=60))
        assert not core.advance_watermark(161, now_us=100)
        assert core.claim(1_000) == NEVER

    def test_a_restart_knows_what_counted(self) -> None:
        core = SourceCore(rules(clock=False, ahead=60))
        core.offer(arrived([150, 90]), now_us=100)
        scan = LogScan()
        for offset, record in enumerate([core.start("s"), *core.flush(0)]):
            scan.see(offset, record)
        again = SourceCore(rules(clock=False, ahead=60), scan.resume("s"))
        assert again.largest == core.largest == 100
        assert again.offer(arrived([94, 92], 2), now_us=101)[0].indices.tolist() == [1]

    @pytest.mark.parametrize("lead_us", [50_000, 5_000_000])
    def test_readings_that_are_read_together_arrived_before_now(self, lead_us: int) -> None:
        core = SourceCore(rules(clock=False, ahead=60_000_000, disorder=0))
        now = 1_000_000_000
        assert core.offer(arrived([now]), now) == ()
        later = now + 500_000
        assert core.offer(arrived([later + lead_us, later - 300_000], 1), later) == ()

    @given(
        way=st.integers(0, 50),
        spread=st.integers(0, DISORDER),
        turns=st.lists(
            st.tuples(
                st.lists(st.tuples(st.integers(0, DISORDER), st.none() | st.integers(1, 60))),
                st.integers(1, 9),
            ),
            max_size=40,
        ),
    )
    def test_who_is_ahead_makes_nobody_late_whose_way_is_as_long_as_before(
        self, way: int, spread: int, turns: list[tuple[list[tuple[int, int | None]], int]]
    ) -> None:
        """Readings take at most ``disorder`` longer than the one with the longest way so far."""
        second = 1_000_000
        core = SourceCore(rules(clock=False, ahead=70 * second, disorder=DISORDER * second))
        now = 1_000 * second
        core.offer(arrived([now - (way + spread) * second]), now)
        for offered, later in turns:
            now += later * second
            stimes = [
                now - (way + shorter) * second if lead is None else now + lead * second
                for shorter, lead in offered
            ]
            assert core.offer(arrived(stimes, core.position), now) == ()
            core.flush(1)
            assert core.watermark <= now - DISORDER * second

    @given(st.lists(st.tuples(st.lists(st.integers(-40, 40), max_size=6), st.integers(0, 9))))
    @pytest.mark.parametrize("late", ["input", "promise"])
    def test_the_watermark_never_passes_the_clock(
        self, late: str, turns: list[tuple[list[int], int]]
    ) -> None:
        core = SourceCore(rules(late, clock=late == "promise", ahead=20, readings_max=3))
        records: list[SourceRecord] = []
        now, refused = 1_000, 0
        largest = NEVER
        for offsets, later in turns:
            now += later
            stimes = [now + offset for offset in offsets]
            for some in core.offer(arrived(stimes, core.position), now):
                refused += len(some.indices)
                too_far = [i for i, offset in enumerate(offsets) if offset > 20]
                assert (some.reason == "ahead") == (some.indices.tolist() == too_far != [])
            largest = max([largest, *(min(s, now) for s in stimes if s <= now + 20)])
            records += core.flush(1, now)
            assert core.watermark <= now - DISORDER
            assert core.largest == largest
        check_watermarks(records)
        assert len(readings(records)) + refused == sum(len(offsets) for offsets, _ in turns)


def test_flushes_at_the_cut_points_of_all_queries_after_disorder() -> None:
    core = SourceCore(rules())
    assert core.next_flush_us(0, Grid(100, None)) == 0 + DISORDER
    core.read_by([Grid(100, None), Grid(60, WindowSpec(120, 120))], None)
    flushes, now = [], 0
    for _ in range(6):
        now = core.next_flush_us(now, Grid(1, None))
        flushes.append(now - DISORDER)
    assert flushes == [0, 60, 100, 120, 180, 200]


def test_a_boundary_message_of_the_input_is_a_promise() -> None:
    core = SourceCore(rules("input", clock=False))
    core.offer(arrived([10]))
    core.advance_watermark(30)
    (refused,) = core.offer(arrived([29, 30], 1))
    assert (refused.reason, refused.indices.tolist()) == ("late", [0])
    assert core.flush(1)[-1].boundary == 30


def test_a_loss_of_the_input_is_reported_once_by_the_next_record() -> None:
    core = SourceCore(rules("promise"))
    core.lost(7)
    assert core.start("s").gap == ()
    core.offer(arrived([50]))
    assert [r.gap for r in core.flush(1, 60)] == [(Gap("room", 7),)]
    assert [r.gap for r in core.flush(1, 61)] == [()]


def test_a_flush_that_could_not_be_kept_is_taken_back() -> None:
    core = SourceCore(rules())
    core.offer(arrived([1, 2]))
    saved = core.saved()
    first = core.flush(1, 9)
    core.restore(saved)
    again = core.flush(1, 9)
    assert readings(list(again)) == readings(list(first)) != []
    assert [r.boundary for r in again] == [r.boundary for r in first]


class TestContiguous:
    def test_only_the_next_run_counts(self) -> None:
        ids = Contiguous(5)
        assert not ids.accept(6, 9)
        assert not ids.accept(4, 5)
        assert ids.accept(5, 4)
        assert ids.accept(5, 8)
        assert ids.next_id == 9

    def test_any_takes_what_comes_first(self) -> None:
        ids = Contiguous(ANY)
        assert ids.accept(40, 41)
        assert ids.next_id == 42

    def test_a_run_that_ends_before_it_begins_is_a_fault(self) -> None:
        with pytest.raises(AssertionError):
            Contiguous(0).accept(5, 3)


def start(offset_unused: int, next_id: int, spool: str, watermark: int = NEVER) -> SourceRecord:
    return SourceRecord(
        Kind.START, "room", 0, next_id, next_id - 1, watermark, watermark, watermark, 0, spool
    )


def data(inc: int, first: int, last: int, boundary: int = 0, position: int = 0) -> SourceRecord:
    return SourceRecord(
        Kind.INSERTION, "room", inc, first, last, boundary, boundary, boundary + 5, position
    )


def test_a_scan_reads_as_the_readers_do() -> None:
    scan = LogScan()
    log = [
        start(0, 0, "a"),
        data(0, 0, 9, 50, 11),
        data(0, 20, 29, 90, 31),  # beyond a hole
        start(3, 10, "b", 50),
        data(0, 10, 19, 95, 21),  # a zombie
        data(3, 10, 12, 60, 4),
    ]
    for offset, record in enumerate(log):
        scan.see(offset, record)
    assert scan.ids.next_id == 13
    assert scan.watermark == 60
    assert scan.accepted == {"a": [(0, 9)], "b": [(10, 12)]}
    assert scan.resume("b") == Resume(13, 60, 65, 4)
    assert scan.resume("a").position == 11
    assert scan.has("a", 9)
    assert not scan.has("a", 12)


VOID = SourceRecord.void("room")


@pytest.mark.parametrize(
    ("log", "next_id"),
    [
        # A damaged record's ids are in no other record: a gap, for the writer as for the readers.
        ([data(0, 0, 9), VOID, data(0, 20, 29)], 30),
        # Damage at the end: a writer repeats the records that it can.
        ([data(0, 0, 9), VOID], 10),
        ([data(0, 0, 9), VOID, start(3, 10, "a"), data(3, 10, 14)], 15),
        # A boundary, or a repeat.
        ([data(0, 0, 9), VOID, data(0, 10, 14)], 15),
        ([data(0, 0, 9), VOID, data(0, 5, 9), data(0, 20, 29)], 30),
        # After a hole all is sent again, so nothing is lost.
        ([data(0, 0, 9), data(0, 20, 29), VOID, data(0, 40, 49)], 10),
        ([data(0, 0, 9), VOID, data(-1, 20, 29)], 10),
    ],
)
def test_a_scan_takes_damage_as_the_readers_do(log: list[SourceRecord], next_id: int) -> None:
    scan, cursor = LogScan(), SourceCursor(SourcePosition(0, 0, -1, NEVER), strict=True)
    for offset, record in enumerate([start(0, 0, "a"), *log]):
        scan.see(offset, record)
        cursor.offer(offset, record)
    assert scan.ids.next_id == cursor.next_id == next_id
