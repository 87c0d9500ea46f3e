"""A Parquet file is read as the CSV file of the same table is (``formats/parquettext.py``)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.formats.csvfile import CsvFile
from slackwater.formats.pieces import FilePiece
from slackwater.judge.readers.files import read_stream
from slackwater.model.deployment import CsvSpec, FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.errors import DeploymentError

SPEC = StreamSpec(
    "room",
    KeySpec(column="node"),
    TimeSpec(("at",), unit="iso"),
    tuple(FieldSpec(name, name) for name in ("t", "h", "n", "on")),
    missing=("unavailable",),
    values=(("true", 1.0), ("false", 0.0)),
    disorder_us=10**16,
)
AT = datetime(2016, 3, 15, 8, 0, 0, 123_456, UTC)
ROWS: list[dict[str, Any]] = [
    {"node": "a", "at": AT, "t": 20.1, "h": 0.1, "n": Decimal("1.50"), "on": True},
    {"node": "b,c", "at": AT + timedelta(hours=1), "t": None, "h": 2.5, "n": None, "on": False},
    {"node": 'say "x"', "at": AT, "t": 1e300, "h": None, "n": Decimal("-2.25"), "on": None},
    {"node": "two\nlines", "at": AT, "t": -0.0, "h": 3.0, "n": Decimal("0.01"), "on": True},
    {"node": None, "at": AT, "t": 1.0, "h": 3.0, "n": None, "on": True},
    {"node": "late", "at": None, "t": 1.0, "h": 3.0, "n": None, "on": True},
    {
        "node": "ä",
        "at": AT - timedelta(days=20_000),
        "t": 0.1 + 0.2,
        "h": 1.0,
        "n": None,
        "on": None,
    },
]
TYPES = {
    "node": pa.string(), "at": pa.timestamp("us", "UTC"), "t": pa.float64(), "h": pa.float32(),
    "n": pa.decimal128(10, 2), "on": pa.bool_(),
}  # fmt: skip


def table(**changed: pa.DataType) -> pa.Table:
    return pa.Table.from_pylist(ROWS, pa.schema(list((TYPES | changed).items())))


def written(folder: Path, of: pa.Table, rows_max: int = 3) -> Path:
    path = folder / "room.parquet"
    pq.write_table(of, path, row_group_size=rows_max)
    return path


def pieces(path: Path, spec: StreamSpec = SPEC, piece_bytes: int = 1 << 20) -> list[FilePiece]:
    return list(CsvFile(spec, path, piece_bytes).pieces())


def readings(read: list[FilePiece]) -> list[tuple[Any, ...]]:
    return [
        (int(line), int(arrived.stimes[i]), arrived.keys[arrived.key_index[i]],
         *(repr(float(values[i])) for values in arrived.values))
        for piece in read
        for arrived in [piece.arrived]
        for i, line in enumerate(piece.lines)
    ]  # fmt: skip


def refused(read: list[FilePiece]) -> list[tuple[int, str]]:
    return [(one.line, one.detail) for piece in read for one in piece.malformed]


@pytest.mark.parametrize("piece_bytes", [1 << 20, 50])
def test_each_cell_is_what_the_table_has(tmp_path: Path, piece_bytes: int) -> None:
    read = pieces(written(tmp_path, table()), piece_bytes=piece_bytes)
    found = readings(read)
    assert [(key, of[:3]) for _, _, key, *of in found] == [
        ("a", ["20.1", "0.10000000149011612", "1.5"]),
        ("b,c", ["nan", "2.5", "nan"]),
        ('say "x"', ["1e+300", "nan", "-2.25"]),
        ("two\nlines", ["-0.0", "3.0", "0.01"]),
        ("ä", ["0.30000000000000004", "1.0", "nan"]),
    ]
    assert [of[6] for of in found] == ["1.0", "0.0", "nan", "1.0", "nan"]
    at_us = round(AT.timestamp() * 1e6)
    assert [of[1] - at_us for of in found] == [0, 3_600_000_000, 0, 0, -20_000 * 86_400_000_000]
    details = [detail for _, detail in refused(read)]
    assert details[0] == "empty key"
    assert "time" in details[1]


@pytest.mark.parametrize(
    "at",
    [
        pa.timestamp("us"),
        pa.timestamp("ns", "Europe/Berlin"),
        pa.timestamp("ms", "UTC"),
        pa.timestamp("s"),
    ],
    ids=str,
)
def test_the_judge_reads_the_same_from_it(tmp_path: Path, at: pa.DataType) -> None:
    of = table().cast(pa.schema(list((TYPES | {"at": at}).items())), safe=False)
    path = written(tmp_path, of)
    judged = read_stream(SPEC, path)
    found = readings(pieces(path))
    assert len(found) == 5
    assert sorted(
        (r.stime, r.key, *map(repr, _numbers(r.values))) for r in judged.accepted
    ) == sorted(reading[1:] for reading in found)


def _numbers(values: Any) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def test_the_dialect_of_the_stream_is_that_of_its_csv_files(tmp_path: Path) -> None:
    spec = replace(SPEC, csv=CsvSpec(delimiter=";", decimal=",", skip_lines=2))
    path = written(tmp_path, table())
    assert readings(pieces(path, spec)) == readings(pieces(path))
    assert len(list(read_stream(spec, path).accepted)) == 5


def test_keys_by_number_and_nested_columns(tmp_path: Path) -> None:
    of = table().append_column("place", pa.array([{"x": 1}] * len(ROWS)))
    keys = of.column("node").dictionary_encode()
    of = of.set_column(of.schema.get_field_index("node"), "node", keys)
    assert len(readings(pieces(written(tmp_path, of)))) == 5
    spec = replace(SPEC, key=KeySpec(column="place"))
    with pytest.raises(DeploymentError, match="has no column 'place'; its header has: node, at"):
        CsvFile(spec, tmp_path / "room.parquet")


def test_what_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "room.parquet"
    path.write_text("node,at\n")
    with pytest.raises(
        DeploymentError, match=r"stream room: .*room\.parquet cannot be read: no Parq"
    ):
        CsvFile(SPEC, path)
    with pytest.raises(DeploymentError, match=r"room\.parquet is damaged"):
        read_stream(SPEC, path)


def test_damage_in_the_middle_ends_the_file_with_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, pa.concat_tables([table()] * 1_000), rows_max=1_000)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 2_000] = bytes(2_000)
    path.write_bytes(data)
    with pytest.raises(DeploymentError, match="cannot be read"):
        pieces(path)


def test_a_table_without_rows(tmp_path: Path) -> None:
    path = written(tmp_path, table().slice(0, 0))
    assert readings(pieces(path)) == []
    assert list(read_stream(SPEC, path).accepted) == []
