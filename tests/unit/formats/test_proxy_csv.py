"""CSV files as users have them: damage, sizes, line numbers.

Compared with the line-by-line reader.
"""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.formats.columns import key_chars_max
from slackwater.formats.csvfile import CsvFile
from slackwater.formats.csvtext import read_rows
from slackwater.formats.pieces import FilePiece
from slackwater.judge.readers.files import read_stream
from slackwater.model.deployment import CsvSpec, FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.errors import DeploymentError

DATA = Path(__file__).parents[2] / "data"


def fields(*names: str) -> tuple[FieldSpec, ...]:
    return tuple(FieldSpec(name.lower().split("(")[0], name) for name in names)


ROOM = StreamSpec(
    "room",
    KeySpec(column="node"),
    TimeSpec(("ts",), unit="ms"),
    fields("temperature", "humidity", "light1"),
)
ROAD = StreamSpec(
    "road",
    KeySpec(value="road"),
    TimeSpec(("Date", "Time"), format="%d/%m/%Y %H.%M.%S"),
    fields("CO(GT)", "T", "RH"),
    CsvSpec(";", ","),
)
NAB = StreamSpec(
    "nab", KeySpec(value="x"), TimeSpec(("timestamp",), unit="iso"), fields("value"), disorder_us=1
)
SMALL = StreamSpec(
    "small", KeySpec(column="k"), TimeSpec(("ts",), unit="s"), fields("a", "b"), CsvSpec()
)
Rows = list[tuple[int, str, tuple[float | None, ...]]]


def rows_of(pieces: list[FilePiece]) -> Rows:
    rows: Rows = []
    for piece in pieces:
        a = piece.arrived
        columns = [[None if np.isnan(v) else float(v) for v in column] for column in a.values]
        keys = [a.keys[i] for i in a.key_index]
        rows += zip(a.stimes.tolist(), keys, zip(*columns, strict=True), strict=True)
    return rows


def check(spec: StreamSpec, path: Path, piece_bytes: int = 1 << 20) -> list[FilePiece]:
    """Compare readings, malformed and blank lines with those of the line-by-line reader."""
    pieces = list(CsvFile(spec, path, piece_bytes).pieces())
    wanted = read_stream(spec, path)
    assert rows_of(pieces) == [(r.stime, r.key, r.values) for r in wanted.readings]
    assert sum(len(piece.malformed) for piece in pieces) == wanted.malformed
    assert sum(piece.blank for piece in pieces) == wanted.blank
    lines = np.concatenate([piece.lines for piece in pieces] or [np.empty(0, np.int64)])
    assert (np.diff(lines) > 0).all()
    return pieces


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (ROOM, "room_climate/node-2.csv.gz"),
        (ROAD, "air_quality.csv.gz"),
        (NAB, "nab/machine_temperature_system_failure.csv.gz"),
        (NAB, "nab/speed_t4013.csv.gz"),
        (
            replace(NAB, time=TimeSpec(("timestamp",), format="%Y-%m-%d %H:%M:%S")),
            "nab/speed_t4013.csv.gz",
        ),
    ],
)
def test_real_files_read_as_line_by_line(spec: StreamSpec, name: str) -> None:
    check(spec, DATA / name, 300_000)


def test_the_step_back_of_the_machine_is_there() -> None:
    path = DATA / "nab/machine_temperature_system_failure.csv.gz"
    stimes = np.concatenate([p.arrived.stimes for p in CsvFile(NAB, path).pieces()])
    assert (np.diff(stimes) < 0).sum() == 1
    assert len(stimes) - len(np.unique(stimes)) == 12


CELL = st.sampled_from(
    [
        "",
        " ",
        "1",
        "2.5",
        " 3 ",
        "nan",
        "x",
        "null",
        "1e3",
        "-4",
        "\t5",
        "inf",
        "ä",
        '"6"',
        '"7,8"',
        '"9\n9"',
        '"1""0"',
        "\u00a0",
    ]
)
LINE = st.one_of(
    st.lists(CELL, min_size=1, max_size=6).map(",".join),
    st.tuples(st.integers(0, 99), st.sampled_from(["a", "b"]), CELL, CELL).map(
        lambda t: f"{t[0]},{t[1]},{t[2]},{t[3]}"
    ),
    st.sampled_from(["", ",,,", " , ,", '""', "5,a,1,2,3,4", "5,a", "5,a,1,2\r"]),
)


@settings(max_examples=50)
@given(
    st.lists(LINE, max_size=25),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(30, 400),
    st.booleans(),
    st.booleans(),
)
def test_dirt_of_every_kind_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    newline: str,
    piece_bytes: int,
    last: bool,
    bom: bool,
) -> None:
    text = ("\ufeff" if bom else "") + newline.join(["ts,k,a,b", *lines]) + newline * last
    path = tmp_path_factory.mktemp("csv") / "dirt.csv"
    path.write_bytes(text.encode())
    check(SMALL, path, piece_bytes)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    "below",
    [
        "1,k,2,3,4\n2,k,2\n",
        "1,k,2\n2,k,2,3,4\n",
        "1,k,2,3\n\n2,k,2,3,4,5,6\n",
        "1,k,2,3\n,,,\n3,k,2,3\n",
        "1,k,2,3\n   ,k,2,3\n3,k,2,3",
        "\N{NO-BREAK SPACE},k,2,3\n2,k,2,3\n",
    ],
)
def test_lines_of_other_widths_are_found_though_the_delimiters_add_up(
    tmp_path: Path, below: str
) -> None:
    path = tmp_path / "small.csv"
    path.write_text("ts,k,a,b\n" + below)
    check(SMALL, path)


def test_malformed_lines_carry_their_number_and_text(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.csv", "ts,k,a,b\n1,n,1,1\n\nx,n,1,1\n3,,1,1\n,,,\n4,n,1,bad\n5,n,1,\n"
    )
    (piece,) = CsvFile(SMALL, path).pieces()
    assert [(m.line, m.text, m.detail) for m in piece.malformed] == [
        (4, "x,n,1,1", "time"),
        (5, "3,,1,1", "empty key"),
        (7, "4,n,1,bad", "field b"),
    ]
    assert piece.blank == 2
    assert piece.lines.tolist() == [2, 8]
    assert piece.arrived.positions.tolist() == [3, 9]
    assert piece.arrived.position == 9


def test_a_key_that_only_a_slip_can_have_made_is_malformed(tmp_path: Path) -> None:
    """An unclosed quote makes one cell of the rest of the file."""
    cells = ["1,n,1,1", f"2,{'n' * key_chars_max},1,1", f"3,n{'n' * key_chars_max},1,1", "4,n,1,1"]
    path = write(tmp_path / "x.csv", "\n".join(["ts,k,a,b", *cells, ""]))
    (piece,) = CsvFile(SMALL, path).pieces()
    assert [(m.line, m.detail) for m in piece.malformed] == [(4, "long key")]
    assert piece.arrived.stimes.tolist() == [1_000_000, 2_000_000, 4_000_000]


def test_bytes_that_are_no_utf8_spoil_no_other_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", b"ts,k,a,b\n1,n,1,1\n2,\xff,1,1\n3,n,1,1\n")
    pieces = check(SMALL, path)
    assert [row[0] for row in rows_of(pieces)] == [1_000_000, 3_000_000]
    assert [(m.line, m.detail) for p in pieces for m in p.malformed] == [(3, "key is not UTF-8")]


def test_a_missing_column_names_file_and_column(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "ts,k,a\n1,n,1\n")
    with pytest.raises(DeploymentError, match=r"x\.csv has no column 'b'.*ts, k, a") as error:
        CsvFile(SMALL, path)
    assert error.value.exit_code == 2


def test_an_empty_file_and_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match="its header has: nothing"):
        CsvFile(SMALL, write(tmp_path / "empty.csv", ""))
    with pytest.raises(DeploymentError, match="cannot be read: No such file"):
        CsvFile(SMALL, tmp_path / "none.csv")


@pytest.mark.parametrize(
    "line",
    [
        f"1.{'0' * 42},n,1,1",
        f"1.{'9' * 4_000},n,1,1",
        f"1.{'0' * 38},n,1,1",
        f"{'9' * 19},n,1,1",
        f"1,n,{'1' * 1_001},1",
        f"1,{'n' * (key_chars_max + 1)},1,1",
    ],
)
def test_what_is_beyond_a_bound_is_malformed_for_pipeline_and_oracle(
    tmp_path: Path, line: str
) -> None:
    """Long runs of zeros and nines were read as 1970 and -1, and long keys as readings."""
    lines = [*["1.5,n,1,1"] * 40, line, f"1.{'0' * 37},n,1,1", f"{'0' * 30}7,n,1,1", ".5,n,1,1"]
    path = write(tmp_path / "x.csv", "\n".join(["ts,k,a,b", *lines, ""]))
    (piece,) = check(SMALL, path)
    assert [m.line for m in piece.malformed] == [42]
    assert piece.arrived.stimes[-4:].tolist() == [1_500_000, 1_000_000, 7_000_000, 500_000]


def test_a_damaged_archive_is_reported_in_one_sentence(tmp_path: Path) -> None:
    complete = gzip.compress(b"ts,k,a,b\n" + b"1,n,1,1\n" * 100_000)
    path = write(tmp_path / "x.csv.gz", complete[: len(complete) // 2])
    with pytest.raises(DeploymentError, match="is damaged"):
        list(CsvFile(SMALL, path).pieces())


def test_a_header_alone_has_no_readings(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "ts,k,a,b")
    assert rows_of(check(SMALL, path)) == []


# Rows with line ends in cells, lines without an end, other encodings.


def test_a_quote_that_is_never_closed_costs_its_own_line_alone(tmp_path: Path) -> None:
    """An inch mark ended the live stream's proxy at each start: a cell beyond 131,072."""
    lines = ["1,n,1,1", '2,"n,1,1', *(f"{i},n,1,1" for i in range(3, 30_000))]
    path = write(tmp_path / "x.csv", "\n".join(["ts,k,a,b", *lines, ""]))
    for piece_bytes in (20_000, 1 << 20):
        pieces = check(SMALL, path, piece_bytes)
        malformed = [m for piece in pieces for m in piece.malformed]
        assert [(m.line, m.text, m.detail) for m in malformed] == [
            (3, '2,"n,1,1', "quote that is not closed")
        ]
        assert len(rows_of(pieces)) == 29_998


def test_a_quote_that_is_open_at_the_end_swallows_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'ts,k,a,b\n1,n,1,1\n3,"n\n",1,1\n4,"n,1,1\n5,n,1,1\n')
    pieces = check(SMALL, path, 16)
    assert [row[0] for row in rows_of(pieces)] == [1_000_000, 3_000_000, 5_000_000]


@pytest.mark.parametrize("size", [131_072, 131_073, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_a_cell_of_any_size_spoils_no_other_line(tmp_path: Path, size: int) -> None:
    for quote in ("", '"'):
        cell = f"{quote}{'x' * size}{quote}"
        path = write(tmp_path / "x.csv", f"ts,k,a,b,c\n1,n,1,1,\n2,n,1,1,{cell}\n3,n,1,1,\n")
        pieces = check(SMALL, path, 300_000)
        stimes = [row[0] // 1_000_000 for row in rows_of(pieces)]
        assert stimes == ([1, 2, 3] if size <= 131_073 else [1, 3])


def test_a_file_without_any_end_of_line_takes_no_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", b"ts,k,a,b\n" + bytes(8 << 20))
    pieces = check(SMALL, path, 1 << 16)
    assert [m.detail for p in pieces for m in p.malformed] == ["line longer than 1048576 bytes"]
    assert max(len(p.text(2)) for p in pieces if p.malformed) <= (1 << 20) + 2


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_every_end_of_line_is_one(tmp_path: Path, end: str) -> None:
    path = write(tmp_path / "x.csv", end.join(["ts,k,a,b", "1,n,1,1", "", '2,"n",1,1', "3,n,x,1"]))
    for piece_bytes in (3, 20, 1 << 20):
        pieces = check(SMALL, path, piece_bytes)
        assert [row[0] for row in rows_of(pieces)] == [1_000_000, 2_000_000]
        assert [m.line for p in pieces for m in p.malformed] == [5]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_refused_with_the_command_that_converts(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "x.csv", "ts,k,a,b\n1,n,1,1\n".encode(encoding))
    with pytest.raises(DeploymentError, match=r"x\.csv is UTF-16 text: convert it, `iconv"):
        CsvFile(SMALL, path)


def test_a_file_of_json_is_told_what_files_are(tmp_path: Path) -> None:
    for text in ('{"k": "a", "ts": 1, "a": 2}\n', '[{"k": "a", "ts": 1, "a": 2}]\n'):
        path = write(tmp_path / "x.jsonl", text)
        with pytest.raises(DeploymentError, match=r"x\.jsonl .*; it is JSON, .* files are CSV"):
            CsvFile(SMALL, path)


def test_latin_1_is_reported_where_it_matters(tmp_path: Path) -> None:
    """Two keys would become equal if their letters were replaced."""
    lines = "ts,k,a,b,c\n1,Zürich,1,1\n2,Zärich,1,1\n3,n,1,1,°C\n"
    pieces = check(SMALL, write(tmp_path / "x.csv", lines.encode("latin-1")))
    assert [m.detail for p in pieces for m in p.malformed] == ["key is not UTF-8"] * 2
    assert [row[1] for row in rows_of(pieces)] == ["n"]
    renamed = replace(SMALL, key=KeySpec(column="Stätion"))
    with pytest.raises(DeploymentError, match=r"has no column 'Stätion'.*`iconv -f LATIN1"):
        CsvFile(renamed, write(tmp_path / "y.csv", "ts,Stätion,a,b\n".encode("latin-1")))


@pytest.mark.parametrize("damage", ["truncated", "not gzip", "a byte"])
def test_a_damaged_archive_is_one_sentence_for_the_oracle_too(tmp_path: Path, damage: str) -> None:
    complete = gzip.compress(b"ts,k,a,b\n" + b"".join(b"%d,n,1,1\n" % i for i in range(50_000)))
    data = {
        "truncated": complete[:-20_000],
        "not gzip": b"ts,k,a,b\n1,n,1,1\n",
        "a byte": complete[:30_000] + b"\xff\x00\xff" + complete[30_003:],
    }[damage]
    path = write(tmp_path / "x.csv.gz", data)
    for read in (lambda: list(CsvFile(SMALL, path).pieces()), lambda: read_stream(SMALL, path)):
        with pytest.raises(DeploymentError, match=r"stream small: .*x\.csv\.gz is damaged: "):
            read()


def test_a_header_in_quotes_costs_no_more_than_itself() -> None:
    data = b'\n"a","b\nc"\n' + b"1,2\n" * 50_000
    found = read_rows(data, 1, ",", last=True, rows_max=1)
    assert [row.cells for row in found.rows] == [["a", "b\nc"]]
    assert (found.rows[0].line, found.rows[0].after, found.end) == (2, 4, 4)
