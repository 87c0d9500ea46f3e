"""Avro messages: each is a reading or malformed, for any bytes and schemas."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from slackwater.codec.avro import fingerprint_of
from slackwater.codec.avro_types import DamageError, long_bytes
from slackwater.formats.avro import reader as reader_module
from slackwater.formats.avro.framing import Framed, Reference
from slackwater.formats.avro.reader import AvroReader, SchemaText
from slackwater.formats.avro.schema import SchemaError, compile_schema, decode
from slackwater.formats.avro.sources import FixedBook
from slackwater.formats.messages import Messages, Parsed
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec

LAB = StreamSpec(
    "lab",
    KeySpec(field="mote"),
    TimeSpec(field="at", unit="ms"),
    (FieldSpec("t", "v.t"), FieldSpec("h", "h")),
)
Json = Any


def record(fields: Mapping[str, Json], name: str = "R") -> dict[str, Json]:
    """The schema of a record."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


PLAIN = record(
    {
        "mote": "string",
        "at": "long",
        "v": record({"t": "double"}, "V"),
        "h": ["null", "int"],
        "note": ["string", "null"],
    }
)
READING = {"mote": "m", "at": 5, "v": {"t": 1.5}, "h": 7, "note": None}


def body(schema: Json, value: Json) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(schema: Json, value: Json, schema_id: int = 1) -> bytes:
    return struct.pack(">bI", 0, schema_id) + body(schema, value)


def reader(*schemas: Json, spec: StreamSpec = LAB, quick: bool = True) -> AvroReader:
    """Return a reader with these schemas by ids from 1 on, and by fingerprints."""
    known = {}
    for schema_id, schema in enumerate(schemas, 1):
        text = SchemaText(json.dumps(schema))
        known[Reference(id=schema_id)] = text
        known[Reference(fingerprint=fingerprint_of(schema))] = text
    made = AvroReader(spec, FixedBook(known))
    if not quick:
        plan = made._plan
        made._plan = lambda found: slow(plan(found))  # type: ignore[assignment]
    return made


def slow(plan: Any) -> Any:
    return plan if isinstance(plan, str) else replace(plan, is_quick=False)


def seen(parsed: Parsed) -> list[Any]:
    """Return per message its time, key and values, or the reason of its refusal."""
    found: dict[int, Any] = {bad.index: bad.detail for bad in parsed.bad}
    for i, at in enumerate(parsed.indices.tolist()):
        values = tuple("" if v[i] != v[i] else float(v[i]).hex() for v in parsed.values)
        found[at] = (int(parsed.stimes[i]), parsed.keys[int(parsed.key_index[i])], values)
    assert parsed.indices.tolist() == sorted(parsed.indices.tolist())
    assert sorted(found) == list(range(len(found)))
    return [found[i] for i in range(len(found))]


def test_a_reading_is_read() -> None:
    parsed = reader(PLAIN).parse([framed(PLAIN, READING)])
    assert seen(parsed) == [(5_000, "m", ((1.5).hex(), (7.0).hex()))]


# Against fastavro, and the two decoders against each other.

LEAF: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
}


@st.composite
def typed(draw: st.DrawFn, depth: int = 0) -> tuple[Json, st.SearchStrategy[Any]]:
    """Return a type and values of it."""
    kinds = [*LEAF, "nullable", "array", "map", "union", "enum", "fixed", "record"]
    kind = draw(st.sampled_from(kinds if depth < 2 else [*LEAF]))
    if kind in LEAF:
        return kind, LEAF[kind]
    name = f"N{draw(st.integers(0, 2**40))}"
    if kind == "enum":
        symbols = [f"S{i}" for i in range(draw(st.integers(1, 4)))]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(1, 9))
        return {"type": "fixed", "name": name, "size": size}, st.binary(
            min_size=size, max_size=size
        )
    if kind == "union":
        return ["int", "string", "null"], st.one_of(LEAF["int"], LEAF["string"], st.none())
    if kind == "record":
        fields = draw(st.lists(typed(depth + 1), max_size=3))
        names = [f"f{i}" for i in range(len(fields))]
        schema = record({n: t for n, (t, _) in zip(names, fields, strict=True)}, name)
        return schema, st.fixed_dictionaries(
            {n: v for n, (_, v) in zip(names, fields, strict=True)}
        )
    inner, values = draw(typed(depth + 1).filter(lambda made: made[0] != "null"))
    if kind == "nullable" and not isinstance(inner, list):
        branches = ["null", inner] if draw(st.booleans()) else [inner, "null"]
        return branches, st.one_of(st.none(), values)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(
            st.text(max_size=3), values, max_size=3
        )
    return {"type": "array", "items": inner}, st.lists(values, max_size=3)


@st.composite
def schema_and_values(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    """Return a record with the declared paths, of any types, and some of its values."""
    extra, at = draw(typed()), draw(st.one_of(typed(), st.just(("long", st.integers(0, 10**13)))))
    mote = draw(st.one_of(typed(), st.just(("string", st.sampled_from(["m", "n", ""])))))
    t, h = draw(typed()), draw(st.one_of(typed(), st.just(("double", st.floats()))))
    schema = record(
        {
            "extra": extra[0],
            "mote": mote[0],
            "at": at[0],
            "v": record({"t": t[0]}, "V"),
            "h": h[0],
        }
    )
    value = st.fixed_dictionaries(
        {
            "extra": extra[1],
            "mote": mote[1],
            "at": at[1],
            "v": st.fixed_dictionaries({"t": t[1]}),
            "h": h[1],
        }
    )
    return schema, draw(st.lists(value, max_size=6))


def is_taken(schema: Json) -> bool:
    """Return whether a schema is accepted; one with an array of items without bytes is not."""
    try:
        compile_schema(json.dumps(schema))
    except SchemaError:
        return False
    return True


@settings(max_examples=200)
@given(schema_and_values(), st.data())
def test_both_decoders_say_the_same_of_sound_and_of_damaged_messages(
    made: tuple[Json, list[Json]], data: st.DataObject
) -> None:
    schema, values = made
    assume(is_taken(schema))
    messages = [framed(schema, value) for value in values]
    for message in list(messages):
        at = data.draw(st.integers(0, len(message) - 1))
        cut = data.draw(st.integers(at, len(message)))
        put = data.draw(st.binary(max_size=12))
        messages.insert(
            data.draw(st.integers(0, len(messages))), message[:at] + put + message[cut:]
        )
    # A changed header may reference another schema, which is not tested here.
    messages = [m if m[:5] == b"\0\0\0\0\1" else b"\0\0\0\0\1" + m for m in messages]
    assert seen(reader(schema).parse(messages)) == seen(reader(schema, quick=False).parse(messages))


@settings(max_examples=200)
@given(schema_and_values())
def test_the_definition_decodes_what_fastavro_does(made: tuple[Json, list[Json]]) -> None:
    schema, values = made
    assume(is_taken(schema))
    compiled, parsed = compile_schema(json.dumps(schema)), fastavro.parse_schema(schema)
    for value in values:
        data = body(schema, value)
        assert same(
            decode(compiled, data, 0), fastavro.schemaless_reader(io.BytesIO(data), parsed, None)
        )


def same(mine: Json, theirs: Json) -> bool:
    """Numbers are text here; arrays, maps, bytes and fixed have no value."""
    if isinstance(mine, dict):
        return mine.keys() == theirs.keys() and all(same(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, list | tuple):
        return isinstance(theirs, list | dict | bytes)
    if isinstance(theirs, bool) or isinstance(mine, bool):
        return mine is theirs
    if isinstance(theirs, int):
        return int(mine) == theirs
    if isinstance(theirs, float):
        return math.isnan(theirs) if mine is None else float(mine) == theirs
    return bool(mine == theirs)


def test_a_clean_batch_takes_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "decode", None)
    messages = [framed(PLAIN, READING | {"h": None if i % 2 else i}) for i in range(20)]
    assert len(reader(PLAIN).parse(messages).stimes) == 20


# Damage and bombs.

SIZE = long_bytes(2**40)
DAMAGED = {
    b"": "ends within the record (schema id 1)",
    b"\x02m": "ends within the record (schema id 1)",
    SIZE + b"m": "1099511627776 bytes where 1 are left (schema id 1)",
    long_bytes(-3) + b"m": "-3 bytes where 1 are left (schema id 1)",
    b"\x02m" + b"\xff" * 11: "a number of more than ten bytes (schema id 1)",
    body(PLAIN, READING) + b"!": "1 bytes too many (schema id 1)",
    body(PLAIN, READING)[:-1] + b"\x08": "branch 4 of a union of 2 (schema id 1)",
    body(PLAIN, READING | {"mote": ""}): "key (schema id 1)",
    body(PLAIN, READING | {"at": 2**62}): "time (schema id 1)",
    body(PLAIN, READING | {"v": {"t": float("inf")}}): "field t (schema id 1)",
}


@pytest.mark.parametrize(("bytes_", "why"), DAMAGED.items(), ids=map(bytes.hex, DAMAGED))
def test_damage_is_refused_with_the_schemas_id_and_its_neighbours_are_read(
    bytes_: bytes, why: str
) -> None:
    good = framed(PLAIN, READING)
    found = seen(reader(PLAIN).parse([good, b"\0\0\0\0\1" + bytes_, good]))
    assert found[1] == why
    assert found[0] == found[2] == (5_000, "m", ((1.5).hex(), (7.0).hex()))


def test_bytes_that_are_no_text_matter_where_they_are_used() -> None:
    sound = framed(PLAIN, READING | {"note": "xx"})
    message = sound.replace(b"\x02m", b"\x02\xff")
    parsed = reader(PLAIN).parse([sound.replace(b"xx", b"\xff\xfe"), message])
    assert seen(parsed) == [(5_000, "m", ((1.5).hex(), (7.0).hex())), "key (schema id 1)"]


def recursive() -> Json:
    return record({"at": "long", "next": ["null", "R"]})


def doubling() -> Json:
    """Each of forty records contains the one before it twice."""
    inner: Json = record({"x": "null"}, "D0")
    for i in range(1, 41):
        inner = record({"a": inner, "b": f"D{i - 1}"}, f"D{i}")
    return inner


def deep() -> Json:
    inner: Json = "int"
    for i in range(80):
        inner = record({"x": inner}, f"E{i}")
    return inner


def costly() -> Json:
    """An item takes a byte and a thousand reads."""
    item = record({f"n{i}": "null" for i in range(1_000)} | {"b": "boolean"}, "I")
    return record({"x": {"type": "array", "items": ["null", record({"item": item}, "J")]}})


def named_by(name: Json) -> Json:
    return PLAIN | {"fields": [*PLAIN["fields"], {"name": name, "type": "null"}]}


def marked() -> Json:
    """A schema that pretends to have been parsed by fastavro."""
    strange = {"type": "enum", "name": "E", "symbols": [1, "a", {}]}
    return record({"mote": strange}) | {"__fastavro_parsed": True, "__named_schemas": {}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (recursive(), "is recursive in R"),
        (costly(), "items have many fields that take no bytes"),
        (named_by("note"), "has 2 fields 'note', numbers 5 and 6"),
        (named_by(["a", "list"]), "is not an Avro schema"),
        (marked(), "is not an Avro schema"),
        (record({"x": {"type": "fixed", "name": "F", "size": math.inf}}), "is not an Avro schema"),
        (doubling(), "has more than 10000 types"),
        (deep(), "is nested deeper than 64"),
        (record({"x": {"type": "array", "items": "null"}}), "array whose items take no bytes"),
        (record({"x": {"type": "fixed", "name": "F", "size": 2**40}}), "has a fixed of"),
        ({"type": "array", "items": "int"}, "is not the schema of a record but array"),
        (record({"x": "strange"}), "is not an Avro schema"),
        ({"type": "record"}, "is not an Avro schema"),
        ([], "is not the schema of a record"),
        (7, "is not an Avro schema"),
    ],
)
def test_a_schema_that_cannot_be_trusted_is_refused_with_its_messages(
    schema: Json, why: str
) -> None:
    with pytest.raises(SchemaError, match=why):
        compile_schema(json.dumps(schema))
    known = {Reference(id=1): SchemaText(json.dumps(schema))}
    (found,) = seen(AvroReader(LAB, FixedBook(known)).parse([b"\0\0\0\0\1" + bytes(5)]))
    assert found.startswith("schema id 1 ")
    assert why in found


def test_an_array_of_more_items_than_bytes_is_damage() -> None:
    schema = record({"x": {"type": "array", "items": "int"}})
    with pytest.raises(DamageError):
        decode(compile_schema(json.dumps(schema)), long_bytes(2**50) + b"\x01", 0)
    blocks = long_bytes(1) + b"\x02"
    assert decode(compile_schema(json.dumps(schema)), blocks * 1_000 + b"\0", 0) == {"x": []}


def test_an_array_of_wide_records_is_no_costly_one() -> None:
    wide = record({f"n{i}": ["null", "int"] for i in range(100)}, "W")
    nested = record({f"r{i}": record({"x": "int"}, f"X{i}") for i in range(100)}, "N")
    items = {"w": {"type": "array", "items": wide}, "n": {"type": "map", "values": nested}}
    assert decode(compile_schema(json.dumps(record(items))), b"\0\0", 0) == {"w": [], "n": []}


# Framings, evolution, types.


def test_both_framings_are_read_and_what_has_neither_is_refused() -> None:
    single = b"\xc3\x01" + fingerprint_of(PLAIN) + body(PLAIN, READING)
    messages = [framed(PLAIN, READING), single, b"", b"\0\0\0", b'{"mote":"m"}', single[:9]]
    found = seen(reader(PLAIN).parse(messages))
    assert found[0] == found[1]
    assert found[2:] == ["neither of the two framings of Avro"] * 4


NEWER = record(
    {
        "site": "string",
        "at": {"type": "long", "logicalType": "timestamp-micros"},
        "h": ["null", "float"],
        "v": record({"t": ["null", "float"], "unit": "string"}, "V"),
        "mote": ["null", "string"],
    }
)


@given(st.lists(st.booleans()))
@example([True, False, True])
def test_the_writers_schema_changes_while_the_stream_runs(which: Sequence[bool]) -> None:
    messages, wanted = [], []
    for i, is_new in enumerate(which):
        if is_new:
            value = {"site": "s", "at": i, "h": None, "v": {"t": i, "unit": "C"}, "mote": "m"}
            messages.append(framed(NEWER, value, 2))
            wanted.append((i, "m", (float(i).hex(), "")))
        else:
            messages.append(framed(PLAIN, READING | {"at": i}))
            wanted.append((i * 1_000, "m", ((1.5).hex(), (7.0).hex())))
    assert seen(reader(PLAIN, NEWER).parse(messages)) == wanted


def test_a_schema_without_the_key_is_refused_with_its_id() -> None:
    schema = record({"at": "long", "h": "double"})
    found = seen(reader(schema).parse([framed(schema, {"at": 1, "h": 2.0})]))
    assert found == ["key (schema id 1)"]


@pytest.mark.parametrize(
    ("kind", "value", "stime"),
    [
        ("long", 1_500, 1_500_000),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_500, 1_500_000),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1_500, 1_500),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_999, 1),
        (["null", {"type": "long", "logicalType": "timestamp-micros"}], 7, 7),
        (["null", "long"], None, None),
        ("double", 1.1, 1_100),
        ("string", "12", 12_000),
        ("boolean", True, None),
        ("bytes", b"12", None),
    ],
)
def test_a_time_is_of_its_logical_type_or_of_the_declared_unit(
    kind: Json, value: Json, stime: int | None
) -> None:
    schema = record({"mote": "string", "at": kind})
    message = b"\0\0\0\0\1\x02m" + body(record({"at": kind}), {"at": value})
    found = seen(reader(schema).parse([message]))
    assert found == [(stime, "m", ("", "")) if stime is not None else "time (schema id 1)"]


@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        ("string", "m", "m"),
        ("long", -7, "-7"),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", "b"),
        (["null", "string"], None, None),
        ("double", 1.0, None),
        ("boolean", True, None),
        ("bytes", b"m", None),
    ],
)
def test_a_key_is_text_a_symbol_or_a_whole_number(kind: Json, value: Json, key: str | None) -> None:
    schema = record({"mote": kind, "at": "long"})
    found = seen(reader(schema).parse([framed(schema, {"mote": value, "at": 1})]))
    assert found == [(1_000, key, ("", "")) if key is not None else "key (schema id 1)"]


@pytest.mark.parametrize(
    ("kind", "value", "number"),
    [
        ("int", 3, 3.0),
        ("long", 2**53 + 1, float(2**53)),
        ("float", 0.5, 0.5),
        ("string", " 2.5 ", 2.5),
        ("string", "x", None),
        ("boolean", True, None),
        ({"type": "array", "items": "int"}, [1], None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, b"\x01", None),
    ],
)
def test_a_value_is_a_number_or_a_text_of_one(
    kind: Json, value: Json, number: float | None
) -> None:
    plain = kind if isinstance(kind, str) or kind["type"] == "array" else kind["type"]
    declared, written = record({"mote": "string", "at": "long", "h": kind}), record({"h": plain})
    message = b"\0\0\0\0\1\x02m\x02" + body(written, {"h": value})
    (found,) = seen(reader(declared).parse([message]))
    if number is None:
        assert found.startswith("field h")
    else:
        assert found == (1_000, "m", ("", number.hex()))


def test_a_declared_key_needs_none_in_the_schema() -> None:
    spec = replace(LAB, key=KeySpec(value="room"), fields=())
    schema = record({"at": "int"})
    parsed = reader(schema, spec=spec).parse([framed(schema, {"at": i}) for i in range(3)])
    assert seen(parsed) == [(i * 1_000, "room", ()) for i in range(3)]


def test_names_of_other_schemas_are_known() -> None:
    other = json.dumps(record({"t": "double"}, "site.V"))
    schema = json.dumps(record({"mote": "string", "at": "long", "v": "site.V"}))
    known = {Reference(id=1): SchemaText(schema, (other,))}
    message = b"\0\0\0\0\1" + b"\x02m" + long_bytes(3) + struct.pack("<d", 1.5)
    assert seen(AvroReader(LAB, FixedBook(known)).parse([message])) == [
        (3_000, "m", ((1.5).hex(), ""))
    ]


@given(st.lists(st.tuples(st.binary(max_size=9), st.sampled_from([0, 7, 5_000])), max_size=9))
@example([(b"a", 0), (b"", 5_000), (b"bc", 3), (b"d", 0)])
def test_messages_anywhere_in_memory_are_framed_like_bytes(parts: list[tuple[bytes, int]]) -> None:
    memory = np.frombuffer(b"".join(m + b"!" * gap for m, gap in parts) + b"!", np.uint8)
    sizes = np.array([len(m) for m, _ in parts], np.int64)
    strides = sizes + np.array([gap for _, gap in parts], np.int64)
    starts = memory.ctypes.data + np.cumsum(strides) - strides
    for order in (slice(None), slice(None, None, -1)):
        messages = Messages(starts[order], (starts + sizes)[order], memory)
        framed = Framed.of(messages)
        found = [
            framed.data[a:b].tobytes() for a, b in zip(framed.starts, framed.ends, strict=True)
        ]
        assert found == list(messages)
        assert framed.by_schema().keys() == Framed.of(list(messages)).by_schema().keys()


def test_a_batch_in_the_clients_memory_is_read_like_bytes() -> None:
    batch = [framed(PLAIN, READING | {"at": i}) for i in range(9)] + [b"", b"\0"]
    assert seen(reader(PLAIN).parse(Messages.of(batch))) == seen(reader(PLAIN).parse(batch))


def test_no_messages_are_no_readings() -> None:
    assert len(reader(PLAIN).parse([]).stimes) == 0
