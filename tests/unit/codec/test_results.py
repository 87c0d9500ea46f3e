"""Result lines against a naive implementation: one dict and one dumps per row."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.codec.results import (
    ReadingColumns,
    ResultHead,
    ResultRows,
    encode_boundary,
    encode_gap,
    encode_rec_done,
    encode_rows,
    encode_undo,
    format_time,
    parse_result,
    parse_time,
)
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import Gap
from slackwater.primitives.aggregates import AGGREGATES, AggregateColumns, columns_of
from slackwater.primitives.aggregates import figures_of as needed_figures
from slackwater.primitives.figures import FIGURE_NAMES
from slackwater.protocols.dpc.soutput.answers import (
    EmptyRun,
    GapNote,
    RecDone,
    StableWindow,
    TentativeWindow,
    Undo,
)

START = 1_458_031_648_545_000
ALL = tuple(name for name, each in AGGREGATES.items() if each.state is None)


def figures_of(readings: list[list[list[float]]]) -> AggregateColumns:
    """Figures from the readings of each field and key."""

    def table(figure: Any, empty: float) -> Any:
        return np.array(
            [[figure(run) if run else empty for run in row] for row in readings], np.float64
        ).reshape(len(readings), len(readings[0]))

    return AggregateColumns(
        count=table(len, 0),
        sum=table(sum, 0),
        m2=table(lambda run: statistics.pvariance(run) * len(run), 0),
        min=table(min, math.nan),
        max=table(max, math.nan),
    )


def naive(run: list[float]) -> dict[str, float | None]:
    """Return the expected content of a field of a row."""
    if not run:
        return {**dict.fromkeys(ALL), "count": 0}
    more = len(run) > 1
    return {
        "count": len(run),
        "sum": sum(run),
        "avg": sum(run) / len(run),
        "min": min(run),
        "max": max(run),
        "range": max(run) - min(run),
        "var": statistics.variance(run) if more else None,
        "stddev": statistics.stdev(run) if more else None,
    }


def answer(**changes: Any) -> ResultRows:
    given_ = {
        "head": ResultHead("climate", 1),
        "window": stable(),
        "keys": ("a", "b"),
        "fields": ("t",),
        "figures": figures_of([[[1.0, 2.0], []]]),
        "aggregate": ALL,
        "emitted_at": START + 6,
    }
    return ResultRows(**{**given_, **changes})


def stable(gap: tuple[Gap, ...] = ()) -> StableWindow[Any]:
    return StableWindow(40, 42, 2, START, START + 1_000_000, START + 5, 2, None, gap)


def tentative(missing: tuple[str, ...], gap: tuple[Gap, ...] = ()) -> TentativeWindow[Any]:
    return TentativeWindow(40, 42, 2, START, START + 1_000_000, START + 5, 2, None, missing, gap)


@pytest.mark.parametrize("aggregate", ALL)
def test_an_aggregate_is_made_of_the_figures_that_it_names(aggregate: str) -> None:
    """And of no others: figures absent from a delta change nothing."""
    complete = figures_of([[[1.0, 2.5], [-3.0], [], [4.0, 4.0, 9.0]]])
    unknown = np.full(complete.count.shape, 1e9)
    made_of = {name: getattr(complete, name) for name in needed_figures((aggregate,))}
    partial = AggregateColumns(**{**dict.fromkeys(FIGURE_NAMES, unknown), **made_of})
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            columns_of(partial, (aggregate,)), columns_of(complete, (aggregate,))
        )


def test_rows_have_the_bits_of_the_first_version() -> None:
    """Each operation of a formula is rounded in one way everywhere, so its bits are fixed."""
    runs = [
        [(i * j * 7_919 % 1_013) / 97 + 1e6 * (i % 3) for j in range(i % 9)] for i in range(500)
    ]
    complete = answer(keys=[f"k{i}" for i in range(500)], figures=figures_of([runs]))
    lines = b"".join(value for _, value in encode_rows(complete))
    assert hashlib.sha256(lines).hexdigest() == (
        "ee85b61dfdc08b4739ff4b8495c69da63f57593674c2f0ed8eb5e1cc83e2d305"
    )


def test_a_figure_is_named_where_it_is_needed_only() -> None:
    assert needed_figures(("count", "avg")) == ("count", "sum")
    assert needed_figures(("range", "sum")) == ("count", "sum", "min", "max")
    assert needed_figures(ALL) == FIGURE_NAMES


runs = st.lists(st.integers(-1000, 1000).map(float), max_size=4)
texts = st.text(min_size=1, max_size=6) | st.sampled_from(['q",', '"', "\\", ",", '","', "%b", "é"])


@given(st.data(), st.lists(texts, min_size=1, max_size=6, unique=True), st.integers(1, 3))
def test_rows_against_the_naive_way(data: st.DataObject, keys: list[str], fields: int) -> None:
    readings = [[data.draw(runs) for _ in keys] for _ in range(fields)]
    names = [f"f{i}" for i in range(fields)]
    aggregate = data.draw(st.lists(st.sampled_from(ALL), unique=True, min_size=1))
    each = {name: tuple(aggregate) for name in names}
    if data.draw(st.booleans(), "different aggregates"):
        some = st.lists(st.sampled_from(aggregate), unique=True, min_size=1).map(tuple)
        each = {name: data.draw(some) for name in data.draw(st.permutations(names))}
        each = dict(list(each.items())[: data.draw(st.integers(1, fields))])
    of_fields = () if [*each] == names and {*each.values()} == {tuple(aggregate)} else each.items()
    lost = data.draw(st.sampled_from([{}, {"lab": 7, "room": 2}]))
    gaps = tuple(Gap(*of) for of in lost.items())
    complete = answer(
        keys=keys, fields=names, figures=figures_of(readings), aggregate=aggregate,
        of_fields=tuple(of_fields), window=tentative(("room-2", "lab"), gaps),
    )  # fmt: skip
    cut = data.draw(st.integers(0, len(keys)))
    rows = encode_rows(complete, 0, cut) + encode_rows(complete, cut, len(keys) + 5)
    assert rows == encode_rows(complete)
    assert [key for key, _ in rows] == [key.encode() for key in keys]
    for i, (_, value) in enumerate(rows):
        row = json.loads(value)
        expected = {
            "query": "climate",
            "part": 1,
            "seq": 40 + i,
            "kind": "tentative",
            "epoch": 2,
            "window_start": "2016-03-15T08:47:28.545000Z",
            "window_end": "2016-03-15T08:47:29.545000Z",
            "key": keys[i],
            "fields": {
                name: {one: naive(readings[names.index(name)][i])[one] for one in ones}
                for name, ones in each.items()
            },
            "missing": ["lab", "room-2"],
            **({"lost": lost} if lost else {}),
            "due_at": "2016-03-15T08:47:28.545005Z",
            "emitted_at": "2016-03-15T08:47:28.545006Z",
        }
        assert list(row) == list(expected)
        for name, got in row["fields"].items():
            wanted = expected["fields"][name]  # type: ignore[index]
            assert list(got) == list(wanted)
            assert got == {
                k: v if v is None else pytest.approx(v, rel=1e-9) for k, v in wanted.items()
            }
        assert {**row, "fields": 0} == {**expected, "fields": 0}
        assert parse_result(value) == row


def test_a_row_as_it_stands() -> None:
    complete = answer(figures=figures_of([[[4.0, 7.0, 13.0, 16.0], []]]))
    head = (
        b'{"query":"climate","part":1,"seq":%d,"kind":"stable","epoch":2,'
        b'"window_start":"2016-03-15T08:47:28.545000Z",'
        b'"window_end":"2016-03-15T08:47:29.545000Z","key":"%b","fields":{"t":{%b}},"missing":[],'
        b'"due_at":"2016-03-15T08:47:28.545005Z","emitted_at":"2016-03-15T08:47:28.545006Z"}'
    )
    full = (
        b'"count":4,"sum":40.0,"avg":10.0,"min":4.0,"max":16.0,"range":12.0,"var":30.0,'
        b'"stddev":5.477225575051661'
    )
    empty = (
        b'"count":0,"sum":null,"avg":null,"min":null,"max":null,"range":null,"var":null,'
        b'"stddev":null'
    )
    assert encode_rows(complete) == [
        (b"a", head % (40, b"a", full)),
        (b"b", head % (41, b"b", empty)),
    ]


def test_what_is_not_finite_is_null() -> None:
    huge, endless = np.array([[1e308]]), np.array([[np.inf]])
    figures = AggregateColumns(
        count=np.array([[2.0]]), sum=endless, m2=endless, min=-huge, max=huge
    )
    ((_, value),) = encode_rows(answer(keys=("a",), figures=figures))
    assert parse_result(value)["fields"]["t"] == {
        "count": 2, "sum": None, "avg": None, "min": -1e308, "max": 1e308, "range": None,
        "var": None, "stddev": None,
    }  # fmt: skip


def test_no_keys_no_rows() -> None:
    assert encode_rows(answer(keys=(), figures=figures_of([[]]))) == []


HEAD = ResultHead("climate", 0)
RUN = EmptyRun(9, 3, False, START, START + 1, 2, START, ("b", "a"))
CONTROLS = {
    "boundary": encode_boundary(HEAD, RUN, START),
    "undo": encode_undo(HEAD, Undo(9, 3, START, START + 1), START),
    "rec_done": encode_rec_done(HEAD, RecDone(9, 3), START),
    "gap": encode_gap(HEAD, GapNote(9, 3, START, START + 1, (Gap("lab", 4),)), START),
}
NAMES = {
    "boundary": "label window_start window_end windows keys missing due_at emitted_at",
    "undo": "undo_from undo_to emitted_at",
    "rec_done": "emitted_at",
    "gap": "stream lost gap_from gap_to emitted_at",
}


@pytest.mark.parametrize("kind", CONTROLS)
def test_controls(kind: str) -> None:
    result = parse_result(CONTROLS[kind])
    assert list(result) == ["query", "part", "seq", "kind", "epoch", *NAMES[kind].split()]
    assert (result["kind"], result["seq"], result["epoch"]) == (kind, 9, 3)
    assert result["emitted_at"] == "2016-03-15T08:47:28.545000Z"
    assert result.get("missing", ["a", "b"]) == ["a", "b"]


def test_only_a_boundary_of_skipped_windows_is_marked() -> None:
    lines = [encode_boundary(HEAD, replace(RUN, skipped=of), START) for of in (True, False)]
    skipped, other = map(parse_result, lines)
    assert skipped == {**other, "skipped": True}
    assert "skipped" not in other


@pytest.mark.parametrize("kind", CONTROLS)
def test_a_result_that_lacks_a_field_or_has_a_wrong_one_is_refused(kind: str) -> None:
    result = parse_result(CONTROLS[kind])
    for name in result:
        less = {key: value for key, value in result.items() if key != name}
        for bad in (less, {**result, name: True}, {**result, name: None}):
            with pytest.raises(MalformedRecordError, match="out/0@1"):
                parse_result(orjson.dumps(bad), "out/0@1")


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"1", b"{}", b'{"kind":"start"}', b"\xff"])
def test_what_is_no_result(value: bytes) -> None:
    with pytest.raises(MalformedRecordError):
        parse_result(value)


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_as_datetime_writes_them(moment: datetime) -> None:
    us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert format_time(us) == moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    assert parse_time(format_time(us)) == us


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_every_time_of_64_bits_comes_back(us: int) -> None:
    assert parse_time(format_time(us)) == us


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (START, "2016-03-15T08:47:28.545000Z"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00.000000Z"),
        (-62_135_596_800_000_001, "+0000-12-31T23:59:59.999999Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, "+10000-01-01T00:00:00.000000Z"),
    ],
)
def test_times_at_the_edges(us: int, text: str) -> None:
    assert format_time(us) == text


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        parse_time("2016-03-15T08:47:28.545000")


def test_rows_of_a_query_without_a_window() -> None:
    stimes = np.array([1_458_031_648_545_000, 1_458_031_648_545_001], np.int64)
    values = np.array([[21.5, np.nan], [np.inf, -0.25]])
    readings = answer(
        window=tentative(("room-2",)), keys=['a"b', "stime"], fields=("temperature", "stime"),
        figures=ReadingColumns(stimes, values), aggregate=(),
    )  # fmt: skip
    rows = [parse_result(value) for _, value in encode_rows(readings)]
    assert [key for key, _ in encode_rows(readings)] == [b'a"b', b"stime"]
    assert list(rows[0]) == [
        "query", "part", "seq", "kind", "epoch", "window_start", "window_end", "stime", "key",
        "fields", "missing", "due_at", "emitted_at",
    ]  # fmt: skip
    assert [row["seq"] for row in rows] == [40, 41]
    assert [row["stime"] for row in rows] == [format_time(us) for us in stimes.tolist()]
    assert [row["key"] for row in rows] == ['a"b', "stime"]
    assert [row["fields"] for row in rows] == [
        {"temperature": 21.5, "stime": None},
        {"temperature": None, "stime": -0.25},
    ]
    assert encode_rows(readings, 1) == encode_rows(readings)[1:]


@pytest.mark.parametrize("year_us", [-(2**60), 2**60])
def test_stimes_outside_the_calendar_are_written_like_all_times(year_us: int) -> None:
    figures = ReadingColumns(np.array([year_us]), np.array([[1.0]]))
    ((_, value),) = encode_rows(answer(keys=["k"], figures=figures, aggregate=()))
    assert parse_result(value)["stime"] == format_time(year_us)


def test_a_row_names_the_fields_that_overflowed_and_only_such_rows_do() -> None:
    def columns(*rows: list[list[float]]) -> AggregateColumns:
        return AggregateColumns(*map(np.array, rows))

    inf, nan = math.inf, math.nan
    # Key a: the sum of field overflow is not finite. Key b: no values, and one. Key c: squares.
    figures = columns(
        [[2.0, 0.0, 2.0], [2.0, 1.0, 2.0]],
        [[inf, 0.0, 3.0], [3.0, 5.0, 1e200]],
        [[nan, 0.0, 0.5], [0.5, 0.0, inf]],
        [[1e308, nan, 1.0], [1.0, 5.0, -1e200]],
        [[1e308, nan, 2.0], [2.0, 5.0, 2e200]],
    )
    complete = answer(
        keys=("a", "b", "c"), fields=("overflow", '"t%'), figures=figures,
        window=stable((Gap("lab", 1),)),
    )  # fmt: skip
    rows = [json.loads(value) for _, value in encode_rows(complete)]
    assert [row.get("overflow") for row in rows] == [["overflow"], None, ['"t%']]
    assert list(rows[0])[-5:] == ["missing", "lost", "overflow", "due_at", "emitted_at"]
    assert rows[0]["fields"]["overflow"]["sum"] is rows[0]["fields"]["overflow"]["var"] is None
    assert rows[2]["fields"]['"t%']["var"] is None
    assert rows[2]["fields"]['"t%']["sum"] == 1e200
    sums = answer(keys=("a", "b", "c"), fields=("t", "u"), figures=figures, aggregate=("max",))
    assert all("overflow" not in json.loads(value) for _, value in encode_rows(sums))
    assert encode_rows(complete, 0, 2) + encode_rows(complete, 2) == encode_rows(complete)
