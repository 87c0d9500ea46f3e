"""Formats of request bodies: the same readings in each, and refused parts, with their place."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.deployment import (
    CsvSpec,
    FieldSpec,
    HttpInputSpec,
    KeySpec,
    StreamSpec,
    TimeSpec,
)
from slackwater.proxy.http import parts
from slackwater.proxy.http.bodies import JSON, MEDIA_TYPES, NDJSON, reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.http.tables import ARROW, CSV
from slackwater.proxy.requests import BodyContent, UnusableBody

ROOM = Path(__file__).parents[3] / "data" / "room_climate" / "node-1.csv.gz"
TIME = pa.int64()
NOW_US = 1_700_000_000_000_000
SPEC = StreamSpec(
    "room",
    KeySpec(column="node"),
    TimeSpec(("ts",), unit="ms"),
    (FieldSpec("temperature", "temperature"), FieldSpec("humidity", "humidity")),
    http=HttpInputSpec(),
)
Row = dict[str, Any]


def read(body: bytes, kind: str, spec: StreamSpec = SPEC) -> BodyContent:
    reader = reader_for(spec, kind, NOW_US)
    assert reader is not None
    return reader(body)


def rows_of(content: BodyContent) -> list[tuple[Any, ...]]:
    parsed = content.parsed
    keys = [parsed.keys[i] for i in parsed.key_index.tolist()]
    values = [column.tolist() for column in parsed.values]
    return [
        tuple(None if value != value else value for value in row)  # noqa: PLR0124 - NaN
        for row in zip(keys, parsed.stimes.tolist(), *values, strict=True)
    ]


def real_rows(n: int) -> list[Row]:
    with gzip.open(ROOM, "rt") as file:
        found = list(csv.DictReader(file))[:n]
    return [
        {name: row[name] for name in ("node", "ts", "temperature", "humidity")} for row in found
    ]


def as_json(rows: list[Row]) -> bytes:
    # The numbers are written as in the file.
    fields = (", ".join(f'"{name}":{row[name]}' for name in row) for row in rows)
    return ("[" + ", ".join("{" + text + "}" for text in fields) + "]").encode()


def as_lines(rows: list[Row]) -> bytes:
    return as_json(rows)[1:-1].replace(b"}, {", b"}\n{")


def as_csv(rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_senml(rows: list[Row]) -> bytes:
    records: list[Row] = []
    for row in rows:
        base: Row = {"bn": f"{row['node']}:", "bt": int(row["ts"]) / 1000}
        records.append(base | {"n": "temperature", "v": float(row["temperature"])})
        records.append({"n": "humidity", "v": float(row["humidity"])})
    return json.dumps(records).encode()


def as_arrow(rows: list[Row], kind: Any = TIME) -> bytes:
    table = pa.table(
        {
            "node": pa.array([row["node"] for row in rows]).dictionary_encode(),
            "ts": pa.array([int(row["ts"]) for row in rows], pa.int64()).cast(kind),
            "temperature": [float(row["temperature"]) for row in rows],
            "humidity": [float(row["humidity"]) for row in rows],
            "battery": [[1, 2]] * len(rows),
        }
    )
    return arrow(table)


def arrow(table: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=1_000)
    return sink.getvalue()


FORMS: dict[str, tuple[str, Callable[[list[Row]], bytes]]] = {
    "array": (JSON, as_json),
    "lines": (NDJSON[0], as_lines),
    "csv": (CSV, as_csv),
    "senml": (SENML, as_senml),
    "arrow": (ARROW, as_arrow),
    "arrow with timestamps": (ARROW, lambda rows: as_arrow(rows, pa.timestamp("ms", "UTC"))),
}


@pytest.mark.parametrize("form", FORMS)
def test_real_readings_are_the_same_in_every_format(form: str) -> None:
    rows = real_rows(2_500)
    kind, write = FORMS[form]
    content = read(write(rows), kind)
    wanted = [
        (row["node"], int(row["ts"]) * 1000, float(row["temperature"]), float(row["humidity"]))
        for row in rows
    ]
    assert rows_of(content) == wanted
    assert not content.parsed.bad
    assert content.ignored == 0


@pytest.mark.parametrize("form", FORMS)
def test_content_travels_between_processes(form: str) -> None:
    """A suspect body is parsed in a child process."""
    kind, write = FORMS[form]
    reader = pickle.loads(pickle.dumps(reader_for(SPEC, kind, NOW_US)))
    content = reader(write(real_rows(3)))
    again = pickle.loads(pickle.dumps(content))
    assert rows_of(again) == rows_of(content)
    index = int(content.parsed.indices[0])
    assert again.text(index) == content.text(index)


# JSON.


@pytest.mark.parametrize(
    "body",
    [
        b'[{"node":"},{","ts":1,"temperature":1},{"node":"b","ts":2}]',
        b' [ {"node":"},{","ts":1,"temperature":1}\r\n ,\t{"node":"b","ts":2} ] ',
        b'[{"node":"},{","ts":1,"temperature":1,"x":[{},{}]},\n{"node":"b","ts":2}]',
    ],
)
def test_an_array_is_divided_by_its_grammar(body: bytes) -> None:
    assert rows_of(read(body, JSON)) == [("},{", 1000, 1.0, None), ("b", 2000, None, None)]


Value = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=5), st.just("},{"), st.just('"},{"')),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(Value, max_size=6), st.sampled_from([None, 1]))
def test_each_element_of_an_array_has_its_index(elements: list[Any], indent: int | None) -> None:
    """An array gives the same as each of its elements alone."""
    content = read(json.dumps(elements, indent=indent).encode(), JSON)
    alone = [read(b"[%b]" % json.dumps(element).encode(), JSON).parsed for element in elements]
    assert [bad.index for bad in content.parsed.bad] == [i for i, p in enumerate(alone) if p.bad]
    assert content.parsed.indices.tolist() == [i for i, p in enumerate(alone) if len(p.indices)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'[{"node":"a"} {"node":"b"}]', "character 15, in element 1"),
        (b'[{"node":"a"},]', "character 15, in element 1"),
        (b'[{"node":"a"}', "in element 1"),
        (b'[{"node":"a"}]]', "in element 1"),
        (b"[\xff]", "not UTF-8 at byte 1"),
        (b"[" * 50_000, "in element 0"),
    ],
)
def test_what_is_no_array_names_its_place(body: bytes, reason: str) -> None:
    with pytest.raises(UnusableBody) as raised:
        read(body, JSON)
    assert reason in raised.value.reason


def test_lines_keep_their_numbers() -> None:
    content = read(b'\n{"node":"a","ts":1}\r\n \nnothing\n', NDJSON[0])
    assert rows_of(content) == [("a", 1000, None, None)]
    (bad,) = content.parsed.bad
    assert content.error(bad.index, bad.reason, bad.detail) == {
        "line": 4,
        "reason": "malformed",
        "detail": "not JSON",
    }
    assert content.text(bad.index) == "nothing"


@pytest.mark.parametrize("kind", [JSON, NDJSON[0], CSV, SENML, ARROW])
def test_readings_of_a_body_are_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "READINGS_MAX", 5)
    write = dict(FORMS.values())[kind]
    fitting = 2 if kind == SENML else 5
    assert len(rows_of(read(write(real_rows(fitting)), kind))) == fitting
    with pytest.raises(UnusableBody) as raised:
        read(write(real_rows(6)), kind)
    assert raised.value.status == 413


# CSV.


def test_csv_as_the_stream_declares_it() -> None:
    spec = replace(
        SPEC,
        time=TimeSpec(("Date", "Time"), format="%d/%m/%Y %H.%M.%S"),
        csv=CsvSpec(";", ","),
    )
    body = (
        b"\xef\xbb\xbfnode;Date;Time;temperature;humidity\r\n"
        b"a;10/03/2004;18.00.00;2,6;\r\n"
        b"\r\n"
        b'"b;c";10/03/2004;18.00.01;warm;1\r\n'
        b"d;10/03/2004;18.00.02;3;1"
    )
    content = read(body, CSV, spec)
    at = int(datetime(2004, 3, 10, 18, tzinfo=UTC).timestamp()) * 1_000_000
    assert rows_of(content) == [("a", at, 2.6, None), ("d", at + 2_000_000, 3.0, 1.0)]
    (bad,) = content.parsed.bad
    assert content.error(bad.index, bad.reason, bad.detail) == {
        "line": 4,
        "reason": "malformed",
        "detail": "field temperature",
    }
    assert content.text(bad.index) == '"b;c";10/03/2004;18.00.01;warm;1'
    joined = b'{"node":"a","Date":"10/03/2004","Time":"18.00.00","temperature":2.6}'
    assert rows_of(read(joined, JSON, spec)) == [("a", at, 2.6, None)]


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (b"node,ts,humidity\na,1,41\n", [("a", 1000, None, 41.0)]),
        (b"humidity,node,ts\n41,a,1\n42,b,2\n", [("a", 1000, None, 41.0), ("b", 2000, None, 42.0)]),
        # A cell in quotes, a row that is too short, one empty cell more: other paths of the reader.
        (b'node,ts,humidity\n"a",1,41\n', [("a", 1000, None, 41.0)]),
        (b"node,ts,humidity\na,1\nb,2,42,\n", [("a", 1000, None, None), ("b", 2000, None, 42.0)]),
        (b"node,ts\na,1\n", [("a", 1000, None, None)]),
    ],
)
def test_a_field_without_a_column_is_missing_as_in_json(body: bytes, rows: list[Any]) -> None:
    assert rows_of(read(body, CSV)) == rows
    named = [line.split(b",") for line in body.replace(b'"', b"").splitlines()]
    objects = [
        {
            name: float(cell) if name != "node" else cell
            for name, cell in zip(
                map(bytes.decode, named[0]), map(bytes.decode, line), strict=False
            )
        }
        for line in named[1:]
    ]
    assert rows_of(read(json.dumps(objects).encode(), JSON)) == rows


def test_a_body_of_csv_without_any_declared_column_is_refused() -> None:
    spec = replace(SPEC, key=KeySpec(value="a"), time=TimeSpec(from_="arrival"))
    assert rows_of(read(b"humidity\n1\n", CSV, spec)) == [("a", 0, None, 1.0)]
    with pytest.raises(UnusableBody, match="no column that the stream declares"):
        read(b"humid\n1\n", CSV, spec)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"node,temperature\na,1\n", "has no column 'ts'; its header has: node, temperature"),
        (b"node,ts,humidity,humidity\na,1,2,2\n", "has 2 columns 'humidity'"),
        (b"", "has no column 'node'"),
        ("node,ts".encode("utf-16"), "UTF-16"),
    ],
)
def test_a_csv_body_without_its_columns(body: bytes, reason: str) -> None:
    with pytest.raises(UnusableBody) as raised:
        read(body, CSV)
    assert reason in raised.value.reason


# SenML.


def senml(records: Any, spec: StreamSpec = SPEC) -> BodyContent:
    return read(json.dumps(records).encode(), SENML, spec)


def test_the_multiple_measurements_of_the_standard() -> None:
    """RFC 8428, section 5.1.2: base values, relative times, other fields ignored."""
    spec = replace(SPEC, fields=(FieldSpec("voltage", "voltage"), FieldSpec("current", "current")))
    pack = [
        {
            "bn": "urn:dev:ow:10e2073a0108006:",
            "bt": 1.276020076001e9,
            "bu": "A",
            "bver": 5,
            "n": "voltage",
            "u": "V",
            "v": 120.1,
        },
        {"n": "current", "t": -5, "v": 1.2},
        {"n": "current", "t": -4, "v": 1.3},
        {"n": "current", "t": 0, "v": 1.7},
        {"n": "label", "vs": "kitchen"},
    ]
    key, at = "urn:dev:ow:10e2073a0108006", 1_276_020_076_001_000
    content = senml(pack, spec)
    assert rows_of(content) == [
        (key, at, 120.1, 1.7),
        (key, at - 5_000_000, None, 1.2),
        (key, at - 4_000_000, None, 1.3),
    ]
    assert content.ignored == 1
    assert content.parsed.indices.tolist() == [0, 1, 2]


def test_small_times_are_relative_to_the_arrival() -> None:
    one = replace(SPEC, fields=(FieldSpec("t", "t"),))
    pack = [{"n": "urn:dev:a", "v": 1}, {"n": "urn:dev:a", "t": -0.5, "v": 2}]
    assert rows_of(senml(pack, one)) == [
        ("urn:dev:a", NOW_US, 1.0),
        ("urn:dev:a", NOW_US - 500_000, 2.0),
    ]


def test_base_values_are_added() -> None:
    pack = [
        {"bn": "a/", "bv": 20, "bt": 1.5e9, "n": "temperature", "v": 0.1},
        {"n": "humidity", "v": 1},
    ]
    assert rows_of(senml(pack)) == [("a", 1_500_000_000_000_000, 20.1, 21.0)]


def test_a_missing_value_counts_as_zero_beside_a_base_value() -> None:
    """RFC 8428, section 4.5.4; a record of base values only is no measurement."""
    pack = [
        {"bn": "urn:dev:1:", "bt": 1.5e9, "bv": 20},
        {"n": "temperature", "v": 1},
        {"n": "temperature", "t": -0.1},
        {"n": "humidity", "t": -0.1, "s": 7},
        {"n": "battery", "t": 1},
    ]
    content = senml(pack)
    assert rows_of(content) == [
        ("urn:dev:1", 1_500_000_000_000_000, 21.0, None),
        ("urn:dev:1", 1_499_999_999_900_000, 20.0, 20.0),
    ]
    assert (content.ignored, content.parsed.bad) == (1, ())


@pytest.mark.parametrize(
    ("record", "detail"),
    [
        (7, "not an object"),
        ({"bn": 5, "n": "temperature", "v": 1}, "bn"),
        ({"bn": "a:", "n": "temperature", "vs": "warm"}, "field temperature: no numeric value"),
        ({"bn": "a:", "n": "temperature", "v": "warm"}, "field temperature"),
        ({"bn": "a:", "n": "temperature", "t": 1}, "field temperature: no numeric value"),
        ({"bn": "a:", "n": "temperature", "s": 1}, "field temperature: no numeric value"),
        (
            {"bn": "a:", "n": "temperature", "bv": 1, "vs": "x"},
            "field temperature: no numeric value",
        ),
        ({"bn": "a:", "n": "temperature", "bv": "1"}, "bv"),
        ({"bn": "a:", "n": "temperature", "v": 1, "t": "now"}, "time"),
        ({"bn": "a:", "n": "temperature", "v": 1, "t": 1e30}, "time"),
        ({"n": "temperature", "v": 1}, "key"),
        (
            {"bn": "a:", "n": "temperature", "v": 1, "new_": 1},
            "new_ is not supported, and must not be ignored (RFC 8428, 4.4)",
        ),
        ({"bver": 11}, "bver: a version above 10"),
    ],
)
def test_a_record_that_cannot_be_used_has_its_index(record: Any, detail: str) -> None:
    content = senml([{"bn": "b:", "bt": 1.5e9, "n": "temperature", "v": 1}, {"bn": ""}, record])
    assert [(bad.index, bad.detail) for bad in content.parsed.bad] == [(2, detail)]
    assert len(rows_of(content)) == 1


@pytest.mark.parametrize(
    "base", [{"bn": 5}, {"bt": "x"}, {"bv": None, "n": "temperature", "v": 1}, {"bver": 11}]
)
def test_records_after_a_malformed_base_value_are_not_read_with_the_one_before(base: Row) -> None:
    """They were counted as readings of the device before them."""
    record = {"n": "temperature", "v": 1}
    content = senml([{"bn": "b:", "bt": 1.5e9}, record, base, record | {"t": 5}, 7])
    assert rows_of(content) == [("b", 1_500_000_000_000_000, 1.0, None)]
    assert [bad.index for bad in content.parsed.bad] == [2, 3, 4]
    assert content.parsed.bad[1].detail.startswith("the base values of record 2 are malformed: b")


@pytest.mark.parametrize("body", [b"{}", b"[", b'{"n":1}]', b"[1,2", b"\xff", b"[]}, {"])
def test_what_is_no_pack_is_refused(body: bytes) -> None:
    with pytest.raises(UnusableBody):
        read(body, SENML)


def test_a_pack_of_other_fields_only_is_refused() -> None:
    with pytest.raises(UnusableBody, match="ends with a declared field: temperature, humidity"):
        senml([{"bn": "a:", "n": "battery", "v": 1}])


# Arrow.


def table(**columns: Any) -> Any:
    usual = {
        "node": pa.array(["a", "b"]),
        "ts": pa.array([1, 2]),
        "temperature": pa.array([1.0, 2.0]),
        "humidity": pa.array([1, None]),
    }
    return pa.table(usual | columns)


def test_arrow_columns_of_many_types() -> None:
    assert rows_of(read(arrow(table()), ARROW)) == [("a", 1000, 1.0, 1.0), ("b", 2000, 2.0, None)]
    changed = table(
        node=pa.array([7, 8], pa.uint8()),
        ts=pa.array(["1.5", "2"]),
        temperature=pa.array(["nan", "1e3"], pa.large_string()),
        humidity=pa.array([1, 2], pa.float32()),
    )
    assert rows_of(read(arrow(changed), ARROW)) == [
        ("7", 1500, None, 1.0),
        ("8", 2000, 1000.0, 2.0),
    ]
    without = table().drop_columns(["humidity"])
    assert rows_of(read(arrow(without), ARROW)) == [("a", 1000, 1.0, None), ("b", 2000, 2.0, None)]
    nanoseconds = table(ts=pa.array([-1, 1_999], pa.timestamp("ns")))
    assert [row[1] for row in rows_of(read(arrow(nanoseconds), ARROW))] == [-1, 1]


@pytest.mark.parametrize(
    ("columns", "detail"),
    [
        ({"node": pa.array(["a", None])}, "empty key"),
        ({"node": pa.array(["a", "k" * 70_000])}, "long key"),
        ({"ts": pa.array([1, None])}, "time"),
        ({"ts": pa.array([1, 2**63], pa.uint64())}, "time"),
        ({"ts": pa.array(["1", "late"])}, "time"),
        ({"temperature": pa.array([1.0, float("inf")])}, "field temperature"),
        ({"temperature": pa.array(["1", "warm"])}, "field temperature"),
    ],
)
def test_a_row_that_cannot_be_used_has_its_index(columns: Any, detail: str) -> None:
    content = read(arrow(table(**columns)), ARROW)
    assert [(bad.index, bad.detail) for bad in content.parsed.bad] == [(1, detail)]
    assert len(rows_of(content)) == 1
    assert '"node":' in content.text(1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "is not an Arrow IPC stream"),
        (b"nothing", "is not an Arrow IPC stream"),
        (arrow(table())[:-100], "is not an Arrow IPC stream"),
        (arrow(table().drop_columns(["ts"])), "has no column 'ts'; it has: node, temperature"),
        (arrow(table().drop_columns(["node"])), "has no column 'node'; it has: ts, temperature"),
        (arrow(table(ts=pa.array([1.5, 2.5]))), "column 'ts' is double: a time is"),
        (arrow(table(temperature=pa.array([[1], [2]]))), "a field is a number"),
        (arrow(table(), compression="zstd"), "compressed"),
        (arrow(table(), compression="lz4"), "compressed"),
    ],
)
def test_what_is_no_table_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(UnusableBody) as raised:
        read(body, ARROW)
    assert reason in raised.value.reason


def test_a_compressed_dictionary_is_refused() -> None:
    keys = pa.array(["a" * 1_000, "b"]).dictionary_encode()
    with pytest.raises(UnusableBody, match="compressed"):
        read(arrow(table(node=keys), compression="zstd"), ARROW)


def test_damaged_bytes_are_refused_or_read_and_never_end_the_process() -> None:
    """Bytes of valid streams are changed; each is refused, or gives readings."""
    randomness = random.Random(1)
    complete = [
        as_arrow(real_rows(50)),
        arrow(table(node=pa.array(["a", "b"]).dictionary_encode())),
    ]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(3_000):
        body = bytearray(randomness.choice(complete))
        for _ in range(randomness.randint(1, 4)):
            body[randomness.randrange(len(body))] = randomness.randrange(256)
        try:
            content = read(bytes(body), ARROW)
        except UnusableBody:
            outcomes["refused"] += 1
            continue
        outcomes["read"] += 1
        assert len(content.parsed.indices) + len(content.parsed.bad) == len(content.numbers)
        assert np.isfinite(content.parsed.stimes).all()
    assert min(outcomes.values()) > 100


def test_each_media_type_has_a_reader() -> None:
    assert all(reader_for(SPEC, kind, NOW_US) for kind in MEDIA_TYPES)
    assert reader_for(SPEC, "text/plain", NOW_US) is None
