"""Generated readings: the declared form, the schedule, and a silence whose readings follow it."""

from __future__ import annotations

import gzip
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.ports import free_port
from tests.unit.machine.test_layout import stream

from slackwater.cli.send import (
    GeneratedReadings,
    SendingSchedule,
    check,
    find_stream,
    parse_silence,
    read_values,
    run_sender,
)
from slackwater.cli.send_mqtt import MqttPublisher, messages, topic_of
from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import (
    FieldSpec,
    HttpInputSpec,
    KeySpec,
    StreamSpec,
    TimeSpec,
    TopicSpec,
)
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.model.mqtt import MqttSpec, overlap

S = 1_000_000
LAB = replace(
    stream("lab"),
    key=KeySpec(field="mote"),
    time=TimeSpec(field="at", unit="ms"),
    fields=(FieldSpec("t", "temperature"), FieldSpec("state", "state", is_text=True)),
    topic=TopicSpec("lab-readings"),
)


def test_readings_have_the_declared_names_units_and_keys() -> None:
    made = GeneratedReadings(LAB, SendingSchedule(500_000.0), 2, begin_us=100 * S).columns(0, 3)
    assert list(made) == ["mote", "at", "temperature", "state"]
    assert made["mote"] == ["device-1", "device-2", "device-1"]
    assert made["at"] == [100_000, 100_500, 101_000]
    assert made["state"] == ["ok"] * 3
    assert all(18 <= value <= 22 for value in made["temperature"])
    for unit, first in (("s", 100), ("us", 100 * S), ("ns", 100 * S * 1_000)):
        spec = replace(LAB, time=TimeSpec(field="at", unit=unit))  # type: ignore[arg-type]
        assert GeneratedReadings(spec, SendingSchedule(1.0 * S), 1, 100 * S).columns(0, 1)[
            "at"
        ] == [first]
    iso = replace(LAB, time=TimeSpec(field="at", unit="iso"), key=KeySpec(value="k"))
    found = GeneratedReadings(iso, SendingSchedule(1.0 * S), 1, 100 * S).columns(0, 1)
    assert found["at"] == ["1970-01-01T00:01:40.000000+00:00"]
    assert "mote" not in found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": None}, "`slackwater ingest lab=FILE --as-now` sends one"),
        ({"topic": TopicSpec("t", format="avro")}, "messages of format avro are not generated"),
        ({"fields": (FieldSpec("t", "payload.t"),)}, r"payload\.t is not a plain name"),
        ({"time": TimeSpec(field="at", format="%H")}, "times of a `format`"),
    ],
)
def test_what_cannot_be_generated_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check(replace(LAB, **changes))


def test_topics_and_http_are_accepted() -> None:
    check(LAB)
    check(replace(LAB, topic=None, http=HttpInputSpec()))


def test_values_of_a_file_are_sent_row_by_row_and_again(tmp_path: Path) -> None:
    plain, packed = tmp_path / "v.csv", tmp_path / "v.csv.gz"
    plain.write_text("at,state,temperature,more\n1,on,20.5,x\n2,,21,x\n3,off,,x\n")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for file in (plain, packed):
        values = read_values(LAB, file)
        made = GeneratedReadings(LAB, SendingSchedule(1.0 * S), 1, 100 * S, values).columns(1, 5)
        assert made["temperature"] == [21, None, 20.5, 21]
        assert made["state"] == [None, "off", "on", None]
        assert made["at"] == [101_000, 102_000, 103_000, 104_000], "those of the clock"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"at,temperature\n1,20\n", "has no column state, a field of lab"),
        (b"state,temperature\n", "has no rows"),
        (b"state,temperature\non,warm\n", "could not convert string to float: 'warm'"),
        (gzip.compress(b"state,temperature\non,1\n", mtime=0)[:-9], "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
@pytest.mark.parametrize("name", ["v.csv", "v.csv.gz"])
def test_a_file_without_values_is_refused(
    tmp_path: Path, content: bytes, reason: str, name: str
) -> None:
    file = tmp_path / name
    if content.startswith(b"\x1f\x8b") != name.endswith(".gz"):
        reason = "cannot be read|has no column"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        read_values(LAB, file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_values(LAB, tmp_path / "none.csv")


# MQTT.


def mqtt(settings: str) -> StreamSpec:
    """Return a stream whose ``mqtt`` has these settings."""
    declared = "key: {level: 2}, time: {field: at, unit: ms}, fields: [t], expect_every: 5s"
    broker = f'mqtt: {{broker: "127.0.0.1:1", {settings}}}'
    text = f"apiVersion: slackwater/v1\nstreams:\n  lab: {{{broker}, {declared}}}\n"
    text += "queries:\n  q: {from: [lab], bound: 2s}\n"
    return parse_deployment(text, "x").deployment.streams["lab"]


@pytest.mark.parametrize(
    ("topics", "level", "topic"),
    [
        ("plant/+/climate", 2, "plant/device-1/climate"),
        ("plant/+/+", 2, "plant/device-1/generated"),
        ("plant/#", 2, "plant/device-1"),
        ("plant/#", 4, "plant/generated/generated/device-1"),
        ("plant/room/climate", None, "plant/room/climate"),
        ("+", 1, "device-1"),
        ("#", None, "generated"),
        ("plant/room", 2, "plant/room"),
    ],
)
def test_a_topic_is_made_of_the_filter(topics: str, level: int | None, topic: str) -> None:
    spec = MqttSpec("h", 1883, (topics,), "c")
    assert topic_of(spec, level, "device-1") == topic
    assert overlap(topics, topic)


@pytest.mark.parametrize("format_", ["json", "json-array", "json-columns"])
def test_messages_of_mqtt_are_read_as_they_were_generated(format_: str) -> None:
    spec = mqtt(f"topics: [plant/+/climate], format: {format_}, sequence: {{field: n}}")
    schedule = SendingSchedule(1.0 * S)
    columns = GeneratedReadings(spec, schedule, 2, 1_700_000_000 * S).columns(0, 5)
    check(spec)

    found = []
    for topic, payload in messages(spec, columns, 100):
        value = orjson.loads(payload)
        if format_ == "json-columns":
            value = [
                dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)
            ]
        some = value if isinstance(value, list) else [value]
        found += [(topic, each["at"], each["t"], each["n"]) for each in some]
    devices = [f"plant/{device}/climate" for device in columns["$device"]]
    wanted = zip(devices, columns["at"], columns["t"], range(100, 105), strict=True)
    assert sorted(found) == sorted(wanted)


def test_a_bare_number_is_published_alone() -> None:
    spec = replace(
        mqtt("topics: [lab/+]"), time=TimeSpec(from_="arrival"), fields=(FieldSpec("t", "t"),)
    )
    assert spec.mqtt is not None
    spec = replace(spec, mqtt=replace(spec.mqtt, format="number"))
    columns = GeneratedReadings(spec, SendingSchedule(1.0 * S), 1, 0).columns(0, 2)
    assert [payload for _, payload in messages(spec, columns, 0)] == [
        orjson.dumps(value) for value in columns["t"]
    ]


def test_a_broker_that_is_away_is_one_sentence() -> None:
    spec = mqtt("topics: [lab/+]")
    assert spec.mqtt is not None
    away = replace(spec, mqtt=replace(spec.mqtt, port=free_port()))
    with pytest.raises(EnvironmentProblem, match=r"MQTT broker 127\.0\.0\.1:\d+: .*refused"):
        MqttPublisher(away, 0).__enter__()


def test_a_silence_has_two_ends() -> None:
    assert parse_silence("10s..1m") == (10 * S, 60 * S)
    for wrong in ("10s", "10s..5s", "..", "a..b"):
        with pytest.raises(UsageError, match=r"write FROM\.\.TO, as in 10s\.\.20s"):
            parse_silence(wrong)


class Virtual:
    """A clock and an event: a wait takes no time, and the clock is then at its end."""

    def __init__(self) -> None:
        self.at_us = 1_000 * S

    def now_us(self) -> int:
        return self.at_us

    def seconds_until(self, at_us: int) -> float:
        return max(0, at_us - self.at_us) / S

    def is_set(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> bool:
        self.at_us += round(timeout_s * S)
        return False


class Recording:
    """Stands for a producer: when each reading was sent."""

    def __init__(self, clock: Virtual) -> None:
        self._clock = clock
        self.sent: list[tuple[int, int]] = []

    def send(self, readings: Any) -> None:
        now_s = (self._clock.at_us - 1_000 * S) // S
        self.sent += [(now_s, at // 1_000 - 1_000) for at in readings["at"]]


def sent_by(schedule: SendingSchedule) -> list[tuple[int, int]]:
    clock = Virtual()
    sender = Recording(clock)
    readings = GeneratedReadings(LAB, schedule, 1, clock.at_us)
    stopped: Any = clock
    begun: Any = clock
    n = run_sender(sender, readings, schedule, begun, stopped, clock.at_us)
    assert n == len(sender.sent)
    return sender.sent


def test_readings_are_sent_when_they_are_measured() -> None:
    assert sent_by(SendingSchedule(1.0 * S, 5 * S)) == [(s, s) for s in range(5)]
    fast = sent_by(SendingSchedule(100.0, 2 * S))
    assert len(fast) == 20_000
    assert [of for _, of in fast] == sorted(of for _, of in fast)
    assert sum(at != of for at, of in fast) <= 2 * 200, "a batch of 20 ms may end a second later"


def test_readings_of_a_silence_are_sent_after_it_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = sent_by(SendingSchedule(1.0 * S, 10 * S, silence=(3 * S, 7 * S)))
    assert found == [*((s, s) for s in range(3)), *((7, s) for s in range(3, 8)), (8, 8), (9, 9)]
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "silent for 4 s: readings are sent afterwards",
        "sending again: 5 readings of the silence",
    ]


def test_a_stop_ends_it() -> None:
    stopped = threading.Event()
    stopped.set()
    clock: Any = Virtual()
    schedule = SendingSchedule(1.0 * S)
    recording = Recording(clock)
    assert (
        run_sender(recording, GeneratedReadings(LAB, schedule, 1, 0), schedule, clock, stopped, 0)
        == 0
    )
    assert recording.sent == []


def test_a_deployment_that_runs_elsewhere_is_found_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text(
        "apiVersion: slackwater/v1\nclock: wall\nstreams:\n"
        "  lab: {topic: {name: t, format: json}, key: {field: k}, time: {field: at, unit: ms},"
        " fields: [x], sporadic: true}\n"
        "queries:\n  q: {from: [lab], window: {size: 1s}, aggregate: [count], bound: 1s}\n"
    )
    spec, _ = find_stream("lab", file, tmp_path)
    assert spec.topic is not None
    assert spec.topic.name == "t"
    with pytest.raises(UsageError, match="there is no stream attic, only lab"):
        find_stream("attic", file, tmp_path)
    with pytest.raises(EnvironmentProblem, match=r"no deployment runs from .*--deployment"):
        find_stream("lab", None, tmp_path)
