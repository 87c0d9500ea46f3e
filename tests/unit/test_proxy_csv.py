"""CSV files as they are found: dirt, sizes, line numbers; against the line-by-line reading."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.client.batch import read_stream
from slackwater.model.deployment import CsvSpec, FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.errors import DeploymentError
from slackwater.proxy.columns import key_chars_max
from slackwater.proxy.csvfile import CsvFile, Piece, summarise

DATA = Path(__file__).parents[1] / "data"


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


def rows_of(pieces: list[Piece]) -> Rows:
    rows: Rows = []
    for piece in pieces:
        a = piece.arrived
        columns = [[None if np.isnan(v) else float(v) for v in column] for column in a.values]
        keys = [a.keys[i] for i in a.key_index]
        rows += zip(a.stimes.tolist(), keys, zip(*columns, strict=True), strict=True)
    return rows


def check(spec: StreamSpec, path: Path, piece_bytes: int = 1 << 20) -> list[Piece]:
    """The same readings, malformed and blank lines as reading it line by line gives."""
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
    """A quote that nobody closed makes one cell of the rest of the file."""
    cells = ["1,n,1,1", f"2,{'n' * key_chars_max},1,1", f"3,n{'n' * key_chars_max},1,1", "4,n,1,1"]
    path = write(tmp_path / "x.csv", "\n".join(["ts,k,a,b", *cells, ""]))
    (piece,) = CsvFile(SMALL, path).pieces()
    assert [(m.line, m.detail) for m in piece.malformed] == [(4, "long key")]
    assert piece.arrived.stimes.tolist() == [1_000_000, 2_000_000, 4_000_000]


def test_bytes_that_are_no_utf8_spoil_no_other_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", b"ts,k,a,b\n1,n,1,1\n2,\xff,1,1\n3,n,1,1\n")
    assert [row[0] for row in rows_of(check(SMALL, path))] == [1_000_000, 2_000_000, 3_000_000]


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


def test_a_damaged_archive_is_told_in_one_sentence(tmp_path: Path) -> None:
    whole = gzip.compress(b"ts,k,a,b\n" + b"1,n,1,1\n" * 100_000)
    path = write(tmp_path / "x.csv.gz", whole[: len(whole) // 2])
    with pytest.raises(DeploymentError, match="is damaged"):
        list(CsvFile(SMALL, path).pieces())


def test_a_header_alone_has_no_readings(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "ts,k,a,b")
    assert rows_of(check(SMALL, path)) == []
    assert summarise(SMALL, path).stime_min is None


def test_the_summary_knows_what_a_replay_would_send(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "ts,k,a,b\n5,n,1,1\n9,n,1,1\n7,n,1,1\n20,n,1,1\n8,n,1,1\n")
    whole, part = summarise(SMALL, path), summarise(SMALL, path, 10_000_000)
    assert (whole.readings, whole.stime_min, whole.stime_max) == (5, 5_000_000, 20_000_000)
    assert (part.readings, part.stime_min, part.stime_max) == (3, 5_000_000, 9_000_000)
