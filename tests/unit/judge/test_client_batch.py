"""The independent batch computation, compared with figures computed by hand."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.formats.csvfile import CsvFile
from slackwater.judge.batch import compute, compute_all, end_boundary, windows_of
from slackwater.judge.calendars import judged_windows
from slackwater.judge.oracle import evaluate
from slackwater.judge.readers.cells import Unusable, time_in
from slackwater.judge.readers.files import read_stream
from slackwater.model.deployment import (
    CsvSpec,
    FieldSpec,
    JoinSpec,
    KeySpec,
    QuerySpec,
    StreamSpec,
    TimeSpec,
    WindowSpec,
)
from slackwater.model.errors import DeploymentError

S = 1_000_000


def stream(name: str = "a", **changes: object) -> StreamSpec:
    values: dict[str, object] = {
        "key": KeySpec(column="k"),
        "time": TimeSpec(columns=("t",), unit="s"),
        "fields": (FieldSpec("x", "x"),),
    }
    return StreamSpec(name, **(values | changes))  # type: ignore[arg-type]


def query(size: int = 2 * S, slide: int = 2 * S, **changes: object) -> QuerySpec:
    values: dict[str, object] = {
        "name": "q",
        "sources": ("a",),
        "where": None,
        "select": None,
        "window": WindowSpec(size, slide),
        "aggregate": ("count", "sum", "avg", "min", "max", "range", "var", "stddev"),
        "bound_us": S,
    }
    return QuerySpec(**(values | changes))  # type: ignore[arg-type]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_windows_keys_and_figures(tmp_path: Path) -> None:
    text = "t,k,x\n0,a,1\n1,a,3\n1.5,b,-5\n2,a,\n3,a,7\n"
    inputs = {"a": read_stream(stream(), write(tmp_path / "a.csv", text))}
    result = compute(query(), inputs, 0)
    assert set(result) == {(0, "a"), (0, "b"), (2 * S, "a")}
    figures = result[0, "a"]["x"]
    assert [figures.numbers[n] for n in ("count", "sum", "avg", "min", "max", "range", "var")] == [
        2, 4.0, 2.0, 1.0, 3.0, 2.0, 2.0,
    ]  # fmt: skip
    assert figures.numbers["stddev"] == math.sqrt(2)
    one = result[0, "b"]["x"]
    assert one.numbers["max"] == -5.0
    assert one.numbers["var"] is None
    assert result[2 * S, "a"]["x"].count == 1, "a missing value does not count"
    assert end_boundary([query()], inputs) == 4 * S


def test_a_key_with_missing_values_only_has_a_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "t,k,x\n0,a,NaN\n1,a,null\n")
    result = compute(query(), {"a": read_stream(stream(), path)}, 0)
    assert result[0, "a"]["x"].count == 0
    assert result[0, "a"]["x"].numbers["sum"] is None


def test_sliding_windows_hold_a_reading_several_times(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "t,k,x\n10,a,1\n11,a,2\n")
    result = compute(query(3 * S, S), {"a": read_stream(stream(), path)}, 10 * S)
    counts = {start // S: cell["x"].count for (start, _), cell in result.items()}
    assert counts == {8: 1, 9: 2, 10: 2, 11: 1}


@given(
    stime=st.integers(-(10**9), 10**9),
    size=st.integers(1, 10**6),
    slides=st.integers(1, 50),
)
def test_a_window_holds_what_lies_in_it(stime: int, size: int, slides: int) -> None:
    slide = max(1, size // slides)
    starts = list(windows_of(stime, judged_windows(WindowSpec(size, slide))))
    assert all(s % slide == 0 and s <= stime < s + size for s in starts)
    assert len(starts) in {size // slide, size // slide + 1}


def test_late_by_more_than_disorder_below_the_largest_before(tmp_path: Path) -> None:
    text = "t,k,x\n10,a,1\n7,a,2\n8,a,3\n20,a,4\n18,a,5\n17.9,a,6\n"
    path = write(tmp_path / "a.csv", text)
    found = read_stream(stream(disorder_us=2 * S), path)
    assert sorted(found.late) == [1, 5]
    assert [r.values[0] for r in found.accepted] == [1.0, 3.0, 4.0, 5.0]


def test_what_was_sent_is_a_first_part_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "t,k,x\n1,a,1\n5,a,2\n2,a,3\n6,a,4\n3,a,5\n")
    found = read_stream(stream(disorder_us=10 * S), path).until(5 * S)
    assert [r.values[0] for r in found.readings] == [1.0, 2.0, 3.0]


def test_malformed_blank_and_decimal_comma(tmp_path: Path) -> None:
    spec = stream(
        csv=CsvSpec(";", ","),
        key=KeySpec(value="road"),
        time=TimeSpec(columns=("Date", "Time"), format="%d/%m/%Y %H.%M.%S"),
        fields=(FieldSpec("co", "CO(GT)"), FieldSpec("temperature", "T")),
    )
    path = tmp_path / "a.csv.gz"
    path.write_bytes(
        gzip.compress(
            b"\xef\xbb\xbfDate;Time;CO(GT);T;;\r\n"
            b"10/03/2004;18.00.00;2,6; 13,6 ;;\r\n"
            b"10/03/2004;19.00.00;-200;x;;\r\n"
            b"10/03/2004;;2;1;;\r\n"
            b"10/03/2004;20.00.00;1e999;1;;\r\n"
            b"10/03/2004;21.00.00;,5;;;\r\n"
            b";;;;;\r\n"
        )
    )
    found = read_stream(spec, path)
    assert [r.values for r in found.readings] == [(2.6, 13.6), (0.5, None)]
    assert found.readings[0].stime == 1078941600 * S
    assert (found.malformed, found.blank) == (3, 1)


def test_a_column_that_the_header_lacks_names_file_and_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "time,k,x\n")
    with pytest.raises(DeploymentError, match=r"a\.csv has no column 't'"):
        read_stream(stream(), path)


@pytest.mark.parametrize(
    ("spec", "text", "us"),
    [
        (TimeSpec(unit="s"), "1458031648.5450009", 1458031648545000),
        (TimeSpec(unit="ms"), "1458031648545", 1458031648545000),
        (TimeSpec(unit="us"), "-1.5", -2),
        (TimeSpec(unit="iso"), "2016-03-15T08:47:28.545Z", 1458031648545000),
        (TimeSpec(unit="iso"), "2016-03-15 10:47:28.545+02:00", 1458031648545000),
        (TimeSpec(unit="iso"), "2016-03-15", 1458000000000000),
        (TimeSpec(unit="ms"), "soon", None),
        (TimeSpec(unit="iso"), "yesterday", None),
        (TimeSpec(format="%H:%M"), "25:00", None),
    ],
)
def test_times(spec: TimeSpec, text: str, us: int | None) -> None:
    try:
        assert time_in(spec, text) == us
    except Unusable:
        assert us is None


@pytest.mark.parametrize(
    ("text", "x", "y", "value"),
    [
        ("x * 9 / 5 + 32", 20.0, None, 68.0),
        ("x / 0", 1.0, None, None),
        ("x % 3", -7.0, None, -1.0),
        ("7 / 2", 0.0, None, 3.5),
        ("x * 1e308", 100.0, None, None),
        ("round(x, 2)", 2.675, None, 2.68),
        ("round(x)", -2.5, None, -3.0),
        ("ln(x)", -1.0, None, None),
        ("power(x, 0.5)", -4.0, None, None),
        ("least(x, y)", 3.0, None, 3.0),
        ("greatest(x, y, 9)", 3.0, 4.0, 9.0),
        ("x + y", 1.0, None, None),
        ("case when y is null then -1 else y end", 0.0, None, -1.0),
        ("-x", 2.0, None, -2.0),
        ("(x + y) * 2", 1.0, 2.0, 6.0),
    ],
)
def test_expressions(text: str, x: float, y: float | None, value: float | None) -> None:
    assert list(evaluate(None, [("z", text)], ["x", "y"], [("k", (x, y))])) == [(0, [value])]


def test_where_keeps_what_is_true_and_nothing_else() -> None:
    rows = [("a", (1.0,)), ("b", (None,)), ("a", (-200.0,)), ("c", (0.0,))]
    assert [i for i, _ in evaluate("X > -200 and key <> 'c'", None, ["X"], rows)] == [0]
    assert [i for i, _ in evaluate("not (X > 0)", None, ["X"], rows)] == [2, 3]


def test_fields_that_differ_in_case_only_are_two() -> None:
    found = list(evaluate(None, [("d", "T - t")], ["T", "t"], [("k", (5.0, 3.0))]))
    assert found == [(0, [2.0])]


def test_streams_without_a_field_have_it_missing(tmp_path: Path) -> None:
    other = stream("b", fields=(FieldSpec("y", "y"),))
    inputs = {
        "a": read_stream(stream(), write(tmp_path / "a.csv", "t,k,x\n0,k,1\n")),
        "b": read_stream(other, write(tmp_path / "b.csv", "t,k,y\n1,k,5\n")),
    }
    result = compute(query(sources=("a", "b")), inputs, 0)
    assert result[0, "k"]["x"].by_stream == {"a": 1, "b": 0}
    assert result[0, "k"]["y"].by_stream == {"a": 0, "b": 1}


def test_a_chain_reads_the_exact_results_of_what_it_reads(tmp_path: Path) -> None:
    """Each figure is a field; a row is at its window's last instant, for every reader."""
    inputs = {
        "a": read_stream(stream(), write(tmp_path / "a.csv", "t,k,x\n0,k,1\n1,k,3\n2,k,\n2,m,5\n")),
        "b": read_stream(stream("b"), write(tmp_path / "b.csv", "t,k,x\n1.5,k,100\n")),
    }
    first = query(name="first", aggregate=("count", "sum"))
    reads = ("first", "b")
    second = query(4 * S, name="second", sources=reads, where="x_count > 0 or x is not null")

    windows, _ = compute_all([first, second], inputs, 0)

    found = windows["second"]
    # The row of [0, 2) s lies at 2 s - 1 us, that of [2, 4) s at 4 s - 1 us.
    assert set(found) == {(-2 * S, "k"), (0, "k"), (0, "m"), (2 * S, "m")}
    assert found[0, "k"]["x_sum"].numbers["sum"] == 4.0
    assert found[0, "k"]["x"].numbers["sum"] == 100.0
    assert found[0, "k"]["x_sum"].by_stream == {"a": 1, "first": 1, "b": 0}
    assert end_boundary([first, second], inputs) == 6 * S, "the last row's window ends later"


def test_a_join_has_every_near_pair_at_its_later_time(tmp_path: Path) -> None:
    left = write(tmp_path / "a.csv", "t,k,x\n0,m,1\n1,m,2\n1,n,9\n5,m,\n")
    right = write(tmp_path / "b.csv", "t,k,x\n1,m,10\n2.5,m,20\n4,m,30\n4,o,50\n")
    inputs = {"a": read_stream(stream(), left), "b": read_stream(stream("b"), right)}
    joined = query(
        sources=("a", "b"),
        join=JoinSpec("a", "b", S),
        where="left_x is null or left_x < 9",
        select=(("l", "left_x"), ("r", "right_x")),
    )

    result = compute(joined, inputs, 0)

    assert set(result) == {(0, "m"), (4 * S, "m")}
    assert result[0, "m"]["l"].numbers["sum"] == 3.0
    assert result[0, "m"]["r"].numbers["sum"] == 20.0
    assert result[0, "m"]["r"].by_stream == {"a": 2, "b": 2}, "without either there is no row"
    assert (result[4 * S, "m"]["l"].count, result[4 * S, "m"]["r"].numbers["sum"]) == (0, 30.0)
    assert set(compute(joined, inputs, S // 2)) == set(result)
    assert compute(joined, inputs, S // 2)[0, "m"]["l"].numbers["sum"] == 2.0, (
        "readings before E0 are not joined"
    )


def test_rows_are_left_out_by_the_line_that_the_reader_calls_them(tmp_path: Path) -> None:
    """Rows of several lines, blank ones, all three line ends, a quote that is never closed."""
    lines = 'k,t,x\r\na,1,1\r"b\nc",2,1\n\nd,3,1\r\n"e,4,1\nf,5,1\n'
    path = write(tmp_path / "x.csv", "")
    path.write_bytes(lines.encode())
    spec = stream()
    found = [
        (line, key)
        for piece in CsvFile(spec, path).pieces()
        for line, key in zip(
            piece.lines.tolist(),
            (piece.arrived.keys[i] for i in piece.arrived.key_index.tolist()),
            strict=True,
        )
    ]
    assert found == [(2, "a"), (3, "b\nc"), (6, "d"), (8, "f")]
    complete = [reading.key for reading in read_stream(spec, path).readings]
    assert complete == [key for _, key in found]
    for line, key in found:
        left = [reading.key for reading in read_stream(spec, path, {line}).readings]
        assert left == [other for other in complete if other != key]
    assert read_stream(spec, path).malformed == 1
    assert read_stream(spec, path, {7}).malformed == 0


def test_a_time_that_was_left_out_makes_no_other_late(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "k,t,x\na,1,1\na,99,1\na,2,1\n")
    assert read_stream(stream(), path).late == {2}
    assert read_stream(stream(), path, {3}).late == set()
