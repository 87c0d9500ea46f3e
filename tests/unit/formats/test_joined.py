"""Keys and times of several parts: alike by every input, and never one key for two devices."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.every_input import (
    INPUTS,
    MALFORMED,
    Outcome,
    Row,
    by_json,
    of_http,
    of_messages,
    timed,
)

from slackwater.formats.avro import reader as avro_reader
from slackwater.formats.columns import key_chars_max
from slackwater.formats.joined import joined_keys, key_of_parts
from slackwater.formats.json_input import JsonReader
from slackwater.formats.scan.plan import Plan, UnsupportedSpec
from slackwater.model.deployment import KeySpec, TimeSpec
from slackwater.model.mqtt import MqttSpec
from slackwater.proxy.http.bodies import reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.mqtt.messages import MqttReader
from slackwater.proxy.requests import UnusableBody

BY_SITE = KeySpec(columns=("site", "sensor"), join="/")
DATED = TimeSpec(("date", "clock"), format="%d.%m.%Y %H:%M:%S")
SPEC = replace(timed(DATED), key=BY_SITE)
NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
UNCLEAR = "key: a part contains '/', which joins the parts"


def row(site: str, sensor: str, date: str = "01.03.2026", clock: str = "12:00:00") -> Row:
    return {"site": site, "sensor": sensor, "date": date, "clock": clock, "v": 1.5}


ROWS: list[Row] = [
    row("kitchen", "temp"),
    row("hall", "temp"),
    row("a", "b/c"),
    row("a/b", "c"),
    row("", "temp"),
    row(" hall ", " temp "),
    row("hall", "temp", clock="12:00:01"),
    row("hall", "temp", date="32.03.2026"),
    row("hall", "temp", date=" 01.03.2026 ", clock=" 12:00:02 "),
]
WANTED: list[Outcome] = [
    ("kitchen/temp", NOON),
    ("hall/temp", NOON),
    UNCLEAR,
    UNCLEAR,
    "key",
    ("hall/temp", NOON),
    ("hall/temp", NOON + 1_000_000),
    "time",
    ("hall/temp", NOON + 2_000_000),
]


def as_reported(by: str, outcome: Outcome) -> Outcome:
    """Return the outcome in the words of an input; tables say what is wrong with a key."""
    if isinstance(outcome, str) and by == "judge":
        return MALFORMED
    is_table = by in ("file", "http csv", "http arrow")
    return "empty key" if outcome == "key" and is_table else outcome


@pytest.mark.parametrize("by", INPUTS)
@pytest.mark.parametrize("copies", [1, 9])
def test_every_input_joins_keys_and_times_alike(by: str, copies: int) -> None:
    expected = [as_reported(by, outcome) for outcome in WANTED * copies]
    assert INPUTS[by](SPEC, ROWS * copies) == expected


@pytest.mark.parametrize("by", INPUTS)
def test_rows_that_are_all_sound_take_the_quick_way_to_the_same_result(by: str) -> None:
    rows = [row(f"site-{i % 7}", f"s{i % 3}", clock=f"12:{i:02}:00") for i in range(60)]
    found = INPUTS[by](SPEC, rows)
    assert found == [(f"site-{i % 7}/s{i % 3}", NOON + i * 60_000_000) for i in range(60)]


def test_a_sound_batch_of_json_is_read_as_columns() -> None:
    reader = JsonReader(of_messages(SPEC))
    messages = [json.dumps(row("a", f"s{i % 3}")).encode() for i in range(60)]
    assert reader._quick(messages, 0) is not None


def test_a_sound_batch_of_avro_is_read_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_reader._Plan, "_outcome", None)  # message by message it fails
    rows = [row("a", f"s{i % 3}") for i in range(60)]
    assert INPUTS["avro"](SPEC, rows) == [(f"a/s{i % 3}", NOON) for i in range(60)]


@pytest.mark.parametrize("by", INPUTS)
def test_parts_may_be_whole_numbers(by: str) -> None:
    time = TimeSpec(("day", "clock"), format="%Y%m%d%H%M", join="")
    spec = replace(timed(time), key=KeySpec(columns=("site", "sensor"), join=" - "))
    rows: list[Row] = [
        {"site": 7, "sensor": -2, "day": 20260301, "clock": 1200, "v": 1.5},
        {"site": 8, "sensor": 0, "day": 20260301, "clock": 1200, "v": 1.5},
    ]
    expected = [("7 - -2", NOON), ("8 - 0", NOON)]
    assert INPUTS[by](spec, rows * 10) == expected * 10


@pytest.mark.parametrize("by", INPUTS)
def test_local_times_may_have_two_parts(by: str) -> None:
    spec = replace(SPEC, time=replace(DATED, zone="Europe/Berlin", fold="second"))
    rows = [row("a", "b", "25.10.2026", "02:30:00"), row("a", "b", "29.03.2026", "02:30:00")]
    second = int(datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp()) * 1_000_000
    missing = "time: 2026-03-29 02:30:00 does not exist in Europe/Berlin"
    expected = [as_reported(by, one) for one in (("a/b", second), missing)]
    assert INPUTS[by](spec, rows) == expected


@pytest.mark.parametrize(
    "message",
    [
        {"sensor": "b", "date": "01.03.2026", "clock": "12:00:00"},
        {"site": None, "sensor": "b", "date": "01.03.2026", "clock": "12:00:00"},
        {"site": 1.5, "sensor": "b", "date": "01.03.2026", "clock": "12:00:00"},
        {"site": ["a"], "sensor": "b", "date": "01.03.2026", "clock": "12:00:00"},
    ],
)
@pytest.mark.parametrize("copies", [1, 20])
def test_a_part_that_is_no_text_makes_a_reading_malformed(message: Any, copies: int) -> None:
    found = by_json(SPEC, [message] * copies)
    assert set(found) <= {"key", "key is an array"}


def test_a_time_without_one_of_its_parts_is_malformed() -> None:
    rows: list[Row] = [{"site": "a", "sensor": "b", "date": "01.03.2026", "v": 1}] * 20
    assert set(by_json(SPEC, rows)) == {"time"}


PARTS = st.lists(st.text("ab/ \u2003", max_size=4), min_size=2, max_size=4)


@settings(max_examples=300)
@given(st.lists(PARTS, min_size=1, max_size=30), st.sampled_from(["/", "a", " ", "//", "b/"]))
def test_columns_agree_with_the_definition_and_keys_name_one_device(
    rows: list[list[str]], join: str
) -> None:
    width = min(map(len, rows))
    rows = [parts[:width] for parts in rows]
    columns = [pa.array([parts[i] for parts in rows], pa.string()) for i in range(width)]
    texts, unclear = joined_keys(columns, join)
    known: dict[str, list[str]] = {}
    for parts, text, is_unclear in zip(rows, texts.to_pylist(), unclear, strict=True):
        stripped = [part.strip() for part in parts]
        key, fault = key_of_parts(stripped, join)
        assert bool(fault) == (text == "" or bool(is_unclear))
        if not fault:
            assert key == text
            assert known.setdefault(key, stripped) == stripped, "one key for two devices"


def test_a_joined_key_may_be_too_long() -> None:
    half = "k" * (key_chars_max // 2)
    assert key_of_parts([half, half[1:]], "/")[1] == ""
    assert key_of_parts([half, half], "/")[1] == "key"
    assert INPUTS["file"](SPEC, [row(half, half)]) == ["long key"]


def test_the_scanner_leaves_several_parts_to_the_columns() -> None:
    with pytest.raises(UnsupportedSpec, match="several parts"):
        Plan(replace(of_messages(SPEC), time=TimeSpec(field="t", unit="us")), 0)


def test_several_levels_of_a_topic_are_one_key() -> None:
    """Two rooms with a sensor of one name are two devices."""
    mqtt = MqttSpec("h", 1883, ("home/#",), "c")
    spec = replace(timed(TimeSpec(field="t", unit="us")), key=KeySpec(levels=(2, 4)), mqtt=mqtt)
    topics = [
        *("home/kitchen/1/temp", "home/hall/1/temp", "home/hall/1", "home//1/temp"),
        "home/ hall /1/ temp ",
    ]
    payload = b'{"t":5,"v":1}'
    reader = MqttReader(spec, None)
    (found,) = reader.read(0, [Message(topic, payload, len(payload)) for topic in topics])
    keys = [found.parsed.keys[i] for i in found.parsed.key_index.tolist()]
    assert keys == ["kitchen/temp", "hall/temp", "hall/temp"]
    assert [(bad.index, bad.detail) for bad in found.parsed.bad] == [
        (2, "key: no such level in the topic"),
        (3, "key: no such level in the topic"),
    ]
    dashed = replace(spec, key=KeySpec(levels=(2, 4), join="-"))
    (found,) = MqttReader(dashed, None).read(0, [Message("home/a-b/1/c", payload, len(payload))])
    (bad,) = found.parsed.bad
    assert bad.detail == "key: a part contains '-', which joins the parts"


def test_a_name_of_senml_is_a_key_of_one_part() -> None:
    reader = reader_for(of_http(SPEC), SENML, 0)
    assert reader is not None
    with pytest.raises(UnusableBody, match=r"several parts, and a name of SenML is one") as error:
        reader(b'[{"bn":"a","n":":v","v":1}]')
    assert error.value.status == 415
