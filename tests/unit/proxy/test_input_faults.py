"""The table of docs/reference/input-faults.md holds: each fault in each input, as it is read.

An input is given a sound reading, then one with the fault. A cell of the page is what becomes of
the second one: ``read``, ``missing`` (the value is missing, the others count), ``malformed`` (the
reading is in quarantine alone) or ``refused`` (with all that came with it). ``-``: the input cannot
have the fault.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.formats.test_avro_reader import framed, reader, record

from slackwater.formats.json_array import JsonArrayReader
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Parsed
from slackwater.formats.readingsfile import open_readings
from slackwater.judge.readers.files import read_stream
from slackwater.model.deployment import FieldSpec, HttpInputSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.errors import DeploymentError
from slackwater.model.mqtt import MqttSpec
from slackwater.producer.batches import as_table, encoded, pieces_of
from slackwater.producer.sink import ProducerError
from slackwater.proxy.http.bodies import JSON, reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.http.tables import ARROW, CSV
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.mqtt.messages import MqttReader
from slackwater.proxy.requests import UnusableBody

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "input-faults.md"
ABSENT: Final = object()
GOOD: Final[dict[str, Any]] = {"k": "a", "at": 300_000_000, "x": 1.5, "y": 2.5}
TIMES: Final = TimeSpec(field="at", unit="s")
TOPIC = StreamSpec("s", KeySpec(field="k"), TIMES, (FieldSpec("x", "x"), FieldSpec("y", "y")))
FILE = replace(TOPIC, key=KeySpec(column="k"), time=TimeSpec(("at",), unit="s"))
POSTED = replace(FILE, http=HttpInputSpec())
Row = dict[str, Any]
LONG = "k" * 65_537
OVERRIDES: Final[Mapping[str, Row]] = {
    "a text in a field that is no number": {"x": "on"},
    "a number in quotes": {"x": "7.5"},
    "an empty text, `nan` or `null` as a text": {"x": "nan"},
    "`NaN`": {"x": math.nan},
    "`Infinity`": {"x": math.inf},
    "a null": {"x": None},
    "a field is absent": {"x": ABSENT},
    "`true`": {"x": True},
    "a number beyond the range of a double": {"x": "1e400"},
    "a time that does not parse": {"at": "soon"},
    "the time is absent": {"at": ABSENT},
    "a time after the year 9999": {"at": 10**14},
    "blanks round the key": {"k": "  a "},
    "an empty key, or blanks only": {"k": " "},
    "the key is absent": {"k": ABSENT},
    "a key of more than 65,536 characters": {"k": LONG},
}
"""Faults that are a value of the second reading."""
BYTES: Final[Mapping[str, Mapping[str, bytes]]] = {
    "a declared name occurs twice": {
        "json": b'{"k": "a", "at": 300000000, "x": 1.5, "x": 1.5, "y": 2.5}',
        "senml": b'{"bn": "a/", "bt": 3e8, "n": "x", "v": 1.5, "v": 1.5}',
        "csv": b"k,at,x,y,x\na,300000000,1.5,2.5,1.5\n",
    },
    "bytes that are not UTF-8 in the key": {
        "json": b'{"k": "\xff", "at": 300000000, "x": 1.5, "y": 2.5}',
        "senml": b'{"bn": "\xff/", "bt": 3e8, "n": "x", "v": 1.5}',
        "csv": b"k,at,x,y\na,300000000,1.5,2.5\n\xff,300000000,1.5,2.5\n",
    },
    "it is not of the format": {
        "json": b'{"k": "a", "at": 300000000, "x": ',
        "senml": b'{"bn": "a/", "bt": ',
    },
    "a row with more cells than the header": {
        "csv": b"k,at,x,y\na,300000000,1.5,2.5\na,300000000,1,5,2,5\n"
    },
    "a row with one empty cell more": {
        "csv": b"k,at,x,y\na,300000000,1.5,2.5\na,300000000,1.5,2.5,\n"
    },
    "a row with fewer cells than the header": {
        "csv": b"k,at,x,y\na,300000000,1.5,2.5\na,300000000,1.5\n"
    },
}
"""Faults of form: the second message, element or record, or the table."""


def of_parsed(parsed: Parsed) -> str:
    """Return the outcome of the second of two readings."""
    if parsed.bad:
        return "malformed" if len(parsed.indices) else "refused"
    if len(parsed.indices) != 2:
        return "refused"
    assert parsed.keys[int(parsed.key_index[1])] == "a"
    return "missing" if any(np.isnan(column[1]) for column in parsed.values) else "read"


def rows(change: Row) -> list[Row]:
    faulty = {name: value for name, value in (GOOD | change).items() if value is not ABSENT}
    return [dict(GOOD), faulty]


def as_json(row: Row) -> bytes:
    text = json.dumps({n: v for n, v in row.items() if v != "1e400"}).encode()
    return text[:-1] + b', "x": 1e400}' if "1e400" in row.values() else text


def pair(change: Row | bytes) -> list[bytes]:
    good, faulty = (as_json(row) for row in rows({} if isinstance(change, bytes) else change))
    return [good, change if isinstance(change, bytes) else faulty]


def in_topic(change: Row | bytes) -> str:
    return of_parsed(JsonReader(TOPIC).parse(pair(change)))


def in_array(change: Row | bytes) -> str:
    parsed = JsonArrayReader(TOPIC).parse([b"[" + b", ".join(pair(change)) + b"]"])
    return of_parsed(parsed)


def by_mqtt(change: Row | bytes) -> str:
    spec = replace(TOPIC, mqtt=MqttSpec("h", 1883, ("lab/#",), "c"))
    messages = [Message("lab/a", one, len(one)) for one in pair(change)]
    (found,) = MqttReader(spec, None).read(0, messages)
    return of_parsed(found.parsed)


def posted(kind: str, body: bytes) -> str:
    read = reader_for(POSTED, kind, 0)
    assert read is not None
    try:
        return of_parsed(read(body).parsed)
    except UnusableBody:
        return "refused"


def posted_json(change: Row | bytes) -> str:
    return posted(JSON, b"[" + b", ".join(pair(change)) + b"]")


def pack_of(row: Row) -> list[Row]:
    base = {"bn": f"{row['k']}/"} if "k" in row else {"bn": ""}
    if "at" in row:
        base["bt"] = row["at"]
    names = [name for name in ("x", "y") if name in row]
    return [base, *({"n": name, "v": row[name]} for name in names)]


def posted_senml(change: Row | bytes) -> str:
    """The second reading has another time, since records of one key and time are one reading."""
    good = json.dumps(pack_of(GOOD))[1:-1]
    if isinstance(change, bytes):
        return posted(SENML, f"[{good}, ".encode() + change + b"]")
    faulty = rows({"at": GOOD["at"] + 1} | change)[1]
    body = json.dumps(pack_of(faulty)).replace('"1e400"', "1e400")[1:-1]
    return posted(SENML, f"[{good}, {body}]".encode())


def csv_of(change: Row) -> bytes:
    lines = [
        ",".join("" if row.get(n) is None else str(row[n]) for n in GOOD) for row in rows(change)
    ]
    return "\n".join([",".join(GOOD), *lines, ""]).encode()


def posted_csv(change: Row | bytes) -> str:
    return posted(CSV, change if isinstance(change, bytes) else csv_of(change))


def in_csv_file(change: Row | bytes, folder: Path) -> str:
    return in_file(FILE, folder / "x.csv", change if isinstance(change, bytes) else csv_of(change))


def in_json_file(change: Row | bytes, folder: Path) -> str:
    return in_file(TOPIC, folder / "x.ndjson", b"".join(b"%b\n" % line for line in pair(change)))


def in_file(spec: StreamSpec, path: Path, data: bytes) -> str:
    path.write_bytes(data)
    try:
        (piece,) = open_readings(spec, path).pieces()
    except DeploymentError:
        with pytest.raises(DeploymentError):
            read_stream(spec, path)
        return "refused"
    judged = read_stream(spec, path)
    assert (len(judged.readings), judged.malformed) == (len(piece.lines), len(piece.malformed))
    read = piece.arrived
    bad: Any = piece.malformed
    return of_parsed(Parsed(piece.lines, read.stimes, read.key_index, read.keys, read.values, bad))


def columns_of(change: Row) -> dict[str, list[Any]]:
    """Return columns; one of a text and a number is text, as in a table."""
    found: dict[str, list[Any]] = {}
    for name, sound in GOOD.items():
        given = [row.get(name) for row in rows(change)]
        if isinstance(given[1], str | bool) and not isinstance(sound, str):
            given = [str(one) for one in given] if isinstance(given[1], str) else [False, True]
        found[name] = given
    return found


def posted_arrow(change: Row | bytes) -> str:
    if isinstance(change, bytes):
        return posted(ARROW, change)
    table = pa.table(columns_of(change))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return posted(ARROW, sink.getvalue().to_pybytes())


def by_producer(change: Row | bytes) -> str:
    try:
        return posted(ARROW, encoded(as_table(pieces_of(rows(change)))))  # type: ignore[arg-type]
    except ProducerError:
        return "refused"


def in_avro(change: Row | bytes) -> str:
    """The faulty reading has a schema of its own, as after a change of the writer."""
    kinds: dict[type, Any] = {str: "string", int: "long", float: "double", bool: "boolean"}
    messages, schemas = [], []
    for row in rows(change if isinstance(change, dict) else {}):
        kind = {n: "null" if v is None else kinds[type(v)] for n, v in row.items()}
        schemas.append(record(kind))
        messages.append(framed(schemas[-1], row, len(schemas)))
    if isinstance(change, bytes):
        messages[1] = change
        schemas.append({**schemas[0], "fields": [*schemas[0]["fields"], schemas[0]["fields"][2]]})
    return of_parsed(reader(*schemas, spec=TOPIC).parse(messages))


def avro_bytes(fault: str) -> bytes | None:
    if fault == "a declared name occurs twice":
        return b"\0\0\0\0\3" + bytes(40)
    kinds = {"k": "string", "at": "long", "x": "double", "y": "double"}
    good = framed(record(kinds), GOOD | {"k": "z"})
    if fault == "bytes that are not UTF-8 in the key":
        return good.replace(b"z", b"\xff", 1)
    return good[:-3] if fault == "it is not of the format" else None


def arrow_bytes(fault: str) -> bytes | None:
    if fault == "a declared name occurs twice":
        table = pa.table([["a"], [1], [1.5], [2.5], [1.5]], names=["k", "at", "x", "y", "x"])
    elif fault == "bytes that are not UTF-8 in the key":
        texts = pa.array([b"a", b"\xff"]).view(pa.string())
        table = pa.table({"k": texts, "at": [1, 1], "x": [1.5, 1.5], "y": [2.5, 2.5]})
    elif fault == "it is not of the format":
        return b"\xff\xff\xff\xff\x10\0\0\0"
    else:
        return None
    return encoded(table)


INPUTS: Final[Mapping[str, tuple[str, Callable[..., str]]]] = {
    "JSON topic": ("json", in_topic),
    "json-array": ("json", in_array),
    "Avro": ("avro", in_avro),
    "MQTT": ("json", by_mqtt),
    "HTTP JSON": ("json", posted_json),
    "HTTP SenML": ("senml", posted_senml),
    "HTTP CSV": ("csv", posted_csv),
    "HTTP Arrow": ("arrow", posted_arrow),
    "CSV file": ("csv", in_csv_file),
    "JSON file": ("json", in_json_file),
    "Producer": ("producer", by_producer),
}
SENML_WITHOUT: Final = {"the time is absent", "the key is absent"}


def outcome(fault: str, name: str, folder: Path) -> str:
    family, read = INPUTS[name]
    more = (folder,) if name.endswith(" file") else ()
    if fault in OVERRIDES:
        if name == "HTTP SenML" and fault in SENML_WITHOUT:
            return "-"
        change = OVERRIDES[fault]
        if family in ("avro", "arrow", "producer") and change.get("x") == "1e400":
            return read({"x": "1e400"}, *more)
        return read(change, *more)
    special = {"avro": avro_bytes, "arrow": arrow_bytes}.get(family)
    given = special(fault) if special else BYTES[fault].get(family)
    return "-" if given is None else read(given, *more)


def on_page() -> dict[str, list[str]]:
    """Return the cells of each fault."""
    found = {}
    for line in PAGE.read_text().splitlines():
        fault, *cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == len(INPUTS):
            found[fault.strip("| ")] = [cell.rstrip(" |") for cell in cells]
    return found


def test_the_table_holds(tmp_path: Path) -> None:
    """The message of a failure has the row as it should be."""
    page = on_page()
    assert page.pop("fault", None) == list(INPUTS)
    page = {fault: cells for fault, cells in page.items() if not re.fullmatch("-+", fault)}
    wanted = {
        fault: [outcome(fault, name, tmp_path) for name in INPUTS] for fault in (*OVERRIDES, *BYTES)
    }
    lines = "\n".join(f"| {fault} | {' | '.join(cells)} |" for fault, cells in wanted.items())
    assert page == wanted, f"the rows are:\n{lines}"
