"""NaN and Infinity in JSON: a missing value, counted, in every input that has JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS, Fed
from tests.support.mqtt_world import MqttWorld
from tests.support.proxy_world import SPEC as ROOM
from tests.support.proxy_world import S, World
from tests.unit.proxy.test_pushed import PushWorld

from slackwater.formats.guarded import reader_of
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import Messages, Parsed
from slackwater.formats.scan import scanner_of
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec, TopicSpec
from slackwater.proxy.http.bodies import JSON, NDJSON, reader_for

SPEC = StreamSpec(
    "lab",
    KeySpec(field="k"),
    TimeSpec(field="at", unit="ms"),
    (FieldSpec("t", "t"), FieldSpec("h", "h")),
)
CONSTANTS = ("NaN", "nan", "-nan", "Infinity", "-Infinity", "inf", "-inf", "INF", "Inf")
ONE = '{"k":"a","at":%d,"t":%s,"h":%d,"more":{"x":[%s]}}'
BATCH = [(ONE % (i, text, i, text)).encode() for i, text in enumerate(CONSTANTS)]


def check(parsed: Parsed, n: int = len(CONSTANTS)) -> None:
    t, h = parsed.values
    assert parsed.bad == ()
    assert np.isnan(t).all()
    assert h.tolist() == list(range(n))
    assert parsed.not_finite == n


def test_messages_are_read_by_the_scanner_and_without_it() -> None:
    found = scanner_of(SPEC)
    assert found is not None
    assert not len(found.scan(Messages.of(BATCH)).left)
    reader = JsonReader(SPEC)
    check(reader.parse(BATCH))
    check(reader.parse_without_scanner(BATCH))


def test_those_of_the_scanner_and_of_the_definition_are_added() -> None:
    odd = b'{"k":"\\u0061","at":9,"t":nan,"h":9}'
    check(JsonReader(SPEC).parse([*BATCH, odd]), len(CONSTANTS) + 1)


@pytest.mark.parametrize(
    ("form", "message", "n"),
    [
        ("json-array", b"[" + b",".join(BATCH) + b"]", len(CONSTANTS)),
        ("json-array", b"[ " + b" , ".join(BATCH) + b"\n]", len(CONSTANTS)),
        ("json-columns", b'{"k":"a","at":[1,2,3],"t":[nan,-inf,NaN],"h":[0,1,2]}', 3),
        ("json-columns", b'{"k":"a","at":[1,2,3],"t":Infinity,"h":[0,1,2]}', 3),
    ],
)
def test_messages_of_many_readings(form: str, message: bytes, n: int) -> None:
    spec = replace(SPEC, topic=TopicSpec("lab", form))  # type: ignore[arg-type]
    check(reader_of(spec).parse([message]), n)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b"[" + b",".join(BATCH) + b"]"),
        (JSON, b'[{"k":"a","at":1,"t":nan,"h":0,"note":"},{"}, ' + b",".join(BATCH[1:]) + b"]"),
        (NDJSON[0], b"\n".join(BATCH)),
    ],
)
def test_bodies(kind: str, body: bytes) -> None:
    reader = reader_for(replace(SPEC, key=KeySpec(column="k")), kind, 0)
    assert reader is not None
    check(reader(body).parsed)


@pytest.mark.parametrize("key", ["NaN", "nan", "Infinity"])
def test_it_is_no_key_and_no_time(key: str) -> None:
    reader = JsonReader(SPEC)
    rows = [b'{"k":%s,"at":1,"t":1}' % key.encode(), b'{"k":"a","at":%s}' % key.encode()]
    for parse in (reader.parse, reader.parse_without_scanner):
        parsed = parse(rows)
        assert [bad.detail for bad in parsed.bad] == ["key", "time"]
        assert parsed.not_finite == 0


def test_texts_are_not_changed() -> None:
    parsed = JsonReader(SPEC).parse([b'{"k":"a nan, -inf","at":1,"t":nan,"h":1}'])
    assert list(parsed.keys) == ["a nan, -inf"]


def test_a_topic_counts_them_in_its_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, spec=replace(ROOM, topic=THEIRS, expect_every_us=5 * S))
    fed = Fed(world, monkeypatch)
    writer = world.broker.writer(world.failures.append)
    writer.append(THEIRS.name, 0, b'{"node":"n","ts":900,"t":NaN}')
    fed.proxy.begin()
    fed.bring()
    world.run(fed.proxy, 2)
    detail = fed.proxy.detail()
    assert (detail["not_finite"], detail["malformed"], detail["readings"]) == (1, 0, 1)


def test_a_broker_s_messages_are_counted_in_the_heartbeat(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    world.broker.publish("lab/x", b'{"at": %d, "t": nan}' % world.world.now_us)
    world.run(proxy)
    assert (proxy.detail()["not_finite"], proxy.detail()["malformed"]) == (1, 0)


def test_a_request_is_answered_with_their_number(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    answer = world.post(proxy, b'[{"node":"n","ts":1000,"t":NaN},{"node":"n","ts":1001,"t":2}]')
    assert answer.counts == {"accepted": 2, "not_finite": 1}
    assert proxy.detail()["not_finite"] == 1
