"""Result lines as batches for a chained query: the same for any batches of the reader."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.codec.result_batches import Assembler, LazyRows, ResultStream
from slackwater.codec.results import (
    Label,
    ReadingColumns,
    ResultHead,
    ResultRows,
    encode_boundary,
    encode_rows,
)
from slackwater.model.records import Gap, Kind, ResultBatch, SourcePosition
from slackwater.primitives.aggregates import AggregateColumns
from slackwater.protocols.dpc.soutput.answers import EmptyRun, StableWindow, TentativeWindow
from slackwater.protocols.dpc.sunion.chain import ResultCursor

SLIDE = 1_000_000
HEAD = ResultHead("climate", 0)
STREAM = ResultStream("climate", 0, ("t", "h"), ("count", "avg"), SLIDE)


def window(
    start: int, keys: list[str], seq: int, label: Label, *, lost: int = 0, windows: int = 1
) -> list[bytes]:
    n = len(keys)
    columns = (np.arange(1.0, 2 * n + 1).reshape(2, n),) * 5
    gap, end = (Gap("s1", lost),) if lost else (), start + windows * SLIDE
    if windows > 1:
        missing = ("s1",) if label == "tentative" else ()
        run = EmptyRun(seq, 0, label == "stable", start, end, windows, 0, missing)
        return [encode_boundary(HEAD, run, 0)]
    answer: StableWindow[Any] | TentativeWindow[Any] = (
        StableWindow(seq, seq + n, 0, start, end, 0, n, None, gap)
        if label == "stable"
        else TentativeWindow(seq, seq + n, 0, start, end, 0, n, None, ("s1",), gap)
    )
    rows = ResultRows(
        head=HEAD,
        window=answer,
        keys=sorted(keys),
        fields=STREAM.fields,
        figures=AggregateColumns(*columns),
        aggregate=STREAM.aggregate,
        emitted_at=0,
    )
    return [value for _, value in encode_rows(rows)] + [encode_boundary(HEAD, answer, 0)]


def assembled(lines: list[tuple[int, bytes]]) -> list[ResultBatch]:
    assembler = Assembler(STREAM)
    return [b for at, value in lines if (b := assembler.take(at, value)) is not None]


@st.composite
def topics(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Return consecutive windows; some are followed by markers, which take offsets."""
    lines: list[tuple[int, bytes]] = []
    offset = seq = start = 0
    names = st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=4)
    for keys in draw(st.lists(names, max_size=6)):
        windows = 1 if keys else draw(st.integers(1, 3))
        label: Label = draw(st.sampled_from(("stable", "tentative")))
        for value in window(start, keys, seq, label, windows=windows):
            lines.append((offset, value))
            offset += 1
        seq += len(keys) + 1
        start += windows * SLIDE
        offset += draw(st.integers(0, 3))
    return lines


@given(topics())
def test_neighbouring_windows_touch_and_rows_lie_at_their_window_s_end(
    lines: list[tuple[int, bytes]],
) -> None:
    batches = assembled(lines)
    assert len(batches) == sum(b'"kind":"boundary"' in value for _, value in lines)
    for before, behind in pairwise(batches):
        assert before.boundary == behind.prev_watermark
        assert before.next_offset <= behind.offset
    for batch in batches:
        assert (batch.prev_watermark + 1) % SLIDE == 0
        if batch.readings:
            assert batch.columns is not None
            columns = batch.columns.load()
            assert (columns.stimes == batch.prev_watermark).all()
            assert len(columns.stimes) == batch.readings
            assert columns.fields == ("t_count", "t_avg", "h_count", "h_avg")


@given(topics(), st.integers(0, 40), st.integers(1, 5))
def test_a_reader_that_reads_in_small_pieces_gets_the_same_batches(
    lines: list[tuple[int, bytes]], skipped: int, most: int
) -> None:
    """It requests its next position for an incomplete window, and may begin late."""
    complete = assembled(lines)
    wanted = complete[min(skipped, len(complete) - 1)].offset if complete else 0
    expected = [b for b in complete if b.offset >= wanted]
    assembler, found = Assembler(STREAM), []
    for _ in range(len(lines) + 1):
        at = assembler.resume(wanted)
        for offset, value in [pair for pair in lines if pair[0] >= at][:most]:
            batch = assembler.take(offset, value)
            if batch is not None:
                found.append(batch)
                wanted = batch.next_offset
    assert [key(b) for b in found] == [key(b) for b in expected]


def key(batch: ResultBatch) -> tuple[object, ...]:
    rows = None if batch.columns is None else [v.tolist() for v in batch.columns.load().values]
    return (batch.kind, batch.offset, batch.next_offset, batch.prev_watermark, batch.boundary, rows)


def test_the_content_of_a_boundary_is_in_the_batch() -> None:
    (batch,) = assembled(list(enumerate(window(0, ["b", "a"], 7, "tentative", lost=3))))
    assert batch.kind is Kind.TENTATIVE
    assert (batch.first_id, batch.last_id, batch.missing, batch.lost) == (7, 8, ("s1",), 3)
    assert batch.columns is not None
    assert list(batch.columns.load().keys) == ["a", "b"]


def test_r38_windows_that_were_skipped_are_missing_and_not_empty() -> None:
    skipped = EmptyRun(9, 1, False, 0, 3 * SLIDE, 3, 0, ("s1",), skipped=True)
    run = encode_boundary(HEAD, skipped, 0)
    (batch,) = assembled([(0, run)])
    assert (batch.kind, batch.readings) == (Kind.TENTATIVE, 0)
    assert (batch.prev_watermark, batch.boundary) == (SLIDE - 1, 4 * SLIDE - 1)
    assert batch.missing == ("climate", "s1")


def test_a_figure_that_is_null_is_a_missing_value() -> None:
    lines = window(0, ["a"], 0, "stable")
    lines[0] = lines[0].replace(b'"avg":1.0', b'"avg":null', 1)
    (batch,) = assembled(list(enumerate(lines)))
    assert batch.columns is not None
    values = dict(zip(batch.columns.load().fields, batch.columns.load().values, strict=True))
    assert np.isnan(values["t_avg"][0])
    assert values["t_count"][0] == 1


def other(line: bytes, **changed: Any) -> bytes:
    return orjson.dumps(orjson.loads(line) | changed)


WINDOW = window(0, ["a", "b"], 0, "stable")
FOREIGN_RESULTS = {
    "a row once more": WINDOW[1],
    "a row of a later window": other(WINDOW[1], window_start="2031-01-01T00:00:00.000000Z"),
    "a row with a seq of its own": other(WINDOW[1], seq=999_999),
    "a row of another query": other(WINDOW[1], query="other"),
    "a row of no window": b'{"kind":"stable"}',
    "a boundary of another query": other(WINDOW[-1], query="other"),
    "a boundary of another part": other(WINDOW[-1], part=7),
    "a boundary with too many windows": other(WINDOW[-1], seq=99, keys=0, windows=2**60),
    "a boundary with fewer than no rows": other(WINDOW[-1], keys=-1),
    "a boundary that ends before it begins": other(WINDOW[-1], window_end="1960-01-01T00:00:00Z"),
    "a boundary with a loss that is no number": other(WINDOW[-1], lost=["all"]),
    "a boundary without a label": other(WINDOW[-1], label="surprise"),
    "a tombstone": b"",
    "nested too deeply": b"[" * 100_000,
}


@pytest.mark.parametrize("foreign", FOREIGN_RESULTS.values(), ids=FOREIGN_RESULTS)
@pytest.mark.parametrize("at", [1, 2])
def test_what_no_root_has_written_is_passed_over_and_nothing_is_lost(
    foreign: bytes, at: int
) -> None:
    """An extra row once ended the orderer, at each restart again."""
    lines = [*WINDOW, *window(SLIDE, ["c", "d"], 3, "stable")]
    lines.insert(len(WINDOW) + at, foreign)
    first, second = assembled(list(enumerate(lines)))
    assert (first.lost, second.lost) == (0, 0)
    assert second.columns is not None
    assert list(second.columns.load().keys) == ["c", "d"]
    assert (second.first_id, second.last_id) == (3, 4)


@pytest.mark.parametrize("asks", [False, True])
def test_a_boundary_that_is_there_twice_is_one_window(asks: bool) -> None:
    """Also for a reader that asks in between where to read on, as a catch-up reader does."""
    found: list[str] = []
    assembler = Assembler(STREAM, "t", lambda _, why: found.append(why))
    batches = []
    for offset, value in enumerate([*WINDOW, WINDOW[-1]]):
        begins_at = len(WINDOW) if offset == len(WINDOW) else 0
        if asks:
            assert assembler.resume(begins_at) == offset
            assembler.seek(begins_at)
        batches.append(assembler.take(offset, value))
    assert [batch is not None for batch in batches] == [False, False, True, False]
    assert found == ["a boundary that no root can have written"]


@pytest.mark.parametrize("noise", [b"", b"no line at all", b"{}", b'{"kind":"undo"}', b"\xff\xfe"])
@pytest.mark.parametrize(("damaged", "left"), [((3,), "ac"), ((2, 4), "b"), ((2, 3, 4), "")])
def test_r15_a_row_that_does_not_decode_is_lost_and_the_others_are_not(
    noise: bytes, damaged: tuple[int, ...], left: str
) -> None:
    """The row cannot be sent again, and the orderer ended there, at each restart again."""
    lines = window(0, ["z"], 0, "stable") + window(SLIDE, ["a", "b", "c"], 2, "stable", lost=5)
    for at in damaged:
        lines[at] = noise
    _, batch = assembled(list(enumerate(lines)))
    assert batch.lost == 5 + len(damaged)
    assert (batch.readings, batch.last_id) == (len(left), 4)
    assert batch.kind is (Kind.INSERTION if left else Kind.BOUNDARY)
    assert list(batch.columns.load().keys if batch.columns else ()) == list(left)


@pytest.mark.parametrize("damaged", [(), (7,), (7, 8)])
def test_r15_rows_that_are_lost_behind_a_hole_are_counted_once(damaged: tuple[int, ...]) -> None:
    """Retention took a window of two rows and its boundary; the next one has damaged rows."""
    lines = window(0, ["z"], 0, "stable") + window(SLIDE, ["a", "b"], 2, "stable")
    lines += window(2 * SLIDE, ["c", "d", "e"], 5, "stable")
    lines = [b"?" if at + 2 in damaged else line for at, line in enumerate(lines)]
    first, _, third = assembled(list(enumerate(lines)))
    assert third.lost == len(damaged)
    cursor = ResultCursor(SourcePosition(0, 0, -1, first.prev_watermark), "climate", strict=True)

    def lost() -> int:
        return sum(gap.lost for _, _, gap in cursor.gaps)

    cursor.offer(first.offset, first)
    cursor.offer(third.offset, third)
    assert lost() == 3 + len(damaged)
    cursor.pass_to(first.boundary)
    cursor.park()
    cursor.offer(third.offset, third)
    assert lost() == 3 + len(damaged), "read again, the hole has the same size"
    restarted = ResultCursor(cursor.rebuild, "climate", strict=True)
    restarted.offer(third.offset, third)
    assert restarted.gaps == cursor.gaps


SPOILT = (
    (b'"fields":{', b'"fields":{{'),
    (b'"fields":{"t":', b'"fields":{"T":'),
    (b'"key":', b'"Key":'),
    (b'"avg":', b'"avg":"x","a":'),
    (b'"missing":[]', b'"missing":[]},{}'),
    (b'"fields":', b'"fields":3,"f":'),
)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("text", "spoilt"), SPOILT)
def test_r15_a_row_that_is_broken_behind_its_kind_is_lost_too(
    text: bytes, spoilt: bytes, strict: bool
) -> None:
    """The damage is found when the rows are needed, and is added to the window's own losses."""
    lines = window(0, ["a", "b", "c"], 0, "stable", lost=1)
    assert text in lines[1]
    lines[1] = lines[1].replace(text, spoilt, 1)
    (batch,) = assembled(list(enumerate(lines)))
    assert (batch.readings, batch.lost) == (3, 1)
    cursor = ResultCursor(SourcePosition(0, 0, -1, batch.prev_watermark), "climate", strict=strict)
    cursor.offer(batch.offset, batch)
    for _ in range(2):
        ((columns, _),) = cursor.columns(batch.prev_watermark, batch.boundary)
        assert list(columns.keys) == ["a", "c"]
        assert [len(values) for values in columns.values] == [2] * 4
        assert [gap.lost for _, _, gap in cursor.gaps] == [1, 1]


def test_r15_a_window_none_of_whose_rows_can_be_read() -> None:
    lines = window(0, ["a", "b"], 0, "tentative")
    lines[:2] = [line[:-1] for line in lines[:2]]
    (batch,) = assembled(list(enumerate(lines)))
    assert batch.columns is not None
    columns = batch.columns.load()
    assert len(columns.stimes) == len(columns.key_index) == 0
    assert [len(values) for values in columns.values] == [0] * 4


@pytest.mark.parametrize("name", [b"window_start", b"window_end"])
def test_r15_a_boundary_whose_time_cannot_be_read_is_damaged(name: bytes) -> None:
    lines = window(0, ["a"], 0, "stable") + window(SLIDE, ["b"], 2, "stable")
    lines[1] = lines[1].replace(b'"%b":"1970' % name, b'"%b":"197O' % name, 1)
    (batch,) = assembled(list(enumerate(lines)))
    assert (batch.readings, batch.first_id) == (1, 2)


def test_r15_a_broken_row_before_a_damaged_boundary_is_in_nobody_s_window() -> None:
    lines = window(0, ["a", "b"], 0, "stable") + window(SLIDE, ["c"], 3, "stable")
    lines[1], lines[2] = lines[1][:-1], b"?"
    (batch,) = assembled(list(enumerate(lines)))
    assert (batch.readings, batch.lost) == (1, 0)


@pytest.mark.parametrize("also", [(), (4,)])
def test_r15_a_boundary_that_does_not_decode_leaves_its_window_uncovered(
    also: tuple[int, ...],
) -> None:
    """Its rows are in no other window, and the stable line reports a loss."""
    lines = window(0, ["z"], 0, "stable") + window(SLIDE, ["a", "b"], 2, "stable")
    lines += window(2 * SLIDE, ["a", "b"], 5, "stable")
    for at in (4, *also):
        lines[at] = b"?"
    first, third = assembled(list(enumerate(lines)))
    assert third.prev_watermark == first.boundary + SLIDE
    assert (third.lost, third.readings) == (0, 2)
    cursor = ResultCursor(SourcePosition(0, 0, -1, first.prev_watermark), "climate", strict=True)
    for batch in (first, third):
        assert cursor.offer(batch.offset, batch)
    ((low, high, gap),) = cursor.gaps
    assert (low, high) == (first.boundary, third.prev_watermark)
    assert gap.lost >= 1


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("read", [1, 2, 3])
def test_r15_damage_at_the_end_of_what_there_is_keeps_nobody_waiting(
    read: int, damaged: int, strict: bool
) -> None:
    """It may have been a boundary. Later records count nevertheless, if there are any."""
    lines = window(0, ["z"], 0, "stable") + window(SLIDE, ["a", "b", "c"], 2, "stable")
    head, rest = lines[: 2 + read], lines[2 + read :]
    if damaged < read:
        head[2 + damaged] = b"?"
    assembler = Assembler(STREAM)
    cursor = ResultCursor(SourcePosition(0, 0, -1, 0), "climate", strict=strict)
    for offset, line in enumerate(head):
        batch = assembler.take(offset, line)
        if batch is not None:
            assert cursor.offer(batch.offset, batch)
    assert assembler.is_between == (damaged < read)
    if assembler.is_between:
        cursor.skip_to(len(head))
        assert assembler.resume(cursor.offset) == len(head)
    *_, batch = [assembler.take(len(head) + i, line) for i, line in enumerate(rest)]
    assert batch is not None
    assert (batch.readings, batch.lost) == (3 - (damaged < read), damaged < read)
    assert cursor.offer(batch.offset, batch)
    assert cursor.boundary == batch.boundary


@pytest.mark.parametrize("left", [0, 1])
def test_a_window_that_retention_cut_is_passed_over(left: int) -> None:
    """The log begins at the start of a segment, which may be between a window's rows."""
    first, second = window(0, ["a", "b"], 0, "stable"), window(SLIDE, ["c"], 3, "stable")
    lines = list(enumerate(first + second))[2 - left :]
    (batch,) = assembled(lines)
    assert batch.offset == 3
    assembler = Assembler(STREAM)
    assert assembler.resume(lines[0][0]) == lines[0][0]
    assembler.seek(lines[0][0])
    for offset, value in lines[: left + 1]:
        assert assembler.take(offset, value) is None
    assert assembler.is_between
    assert assembler.resume(3) == 3


def test_rows_without_a_window_bring_their_own_times() -> None:
    """A bucket is answered like a window, and has only its own losses."""
    stream = ResultStream("plain", 0, ("t",), (), None)
    readings = ReadingColumns(np.array([1_000, 7_000]), np.array([[1.5, np.nan]]))
    head = ResultHead("plain", 0)
    answer: StableWindow[Any] = StableWindow(0, 2, 0, 0, 10_000, 0, 2, None, ())
    rows = ResultRows(
        head=head, window=answer, keys=["b", "a"], fields=("t",), figures=readings, emitted_at=0
    )
    run = EmptyRun(3, 0, True, 10_000, 50_000, 4, 0, ())
    lines = [value for _, value in encode_rows(rows)]
    lines += [encode_boundary(head, of, 0) for of in (answer, run)]
    assembler = Assembler(stream)
    full, empty = (b for at, v in enumerate(lines) if (b := assembler.take(at, v)) is not None)

    assert (full.prev_watermark, full.boundary) == (0, 10_000)
    assert (empty.prev_watermark, empty.boundary) == (10_000, 50_000)
    assert full.columns is not None
    columns = full.columns.load()
    assert columns.stimes.tolist() == [1_000, 7_000]
    assert [columns.keys[i] for i in columns.key_index] == ["b", "a"]
    assert columns.fields == ("t",)
    np.testing.assert_array_equal(columns.values[0], [1.5, np.nan])


@pytest.mark.parametrize("generation", [0, 1])
def test_a_column_that_an_earlier_generation_lacks_is_missing_and_another_one_is_damage(
    generation: int,
) -> None:
    """Rows of the generation that has the columns must have them all."""
    wider = ResultStream("climate", 0, ("t", "h", "new"), ("count", "max"), SLIDE, 1)
    rows = [orjson.loads(row) for row in window(0, ["a", "b"], 0, "stable")[:-1]]
    if generation:
        rows = [row | {"generation": generation} for row in rows]
    columns = LazyRows(wider, [orjson.dumps(row) for row in rows], SLIDE - 1).load()
    if generation:
        assert len(columns.stimes) == 0, "damaged"
        return
    assert columns.fields == ("t_count", "t_max", "h_count", "h_max", "new_count", "new_max")
    found = dict(zip(columns.fields, columns.values, strict=True))
    assert {name for name in found if not np.isnan(found[name]).any()} == {"t_count", "h_count"}
    assert {name for name in found if np.isnan(found[name]).all()} == {
        *("t_max", "h_max", "new_count", "new_max")
    }
