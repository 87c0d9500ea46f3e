"""Messages that are bare numbers: their values, and the key and time that carry them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS, Fed
from tests.support.mqtt_world import MqttWorld, mqtt_spec
from tests.support.proxy_world import S, World
from tests.unit.deployment.test_deployment_file import errors

from slackwater.deployment.parse import parse_deployment
from slackwater.formats.guarded import reader_of
from slackwater.formats.json_text import MESSAGE_BYTES_MAX
from slackwater.judge.readers.messages import UnusableElement, read_message
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.proxy.topic.client import Fetched

SPEC = StreamSpec(
    "s",
    KeySpec(value="-"),
    TimeSpec(from_="record"),
    (FieldSpec("v", "v"),),
    topic=replace(THEIRS, format="number"),
    missing=("unavailable",),
    values=(("on", 1.0), ("true", 1.0)),
)
VALUES: list[tuple[bytes, float | None]] = [
    (b"21.5", 21.5),
    (b" -3\r\n", -3.0),
    (b"1e3", 1000.0),
    (b"+.5", 0.5),
    (b"NaN", None),
    (b"-inf", None),
    (b"Infinity", None),
    (b"unavailable", None),
    (b"ON", 1.0),
    (b"true", 1.0),
]
UNUSABLE = [
    b"", b"  ", b"21,5", b"21.5 C", b'"21.5"', b"[1]", b'{"v":1}', b"0x1F", b"\xff", b"1e400",
    b"false", b"1" * 1_001, b"1" + b" " * MESSAGE_BYTES_MAX, b"\0",
]  # fmt: skip


@pytest.mark.parametrize("copies", [1, 30])
def test_each_message_is_a_number(copies: int) -> None:
    parsed = reader_of(SPEC).parse([message for message, _ in VALUES] * copies)
    wanted = [math.nan if value is None else value for _, value in VALUES] * copies
    np.testing.assert_array_equal(parsed.values[0], wanted)
    assert (parsed.bad, parsed.not_finite) == ((), 3 * copies)


@pytest.mark.parametrize("message", UNUSABLE)
def test_what_is_no_number_is_malformed_alone(message: bytes) -> None:
    parsed = reader_of(SPEC).parse([b"1", message, b"2"])
    assert parsed.values[0].tolist() == [1.0, 2.0]
    assert [(bad.index, bad.detail) for bad in parsed.bad] == [(1, "field v")]
    assert reader_of(SPEC).texts(message)(0) == message.decode(errors="replace")


PIECE = st.sampled_from(
    [b"1", b"-", b".", b"e5", b" ", b"nan", b"inf", b"on", b"\xff", b"\xc2\xa0"]
)


@given(st.lists(st.lists(PIECE, max_size=4).map(b"".join), max_size=60))
@example([b"\xef\xbf\xbd"])
def test_a_batch_is_read_as_the_judge_reads_each_message(messages: list[bytes]) -> None:
    parsed = reader_of(SPEC).parse(messages)
    found: dict[int, Any] = {bad.index: None for bad in parsed.bad}
    found |= dict(zip(parsed.indices.tolist(), parsed.values[0].tolist(), strict=True))
    assert sorted(found) == list(range(len(messages)))
    for i, message in enumerate(messages):
        (judged,) = read_message(SPEC, "number", message)
        if isinstance(judged, UnusableElement):
            assert found[i] is None, message
        else:
            value = judged.values[0]  # type: ignore[union-attr]
            assert found[i] == value or (value is None and math.isnan(found[i])), message


def test_by_mqtt_the_key_is_a_level_and_the_time_that_of_arrival(tmp_path: Path) -> None:
    spec = mqtt_spec()
    assert spec.mqtt is not None
    spec = replace(spec, time=TimeSpec(from_="arrival"), mqtt=replace(spec.mqtt, format="number"))
    world = MqttWorld(tmp_path, spec)
    proxy = world.proxy()
    begun_us = world.world.now_us
    for device, payload in (("a", b"20.5"), ("b", b"nan"), ("a", b"warm"), ("c", b"1")):
        world.broker.publish(f"lab/{device}", payload)
    world.run(proxy)
    readings = world.world.readings()
    np.testing.assert_array_equal([value for _, _, value in readings], [20.5, np.nan, 1.0])
    assert len(readings) == 3
    assert all(begun_us <= at * S <= world.world.now_us for _, at, _ in readings)
    (entry,) = world.world.quarantined()
    assert (entry["position"], entry["detail"], entry["payload"]) == ("lab/a#2", "field t", "warm")
    assert proxy.detail()["not_finite"] == 1


def test_of_a_topic_key_and_time_are_those_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(SPEC, name="room", key=KeySpec(from_="record"), expect_every_us=5 * S)
    world = World(tmp_path, spec=replace(spec, fields=(FieldSpec("t", "t"),)))
    fed = Fed(world, monkeypatch)
    monkeypatch.setattr(fed.proxy, "_topic", THEIRS.name)
    fed.proxy.begin()
    fed.client.waiting = [
        Fetched(
            0,
            np.arange(3),
            [b"1.5", b"", b"on"],
            np.array([900_000, 901_000, 902_000]),
            [b"a", b"b", b"c"],
        )
    ]
    world.run(fed.proxy, 2)
    assert world.counts() == {"malformed": 1}
    assert fed.readings() == 2


# The deployment file.

FILE = """\
apiVersion: slackwater/v1
streams:
  s:
    {source}
    key: {key}
    time: {time}
    fields: {fields}
    sporadic: true
queries:
  q: {{from: [s], window: {{size: 1s}}, aggregate: [count], bound: 2s}}
"""
MQTT = "mqtt: {broker: h, topics: [a/+], format: number}"
TOPIC = "topic: {name: t, format: number}"


def file(**changes: str) -> str:
    usual = {"source": MQTT, "key": "{level: 2}", "time": "{from: arrival}", "fields": "[v]"}
    return FILE.format(**usual | changes)


def test_the_file_declares_it() -> None:
    by_mqtt = parse_deployment(file(), "f.yaml").deployment.streams["s"]
    assert by_mqtt.mqtt is not None and by_mqtt.mqtt.format == "number"  # noqa: PT018
    text = file(source=TOPIC, key="{from: record}", time="{from: record}")
    of_topic = parse_deployment(text, "f.yaml").deployment.streams["s"]
    assert of_topic.topic is not None and of_topic.topic.format == "number"  # noqa: PT018


@pytest.mark.parametrize(
    ("changes", "place", "reason"),
    [
        ({"fields": "[v, w]"}, "fields", "has 2 fields: a message of format: number is one value"),
        ({"fields": "{v: a.b}"}, "fields.v", "has no fields in it: use a list, [v]"),
        ({"key": "{field: k}"}, "key.field", "has no fields: use level, levels or value"),
        ({"time": "{field: t, unit: s}"}, "time.field", "has no time in it: use from: arrival"),
        ({"key": "{fields: [k, l]}"}, "key.fields", "has no fields: use level, levels or value"),
        ({"fields": "[v]\n    texts: [s]"}, "texts", "has no texts"),
        (
            {"source": TOPIC, "key": "{field: k}", "time": "{from: record}"},
            "key.field",
            "has no fields: use from: record or value",
        ),
        (
            {"source": TOPIC, "key": "{value: k}", "time": "{field: t, unit: s}"},
            "time.field",
            "has no time in it: use from: record",
        ),
        (
            {"source": MQTT.replace("number", "number, sequence: {field: n}")},
            "mqtt.sequence",
            "has no counter",
        ),
    ],
)
def test_what_a_number_cannot_have_is_refused(
    changes: dict[str, str], place: str, reason: str
) -> None:
    (error,) = errors(file(**changes))
    assert f": streams.s.{place}: " in error
    assert reason in error
