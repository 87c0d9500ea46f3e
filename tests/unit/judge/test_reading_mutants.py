"""The judge's readers agree with the proxy's, and reveal every error that is planted in them.

Each mutant of ``reading_mutants`` must make some input of its kind differ. Without a mutant no
input differs. Comparisons are iterators, so the first difference ends that of a mutant.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.fuzz import grammar, near
from tests.fuzz.judge import judge_file
from tests.unit.judge.reading_mutants import (
    AVRO,
    FILES,
    JSON_FILES,
    MESSAGES,
    MQTT,
    SENML,
    TABLES,
    ReadingMutant,
    planted,
)

from slackwater.formats.avro.framing import Reference
from slackwater.formats.avro.reader import AvroReader, SchemaText
from slackwater.formats.avro.sources import FixedBook
from slackwater.formats.json_array import JsonArrayReader
from slackwater.formats.json_columns import JsonColumnsReader
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Parsed
from slackwater.judge.readers.cells import Unusable
from slackwater.judge.readers.messages import (
    JsonText,
    Members,
    Outcome,
    UnusableElement,
    Watermark,
    parse,
    read_message,
    read_object,
)
from slackwater.judge.readings import FileReading
from slackwater.model.deployment import (
    CsvSpec,
    FieldSpec,
    HttpInputSpec,
    KeySpec,
    StreamSpec,
    TimeSpec,
)
from slackwater.model.errors import DeploymentError
from slackwater.model.mqtt import MqttSpec
from slackwater.proxy.http.bodies import JSON, NDJSON, reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML_TYPE
from slackwater.proxy.http.tables import ARROW
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.mqtt.messages import MqttReader
from slackwater.proxy.requests import UnusableBody

Findings = Iterator[str]

# Files.

FIELDS = (FieldSpec("x", "x"), FieldSpec("y", "y"))
SECONDS = StreamSpec("s", KeySpec(column="k"), TimeSpec(("t",), unit="s"), FIELDS)
MILLIS = replace(SECONDS, time=TimeSpec(("t",), unit="ms"))
DECLARED = replace(
    SECONDS, missing=("N/A", "-999"), values=(("on", 1.0), ("true", 1.0), ("false", 0.0))
)
BELOW = replace(SECONDS, csv=CsvSpec(skip_lines=2))
STATES = ("N/A", "n/a", "on", "ON", "-999.0", "-999", "TRUE", "false", "5")
NANOS = replace(SECONDS, time=TimeSpec(("t",), unit="ns"))
ISO = replace(SECONDS, time=TimeSpec(("t",), unit="iso"))
ROAD = replace(
    SECONDS,
    time=TimeSpec(("day", "clock"), format="%d/%m/%Y %H.%M.%S"),
    csv=CsvSpec(";", ","),
)
BERLIN = replace(
    SECONDS, time=TimeSpec(("t",), format="%Y-%m-%d %H:%M", zone="Europe/Berlin", fold="second")
)
MEANT = replace(
    SECONDS,
    missing=("N/A", "-999.5"),
    values=(("on", 1.0), ("true", 2.0), ("false", 3.0)),
    csv=CsvSpec(skip_lines=2),
)
USUAL = [f"{i * 10},{'ab'[i % 2]},{i}.5,{-i}" for i in range(60)]
FILES_READ: tuple[tuple[StreamSpec, str], ...] = (
    (SECONDS, "\n".join(["t,k,x,y", *USUAL])),
    (SECONDS, "\n".join(["t,k,x,y", *USUAL, "700,c,1"])),
    (SECONDS, "\ufefft,k,x,y\n1,a,1,2\n"),
    (SECONDS, "t,k,x,y\r1,a,1,2\r2,a,3,4\r3,a,5,6\r4,a,7,8"),
    (SECONDS, "t,k,x,y,x\n1,a,1,2,3\n"),
    (
        SECONDS,
        "t,k,x,y\n1,a,1,2,3\n2,a,1,2,\n3,a,1\n\n , ,,\n\u00a0,,,\n4,,1,2\n5, ,1,2\n6,a,1,bad\n",
    ),
    (SECONDS, 't,k,x,y\n1,"a,b",1,2\n2,"a\nb",1,2\n3,"a",1,2\n4,"a""b",1,2\n5,"a,1,2\n6,a,1,2\n'),
    (
        SECONDS,
        "\n".join(["t,k,x,y", *(f"{i}, a ,\t{i} ,{i}" for i in range(40)), "41,a\u00a0,1,1"]),
    ),
    (
        SECONDS,
        "\n".join(["t,k,x,y", *(f"{i}.9999999,a,1,nan" for i in range(40)), "-0.0000001,a,1,2"]),
    ),
    (SECONDS, "t,k,x,y\n1.9999999,a,1,\n1e3,a,1,2\n-1.0000001,a,NULL,2\n1,a,1,2"),
    (SECONDS, "t,k,x,y\n1,a,1e400,2\n2,a,-1E-5,2\n3,a,1e,2\n4,a,0x1,2\n5,a,inf,2\n6,a,1_0,2\n"),
    (BELOW, '# of the logger\n"\nt,k,x,y\n1,a,1,2\n2,a,3,4\n'),
    (DECLARED, "\n".join(["t,k,x,y", *(f"{i},a,{STATES[i % 9]},{i}" for i in range(45))])),
    (DECLARED, "t,k,x,y\n1,a,On,n/A\n2,a,off,1\n3,a,true,-999\n4,a,-999.00,2\n"),
    (DECLARED, "\n".join(["t,k,x,y", *(f"{i},a,{-999 * (i % 2)},{i}" for i in range(45))])),
    (MILLIS, "\n".join(["t,k,x,y", *(f"{1_700_000_000_000 + i},a,{i},{i}" for i in range(40))])),
    (ISO, "\n".join(["t,k,x,y", *(f"2024-02-29T12:{i:02}:00+02:00,a,1,2" for i in range(40))])),
    (ISO, "t,k,x,y\n2024-02-29T12:00:00.1234567-05:30,a,1,2\n2023-02-29,a,1,2\n2024-02-29,a,1,2\n"),
    (
        ROAD,
        "\n".join(
            [
                "day;clock;k;x;y",
                *(f"{1 + i % 12:02}/03/2004;18.00.{i:02};a;{i},25;-0,5" for i in range(40)),
            ]
        ),
    ),
    (ROAD, "day;clock;k;x;y\n31/02/2004;18.00.00;a;1,5;2\n9/3/2004;1.2.3;a;1,5;1.5\n"),
    (ROAD, "\n".join(["day;clock;k;x;y", *["31/04/2004;18.00.00;a;1,5;2"] * 40])),
    (
        BERLIN,
        "\n".join(["t,k,x,y", *(f"2024-07-{1 + i % 31:02} 12:00,a,1,2" for i in range(40))]),
    ),
    (NANOS, "\n".join(["t,k,x,y", *(f"{1_500 * (i - 20)},a,1,2" for i in range(40))])),
    (MEANT, "\n".join(["a", '"', "t,k,x,y", *(f"{i},a,oN,n/a" for i in range(40)), *USUAL])),
    (
        replace(MEANT, fields=(FieldSpec("x", "x"), FieldSpec("y", "y", is_text=True))),
        "\n".join(
            ["1", "2", "t,k,x,y", *(f"{i},a,1,{'ok' if i % 2 else ' on '}" for i in range(40))]
        ),
    ),
    (MEANT, "1\n2\nt,k,x,y\n1,a,-999.50,-9995e-1\n2,a,True,off\n3,a,-999,false\n"),
    (BERLIN, "t,k,x,y\n2024-10-27 02:30,a,1,2\n2024-03-31 02:30,a,1,2\n2024-07-01 12:00,a,1,2\n"),
)


def write(folder: Path, i: int, spec: StreamSpec, text: str) -> Path:
    path = folder / f"{i}.csv"
    path.write_bytes(text.encode())
    return path


def in_files(folder: Path) -> Findings:
    """Compare all files, in pieces of three sizes, and archives of two members."""
    given = [(spec, write(folder, i, spec, text)) for i, (spec, text) in enumerate(FILES_READ)]
    latin = folder / "latin.csv"
    latin.write_bytes("t,k,x,y\n1,Zürich,1,2\n2,b,1,2\n".encode("latin-1"))
    archive = folder / "x.csv.gz"
    archive.write_bytes(gzip.compress(b"t,k,x,y\n1,a,1,2\n") + gzip.compress(b"2,a,3,4\n"))
    given += [(SECONDS, latin), (SECONDS, archive)]
    yield from _compared(given, (16, 300, 1 << 20))
    for seed in range(14):
        file = grammar.file(seed, 300)
        path = folder / "fuzzed.csv"
        path.write_bytes(file.data)
        yield from judge_file(file.spec, path, file.piece_bytes)


def _compared(given: Sequence[tuple[StreamSpec, Path]], sizes: Sequence[int]) -> Findings:
    for spec, path in given:
        for piece_bytes in sizes:
            try:
                found = judge_file(spec, path, piece_bytes)
            except Exception as error:  # noqa: BLE001 -- one of the two refuses the file
                found = [] if _both_refuse(spec, path, error) else [repr(error)]
            yield from found


def in_json_files(folder: Path) -> Findings:
    """Compare files of JSON, lines and arrays."""
    one, two = OF_FLAT[0], OF_FLAT[9]
    texts = (
        f"{one}\r\n\n{two}\n{OF_FLAT[7]}\n17\n{one}",
        f"\n [{one},\n{two}, [1, 2],{OF_FLAT[7]}]\n",
        "[ ]",
        f"[{one}]\n[{two}]",
        f"[{one},{two}",
    )
    given = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.json"
        path.write_text(text, newline="")
        given.append((FLAT, path))
    return _compared(given, (16, 1 << 20))


def _both_refuse(spec: StreamSpec, path: Path, error: Exception) -> bool:
    from slackwater.formats.readingsfile import open_readings
    from slackwater.judge.readers.files import read_stream

    if not isinstance(error, DeploymentError):
        return False
    refused = 0
    for read in (lambda: read_stream(spec, path), lambda: list(open_readings(spec, path).pieces())):
        try:
            read()
        except DeploymentError:
            refused += 1
    return refused == 2


# Messages.

FLAT = StreamSpec("s", KeySpec(field="k"), TimeSpec(field="at", unit="s"), FIELDS)
DEEP = replace(FLAT, fields=(FieldSpec("x", "v.x"), FieldSpec("y", "v.w.y")))
OF_FLAT: tuple[str, ...] = (
    '{"k": "a", "at": 1, "x": 1.5, "y": null}',
    '{"k": "a", "at": 2, "x": "2.5"}',
    '{"k": " b ", "at": 3, "x": "nan", "y": ""}',
    '{"k": -0, "at": 4, "x": true}',
    '{"k": 17, "at": 5.9999999, "y": 1e400}',
    '{"k": "a", "at": "6.5", "x": [1]}',
    '{"k": "a", "at": 7, "x": 1, "x": 2}',
    '{"boundary": 8}',
    '{"boundary": 8, "k": "a", "at": 9}',
    '{"k": "a},{b", "at": 10, "x": 1}',
    '{"k": "\\u0061\\ud83d\\ude00", "at": 11}',
    '{"k": "\\ud83d", "at": 12}',
    '{"k": "a", "at": 1e3, "x": 01}',
    '{"k": "a", "at": 1e-30, "x": 0.1}',
    '{"k": "a", "at": 0.' + "0" * 45 + '1e45, "x": 0.1}',
    '{"k": "a", "at": 13, "z": ' + "[" * 70 + "]" * 70 + "}",
    '{"k": "a", "at": 14, "z": "' + "z" * (1 << 20) + '"}',
    "17",
    "[]",
    '{"k": "a", "at": 15',
)
OF_COLUMNS: tuple[str, ...] = (
    '{"k": "a", "at": [1, 2, 3], "x": [1, null, "3"], "y": 5}',
    '{"k": ["a", " b", ""], "at": [1, 2.9999999, 3], "x": 1}',
    '{"k": ["a", "b"], "at": [1, 2, 3], "x": 1}',
    '{"k": "a", "at": [1, 2], "at": [3, 4], "x": 1}',
    '{"k": "a", "at": 1, "x": 1}',
    '{"boundary": 8}',
    '{"k": "a", "at": [], "x": []}',
)
PATHS = replace(FLAT, fields=(FieldSpec("x", '"v.x"[1]'), FieldSpec("y", 'm[0]."a\\\\\\"b".y')))
OF_PATHS: tuple[str, ...] = (
    '{"k": "a", "at": 1, "v.x": [1, 2], "m": [{"a\\\\\\"b": {"y": 5}}]}',
    '{"k": "a", "at": 2, "v.x": [1], "v": {"x": [7, 8]}, "m": {"0": 1}}',
    '{"k": "a", "at": 3, "v.x": 1, "m": []}',
)
MEANT_FLAT = replace(FLAT, missing=MEANT.missing, values=MEANT.values)
OF_MEANT: tuple[str, ...] = (
    '{"k": "a", "at": 1, "x": true, "y": false}',
    '{"k": "a", "at": 2, "x": "ON", "y": "n/a"}',
    '{"k": "a", "at": 3, "x": -999.5, "y": "-999.50"}',
    '{"k": "a", "at": 4, "x": "off", "y": NaN}',
    '\0\0\0\0\x11{"k": "a", "at": 5, "x": 1, "y": -999}',
)
OF_DEEP: tuple[str, ...] = (
    '{"k": "a", "at": 1, "v": {"x": 1, "w": {"y": 2}}}',
    '{"k": "a", "at": 1, "v": {"x": 1, "w": 2}}',
    '{"k": "a", "at": 1, "v": 5}',
    '{"k": "a", "at": 1, "v": {"x": 1, "w": {"y": 2}}, "v": {"x": 3}}',
)


def seen(parsed: Parsed, n: int) -> list[list[Any]]:
    """Return per message what was read of its elements, in their order."""
    found: list[list[tuple[int, Any]]] = [[] for _ in range(n)]
    elements = parsed.elements

    def put(at: int, outcome: Any) -> None:
        if elements is None:
            found[at].append((0, outcome))
        else:
            found[int(elements.messages[at])].append((int(elements.indices[at]), outcome))

    for bad in parsed.bad:
        put(bad.index, "malformed")
    for at, watermark in parsed.boundaries:
        put(at, watermark)
    columns = [column.tolist() for column in parsed.values]
    for i, at in enumerate(parsed.indices.tolist()):
        key = parsed.keys[int(parsed.key_index[i])]
        put(at, (int(parsed.stimes[i]), key, repr([column[i] for column in columns])))
    return [[outcome for _, outcome in sorted(some, key=lambda one: one[0])] for some in found]


def judged(outcome: Outcome) -> Any:
    match outcome:
        case FileReading(stime, key, values):
            return (stime, key, repr([math.nan if v is None else v for v in values]))
        case Watermark(stime):
            return stime
        case UnusableElement():
            return "malformed"


def by_judge(spec: StreamSpec, form: str, message: bytes) -> list[Any]:
    try:
        return [judged(one) for one in read_message(spec, form, message)]
    except Unusable:
        return ["malformed"]


def different(name: str, read: Sequence[Any], wanted: Sequence[Any]) -> Findings:
    return (
        f"{name}[{i}]: {a} is {b}"
        for i, (a, b) in enumerate(zip(read, wanted, strict=True))
        if a != b
    )


def batches() -> Iterator[tuple[StreamSpec, str, list[bytes]]]:
    flat, deep, columns = (
        [one.encode() for one in some] for some in (OF_FLAT, OF_DEEP, OF_COLUMNS)
    )
    good = [b'{"k": "%d", "at": %d, "x": %d.5, "y": 1}' % (i % 3, i, i) for i in range(40)]
    texts = [
        b'{"k": "a", "at": "%d", "x": %s, "y": 1}' % (i, b"null" if i else b'"1"')
        for i in range(40)
    ]
    utf8 = [b'{"k": "\xff", "at": 1}', b'{"k": "a", "at": 2, "x": 1}']
    for some in (flat, good + flat, texts, utf8, [flat[0]], [flat[1]]):
        yield FLAT, "json", some
        yield (
            FLAT,
            "json-array",
            [b"[%b]" % b", ".join(some), b"[%b,17]" % some[0], b"[%b]" % some[0]],
        )
    yield DEEP, "json", deep
    yield PATHS, "json", [message.encode() for message in OF_PATHS]
    meant = [message.encode() for message in OF_MEANT]
    for some in (meant, [meant[1]] * 30, meant[:1]):
        yield MEANT_FLAT, "json", some
    yield MEANT_FLAT, "json-array", [b"[%b]" % b",".join(meant[:4])]
    yield FLAT, "json-columns", columns
    yield FLAT, "json-columns", columns[:1] * 2
    for seed in range(len(near.STREAMS)):
        fuzzed = near.messages(seed, 200)
        yield fuzzed.spec, "json", fuzzed.messages
        fuzzed = near.columns(seed, 60)
        yield fuzzed.spec, "json-columns", fuzzed.messages


READERS: dict[str, Any] = {
    "json": JsonReader,
    "json-array": JsonArrayReader,
    "json-columns": JsonColumnsReader,
}


def in_messages(_: Path) -> Findings:
    """Compare batches by every way of reading them; bodies and MQTT read the same objects."""
    for spec, form, messages in batches():
        wanted = [by_judge(spec, form, message) for message in messages]
        reader = READERS[form](spec)
        for way in ("parse", "parse_without_scanner"):
            if hasattr(reader, way):
                read = seen(getattr(reader, way)(messages), len(messages))
                yield from different(f"{form}, {way}", read, wanted)
    flat = [
        message.encode() for message in OF_FLAT if message[0] == "{" and "boundary" not in message
    ]
    flat = [message for message in flat if _is_json(message)]
    posted = replace(FLAT, http=HttpInputSpec())
    wanted = [by_judge(FLAT, "json", message) for message in flat]
    for kind, body in ((JSON, b"[%b]" % b",".join(flat)), (NDJSON[0], b"\n".join(flat))):
        read_body = reader_for(posted, kind, 0)
        assert read_body is not None
        try:
            content = read_body(body)
        except UnusableBody as error:
            yield f"{kind}: {error}"
        else:
            yield from different(kind, seen(content.parsed, len(flat)), wanted)


def _is_json(message: bytes) -> bool:
    try:
        parse(message)
    except Unusable:
        return False
    return True


# MQTT.


def in_mqtt(_: Path) -> Findings:
    """Compare messages whose key is a level of the topic."""
    spec = replace(FLAT, key=KeySpec(level=2), mqtt=MqttSpec("h", 1883, ("lab/#",), "c"))
    topics = ("lab/a", "lab/ b /x", "lab", "lab//x", "lab/c")
    payloads = [b'{"at": %d, "x": 1}' % i for i in range(len(topics))]
    (read,) = MqttReader(spec, None).read(
        0, [Message(topic, one, len(one)) for topic, one in zip(topics, payloads, strict=True)]
    )
    wanted = []
    for topic, payload in zip(topics, payloads, strict=True):
        level = (topic.split("/")[1:2] or [""])[0].strip()
        keyed = replace(spec, key=KeySpec(value=level or "-"))
        wanted.append(by_judge(keyed, "json", payload) if level else ["malformed"])
    return different("mqtt", seen(read.parsed, len(topics)), wanted)


# Avro, decoded by another library.


def plain(value: Any, kind: Any) -> Any:
    """Return a value of Avro as one of JSON; ``kind``: its type without null."""
    if isinstance(value, dict):
        return Members(
            (field["name"], plain(value[field["name"]], _without_null(field["type"])))
            for field in kind["fields"]
        )
    if isinstance(value, bool | bytes):
        return [value]
    if isinstance(value, float):
        return None if math.isnan(value) else JsonText(repr(value).replace("inf", "1e999"))
    return JsonText(str(value)) if isinstance(value, int) else value


def _without_null(kind: Any) -> Any:
    return next(one for one in kind if one != "null") if isinstance(kind, list) else kind


def _physical(kind: Any) -> Any:
    """Return a type without logical types, which fastavro would convert to Python's times."""
    if isinstance(kind, dict):
        return {k: _physical(v) for k, v in kind.items() if k != "logicalType"}
    return [_physical(one) for one in kind] if isinstance(kind, list) else kind


def avro(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


MOTES = {"type": "enum", "name": "E", "symbols": ["a", "b", "c"]}
SCHEMAS: tuple[tuple[str, dict[str, Any], list[dict[str, Any]]], ...] = (
    (
        "s",
        avro({"k": "string", "at": "long", "x": ["null", "double"], "y": "int"}),
        [
            {"k": f" {i % 3}", "at": i - 9, "x": None if i % 4 else i / 8, "y": -i}
            for i in range(40)
        ],
    ),
    (
        "s",
        avro({"k": MOTES, "at": "string", "x": "float", "y": ["string", "null"]}),
        [{"k": "abc"[i % 3], "at": f"{i}.5", "x": i / 8, "y": "7"} for i in range(40)],
    ),
    (
        "s",
        avro(
            {"k": "long", "at": {"type": "long", "logicalType": "timestamp-millis"}, "x": "double"}
        ),
        [{"k": i % 3, "at": 1_700_000_000_000 + i, "x": math.nan} for i in range(40)],
    ),
    (
        "s",
        avro(
            {"k": "long", "at": {"type": "long", "logicalType": "timestamp-nanos"}, "x": "double"}
        ),
        [{"k": i % 3, "at": 1_700_000_000_000_000_999 + i, "x": math.inf} for i in range(10)],
    ),
)
UNITS = {"timestamp-millis": ("ms", 0), "timestamp-nanos": ("us", 3)}


def in_avro(_: Path) -> Findings:
    """Compare messages of each schema, whole and with a byte too many."""
    for unit, schema, rows in SCHEMAS:
        physical = fastavro.parse_schema(_physical(schema))
        bodies = []
        for row in rows:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, physical, row)
            bodies.append(out.getvalue())
        messages = [struct.pack(">bI", 0, 1) + body for body in bodies]
        messages.append(messages[0] + b"\0")
        logical = schema["fields"][1]["type"]
        spec = replace(FLAT, time=TimeSpec(field="at", unit=unit))  # type: ignore[arg-type]
        shift = 0
        if isinstance(logical, dict):
            of_schema, shift = UNITS[logical["logicalType"]]
            spec = replace(spec, time=TimeSpec(field="at", unit=of_schema))  # type: ignore[arg-type]
        wanted = []
        for body in bodies:
            value = plain(fastavro.schemaless_reader(io.BytesIO(body), physical, None), schema)
            if shift:  # nanoseconds, cut to microseconds
                value = Members(
                    (n, JsonText(str(int(v.text) // 10**shift)) if n == "at" else v)
                    for n, v in value
                )
            wanted.append([judged(read_object(spec, value))])
        wanted.append(["malformed"])
        book = FixedBook({Reference(id=1): SchemaText(json.dumps(schema))})
        read = AvroReader(replace(FLAT, time=TimeSpec(field="at", unit="s")), book).parse(messages)
        yield from different("avro", seen(read, len(messages)), wanted)


# Arrow.


def arrow(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def in_arrow(_: Path) -> Findings:
    """Compare tables of each type of time, and bodies that are divided wrongly by their texts."""
    ns = [0, 1_999, -1, 1_700_000_000_123_456_789, None]
    values = [1.5, math.nan, None, math.inf, -2.0]
    times: list[tuple[Any, list[int | None]]] = [
        (pa.array(ns, pa.timestamp("ns")), [None if t is None else t // 1_000 for t in ns]),
        (pa.array([1, 2, None, -4, 5], pa.timestamp("ms")), [1_000, 2_000, None, -4_000, 5_000]),
        (
            pa.array([1, 2, None, -4, 5], pa.int64()),
            [1_000_000, 2_000_000, None, -4_000_000, 5_000_000],
        ),
        (
            pa.array([1, 2**63, None, 4, 5], pa.uint64()),
            [1_000_000, None, None, 4_000_000, 5_000_000],
        ),
        (pa.array(["1.5", " 2 ", None, "x", "5"]), [1_500_000, 2_000_000, None, None, 5_000_000]),
    ]
    posted = replace(SECONDS, http=HttpInputSpec(), fields=(FieldSpec("x", "x"),))
    read = reader_for(posted, ARROW, 0)
    assert read is not None
    for column, stimes in times:
        table = pa.table({"k": [" a", "b ", "c", "a", ""], "t": column, "x": pa.array(values)})
        wanted = []
        for key, stime, value in zip("abca", stimes, values, strict=False):
            is_good = stime is not None and value != math.inf
            shown = repr([math.nan if value is None else value])
            wanted.append([(stime, key, shown)] if is_good else ["malformed"])
        yield from different(
            str(column.type), seen(read(arrow(table)).parsed, 5), [*wanted, ["malformed"]]
        )
    twice = pa.table([["a"], [1], [1.0], [2.0]], names=["k", "t", "x", "x"])
    try:
        read(arrow(twice))
        yield "two columns x were read"
    except UnusableBody:
        pass
    except Exception as error:  # noqa: BLE001 -- an error of the reader
        yield repr(error)
    texts = b'[{"k": "a},{b", "at": 1, "x": 1, "y": 2}, {"k": "c", "at": 2, "x": 1, "y": 2}]'
    as_json = reader_for(replace(FLAT, http=HttpInputSpec()), JSON, 0)
    assert as_json is not None
    divided = seen(as_json(texts).parsed, len(as_json(texts).numbers))
    wanted = [[judged(one)] for one in read_message(FLAT, "json-array", texts)]
    if divided != wanted:
        yield f"{divided} is {wanted}"


# SenML, resolved record by record (RFC 8428, 4.6).

NOW_US = 1_700_000_000_000_001
PACKS: tuple[str, ...] = (
    '[{"bn": "a:", "bt": 1e9, "n": "x", "v": 1.5}, {"n": "y", "v": 2}, {"n": "x", "t": 1, "v": 3}]',
    '[{"bn": "b/", "bt": 1e9}, {"n": "x", "t": 19e-7, "v": 4}, {"n": "x", "t": 19e-7, "v": 5}]',
    '[{"bn": "c", "bv": 20.5, "n": "/x", "v": 1}, {"n": "/x", "t": -0.5}, {"n": ":y", "v": -0.25}]',
    '[{"bn": "d/x", "v": 1, "t": -1.0000001}, {"n": "z", "v": 1}, {"bn": "", "n": "e:y", "v": 7}]',
    '[{"bn": "f/", "bt": 1e9, "n": "x", "v": 1}, {"bn": 5, "n": "x", "v": 2}, {"n": "x", "v": 3}]',
)


def resolved(records: list[dict[str, Any]]) -> list[Any]:
    """Return the readings of a pack: fields of one key and time, each once; and malformed ones."""
    found: list[tuple[str, int, dict[str, float]]] = []
    base: dict[str, Any] = {"bn": "", "bt": Decimal(0)}
    for i, record in enumerate(records):
        base |= {name: value for name, value in record.items() if name in ("bn", "bt", "bv")}
        if not isinstance(base["bn"], str):
            return [*map(_as_row, found), *["malformed"] * (len(records) - i)]
        key, separator, name = _at_last(base["bn"] + record.get("n", ""))
        if not separator or name not in ("x", "y"):
            continue
        at = base["bt"] + record.get("t", 0)
        us = int((at * 1_000_000).to_integral_value(ROUND_FLOOR))
        stime = us if at >= 2**28 else us + NOW_US
        value = float(base.get("bv", 0) + record.get("v", 0))
        mine = [r for k, t, r in found if (k, t) == (key, stime)][-1:]
        if mine and name not in mine[0]:
            mine[0][name] = value
        else:
            found.append((key, stime, {name: value}))
    return [*map(_as_row, found)]


def _at_last(name: str) -> tuple[str, str, str]:
    place = max(name.rfind(":"), name.rfind("/"))
    return name[:place].rstrip(":/"), name[place : place + 1], name[place + 1 :]


def _as_row(reading: tuple[str, int, dict[str, float]]) -> Any:
    key, stime, values = reading
    return (stime, key, repr([values.get("x", math.nan), values.get("y", math.nan)]))


def in_senml(_: Path) -> Findings:
    """Compare packs; readings are in the order of their first records."""
    read = reader_for(replace(SECONDS, http=HttpInputSpec()), SENML_TYPE, NOW_US)
    assert read is not None
    for pack in PACKS:
        parsed = read(pack.encode()).parsed
        columns = [column.tolist() for column in parsed.values]
        rows: list[Any] = [
            (stime, parsed.keys[code], repr([column[i] for column in columns]))
            for i, (stime, code) in enumerate(
                zip(parsed.stimes.tolist(), parsed.key_index.tolist(), strict=True)
            )
        ]
        wanted = resolved(json.loads(pack, parse_float=Decimal))
        if rows + ["malformed"] * len(parsed.bad) != wanted:
            yield f"{pack}: {rows} and {parsed.bad} are {wanted}"


COMPARISONS = {
    "file": in_files,
    "json file": in_json_files,
    "json": in_messages,
    "mqtt": in_mqtt,
    "avro": in_avro,
    "arrow": in_arrow,
    "senml": in_senml,
}
PLANTED: list[tuple[str, ReadingMutant]] = [
    *(("senml", mutant) for mutant in SENML),
    *(("file", mutant) for mutant in FILES),
    *(("json file", mutant) for mutant in JSON_FILES),
    *(("json", mutant) for mutant in MESSAGES),
    *(("mqtt", mutant) for mutant in MQTT),
    *(("avro", mutant) for mutant in AVRO),
    *(("arrow", mutant) for mutant in TABLES),
]


@pytest.mark.parametrize("kind", COMPARISONS)
def test_the_readers_agree(kind: str, tmp_path: Path) -> None:
    assert list(COMPARISONS[kind](tmp_path)) == []


@pytest.mark.parametrize(("kind", "mutant"), PLANTED, ids=lambda one: getattr(one, "name", one))
def test_an_error_in_a_reader_is_revealed(kind: str, mutant: ReadingMutant, tmp_path: Path) -> None:
    with planted(mutant):
        try:
            found = next(COMPARISONS[kind](tmp_path), None)
        except Exception as error:  # noqa: BLE001 -- a reader that ends with an error is revealed
            found = repr(error)
    assert found, f"not revealed: {mutant.name}"
