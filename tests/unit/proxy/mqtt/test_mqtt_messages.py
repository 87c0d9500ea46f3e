"""MQTT messages as columns: keys from topics, counters, bounds; any bytes are accepted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.formats.dead_letters import DeadLetters, Faults
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.mqtt import MqttFormat, MqttSpec
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.mqtt.messages import PAYLOAD_BYTES_MAX, CountedReadings, MqttReader, cut

BY_LEVEL = StreamSpec(
    "lab",
    KeySpec(level=2),
    TimeSpec(field="at", unit="us"),
    (FieldSpec("t", "v.t"),),
    mqtt=MqttSpec("h", 1883, ("lab/#",), "c", sequence="n"),
)


def without_counter(spec: StreamSpec) -> StreamSpec:
    assert spec.mqtt is not None
    return replace(spec, mqtt=replace(spec.mqtt, sequence=None))


def read(spec: StreamSpec, *messages: tuple[str, bytes]) -> CountedReadings:
    reader = MqttReader(spec, None)
    (found,) = reader.read(0, [Message(topic, cut(p), len(p)) for topic, p in messages])
    return found


def payload(**values: object) -> bytes:
    return json.dumps({"at": 5, "v": {"t": 1.5}, "n": 1, "mote": "m"} | values).encode()


def test_the_key_is_a_level_of_the_topic() -> None:
    found = read(BY_LEVEL, ("lab/a", payload()), ("lab/b/x", payload()), ("lab/a", payload()))
    parsed = found.parsed
    assert [parsed.keys[i] for i in parsed.key_index] == ["a", "b", "a"]
    assert parsed.values[0].tolist() == [1.5] * 3
    assert len(parsed.values) == 1
    assert not parsed.bad


@pytest.mark.parametrize("topic", ["lab", "lab/", "lab//x", "lab/" + "k" * 65_537])
def test_a_topic_without_the_level_makes_its_reading_malformed(topic: str) -> None:
    found = read(BY_LEVEL, ("lab/a", payload()), (topic, payload(at=7)), ("lab/b", payload()))
    (bad,) = found.parsed.bad
    assert (bad.index, bad.stime, bad.reason) == (1, 7, "malformed")
    assert "level" in bad.detail
    assert found.parsed.indices.tolist() == [0, 2]
    assert len(found.sequences) == 2


def test_the_key_may_be_in_the_payload_or_constant() -> None:
    for key, expected in ((KeySpec(field="mote"), "m"), (KeySpec(value="all"), "all")):
        parsed = read(replace(BY_LEVEL, key=key), ("lab/a", payload())).parsed
        assert [parsed.keys[i] for i in parsed.key_index] == [expected]


def test_the_counter_is_taken_off_the_fields() -> None:
    found = read(BY_LEVEL, ("lab/a", payload(n=7)), ("lab/a", payload(n="8")))
    assert found.sequences.tolist() == [7, 8]
    assert len(found.parsed.values) == 1


@pytest.mark.parametrize("counter", [None, 1.5, 2**53 + 2, "x", [1], True])
def test_a_counter_that_is_no_whole_number_makes_its_reading_malformed(counter: object) -> None:
    found = read(BY_LEVEL, ("lab/a", payload(n=counter)), ("lab/a", payload(n=2)))
    (bad,) = found.parsed.bad
    assert bad.index == 0
    assert "sequence" in bad.detail
    assert found.sequences.tolist() == [2]


def test_no_counter_is_read_where_none_is_declared() -> None:
    found = read(without_counter(BY_LEVEL), ("lab/a", payload(n="x")))
    assert not found.parsed.bad
    assert len(found.sequences) == 0


def test_a_boundary_message_is_no_promise() -> None:
    (bad,) = read(BY_LEVEL, ("lab/a", b'{"boundary": 5}')).parsed.bad
    assert bad.detail == "boundary"


def of_format(chosen: MqttFormat) -> StreamSpec:
    assert BY_LEVEL.mqtt is not None
    return replace(BY_LEVEL, mqtt=replace(BY_LEVEL.mqtt, format=chosen))


def test_an_array_has_many_readings_with_the_key_of_its_topic() -> None:
    array = b"[" + b",".join([payload(n=1), payload(n="?"), payload(n=3)]) + b"]"
    found = read(of_format("json-array"), ("lab/a", b"[]"), ("lab/b", array), ("lab", array))
    assert found.sequences.tolist() == [1, 3]
    assert found.message_numbers().tolist() == [1, 1]
    assert {found.parsed.keys[i] for i in found.parsed.key_index} == {"b"}
    positions = [entry.position for entry in found.malformed()]
    assert positions == ["lab/b#1[1]", "lab#2[0]", "lab#2[1]", "lab#2[2]"]


def test_columns_have_many_readings_and_a_counter_that_holds_for_all() -> None:
    columns = json.dumps({"at": [5, 6], "v": {"t": [1.5, 2.5]}, "n": 7}).encode()
    found = read(of_format("json-columns"), ("lab/a", columns))
    assert found.parsed.values[0].tolist() == [1.5, 2.5]
    assert found.sequences.tolist() == [7, 7]


def test_a_payload_that_is_too_long_is_cut_and_named() -> None:
    long = payload(x="y" * PAYLOAD_BYTES_MAX)
    assert len(cut(long)) < 100_000
    formats: tuple[MqttFormat, ...] = ("json", "json-array", "json-columns")
    for chosen in formats:
        (entry,) = read(of_format(chosen), ("lab/a", long)).malformed()
        assert entry.detail == f"{len(long)} bytes, at most {PAYLOAD_BYTES_MAX}"
        assert entry.payload.startswith(long[:1_000].decode())


some_bytes = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([payload(), payload(n=None), b"[]", b"{}", b"", b"[" * 100, b'{"at":1e400}']),
    st.dictionaries(
        st.sampled_from(["at", "v", "n", "t"]),
        st.one_of(st.integers(), st.floats(), st.text(max_size=3), st.none()),
    ).map(lambda data: json.dumps(data).encode()),
)


@given(st.lists(st.tuples(st.sampled_from(["lab/a", "lab", "x/\ufffd", ""]), some_bytes)))
def test_each_message_is_a_reading_or_an_error(messages: list[tuple[str, bytes]]) -> None:
    if not messages:
        return
    found = read(BY_LEVEL, *messages)
    bad = [one.index for one in found.parsed.bad]
    good = found.parsed.indices.tolist()
    assert sorted(bad + good) == list(range(len(messages)))
    assert bad == sorted(bad)
    assert len(found.sequences) == len(good) == len(found.parsed.stimes)
    for i, key in zip(good, found.parsed.key_index, strict=True):
        assert found.parsed.keys[key] == messages[i][0].split("/")[1]


def test_numbers_begin_behind_those_of_messages_that_were_set_aside(tmp_path: Path) -> None:
    """After a crash a number may be that of another message, which must not be omitted."""
    dead_letters = DeadLetters.open(tmp_path, "lab", Faults.open(tmp_path, "lab"))
    assert MqttReader(BY_LEVEL, dead_letters).first_number == 0
    dead_letters.add("mqtt:lab", 41, "it crashes the parser")
    assert MqttReader(BY_LEVEL, dead_letters).first_number == 42
