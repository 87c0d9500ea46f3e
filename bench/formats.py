"""Cost of reading a topic's formats: parsing alone, no broker, on one core.

    python -m bench.formats [READINGS]

Readings have a key, a time and one or five values. A message has a thousand of them, or one in
Avro. Prints the best of ten rounds.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import fastavro
import orjson

from slackwater.formats.avro.framing import Reference
from slackwater.formats.avro.reader import SchemaText
from slackwater.formats.avro.sources import FixedBook
from slackwater.formats.guarded import reader_of
from slackwater.formats.messages import MessageReader
from slackwater.model.deployment import (
    FieldSpec,
    KeySpec,
    StreamSpec,
    TimeSpec,
    TopicFormat,
    TopicSpec,
)

ROUNDS: Final = 10
ELEMENTS: Final = 1_000
Row = dict[str, Any]


def main() -> None:
    """Print a table, one line for each format and number of fields."""
    readings = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    print("| format | fields | bytes a reading | ns a reading |\n|---|---|---|---|")
    for fields in (1, 5):
        for form, pack in PACKED.items():
            messages = [
                pack([_row(i, fields) for i in range(first, first + ELEMENTS)])
                for first in range(0, readings, ELEMENTS)
            ]
            reader = reader_of(replace(_spec(fields), topic=TopicSpec("lab", form)))
            _show(form, fields, reader, messages, readings)
        schema = _schema(fields)
        book = FixedBook({Reference(id=1): SchemaText(json.dumps(schema))})
        records = [_record(schema, _row(i, fields)) for i in range(readings)]
        _show("avro", fields, reader_of(_spec(fields), book), records, readings)


def _show(
    form: str, fields: int, reader: MessageReader, messages: Sequence[bytes], readings: int
) -> None:
    best = min(_seconds(reader, messages, readings) for _ in range(ROUNDS))
    size = sum(map(len, messages)) / readings
    print(f"| {form} | {fields} | {size:.0f} | {best / readings * 1e9:.0f} |")


def _schema(fields: int) -> Row:
    kinds = {"mote": "string", "at": "long"} | {f"v{f}": "double" for f in range(fields)}
    named = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return {"type": "record", "name": "R", "fields": named}


def _record(schema: Row, row: Row) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, 1))
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def _columns(rows: Sequence[Row]) -> bytes:
    return orjson.dumps({name: [row[name] for row in rows] for name in rows[0]})


PACKED: Final[Mapping[TopicFormat, Callable[[Sequence[Row]], bytes]]] = {
    "json-array": orjson.dumps,
    "json-columns": _columns,
}


def _spec(fields: int) -> StreamSpec:
    return StreamSpec(
        "lab",
        KeySpec(field="mote"),
        TimeSpec(field="at", unit="ms"),
        tuple(FieldSpec(f"v{f}", f"v{f}") for f in range(fields)),
    )


def _row(i: int, fields: int) -> Row:
    values = {f"v{f}": (2_000 + (i + f) % 700) / 100 for f in range(fields)}
    return {"mote": f"m{i % 1_000}", "at": 1458031648545 + i // 100} | values


def _seconds(reader: MessageReader, messages: Sequence[bytes], readings: int) -> float:
    began = time.process_time()
    parsed = reader.parse(messages)
    spent = time.process_time() - began
    assert len(parsed.stimes) == readings, "a reading was lost"
    return spent


if __name__ == "__main__":
    main()
