"""Names in quotes and indexes of arrays, in every input that has paths or columns."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.judge import judge_columns, judge_messages
from tests.unit.deployment.test_deployment_file import errors

from slackwater.deployment.parse import parse_deployment
from slackwater.formats.guarded import reader_of
from slackwater.formats.json_input import JsonReader
from slackwater.formats.scan import scanner_of
from slackwater.model.deployment import StreamSpec
from slackwater.model.mqtt import MqttSpec
from slackwater.proxy.http.bodies import JSON, NDJSON, reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.http.tables import ARROW, CSV
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.mqtt.messages import MqttReader

FILE = """\
apiVersion: slackwater/v1
streams:
  air:
    {source}
    key: {{field: 'device."id.no"'}}
    time: {{field: ts, unit: ms}}
    fields:
      pm: '"particles_2.5um"'
      power: meters[1].power
    sporadic: true
queries:
  q: {{from: [air], window: {{size: 1s}}, aggregate: [sum], bound: 2s}}
"""
SOURCES = {
    "json": "topic: {name: t, format: json}",
    "json-array": "topic: {name: t, format: json-array}",
    "json-columns": "topic: {name: t, format: json-columns}",
    "mqtt": "mqtt: {broker: 'h:1883', topics: [a/+]}",
    "http": "http: {}",
}


def declared(source: str) -> StreamSpec:
    return parse_deployment(FILE.format(source=SOURCES[source]), "f.yaml").deployment.streams["air"]


def row(at: Any, pm: Any, power: Any) -> dict[str, Any]:
    meters = [{"power": 0}, {"power": power, "more": [1]}]
    return {"device": {"id.no": "d"}, "ts": at, "particles_2.5um": pm, "meters": meters}


ROWS = [row(1, 5, 10.5), row(2, None, 20), row(3, "6", "30")]
SUMS = [11.0, 60.5]


def sums(values: tuple[Any, ...]) -> list[float]:
    return [float(column[column == column].sum()) for column in values]  # noqa: PLR0124 - NaN


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        ("json", ROWS),
        ("json-array", [ROWS[:2], ROWS[2:]]),
        ("json-columns", [row([1, 2, 3], [5, None, 6], [10.5, 20, 30])]),
    ],
)
def test_messages_of_a_topic(source: str, messages: list[Any]) -> None:
    parsed = reader_of(declared(source)).parse([json.dumps(one).encode() for one in messages])
    assert (parsed.bad, parsed.stimes.tolist()) == ((), [1_000, 2_000, 3_000])
    assert sums(parsed.values) == SUMS
    assert set(parsed.keys) == {"d"}


def test_messages_of_a_broker() -> None:
    payloads = [json.dumps(one).encode() for one in ROWS]
    messages = [Message("a/x", data, len(data), i, False, 0) for i, data in enumerate(payloads)]
    (read,) = MqttReader(declared("mqtt"), None).read(0, messages)
    assert sums(read.parsed.values) == SUMS
    counted = declared("mqtt")
    assert isinstance(counted.mqtt, MqttSpec)
    counted = replace(counted, mqtt=replace(counted.mqtt, sequence="meters[1].more[0]"))
    (read,) = MqttReader(counted, None).read(0, messages)
    assert read.sequences.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [JSON, NDJSON[0]])
def test_bodies_of_json(kind: str) -> None:
    lines = [json.dumps(one) for one in ROWS]
    body = "\n".join(lines) if kind != JSON else f"[{','.join(lines)}]"
    reader = reader_for(declared("http"), kind, 0)
    assert reader is not None
    assert sums(reader(body.encode()).parsed.values) == SUMS


def test_bodies_of_columns_have_the_name_without_its_quotes() -> None:
    spec = parse_deployment(
        FILE.format(source=SOURCES["http"]).replace("meters[1].power", '\'"a.b"\'')
        .replace("'device.\"id.no\"'", "'\"id.no\"'"), "f.yaml"
    ).deployment.streams["air"]  # fmt: skip
    table = pa.table({"id.no": ["d"], "ts": [1], "particles_2.5um": [5.0], "a.b": [2.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    bodies = {
        CSV: b"id.no,ts,particles_2.5um,a.b\nd,1,5,2\n",
        ARROW: sink.getvalue().to_pybytes(),
        JSON: b'{"id.no":"d","ts":1,"particles_2.5um":5,"a.b":2}',
        SENML: b'[{"bn":"d:","bt":1e9,"n":"particles_2.5um","v":5},{"n":"a.b","v":2}]',
    }
    for kind, body in bodies.items():
        reader = reader_for(spec, kind, 0)
        assert reader is not None
        content = reader(body)
        assert (sums(content.parsed.values), list(content.parsed.keys)) == ([5.0, 2.0], ["d"]), kind


def test_a_quoted_name_is_read_by_the_scanner_and_an_index_is_not() -> None:
    spec = declared("json")
    assert scanner_of(spec) is None
    assert scanner_of(replace(spec, fields=spec.fields[:1])) is not None


ANY = st.recursive(
    st.sampled_from([1, 2.5, "3", None, "x", True]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["power", "particles_2.5um"]), inner, max_size=2),
    ),
    max_leaves=5,
)


@settings(max_examples=100)
@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=20))
def test_a_batch_is_read_as_each_message_alone(rows: list[tuple[Any, Any]]) -> None:
    messages = [
        json.dumps({**row(i, pm, 1), "meters": meters}).encode()
        for i, (pm, meters) in enumerate(rows)
    ]
    spec = declared("json")
    assert judge_messages(spec, messages) == []
    assert judge_columns(spec, messages) == []
    assert judge_messages(replace(spec, fields=spec.fields[:1]), messages) == []


def test_a_row_of_columns_is_quarantined_by_its_paths() -> None:
    reader = reader_of(declared("json-columns"))
    message = json.dumps(row([1, 2], [5, "x"], [1, 2])).encode()
    parsed = reader.parse([message])
    assert [bad.index for bad in parsed.bad] == [1]
    text = reader.texts(message)(1)
    assert text == (
        '{"device.\\"id.no\\"": "d", "ts": 2, "\\"particles_2.5um\\"": "x", "meters[1].power": 2}'
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "place", "reason"),
    [
        ("meters[1].power", "meters[one].power", 9, "fields.power", "brackets hold the index"),
        ("meters[1].power", "meters..power", 9, "fields.power", "an empty name at character 8"),
        ("'\"particles_2.5um\"'", "'\"particles_2.5um'", 8, "fields.pm", "is not closed"),
        ("field: 'device", "field: 'device.", 5, "key.field", "an empty name at character 8"),
        ("field: ts", "field: ts.", 6, "time.field", "an empty name at character 4"),
    ],
)
def test_what_cannot_exist_is_refused_with_its_line(
    old: str, new: str, line: int, place: str, reason: str
) -> None:
    (error,) = errors(FILE.format(source=SOURCES["json"]).replace(old, new))
    assert error.startswith(f"f.yaml:{line}: streams.air.{place}: ")
    assert reason in error


def test_an_element_of_an_array_is_refused_for_avro() -> None:
    text = FILE.format(source="topic: {name: t, format: avro, schemas: x}")
    (error,) = errors(text)
    assert "streams.air.fields.power: meters[1].power is an element of an array" in error


def test_the_path_of_a_counter_is_checked() -> None:
    source = "mqtt: {broker: 'h:1883', topics: [a/+], sequence: {field: n.}}"
    (error,) = errors(FILE.format(source=source))
    assert "streams.air.mqtt.sequence.field: 'n.': an empty name" in error


def test_columns_of_files_have_any_name() -> None:
    text = FILE.format(source="csv: {}")
    text = text.replace("field:", "column:").replace("meters[1].power", "x..[y")
    spec = parse_deployment(text, "f.yaml").deployment.streams["air"]
    assert [field.source for field in spec.fields] == ['"particles_2.5um"', "x..[y"]


def test_a_path_of_names_is_what_it_was() -> None:
    spec = replace(declared("json"), fields=())
    assert JsonReader(spec).paths == [("device", "id.no"), ("ts",)]
