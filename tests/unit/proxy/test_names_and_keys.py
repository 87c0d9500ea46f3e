"""Two rules that hold in every input: a repeated name is refused, keys have no blanks round them.

Each input reads the same reading, once with its key padded and once with a name repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from tests.unit.formats.test_avro_reader import framed, reader, record

from slackwater.formats.csvfile import CsvFile
from slackwater.formats.json_array import JsonArrayReader
from slackwater.formats.json_columns import JsonColumnsReader
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Parsed
from slackwater.model.deployment import FieldSpec, HttpInputSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.errors import DeploymentError
from slackwater.model.mqtt import MqttSpec
from slackwater.producer.batches import encoded, pieces_of
from slackwater.producer.json_messages import messages
from slackwater.producer.sink import ProducerError
from slackwater.proxy.http.bodies import JSON, NDJSON, reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.http.tables import ARROW, CSV
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.mqtt.messages import MqttReader
from slackwater.proxy.requests import UnusableBody

TOPIC = StreamSpec(
    "s", KeySpec(field="k"), TimeSpec(field="at", unit="s"), (FieldSpec("t", "v.t"),)
)
FLAT = replace(TOPIC, fields=(FieldSpec("t", "t"),))
FILE = StreamSpec("s", KeySpec(column="k"), TimeSpec(("at",), unit="s"), (FieldSpec("t", "t"),))
POSTED = replace(FILE, http=HttpInputSpec())
MQTT = replace(FLAT, mqtt=MqttSpec("h", 1883, ("lab/#",), "c"))
BY_LEVEL = replace(MQTT, key=KeySpec(level=2))
PADS = ("", " ", "\t", "\u00a0", "\u2009", "\u3000", "\u0085", "  \u2028 ")
Way = Callable[[str, Path], Parsed]
"""Reads one reading with this key."""


def object_with(key: str) -> bytes:
    return json.dumps({"k": key, "at": 1, "t": 5}, ensure_ascii=False).encode()


def in_topic(key: str, _: Path) -> Parsed:
    return JsonReader(FLAT).parse([object_with(key)])


def without_scanner(key: str, _: Path) -> Parsed:
    return JsonReader(FLAT).parse_without_scanner([object_with(key)])


def by_the_definition(key: str, _: Path) -> Parsed:
    return JsonReader(FLAT)._slow([object_with(key)], 0)


def in_an_array(key: str, _: Path) -> Parsed:
    return JsonArrayReader(FLAT).parse([b"[" + object_with(key) + b"]"])


def in_columns(key: str, _: Path) -> Parsed:
    return JsonColumnsReader(FLAT).parse([orjson.dumps({"k": [key], "at": [1], "t": 5})])


def in_columns_without_scanner(key: str, _: Path) -> Parsed:
    message = orjson.dumps({"k": key, "at": [1], "t": 5})
    return JsonColumnsReader(FLAT).parse_without_scanner([message])


def in_avro(key: str, _: Path) -> Parsed:
    schema = record({"k": "string", "at": "long", "t": "double"})
    return reader(schema, spec=FLAT).parse([framed(schema, {"k": key, "at": 1, "t": 5})])


def in_avro_one_by_one(key: str, _: Path) -> Parsed:
    schema = record({"k": "string", "at": "long", "t": "double"})
    value = {"k": key, "at": 1, "t": 5}
    return reader(schema, spec=FLAT, quick=False).parse([framed(schema, value)])


def by_mqtt(key: str, _: Path) -> Parsed:
    message = object_with(key)
    (found,) = MqttReader(MQTT, None).read(0, [Message("lab/a", message, len(message))])
    return found.parsed


def in_a_level(key: str, _: Path) -> Parsed:
    message = object_with("other")
    (found,) = MqttReader(BY_LEVEL, None).read(0, [Message(f"lab/{key}", message, len(message))])
    return found.parsed


def posted(kind: str, body: bytes) -> Parsed:
    read = reader_for(POSTED, kind, 0)
    assert read is not None
    return read(body).parsed


def posted_json(key: str, _: Path) -> Parsed:
    return posted(JSON, object_with(key))


def posted_lines(key: str, _: Path) -> Parsed:
    return posted(NDJSON[0], object_with(key))


def posted_csv(key: str, _: Path) -> Parsed:
    return posted(CSV, f'k,at,t\n"{key}",1,5\n'.encode())


def posted_arrow(key: str, _: Path) -> Parsed:
    return posted(ARROW, encoded(pieces_of({"k": [key], "at": [1], "t": [5.0]})))


def posted_dictionary(key: str, _: Path) -> Parsed:
    column = pa.array([key]).dictionary_encode()
    table = pa.table({"k": column, "at": [1], "t": [5.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return posted(ARROW, sink.getvalue().to_pybytes())


def by_producer(key: str, _: Path) -> Parsed:
    (message,) = messages(pieces_of({"k": [key], "at": [1], "t": [5]}), "json-columns", 1 << 20)
    return JsonColumnsReader(FLAT).parse([message])


def from_a_file(key: str, folder: Path) -> Parsed:
    path = folder / "x.csv"
    path.write_bytes(f"k,at,t\n{key},1,5\n".encode())
    (piece,) = CsvFile(FILE, path).pieces()
    read = piece.arrived
    return Parsed(piece.lines, read.stimes, read.key_index, read.keys, read.values)


def in_quotes(key: str, folder: Path) -> Parsed:
    path = folder / "x.csv"
    path.write_bytes(f'k,at,t\n"{key}",1,5\n'.encode())
    (piece,) = CsvFile(FILE, path).pieces()
    read = piece.arrived
    return Parsed(piece.lines, read.stimes, read.key_index, read.keys, read.values)


WAYS: tuple[Way, ...] = (
    in_topic, without_scanner, by_the_definition, in_an_array, in_columns,
    in_columns_without_scanner, in_avro, in_avro_one_by_one, by_mqtt, in_a_level, posted_json,
    posted_lines, posted_csv, posted_arrow, posted_dictionary, by_producer, from_a_file, in_quotes,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("key", ["a", "é", "漢", "two words", "\u200bz"])
def test_blanks_round_a_key_are_cut_off_in_every_input(way: Way, key: str, tmp_path: Path) -> None:
    for pad in PADS:
        for padded in (pad + key, key + pad, pad + key + pad):
            parsed = way(padded, tmp_path)
            assert [parsed.keys[i] for i in parsed.key_index] == [key], ascii(padded)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_key_of_blanks_is_empty_in_every_input(way: Way, tmp_path: Path) -> None:
    for key in ("", " ", "\u00a0\t "):
        assert not len(way(key, tmp_path).indices), ascii(key)


def test_keys_that_differ_in_blanks_only_are_one_key() -> None:
    """Their codes must be one, too: aggregators group by code."""
    batch = [object_with(key) for key in ("a", " a", "b ", "a\u00a0", "b")]
    for parsed in (JsonReader(FLAT).parse(batch), JsonReader(FLAT).parse_without_scanner(batch)):
        assert [parsed.keys[i] for i in parsed.key_index] == ["a", "a", "b", "a", "b"]
        assert len(set(parsed.key_index.tolist())) == 2


# Repeated names.


REPEATED = (
    (b'{"k": "a", "at": 1, "v": {"t": 5, "t": 6}}', "field t: 2 members 't', numbers 1 and 2"),
    (b'{"k": "a", "at": 1, "v": {"t": 5}, "v": {"t": 5}}', "field t: 2 members 'v'"),
    (b'{"k": "a", "at": 1, "at": 1, "v": {"t": 5}}', "time: 2 members 'at', numbers 2 and 3"),
    (b'{"k": "a", "at": 1, "k": "b", "v": {"t": 5}}', "key: 2 members 'k', numbers 1 and 3"),
    (b'{"boundary": 1, "boundary": 2}', "boundary"),
)


@pytest.mark.parametrize(("message", "detail"), REPEATED)
def test_a_repeated_member_that_is_declared_makes_a_reading_malformed(
    message: bytes, detail: str
) -> None:
    """The first, the last: each parser takes another one."""
    json_reader, array = JsonReader(TOPIC), JsonArrayReader(TOPIC)
    good = b'{"k": "a", "at": 1, "v": {"t": 5}}'
    for parsed in (
        json_reader.parse([good, message, good]),
        json_reader.parse_without_scanner([good, message, good]),
        array.parse([b"[" + b",".join((good, message, good)) + b"]"]),
    ):
        assert [(bad.index, bad.detail[: len(detail)]) for bad in parsed.bad] == [(1, detail)]
        assert parsed.indices.tolist() == [0, 2]


def test_a_repeated_member_that_nobody_reads_is_allowed() -> None:
    message = b'{"k": "a", "x": 1, "at": 1, "x": 2, "v": {"t": 5, "y": 1, "y": 2}}'
    for parsed in (
        JsonReader(TOPIC).parse([message]),
        JsonArrayReader(TOPIC).parse([b"[%b]" % message]),
    ):
        assert parsed.values[0].tolist() == [5.0]
    text = JsonArrayReader(TOPIC).texts(b'[{"at": 1, "x": 1, "x": [2]}]')(0)
    assert text == '{"at": 1, "x": 1, "x": [2]}'


def test_a_repeated_column_of_a_message_refuses_the_message() -> None:
    message = b'{"k": "a", "at": [1, 2], "at": [3, 4], "t": [5, 6]}'
    (bad,) = JsonColumnsReader(FLAT).parse([message]).bad
    assert bad.detail == "2 members 'at', numbers 2 and 3"


def test_a_repeated_member_by_mqtt_and_over_http() -> None:
    message = b'{"k": "a", "at": 1, "t": 5, "t": 6}'
    (found,) = MqttReader(MQTT, None).read(0, [Message("lab/a", message, len(message))])
    details = [found.parsed.bad[0].detail, posted(JSON, message).bad[0].detail]
    assert details == ["field t: 2 members 't', numbers 3 and 4"] * 2


@pytest.mark.parametrize(
    ("pack", "detail"),
    [
        (b'[{"bn": "a/", "bt": 1e9, "n": "t", "v": 5, "v": 6}]', "field t: 2 members 'v'"),
        (b'[{"bn": "a/", "bt": 1e9, "n": "t", "n": "u", "v": 5}]', "n: 2 members 'n'"),
        (b'[{"bn": "a/", "bt": 1e9, "bt": 2e9, "n": "t", "v": 5}]', "bt: 2 members 'bt'"),
    ],
)
def test_a_repeated_member_of_a_record_of_senml(pack: bytes, detail: str) -> None:
    (bad,) = posted(SENML, pack).bad
    assert bad.detail.startswith(detail)


@pytest.mark.parametrize("repeated", ["k", "at", "t"])
def test_a_repeated_column_is_refused_with_its_places(repeated: str, tmp_path: Path) -> None:
    names = ["k", "at", "t", repeated]
    places = f"has 2 columns '{repeated}', numbers {names.index(repeated) + 1} and 4"
    text = f"{','.join(names)}\na,1,5,6\n".encode()
    path = tmp_path / "x.csv"
    path.write_bytes(text)
    with pytest.raises(DeploymentError, match=rf"x\.csv {places}") as error:
        CsvFile(FILE, path)
    assert error.value.exit_code == 2
    with pytest.raises(UnusableBody, match=f"the body {places}"):
        posted(CSV, text)
    columns: list[Any] = [["a"], [1], [5.0], [6.0]]
    with pytest.raises(UnusableBody, match=f"the body {places}"):
        posted(ARROW, encoded(pa.table(columns, names=names)))


def test_a_repeated_column_of_a_producer_is_refused_with_its_places() -> None:
    """To a topic of JSON the last one was sent."""
    table = pa.table([[1], [2.0], [3.0]], names=["at", "t", "t"])
    with pytest.raises(ProducerError, match="2 columns 't', numbers 2 and 3: rename one"):
        pieces_of(table)
    with pytest.raises(ProducerError, match="2 columns 't', numbers 2 and 3"):
        pieces_of(table.to_batches()[0])


def test_a_repeated_heading_that_nobody_reads_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"k,at,t,,,note,note\na,1,5,,,x,y\n")
    (piece,) = CsvFile(FILE, path).pieces()
    assert piece.arrived.values[0].tolist() == [5.0]


# Rows that are wider than their header.

NO_COLUMN = "belongs to no column: the header has 3; quote a cell that contains ','"


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_row_with_more_cells_than_its_header_is_malformed(quote: str, tmp_path: Path) -> None:
    """``21,5`` with a decimal comma and without quotes was read as 21, and what follows as 5."""
    rows = ["a,1,5", "a,2,21,5", "a,3,7,", "a,4,7,,", "a,5,7, ", f"{quote}b{quote},6,8,", "a,7"]
    text = "\n".join(["k,at,t", *rows, ""]).encode()
    path = tmp_path / "x.csv"
    path.write_bytes(text)
    for pieces in (list(CsvFile(FILE, path).pieces()), list(CsvFile(FILE, path, 8).pieces())):
        wrong = [(m.line, m.text, m.detail) for piece in pieces for m in piece.malformed]
        assert wrong == [
            (3, "a,2,21,5", f"cell 4 of 4 {NO_COLUMN}"),
            (5, "a,4,7,,", f"cell 4 of 5 {NO_COLUMN}"),
        ]
        times = [t // 1_000_000 for piece in pieces for t in piece.arrived.stimes.tolist()]
        assert times == [1, 3, 5, 6, 7]
    bad = posted(CSV, text).bad
    assert [(one.index, one.detail[:11]) for one in bad] == [(3, "cell 4 of 4"), (5, "cell 4 of 5")]
