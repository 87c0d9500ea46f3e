"""Keys and times of what carries a message: a Kafka record, an MQTT topic, the arrival."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS, Fed
from tests.support.mqtt_world import MqttWorld, mqtt_spec
from tests.support.proxy_world import SPEC, S, World
from tests.unit.proxy.test_pushed import POSTED, PushWorld
from tests.unit.proxy.topic.test_queue_client import CLIENTS, MockBroker, read_to_ends

from slackwater.formats.carried import NO_TIME, times_of_arrival, with_times, without_carried_key
from slackwater.formats.guarded import GuardedReader
from slackwater.formats.messages import Messages, Parsed
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec, TopicFormat
from slackwater.model.errors import UsageError
from slackwater.proxy.http.bodies import reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.http.tables import CSV
from slackwater.proxy.inputs import StreamOptions, make_input
from slackwater.proxy.requests import Pushed
from slackwater.proxy.shell import turn
from slackwater.proxy.topic import objects
from slackwater.proxy.topic.client import Fetched, RecordParts
from slackwater.proxy.topic.objects import ConfluentClient
from slackwater.proxy.topic.queue import QueueClient
from slackwater.proxy.topic.records import keys_of_records, of_records

BY_RECORD = StreamSpec(
    "room", KeySpec(from_="record"), TimeSpec(from_="record"), (FieldSpec("t", "t"),), topic=THEIRS
)
ARRIVING = TimeSpec(from_="arrival")


def seen(parsed: Parsed) -> dict[int, Any]:
    """Return (key, time) or the detail by the number of the element."""
    found: dict[int, Any] = {bad.index: (bad.detail, bad.stime) for bad in parsed.bad}
    for i, at in enumerate(parsed.indices.tolist()):
        assert at not in found
        found[at] = (parsed.keys[int(parsed.key_index[i])], int(parsed.stimes[i]))
    return dict(sorted(found.items()))


def parsed_of(form: TopicFormat, messages: Sequence[bytes]) -> Parsed:
    spec = replace(BY_RECORD, topic=replace(THEIRS, format=form))
    reader = GuardedReader(without_carried_key(spec), None)
    return reader.parse("w", np.arange(len(messages)), messages)


def fetched(n: int, times: Sequence[int], keys: Sequence[bytes]) -> Fetched:
    return Fetched(0, np.arange(n), [b""] * n, np.array(times, np.int64), keys)


@pytest.mark.parametrize("copies", [1, 30])
def test_readings_have_the_key_and_the_time_of_their_record(copies: int) -> None:
    messages = [b'{"t":1}', b'{"t":"x"}', b"nonsense", b'{"t":2}', b'{"t":3}', b"{}"] * copies
    times = [5, 6, 7, -1, 8, 9] * copies
    keys = [b"a", b"b", b"c", b"d", b"", b" e "] * copies
    parsed = of_records(parsed_of("json", messages), fetched(len(keys), times, keys), 0, len(keys))
    one = [
        ("a", 5_000),
        ("field t", 6_000),
        ("not JSON", 7_000),
        ("time: its record has none", None),
        ("key: its record has none", 8_000),
        ("e", 9_000),
    ]
    assert list(seen(parsed).values()) == one * copies


@pytest.mark.parametrize("copies", [1, 30])
def test_all_readings_of_a_message_have_those_of_its_record(copies: int) -> None:
    array = [b'[{"t":1},{"t":2}]', b'[{"t":[]},{"t":3}]'] * copies
    columns = [b'{"t":[1,2]}', b'{"t":["x",3]}'] * copies
    expected = [("a", 5_000), ("a", 5_000), ("field t", 6_000), ("b", 6_000)] * copies
    for form, messages in (("json-array", array), ("json-columns", columns)):
        n = len(messages)
        record = fetched(n, [5, 6] * copies, [b"a", b"b"] * copies)
        found = of_records(parsed_of(form, messages), record, 0, n)  # type: ignore[arg-type]
        details = [(d.replace(" is an array", ""), t) for d, t in seen(found).values()]
        assert details == expected


def test_a_slice_of_messages_has_the_records_of_the_slice() -> None:
    record = fetched(4, [1, 2, 3, 4], [b"a", b"b", b"c", b"d"])
    parsed = of_records(parsed_of("json", [b'{"t":1}'] * 2), record, 2, 4)
    assert seen(parsed) == {0: ("c", 3_000), 1: ("d", 4_000)}


def test_a_key_that_is_no_text_is_malformed() -> None:
    keys = keys_of_records([b"\xff", "Küche".encode(), b"k" * 65_537, b"\xff"])
    assert [keys.texts[i] for i in keys.index] == ["", "Küche", "", ""]
    assert [keys.faults[i] for i in keys.index] == [
        "key: that of its record is not UTF-8",
        "",
        "key: that of its record has more than 65536 characters",
        "key: that of its record is not UTF-8",
    ]


def test_keys_as_places_in_memory_are_those_of_bytes() -> None:
    sent = [b"", b"a", b"b" * 9_000, b"", b"a", b"c"]
    at = Messages.of(sent)
    starts = np.where(at.starts == at.ends, 0, at.starts)
    ends = np.where(at.starts == at.ends, 0, at.ends)
    for order in ([0, 1, 2, 3, 4, 5], [5, 2, 0, 1], [0, 3], []):
        places = Messages(starts[order], ends[order], at)
        one, other = keys_of_records(places), keys_of_records([sent[i] for i in order])
        assert [one.texts[i] for i in one.index] == [other.texts[i] for i in other.index]


def test_a_stream_without_times_in_messages_has_no_boundary_messages() -> None:
    parsed = parsed_of("json", [b'{"boundary":5}'] * 20)
    assert not parsed.boundaries
    assert len(parsed.indices) == 20


# The clients.


@CLIENTS
def test_a_client_returns_keys_and_times_of_records(make: Any) -> None:
    broker = MockBroker()
    records = [(b"a", 1_000), (None, 2_000), (b"", 3_000), (b"key" * 100, 1_458_031_648_545)]
    for key, time_ms in records * 50:
        broker.producer.produce("lab", b"v", key, partition=0, timestamp=time_ms)
    assert broker.producer.flush(30) == 0
    client = make("lab", broker.config(), RecordParts(times=True, keys=True))
    client.assign({0: 0})
    keys: list[bytes] = []
    times: list[int] = []
    while len(keys) < 200:
        for one in client.read(0.1):
            if isinstance(one, Fetched):
                assert one.keys is not None
                assert one.times is not None
                keys += list(one.keys)
                times += one.times.tolist()
        client.release()
    client.close()
    assert keys == [key or b"" for key, _ in records] * 50
    assert times == [time_ms for _, time_ms in records] * 50


@pytest.mark.parametrize("make", [QueueClient, ConfluentClient])
def test_a_client_that_is_not_asked_returns_values_alone(make: Any) -> None:
    broker = MockBroker()
    broker.write("lab", [b"v"])
    client = make("lab", broker.config())
    client.assign({0: 0})
    assert read_to_ends(client, 1) == {0: [(0, b"v")]}
    client.close()


@dataclass
class Message:
    """A message of the client library whose record has a time of some kind."""

    kind: int

    def timestamp(self) -> tuple[int, int]:
        return self.kind, 7


def test_a_record_of_an_old_format_has_no_time() -> None:
    made: Any = [Message(TIMESTAMP_NOT_AVAILABLE), Message(TIMESTAMP_CREATE_TIME)]
    assert [objects._time(message) for message in made] == [-1, 7]


def test_a_topic_is_logged_with_keys_and_times_of_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(BY_RECORD, expect_every_us=5 * S)
    fed = Fed(World(tmp_path, spec=spec), monkeypatch)
    world = fed.world
    world.now_us = 1_010 * S
    fed.proxy.begin()
    values = [b'{"t":%d}' % i for i in range(4)]
    times = np.array([1_000_000, 1_001_000, 1_001_500, 1_003_000])
    keys = [b"a", b"b", b"", b"a"]
    fed.client.waiting = [Fetched(0, np.arange(4), values, times, keys)]
    world.run(fed.proxy, 2)
    (record,) = [r for r in fed.log() if r.readings]
    assert record.columns is not None
    columns = record.columns.load()
    assert columns.stimes.tolist() == [1_000 * S, 1_001 * S, 1_003 * S]
    assert [columns.keys[i] for i in columns.key_index] == ["a", "b", "a"]
    assert fed.log()[-1].boundary == 1_003 * S
    (refused,) = world.quarantined()
    assert (refused["position"], refused["detail"]) == ("0:2@first", "key: its record has none")


# Arrival.


class Extent:
    """How far a log is."""

    largest = 1_000 * S
    watermark = 999 * S


def test_times_of_arrival_increase_unless_a_clock_is_far_behind() -> None:
    shown = np.array([1_001, 1_000.5, 1_002, 1_001.5], np.float64) * S
    found = times_of_arrival(shown.astype(np.int64), Extent)
    assert (found / S).tolist() == [1_001, 1_001, 1_002, 1_002]
    behind = np.array([999.5, 990, 1_000.2]) * S
    found = times_of_arrival(behind.astype(np.int64), Extent)
    assert (found / S).tolist() == [1_000, 990, 1_000.2], "a minute behind is late, not moved"


def by_arrival(**declared: Any) -> StreamSpec:
    return replace(mqtt_spec(**declared), time=ARRIVING)


def test_mqtt_readings_have_the_time_of_their_arrival(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path, by_arrival())
    proxy = world.proxy()
    start = world.world.now_us
    for _ in range(20):
        world.publish(at_us=5)
        world.run(proxy, 0.5)
    times = [round(second * S) for _, second, _ in world.world.readings()]
    assert times == [start + i * S // 2 for i in range(20)]
    assert world.world.counts() == {}
    assert world.world.boundary_s() * S >= start + 9 * S, "the clock promises while it is silent"
    world.world.check()


def test_a_message_that_arrives_again_keeps_its_first_time(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path, by_arrival(sequence=True))
    proxy = world.proxy()
    start = world.world.now_us
    world.publish()
    world.broker.pump(world.world.now_us)
    while not world.world.contexts[-1].spool.position("mqtt"):
        world.turn(proxy)  # stored; the acknowledgement does not reach the broker
        world.world.now_us += 5_000
    assert world.broker.holds == 1
    world.world.now_us += 10 * S
    successor = world.proxy()
    world.run(successor, 1)
    world.publish()
    world.run(successor, 1)
    assert world.broker.holds == 0
    assert world.values() == [1, 2]
    assert round(world.world.readings()[0][1] * S) == start
    assert successor.detail()["repeated"] == 1
    assert world.world.counts() == {}


def test_with_times_of_arrival_a_counter_that_is_not_larger_is_a_repetition(
    tmp_path: Path,
) -> None:
    """By its time a device's repetition would be a restart of its counter."""
    world = MqttWorld(tmp_path, by_arrival(sequence=True))
    proxy = world.proxy()
    for counter in (7, 8, 8, 7, 9):
        world.publish(n=counter)
        world.run(proxy, 0.5)
    assert world.values() == [1, 2, 5]
    assert world.world.counts() == {"duplicate": 2}


def test_a_clock_behind_the_log_after_a_restart_makes_no_reading_late(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path, by_arrival())
    proxy = world.proxy()
    world.publish()
    world.run(proxy, 1)
    world.world.now_us -= S // 2
    successor = world.proxy()
    world.publish()
    world.run(successor, 1)
    assert world.values() == [1, 2]
    assert world.world.counts() == {}


POSTED_BY_ARRIVAL = replace(POSTED, time=ARRIVING)


def test_all_readings_of_a_request_have_the_time_of_its_arrival(tmp_path: Path) -> None:
    world = PushWorld(tmp_path, POSTED_BY_ARRIVAL)
    proxy = world.proxy()
    start = world.now_us
    body = [{"node": "a", "t": 1}, {"node": "b", "t": "x"}, {"node": "b", "t": 2}]
    outcome = world.post(proxy, body, "k")
    assert outcome.counts == {"accepted": 2, "malformed": 1}
    world.now_us += 3 * S
    again = world.post(proxy, body, "k")
    assert (again.counts, again.repeated) == (outcome.counts, True)
    world.post(proxy, body[:1], "other")
    world.run(proxy, 1)
    times = [round(second * S) for _, second, _ in world.readings()]
    assert times == [start, start, start + 3 * S], "a repetition keeps the first one's time"
    assert [entry["stime"] for entry in world.quarantined()] == ["1970-01-01T00:16:40.000000Z"]


def test_a_request_that_was_stored_before_a_crash_keeps_its_time(tmp_path: Path) -> None:
    world = PushWorld(tmp_path, POSTED_BY_ARRIVAL)
    start = world.now_us
    proxy = world.proxy()
    world.post(proxy, [{"node": "a", "t": 1}], "k")  # the response is lost, and the proxy killed
    world.now_us += 60 * S
    successor = world.proxy()
    assert world.post(successor, [{"node": "a", "t": 1}], "k").repeated
    world.run(successor, 1)
    assert [round(second * S) for _, second, _ in world.readings()] == [start]


def test_a_sporadic_stream_of_requests_is_never_late_by_its_arrival(tmp_path: Path) -> None:
    spec = replace(POSTED_BY_ARRIVAL, expect_every_us=None)
    world = PushWorld(tmp_path, spec)
    proxy = world.proxy()
    for _ in range(10):
        answer = world.put([{"node": "a", "t": 1}])
        world.now_us += S // 3  # it waits in the queue
        turn(world.context_now, proxy, world.now_us)
        assert answer.result(timeout=0).counts == {"accepted": 1}
        world.run(proxy, 1)
    assert world.counts() == {}
    world.check()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CSV, b"node,t\na,1\nb,2\n"),
        (SENML, json.dumps([{"bn": "a", "n": ":t", "v": 1}, {"bn": "b", "n": ":t", "v": 2}])),
    ],
)
def test_other_bodies_need_no_time(tmp_path: Path, kind: str, body: bytes | str) -> None:
    world = PushWorld(tmp_path, POSTED_BY_ARRIVAL)
    proxy = world.proxy()
    reader = reader_for(world.spec, kind, 5)
    assert reader is not None
    raw = body if isinstance(body, bytes) else body.encode()
    pushed = Pushed(raw, reader, None, world.now_us)
    world.queue.put(pushed)
    turn(world.context_now, proxy, world.now_us)
    assert pushed.answer.result(timeout=0).counts == {"accepted": 2}
    start = world.now_us
    world.run(proxy, 1)
    assert [round(at * S) for _, at, _ in world.readings()] == [start, start]


def test_a_file_cannot_stand_in_for_a_stream_with_times_of_arrival(tmp_path: Path) -> None:
    world = World(tmp_path, spec=POSTED_BY_ARRIVAL)
    with pytest.raises(UsageError, match="stream room has times of arrival, which a file has not"):
        make_input(world.context(), StreamOptions(input=tmp_path / "x.csv"))


def test_times_of_messages_are_those_of_all_their_readings() -> None:
    parsed = parsed_of("json", [b'{"t":1}', b"x", b'{"t":2}'])
    found = with_times(parsed, np.array([5, NO_TIME, NO_TIME]))
    assert seen(found) == {
        0: ("-", 5),
        1: ("not JSON", None),
        2: ("time: its record has none", None),
    }


def test_the_declaration_of_a_plain_stream_is_unchanged() -> None:
    assert without_carried_key(SPEC) is SPEC
