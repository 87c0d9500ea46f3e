"""The same readings through every input: what becomes of each by its declaration.

A reading is given as texts and numbers by name; an input encodes them in its own form and returns
for each reading its (key, time), or the detail with which it would be in quarantine.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import fastavro
import pyarrow as pa

from slackwater.formats.avro.framing import Reference
from slackwater.formats.avro.reader import AvroReader, SchemaText
from slackwater.formats.avro.sources import FixedBook
from slackwater.formats.json_array import JsonArrayReader
from slackwater.formats.json_columns import JsonColumnsReader
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Parsed
from slackwater.formats.readingsfile import open_readings
from slackwater.judge.readers.files import read_stream
from slackwater.model.deployment import FieldSpec, HttpInputSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.mqtt import MqttSpec
from slackwater.proxy.http.bodies import JSON, NDJSON, reader_for
from slackwater.proxy.http.tables import ARROW, CSV
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.mqtt.messages import MqttReader

Row = Mapping[str, Any]


class Taken(tuple[str, int]):  # noqa: SLOT001 - a tuple has no slots for values
    """The key and the time of a reading; it is compared by them, and has its values too."""

    values: tuple[float | None, ...]

    @classmethod
    def of(cls, key: str, stime: int, values: Sequence[float | None]) -> Taken:
        made = cls((key, stime))
        made.values = tuple(None if v is None or math.isnan(v) else v for v in values)
        return made


Outcome = tuple[str, int] | str
MALFORMED: Final = "malformed"
"""Outcome of an input that counts malformed readings without a detail."""


def of_messages(spec: StreamSpec) -> StreamSpec:
    """Return the declaration with fields instead of columns."""
    key, time = spec.key, spec.time
    field = time.columns[0] if len(time.columns) == 1 else None
    fields = time.columns if len(time.columns) > 1 else ()
    return replace(
        spec,
        key=KeySpec(field=key.column, value=key.value, fields=key.columns, join=key.join),
        time=replace(time, columns=(), field=field, fields=fields),
    )


def of_http(spec: StreamSpec) -> StreamSpec:
    """Return the declaration for a stream that is posted."""
    return replace(spec, http=HttpInputSpec())


def outcomes(parsed: Parsed, n: int) -> list[Outcome]:
    """Return the outcome of each of n readings."""
    found: dict[int, Outcome] = {bad.index: bad.detail for bad in parsed.bad}
    codes, stimes = parsed.key_index.tolist(), parsed.stimes.tolist()
    for i, at in enumerate(parsed.indices.tolist()):
        values = [float(column[i]) for column in parsed.values]
        found[at] = Taken.of(parsed.keys[codes[i]], stimes[i], values)
    assert sorted(found) == list(range(n)), "each reading has one outcome"
    return [found[i] for i in range(n)]


def csv_text(spec: StreamSpec, rows: Sequence[Row]) -> bytes:
    delimiter = spec.csv.delimiter
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    return "".join(delimiter.join(line) + "\n" for line in lines).encode()


def by_file(spec: StreamSpec, rows: Sequence[Row]) -> list[Outcome]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_bytes(csv_text(spec, rows))
        return _in_pieces(spec, path, 2, len(rows))


def _in_pieces(spec: StreamSpec, path: Path, first: int, n: int) -> list[Outcome]:
    """Return the outcomes of n readings in a file; ``first`` is the place of the first one."""
    found: dict[int, Outcome] = {}
    for piece in open_readings(spec, path).pieces():
        arrived = piece.arrived
        found |= {bad.line - first: bad.detail for bad in piece.malformed}
        codes, stimes = arrived.key_index.tolist(), arrived.stimes.tolist()
        for i, line in enumerate(piece.lines.tolist()):
            values = [float(column[i]) for column in arrived.values]
            found[line - first] = Taken.of(arrived.keys[codes[i]], stimes[i], values)
    return [found[i] for i in range(n)]


def by_json_file(spec: StreamSpec, rows: Sequence[Row]) -> list[Outcome]:
    spec = of_messages(spec)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        path.write_bytes(json.dumps(list(rows)).encode())
        return _in_pieces(spec, path, 1, len(rows))


def by_judge(spec: StreamSpec, rows: Sequence[Row]) -> list[Outcome]:
    found: list[Outcome] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        for row in rows:
            path.write_bytes(csv_text(spec, [row]))
            read = read_stream(spec, path)
            assert read.malformed + len(read.readings) == 1
            found += [Taken.of(one.key, one.stime, one.values) for one in read.readings] or [
                MALFORMED
            ]
    return found


def _posted(kind: str, encoded: Callable[[StreamSpec, Sequence[Row]], bytes]) -> Any:
    def read(spec: StreamSpec, rows: Sequence[Row]) -> list[Outcome]:
        reader = reader_for(of_http(spec), kind, 0)
        assert reader is not None
        content = reader(encoded(spec, rows))
        # Lines of CSV are counted from 1, and the first one is the header.
        parsed = content.parsed
        if content.place == "line" and kind == CSV:
            bad = tuple(replace(one, index=one.index - 2) for one in parsed.bad)
            parsed = replace(parsed, indices=parsed.indices - 2, bad=bad)
        return outcomes(parsed, len(rows))

    return read


def _as_json(_spec: StreamSpec, rows: Sequence[Row]) -> bytes:
    return json.dumps(list(rows)).encode()


def _as_lines(_spec: StreamSpec, rows: Sequence[Row]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


def _as_arrow(_spec: StreamSpec, rows: Sequence[Row]) -> bytes:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    table = pa.table({name: _arrow_column(values) for name, values in columns.items()})
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def _arrow_column(values: Sequence[Any]) -> Any:
    is_long = any(isinstance(value, int) and value >= 2**63 for value in values)
    return pa.array(values, pa.uint64() if is_long else None)


def by_json(spec: StreamSpec, rows: Sequence[Row]) -> list[Outcome]:
    messages = [json.dumps(row).encode() for row in rows]
    return outcomes(JsonReader(of_messages(spec)).parse(messages), len(rows))


def by_json_alone(spec: StreamSpec, rows: Sequence[Row]) -> list[Outcome]:
    """Each message alone, by the definition."""
    reader = JsonReader(of_messages(spec))
    found: list[Outcome] = []
    for row in rows:
        parsed = reader._slow([json.dumps(row).encode()], 0)
        found += outcomes(parsed, 1)
    return found


def by_array(spec: StreamSpec, rows: Sequence[Row]) -> list[Outcome]:
    message = json.dumps(list(rows)).encode()
    return outcomes(JsonArrayReader(of_messages(spec)).parse([message]), len(rows))


def by_columns(spec: StreamSpec, rows: Sequence[Row]) -> list[Outcome]:
    message = json.dumps({name: [row[name] for row in rows] for name in rows[0]}).encode()
    return outcomes(JsonColumnsReader(of_messages(spec)).parse([message]), len(rows))


def by_mqtt(spec: StreamSpec, rows: Sequence[Row]) -> list[Outcome]:
    spec = replace(of_messages(spec), mqtt=MqttSpec("h", 1883, ("lab/#",), "c"))
    payloads = [json.dumps(row).encode() for row in rows]
    messages = [Message("lab/a", payload, len(payload)) for payload in payloads]
    (read,) = MqttReader(spec, None).read(0, messages)
    return outcomes(read.parsed, len(rows))


def by_avro(spec: StreamSpec, rows: Sequence[Row], kinds: Row | None = None) -> list[Outcome]:
    """``kinds``: Avro types by name, in place of those of the values."""
    of_value = {str: "string", int: "long", float: "double", bool: "boolean"}
    types = {name: of_value[type(value)] for name, value in rows[0].items()} | dict(kinds or {})
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    schema = {"type": "record", "name": "R", "fields": fields}
    book = FixedBook({Reference(id=1): SchemaText(json.dumps(schema))})
    messages = []
    for row in rows:
        out = io.BytesIO()
        # Written as they are: fastavro would convert times to the machine's zone.
        plain = {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": f["name"], "type": f["type"]["type"] if isinstance(f["type"], dict)
                 else f["type"]}
                for f in fields
            ],
        }  # fmt: skip
        fastavro.schemaless_writer(out, fastavro.parse_schema(plain), dict(row))
        messages.append(struct.pack(">bI", 0, 1) + out.getvalue())
    parsed = AvroReader(of_messages(spec), book).parse(messages)
    bad = tuple(replace(b, detail=b.detail.removesuffix(" (schema id 1)")) for b in parsed.bad)
    return outcomes(replace(parsed, bad=bad), len(rows))


INPUTS: Final[Mapping[str, Callable[[StreamSpec, Sequence[Row]], list[Outcome]]]] = {
    "file": by_file,
    "json file": by_json_file,
    "json": by_json,
    "json, alone": by_json_alone,
    "json-array": by_array,
    "json-columns": by_columns,
    "avro": by_avro,
    "mqtt": by_mqtt,
    "http json": _posted(JSON, _as_json),
    "http ndjson": _posted(NDJSON[0], _as_lines),
    "http csv": _posted(CSV, csv_text),
    "http arrow": _posted(ARROW, _as_arrow),
    "judge": by_judge,
}


def timed(time: TimeSpec, key: KeySpec | None = None) -> StreamSpec:
    """A stream whose key is column ``k`` and that has no fields but ``v``."""
    return StreamSpec("s", key or KeySpec(column="k"), time, (FieldSpec("v", "v"),))
