"""The examples of ``docs/examples``: each is read as its page has it, and as the judge reads it.

A data file has the form that its devices write. Messages of a topic are lines; those of MQTT have
their topic before them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest

from slackwater.deployment.parse import load_deployment
from slackwater.formats.carried import with_times
from slackwater.formats.csvfile import CsvFile
from slackwater.formats.guarded import reader_of
from slackwater.formats.messages import Parsed
from slackwater.judge.readers.files import read_stream
from slackwater.judge.readers.messages import read_message
from slackwater.judge.readings import FileReading
from slackwater.model.deployment import StreamSpec
from slackwater.model.text_codes import text_code
from slackwater.proxy.http.bodies import JSON, NDJSON, reader_for
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.mqtt.messages import MqttReader

FOLDER: Final = Path(__file__).parents[3] / "docs/examples"
KINDS: Final = {".csv": "", ".json": JSON, ".ndjson": NDJSON[0], ".senml.json": SENML}
NOW_US: Final = 1_782_907_200_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Expected(NamedTuple):
    """What an example has: its keys, first and last time, and for each field count and sum."""

    readings: int
    keys: str
    first: str
    last: str
    fields: dict[str, tuple[int, float]]
    malformed: int = 0


EXPECTED: Final[dict[str, Expected]] = {
    "air-quality-station": Expected(
        3,
        "roadside",
        "2004-03-10T18:00:00Z",
        "2004-03-10T20:00:00Z",
        {"co": (2, 4.8), "temperature": (2, 26.9)},
    ),
    "airgradient": Expected(
        1,
        "84fce602549c",
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:00:00Z",
        {"pm25": (1, 7.0), "co2": (1, 447.0), "temperature": (1, 25.87), "humidity": (1, 43.0)},
    ),
    "esphome-mqtt": Expected(
        4,
        "cellar attic",
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:00:00Z",
        {"temperature": (2, 28.75)},
    ),
    "davis-weatherlink": Expected(
        3,
        "orchard",
        "2026-07-01T07:00:00Z",
        "2026-07-01T20:00:00Z",
        {"temperature_f": (2, 146.1), "rain_in": (2, 0.01)},
    ),
    "dwd-station": Expected(
        3,
        "44 73",
        "2026-07-01T00:00:00Z",
        "2026-07-01T00:00:00Z",
        {"temperature": (3, 49.6), "humidity": (2, 171.5)},
    ),
    "epoch-floats": Expected(
        3,
        "pi-1 pi-2",
        "2026-07-01T12:00:00.000123Z",
        "2026-07-01T12:00:02Z",
        {"temperature": (2, 21.5), "pressure": (2, 202650.0)},
    ),
    "excel-german": Expected(
        4,
        "Küche Bad",
        "2026-10-24T23:30:00Z",
        "2026-07-01T10:00:00Z",
        {"temperature": (4, 87.25), "humidity": (2, 95.0)},
    ),
    "hobo-logger": Expected(
        3,
        "greenhouse",
        "2026-07-01T16:55:00Z",
        "2026-07-01T17:00:31Z",
        {"temperature": (2, 48.799)},
    ),
    "home-assistant": Expected(
        5,
        "sensor.kitchen_temperature binary_sensor.door",
        "2026-07-01T10:00:00Z",
        "2026-07-01T10:08:00Z",
        {"state": (3, 22.5)},
    ),
    "meter-columns": Expected(
        5,
        "m-17 m-18 m-19",
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:00:00Z",
        {"energy": (4, 255.0), "quality": (5, 4.0)},
    ),
    "modbus-gateway": Expected(
        4,
        "1 2 3",
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:00:10.020000Z",
        {"voltage": (2, 460.3), "current": (3, 2.75)},
    ),
    "netatmo-export": Expected(
        2,
        "living-room",
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:05:00Z",
        {"temperature": (2, 44.9), "co2": (1, 612.0)},
    ),
    "openweathermap": Expected(
        2,
        "Berlin Bergen",
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:01:40Z",
        {"temperature_k": (2, 583.45), "condition": (2, 1300.0), "rain_mm": (1, 0.4)},
    ),
    "pump-controller": Expected(
        3,
        "p1 p2",
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:00:02Z",
        {
            "pressure": (3, 8.75),
            "running": (3, 2.0),
            "mode": (2, text_code("auto") + text_code("maintenance")),
        },
    ),
    "purpleair-local": Expected(
        2,
        "84:f3:eb:0:1 84:f3:eb:0:2",
        "2026-07-01T00:00:10Z",
        "2026-07-01T00:00:12Z",
        {"aqi": (2, 167.0), "temperature_f": (1, 81.0)},
    ),
    "python-collector": Expected(
        3,
        "lab esp",
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:00:02Z",
        {"temperature": (1, 20.25), "humidity": (2, 81.5)},
    ),
    "senml-pack": Expected(
        2,
        "urn:dev:mac:0024befffe804ff1",
        "2026-07-01T12:00:00Z",
        "2026-07-01T11:59:50Z",
        {"temperature": (2, 41.5), "humidity": (1, 40.0)},
    ),
    "sensor-community": Expected(
        3,
        "141 142",
        "2026-07-01T00:00:37Z",
        "2026-07-01T00:00:12Z",
        {"pm10": (2, 19.7), "pm25": (2, 9.03)},
    ),
    "shelly-gen1": Expected(
        3,
        "plug-1 plug-2",
        "2026-07-01T12:00:00Z",
        "2026-07-01T12:01:01Z",
        {"power": (2, 12.5), "on": (3, 2.0)},
    ),
    "sma-inverter": Expected(
        3,
        "roof",
        "2026-07-01T10:00:00Z",
        "2026-07-01T10:10:00Z",
        {"power_kw": (2, 8.518), "yield_kwh": (3, 30704.59)},
    ),
    "tasmota-energy": Expected(
        3,
        "plug-1 desk",
        "2026-07-01T10:00:00Z",
        "2026-12-01T11:00:05Z",
        {"power": (1, 85.0), "temperature": (1, 21.5)},
    ),
    "thingspeak-channel": Expected(
        3,
        "channel-9",
        "2026-07-01T00:00:15Z",
        "2026-07-01T00:00:45Z",
        {"temperature": (2, 39.7), "battery": (2, 7.41)},
    ),
    "ttn-uplink": Expected(
        2,
        "soil-1 soil-2",
        "2026-07-01T10:00:00.123456Z",
        "2026-07-01T10:00:01.500000Z",
        {"moisture": (1, 31.5), "rssi": (2, -189.0)},
    ),
    "zigbee2mqtt": Expected(
        3,
        "kitchen door",
        "2026-07-01T10:00:00Z",
        "2026-07-01T10:00:09Z",
        {"temperature": (1, 21.53), "contact": (2, 1.0), "battery": (2, 152.0)},
    ),
}


class ExampleReading(NamedTuple):
    """One reading, and its values by field."""

    stime: int
    key: str
    values: tuple[float | None, ...]


def data_of(name: str) -> Path:
    (found,) = (path for path in FOLDER.glob(f"{name}.*") if path.suffix != ".yaml")
    return found


def declared(name: str) -> StreamSpec:
    (spec,) = load_deployment(FOLDER / f"{name}.yaml").streams.values()
    assert spec.name == name
    return spec


def readings_in(parsed: Parsed) -> list[ExampleReading]:
    columns = [column.tolist() for column in parsed.values]
    return [
        ExampleReading(stime, parsed.keys[code], tuple(_value(column[i]) for column in columns))
        for i, (stime, code) in enumerate(
            zip(parsed.stimes.tolist(), parsed.key_index.tolist(), strict=True)
        )
    ]


def _value(value: float) -> float | None:
    return None if math.isnan(value) else value


def by_reader(spec: StreamSpec, path: Path) -> tuple[list[ExampleReading], int]:
    """Return the readings by the stream's own reader, and the number of malformed ones."""
    data = path.read_bytes()
    if spec.mqtt is not None:
        lines = [line.split(b" ", 1) for line in data.splitlines()]
        messages = [Message(topic.decode(), text, len(text)) for topic, text in lines]
        times = np.full(len(messages), NOW_US) if spec.time.from_ == "arrival" else None
        (read,) = MqttReader(spec, None).read(0, messages, times)
        return readings_in(read.parsed), len(read.parsed.bad)
    if spec.topic is not None:
        parsed = reader_of(spec).parse(data.splitlines())
        return readings_in(parsed), len(parsed.bad)
    if spec.http is not None:
        kind = KINDS["".join(path.suffixes)]
        reader = reader_for(spec, kind, NOW_US)
        assert reader is not None
        parsed = reader(data).parsed
        if spec.time.from_ == "arrival":
            parsed = with_times(parsed, np.full(len(parsed.stimes), NOW_US))
        return readings_in(parsed), len(parsed.bad)
    found: list[ExampleReading] = []
    malformed = 0
    for piece in CsvFile(spec, path).pieces():
        arrived = piece.arrived
        columns = [column.tolist() for column in arrived.values]
        pairs = zip(arrived.stimes.tolist(), arrived.key_index.tolist(), strict=True)
        found += [
            ExampleReading(
                stime, arrived.keys[code], tuple(_value(column[i]) for column in columns)
            )
            for i, (stime, code) in enumerate(pairs)
        ]
        malformed += len(piece.malformed)
    return found, malformed


def by_judge(spec: StreamSpec, path: Path) -> Sequence[FileReading] | None:
    """Return the readings by the judge's reader; None for a form that it does not read."""
    if spec.topic is not None:
        lines = path.read_bytes().splitlines()
        found = [one for line in lines for one in read_message(spec, spec.topic.format, line)]
        return [one for one in found if isinstance(one, FileReading)]
    if spec.mqtt is not None or spec.http is not None:
        return None
    return read_stream(spec, path).readings


def us(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


NAMES: Final = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def test_there_are_twenty_and_each_is_on_the_page() -> None:
    page = (FOLDER / "README.md").read_text()
    listed = re.findall(r"^\| \[([a-z0-9-]+)\]\(([a-z0-9-]+)\.yaml\)", page, re.MULTILINE)
    assert [name for name, _ in listed] == [target for _, target in listed] == NAMES
    assert len(NAMES) >= 20
    assert sorted(EXPECTED) == NAMES
    assert {data_of(name).name for name in NAMES} | {f"{n}.yaml" for n in NAMES} == {
        path.name for path in FOLDER.iterdir() if path.name != "README.md"
    }


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_the_values_that_its_devices_wrote(name: str) -> None:
    spec, path, expected = declared(name), data_of(name), EXPECTED[name]
    found, malformed = by_reader(spec, path)
    fields = {
        field: (sum(v is not None for v in column), sum(v for v in column if v is not None))
        for field, column in zip(
            spec.field_names, zip(*(one.values for one in found), strict=True), strict=True
        )
    }
    assert fields == {
        field: (count, pytest.approx(total)) for field, (count, total) in expected.fields.items()
    }
    assert (len(found), malformed) == (expected.readings, expected.malformed)
    assert " ".join(dict.fromkeys(one.key for one in found)) == expected.keys
    assert found[0].stime == us(expected.first)
    assert found[-1].stime == us(expected.last)


@pytest.mark.parametrize("name", NAMES)
def test_the_judge_reads_the_same(name: str) -> None:
    spec, path = declared(name), data_of(name)
    judged = by_judge(spec, path)
    if judged is None:
        pytest.skip("the judge reads files and messages of topics")
    found, _ = by_reader(spec, path)
    assert [tuple(one) for one in found] == [(one.stime, one.key, one.values) for one in judged]


def test_a_changed_value_is_noticed(tmp_path: Path) -> None:
    spec, path = declared("epoch-floats"), data_of("epoch-floats")
    changed = tmp_path / path.name
    changed.write_bytes(path.read_bytes().replace(b"21.5", b"21.6"))
    assert by_reader(spec, changed) != by_reader(spec, path)
    assert np.isfinite(by_reader(spec, changed)[0][0].values[0] or math.nan)
