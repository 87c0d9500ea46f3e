"""The cursor in a source log: the effects of a loss, across parking and restarts (trace-15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import (
    Gap,
    Kind,
    Readings,
    SourceColumns,
    SourcePosition,
    SourceRecord,
)
from slackwater.protocols.dpc.sunion.cursor import SourceCursor

BUCKET = 10
BEGINNING = SourcePosition(0, -1, -1, 0)
STRICT = [True, False]


def log_of(records: int, gaps: Mapping[int, int] | None = None) -> dict[int, SourceRecord]:
    """Offset -> START, then one reading in each bucket; ``gaps``: readings lost by its proxy."""
    log = {0: SourceRecord(Kind.START, "s", 0, 0, -1, 0, 0, 0)}
    for i in range(records):
        at = i * BUCKET
        lost = (gaps or {}).get(i, 0)
        log[i + 1] = SourceRecord(
            Kind.INSERTION, "s", 0, i, i, at + BUCKET, at + 5, at + 5,
            gap=(Gap("s", lost),) if lost else (),
        )  # fmt: skip
    return log


def read(cursor: SourceCursor, log: Mapping[int, SourceRecord], below: int) -> None:
    for offset in range(cursor.offset, below):
        cursor.offer(offset, log[offset])


def restarted(cursor: SourceCursor, beginning: int, *, strict: bool = True) -> SourceCursor:
    """Return a restarted process's cursor, if retention has left ``beginning``.

    See trace-25.
    """
    made = SourceCursor(cursor.rebuild, strict=strict)
    if made.offset < beginning:
        made.jump(beginning)
    return made


def affected(cursor: SourceCursor) -> list[tuple[int, int, int]]:
    return [(low, high, gap.lost) for low, high, gap in cursor.gaps]


WHEN: dict[str, Callable[[int], bool]] = {
    "never": lambda _: False,
    "before the jump": lambda at: at == 0,
    "between the jump and the next record": lambda at: at == 1,
    "behind the next record": lambda at: at == 2,
    "always": lambda _: True,
}


@pytest.mark.parametrize("when", WHEN)
def test_a_restart_around_a_jump_neither_forgets_the_gap_nor_sees_a_hole(when: str) -> None:
    """Ids 3 to 6 are lost: a cursor had passed b0 to b2 when retention deleted them."""
    log, restarts = log_of(12), WHEN[when]
    cursor = SourceCursor(BEGINNING, strict=True)
    read(cursor, log, 4)
    cursor.pass_to(3 * BUCKET)
    if restarts(0):
        cursor = restarted(cursor, cursor.offset)
        cursor.pass_to(3 * BUCKET)

    cursor.jump(8)
    if restarts(1):
        cursor = restarted(cursor, 8)
        cursor.pass_to(3 * BUCKET)
    read(cursor, log, 9)
    if restarts(2):
        cursor = restarted(cursor, 8)
        cursor.pass_to(3 * BUCKET)
    read(cursor, log, 13)

    assert cursor.hole_inc is None
    assert affected(cursor) == [(3 * BUCKET, 8 * BUCKET, 4)]
    assert cursor.boundary == 12 * BUCKET


def test_a_restart_after_the_range_of_a_gap_has_no_gap() -> None:
    log = log_of(12)
    cursor = SourceCursor(BEGINNING, strict=True)
    read(cursor, log, 4)
    cursor.jump(8)
    read(cursor, log, 13)
    cursor.pass_to(8 * BUCKET)

    again = restarted(cursor, 8)
    read(again, log, 13)

    assert affected(cursor) == affected(again) == []
    assert again.hole_inc is None
    assert again.next_id == 12


def test_a_log_that_was_cut_before_its_first_reader_came_is_so_for_the_second_one() -> None:
    log = log_of(12)
    first = SourceCursor(SourcePosition(5, 0, -1, 0), strict=True)
    second = restarted(first, 5)
    read(second, log, 6)
    third = restarted(second, 5)
    read(third, log, 6)
    assert affected(second) == affected(third) == [(0, 5 * BUCKET, 4)]


@pytest.mark.parametrize("restart", [False, True])
def test_what_the_live_line_left_out_is_missing_until_it_is_past_it(restart: bool) -> None:
    log = log_of(12)
    cursor = SourceCursor(BEGINNING, strict=False)
    read(cursor, log, 4)
    cursor.pass_to(3 * BUCKET)
    cursor.jump(8)
    if restart:
        cursor = restarted(cursor, 8, strict=False)
        cursor.pass_to(3 * BUCKET)
    read(cursor, log, 13)
    assert cursor.passed(7 * BUCKET) < 8 * BUCKET
    assert cursor.passed(8 * BUCKET) == 12 * BUCKET


@pytest.mark.parametrize("strict", STRICT)
def test_a_gap_that_its_proxy_tells_is_counted_once_however_often_it_is_read(strict: bool) -> None:
    """A parked cursor drops its buffer, and reads the records again."""
    log = log_of(6, gaps={2: 7, 4: 9})
    cursor = SourceCursor(BEGINNING, strict=strict)
    read(cursor, log, 7)
    for _ in range(3):
        cursor.park()
        assert cursor.offset == 1, "the place of the first reading"
        read(cursor, log, 7)
    assert affected(cursor) == [(2 * BUCKET, 3 * BUCKET, 7), (4 * BUCKET, 5 * BUCKET, 9)]

    cursor.pass_to(3 * BUCKET)
    cursor.park()
    read(cursor, log, 7)
    assert affected(cursor) == [(4 * BUCKET, 5 * BUCKET, 9)]


def damaged(log: dict[int, SourceRecord], *offsets: int) -> dict[int, SourceRecord]:
    return {at: SourceRecord.void("s") if at in offsets else one for at, one in log.items()}


@pytest.mark.parametrize("restart_at", [None, 3, 4, 5, 6, 13])
def test_a_damaged_record_is_a_gap_in_front_of_what_follows(restart_at: int | None) -> None:
    """Ids 3 and 4 are in no other record, and only the log had them."""
    log = damaged(log_of(12), 4, 5)
    cursor = SourceCursor(BEGINNING, strict=True)
    for offset in range(13):
        if offset == restart_at:
            cursor.pass_to(2 * BUCKET)
            cursor = restarted(cursor, 0)
        read(cursor, log, offset + 1)

    assert cursor.hole_inc is None
    assert affected(cursor) == [(3 * BUCKET, 6 * BUCKET, 2)]
    assert cursor.next_id == 12


def test_a_damaged_record_that_held_nothing_else_is_none() -> None:
    """A boundary, a zombie's record, or one that its proxy sends again."""
    log = log_of(3)
    again = {**log, 4: SourceRecord.void("s"), 5: log_of(4)[4]}
    cursor = SourceCursor(BEGINNING, strict=True)
    read(cursor, again, 6)
    assert (affected(cursor), cursor.next_id, cursor.hole_inc) == ([], 4, None)


def test_damage_behind_a_hole_leaves_it_a_hole() -> None:
    """Records after the hole are sent again, so nothing is lost (rule-11)."""
    log = log_of(6)
    del log[3]
    cursor = SourceCursor(BEGINNING, strict=True)
    for offset, record in {**log, 5: SourceRecord.void("s")}.items():
        cursor.offer(offset, record)
    assert cursor.hole_inc == 0
    assert cursor.next_id == 2
    assert affected(cursor) == []


def test_the_live_line_names_a_damaged_stream_until_it_is_past_it() -> None:
    cursor = SourceCursor(BEGINNING, strict=False)
    read(cursor, damaged(log_of(12), 4), 13)
    assert cursor.passed(4 * BUCKET) < 5 * BUCKET
    assert cursor.passed(5 * BUCKET) == 12 * BUCKET


def test_readings_that_cannot_be_decoded_behind_a_good_header_are_a_gap_too() -> None:
    class Damaged:
        def load(self) -> SourceColumns:
            raise MalformedRecordError("s:0:3", "bytes")

    log = {at: replace(one, columns=Damaged()) for at, one in log_of(3).items()}
    cursor = SourceCursor(BEGINNING, strict=True)
    read(cursor, log, 4)
    assert list(cursor.columns(BUCKET, 2 * BUCKET)) == []
    assert list(cursor.columns(BUCKET, 2 * BUCKET)) == []
    assert affected(cursor) == [(BUCKET + 5, BUCKET + 6, 1)]


@st.composite
def logs(draw: st.DrawFn) -> list[SourceRecord]:
    """A stream with wrong sensor clocks: readings may be anywhere above the watermark."""
    records = [SourceRecord(Kind.START, "s", 0, 0, -1, 0, 0, 0)]
    boundary = first = 0
    for _ in range(draw(st.integers(1, 25))):
        ahead = draw(st.lists(st.integers(0, 40) | st.integers(0, 400), max_size=4))
        stimes = np.array([boundary + a for a in ahead], np.int64)
        boundary += draw(st.integers(0, 25))
        n = len(stimes)
        ids = np.arange(first, first + n, dtype=np.float64)
        records.append(
            SourceRecord(
                Kind.INSERTION if n else Kind.BOUNDARY, "s", 0, first, first + n - 1, boundary,
                int(stimes.min()) if n else boundary, int(stimes.max()) if n else boundary,
                columns=SourceColumns(stimes, np.zeros(n, np.int32), ["k"], ("v",), (ids,))
                if n else None,
            )
        )  # fmt: skip
        first += n
    return [*records, SourceRecord(Kind.BOUNDARY, "s", 0, first, first - 1, boundary + 500, 0, 0)]


@given(
    logs(),
    st.sampled_from([0, 15]),
    st.lists(st.sampled_from(["", "park", "restart"]), min_size=60, max_size=60),
)
def test_readings_ahead_of_every_promise_come_when_it_is_their_time(
    log: list[SourceRecord], lookback: int, acts: list[str]
) -> None:
    """Bucket by bucket, in the order of their ids, for any parking and restarts in between."""
    cursor = SourceCursor(BEGINNING, strict=True, lookback_us=lookback)
    for bucket, act in enumerate(acts):
        start, end = bucket * BUCKET, (bucket + 1) * BUCKET
        if act == "park":
            cursor.park()
        elif act == "restart":
            cursor = SourceCursor(cursor.rebuild, strict=True, lookback_us=lookback)
            cursor.pass_to(start)
        while cursor.boundary < end and cursor.offset < len(log):
            cursor.offer(cursor.offset, log[cursor.offset])
        if cursor.boundary < end:
            break
        low = start - lookback
        lower = cursor.next_reading(start)
        found = [v for c, _ in cursor.columns(low, end) for v in values_in(c, low, end)]
        assert found == [v for r in log for v in values_in(r.columns, low, end)]
        buffered = [r.columns.load().stimes for r in log[: cursor.offset] if r.columns]
        assert lower == min((t for stimes in buffered for t in stimes if t >= start), default=None)
        cursor.pass_to(end)


def values_in(columns: Readings | None, low: int, high: int) -> list[float]:
    if columns is None:
        return []
    complete = columns.load()
    return [v for t, v in zip(complete.stimes, complete.values[0], strict=True) if low <= t < high]


def test_what_is_gone_before_anything_was_read_is_lost() -> None:
    """A state record of offset 0, and retention deletes records before its reader (seed 8405)."""
    cursor = SourceCursor(SourcePosition(0, -1, -1, 0), strict=True)
    cursor.jump(45)
    first = SourceRecord(Kind.INSERTION, "s1", 0, 115, 117, 900, 910, 920)
    assert cursor.offer(45, first)
    assert cursor.gaps == [(0, 920, Gap("s1", 115))]


@pytest.mark.parametrize("strict", STRICT)
def test_a_gap_reaches_as_far_as_the_disorder_and_a_restart_finds_it_again(strict: bool) -> None:
    """The readings that a proxy has lost may be later than the watermark of its next record."""
    log = log_of(12, {4: 7})
    cursor = SourceCursor(BEGINNING, strict=strict, disorder_us=25)
    for below in range(1, 8):
        read(cursor, log, below)
        cursor.pass_to(cursor.boundary)
        if strict:
            # Its state is read again wherever it ends.
            cursor = SourceCursor(cursor.rebuild, strict=True, disorder_us=25)
            read(cursor, log, below)
            cursor.pass_to(cursor.boundary)
        at_gap = (40, 75, 7) if below > 5 else None
        assert affected(cursor) == ([at_gap] if at_gap and cursor.boundary < 75 else [])
    cursor.pass_to(80)
    assert affected(cursor) == []
