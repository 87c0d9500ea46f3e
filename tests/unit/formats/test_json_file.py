"""Files of JSON: lines and arrays, in pieces of any size, as the judge reads them."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import near
from tests.fuzz.judge import judge_file

from slackwater.formats.dead_letters import DeadLetters, Faults
from slackwater.formats.jsonfile import JsonFile, is_json
from slackwater.formats.pieces import FilePiece
from slackwater.formats.readingsfile import open_readings
from slackwater.judge.readers.files import read_stream
from slackwater.judge.readers.json_files import is_json as judged_as_json
from slackwater.model.deployment import FieldSpec, HttpInputSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.errors import DeploymentError

SPEC: Final = StreamSpec(
    "lab",
    KeySpec(field="k"),
    TimeSpec(field="at", unit="s"),
    (FieldSpec("x", "v.x"), FieldSpec("y", "y")),
)
ONE: Final = b'{"k": "a, ]\\\\\\"[", "at": 1, "v": {"x": 1.5}, "y": [2]}'
TWO: Final = b'{"k": "b", "at": 2.5, "v": {"x": 2}, "y": 3}'
SIZES: Final = (3, 50, 4096)


def readings(path: Path, piece_bytes: int) -> list[tuple[int, int, str, tuple[float, ...]]]:
    found = []
    for piece in open_readings(SPEC, path, piece_bytes).pieces():
        arrived = piece.arrived
        for i, line in enumerate(piece.lines.tolist()):
            values = tuple(float(column[i]) for column in arrived.values)
            key = arrived.keys[int(arrived.key_index[i])]
            found.append((line, int(arrived.stimes[i]), key, values))
    return found


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


LINES: Final = (
    b"",
    b"\n \n",
    TWO,
    TWO + b"\n",
    b"\xef\xbb\xbf" + TWO + b"\r\n\r\n" + TWO + b"\n\t\n" + TWO[:20] + b"\n" + TWO,
    ONE + b"\n" + TWO + b"\n17\n[]\n" + TWO.replace(b"3}", b"NaN}") + b'\n{"boundary": 9}\n',
    TWO + b"\n" + b'{"k": "' + b"k" * (1 << 20) + b'"}' + b"\n" + TWO,
    b" " * (1 << 20) + TWO + b"\n" + TWO,
    TWO.replace(b", ", b",\r") + b"\n" + b'{"k": "\xff", "at": 1}\n' + TWO,
)
ARRAYS: Final = (
    b"[]",
    b" [ \n] \n",
    b"[" + TWO + b"]",
    b"\xef\xbb\xbf\n[" + ONE + b",\n " + TWO + b"]\n\n",
    b"[" + TWO + b",, 17, [" + TWO + b', "],"], ' + TWO + b",]",
    b'[{"k": nan, "at": 1}, {"boundary": 9}, ' + TWO[:-1] + b', "z": "\\\\"}, ' + TWO + b"]",
    b"[" + b",".join([TWO] * 50) + b"]",
)


@pytest.mark.parametrize("number", range(len(LINES) + len(ARRAYS)))
@pytest.mark.parametrize("size", SIZES)
def test_a_file_is_read_as_the_judge_reads_it(number: int, size: int, tmp_path: Path) -> None:
    data = (*LINES, *ARRAYS)[number]
    if len(data) > 1 << 20 and size < 64:
        size = 65_536
    for name in ("a.json", "a.ndjson.gz"):
        assert judge_file(SPEC, write(tmp_path / name, data), size) == []


@pytest.mark.parametrize("seed", range(6))
def test_generated_messages_are_read_as_the_judge_reads_them(seed: int, tmp_path: Path) -> None:
    generated = near.messages(seed, 200)
    messages = [message for message in generated.messages if b"\n" not in message]
    path = write(tmp_path / "a.jsonl", b"\n".join(messages))
    assert judge_file(generated.spec, path, 1_000) == []


@given(st.lists(st.sampled_from([*map(bytes, LINES[:6]), *ARRAYS, b",", b'"', b"\\", b"]", b"["])))
def test_any_bytes_are_read_alike_or_refused_by_both(parts: Sequence[bytes]) -> None:
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.json", b"".join(parts))
        refused = []
        for size in SIZES:
            try:
                assert judge_file(SPEC, path, size) == []
            except DeploymentError:
                refused.append(size)
        assert refused in ([], list(SIZES))
        if refused:
            for read in (lambda: read_stream(SPEC, path), lambda: JsonFile(SPEC, path).verify()):
                with pytest.raises(DeploymentError):
                    read()


def test_places_are_lines_or_elements(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.ndjson", b"\n" + TWO + b"\n\nno\n" + TWO)
    array = write(tmp_path / "a.json", b"[" + TWO + b",\n\nno," + TWO + b"]")
    for size in SIZES:
        assert [line for line, *_ in readings(lines, size)] == [2, 5]
        assert [line for line, *_ in readings(array, size)] == [1, 3]
    piece, last = JsonFile(SPEC, lines).pieces()
    assert [(one.line, one.text, one.detail) for one in piece.malformed] == [(4, "no", "not JSON")]
    assert (piece.text(2), last.text(5)) == (TWO.decode(), TWO.decode())
    assert (piece.arrived.positions.tolist(), piece.arrived.position) == ([3], 5)
    assert (last.arrived.positions.tolist(), last.arrived.position) == ([6], 6)
    assert read_stream(SPEC, lines, {2}).readings == read_stream(SPEC, lines).readings[1:]
    assert read_stream(SPEC, array, {1, 3}).readings == []


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[" + TWO, "its array does not end, after element 0"),
        (b"[" + TWO + b", " + TWO[:9], "its array does not end, after element 1"),
        (b"[" + TWO + b"]\n[" + TWO + b"]", "goes on behind the end of its array"),
        (b"[" + TWO + b',"' + b"x" * (1 << 20) + b'"]', "element 2 of its array has more than"),
    ],
)
def test_a_damaged_array_is_read_up_to_its_damage(data: bytes, what: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", data)
    found: list[FilePiece] = []
    with pytest.raises(DeploymentError, match=what):
        found.extend(JsonFile(SPEC, path, 65_536).pieces())
    assert sum(len(piece.lines) for piece in found) == (0 if what.endswith("0") else 1)
    with pytest.raises(DeploymentError, match=what):
        JsonFile(SPEC, path, 65_536).verify()
    with pytest.raises(DeploymentError, match="is not whole"):
        read_stream(SPEC, path)


def test_the_name_and_the_declaration_decide(tmp_path: Path) -> None:
    for name in ("a.json", "a.b.ndjson", "a.jsonl.gz", "a.json.gz"):
        assert is_json(Path(name))
        assert judged_as_json(Path(name))
    for name in ("a.csv", "json", "a.json.csv", "a.gz", "a.parquet", "a.json.gz.gz"):
        assert not is_json(Path(name))
        assert not judged_as_json(Path(name))

    by_column = StreamSpec("lab", KeySpec(column="k"), TimeSpec(("at",), unit="s"), SPEC.fields)
    json_file = write(tmp_path / "a.json", TWO + b"\n")
    with pytest.raises(DeploymentError, match="write `field` instead of `column`"):
        open_readings(by_column, json_file)
    with pytest.raises(DeploymentError, match=r"ends with \.json, \.ndjson or \.jsonl"):
        open_readings(SPEC, write(tmp_path / "a.csv", b"k,at\n"))
    posted = StreamSpec("lab", by_column.key, by_column.time, SPEC.fields, http=HttpInputSpec())
    (piece,) = open_readings(posted, json_file).pieces()
    assert piece.arrived.stimes.tolist() == [2_500_000]


def test_a_line_that_crashed_its_reader_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", (TWO + b"\n") * 3)
    faults = Faults.open(tmp_path / "faults", "proxy")
    dead_letters = DeadLetters.open(tmp_path / "faults", "lab", faults)
    dead_letters.add("file:a.json", 2, "SIGSEGV")
    (piece,) = JsonFile(SPEC, path, guard=(dead_letters, "file:a.json")).pieces()
    assert piece.lines.tolist() == [1, 3]
    assert [(one.line, one.reason) for one in piece.malformed] == [(2, "crash")]
    dead_letters.close()


def test_values_are_those_of_the_text(tmp_path: Path) -> None:
    rows = [{"k": i % 3, "at": i, "v": {"x": i / 7}, "y": None} for i in range(300)]
    lines = write(tmp_path / "a.ndjson.gz", "\n".join(map(json.dumps, rows)).encode())
    array = write(tmp_path / "a.json", json.dumps(rows, indent=2).encode())
    for path in (lines, array):
        found = readings(path, 500)
        assert [(at, key, values[0]) for _, at, key, values in found] == [
            (i * 1_000_000, str(i % 3), i / 7) for i in range(300)
        ]
        assert all(math.isnan(values[1]) for *_, values in found)
