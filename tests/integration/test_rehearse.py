"""``slackwater rehearse`` and ``demo`` on the real pipeline with real data.

Each run starts a broker, two Sparks and all processes, replays real files, and judges itself; the
tests look at what a user gets: exit code, report, and the lines of ``results.jsonl``.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

DATA = Path(__file__).parents[1] / "data"
ROOMS = ("room-1", "room-2", "room-3", "room-4")

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(420)]

ROOMS_YAML = "apiVersion: slackwater/v1\nstreams:\n" + "".join(
    f"  {room}: {{key: {{column: node}}, time: {{column: ts, unit: ms}},"
    " fields: [temperature, humidity]}\n"
    for room in ROOMS
)
CLIMATE = """\
  climate:
    from: [room-1, room-2, room-3, room-4]
    window: {size: 1m}
    aggregate: [count, sum, avg, min, max, range, var, stddev]
    bound: 2s
"""
FELT = """\
  felt:
    from: [room-2, room-3]
    where: temperature > 20.5 and humidity is not null
    select: {felt: temperature * 1.8 + 32 - humidity / 10, t: temperature}
    window: {size: 2m, slide: 30s}
    aggregate: [count, avg, min, max]
    bound: 2s
    replicas: 1
"""
READINGS_YAML = (
    ROOMS_YAML
    + """\
queries:
  warm:
    from: [room-1, room-2]
    where: temperature > 20
    select: {f: temperature * 1.8 + 32, humidity: humidity}
    bound: 1s
    replicas: 1
  humid:
    from: [room-1, room-2]
    bound: 1s
    children: 2
    parts: 3
    replicas: 1
"""
)
CHAIN = """\
  hours:
    from: [minutes, room-3]
    where: temperature_count > 0 or temperature > 18
    select: {mean: temperature_avg, spread: humidity_stddev, here: temperature}
    window: {size: 3m, slide: 1m}
    aggregate: [count, avg, min, max]
    bound: 3s
    margin: 150ms
    replicas: 1
  minutes:
    from: [room-1, room-2]
    window: {size: 1m}
    aggregate: [count, avg, stddev]
    bound: 3s
    margin: 150ms
    replicas: 1
"""
ROAD_YAML = """\
apiVersion: slackwater/v1
streams:
  road:
    key: {value: road}
    time: {columns: [Date, Time], format: "%d/%m/%Y %H.%M.%S"}
    csv: {delimiter: ";", decimal: ","}
    fields: {co: "CO(GT)", temperature: T}
queries:
  daily:
    from: [road]
    where: co > -200 and temperature > -200
    select: {co: co, fahrenheit: temperature * 9 / 5 + 32}
    window: {size: 7d, slide: 1d}
    aggregate: [count, avg, min, max, stddev]
    bound: 3s
    replicas: 1
"""
MACHINE_YAML = """\
apiVersion: slackwater/v1
streams:
  patient:
    {key: {value: machine}, time: {column: timestamp, unit: iso}, fields: [value], disorder: 1h}
  strict: {key: {value: machine}, time: {column: timestamp, unit: iso}, fields: [value]}
queries:
  machine:
    from: [patient, strict]
    window: {size: 12h}
    aggregate: [count, sum, avg, min, max]
    bound: 3s
    replicas: 1
"""

JOIN_YAML = (
    "apiVersion: slackwater/v1\nstreams:\n"
    + "".join(
        f"  {room}: {{key: {{value: house}}, time: {{column: ts, unit: ms}},"
        " fields: [temperature, humidity]}\n"
        for room in ROOMS[:2]
    )
    + """\
queries:
  draught:
    from: [room-1, room-2]
    join: {left: room-1, right: room-2, within: 20s}
    where: left_humidity > 0
    select: {difference: left_temperature - right_temperature, humidity: right_humidity}
    window: {size: 1m}
    aggregate: [count, avg, min, max]
    bound: 2s
"""
)


@dataclass
class Ran:
    """A finished rehearsal."""

    code: int
    shown: str
    report: dict[str, Any]
    lines: list[dict[str, Any]]


def rehearse(folder: Path, deployment: str, inputs: dict[str, Path], *options: str) -> Ran:
    (folder / "deployment.yaml").write_text(deployment)
    command = [sys.executable, "-m", "slackwater.cli.app", "rehearse"]
    command += ["--deployment", "deployment.yaml", "--out", "r.jsonl", "--report", "report.json"]
    for stream, path in inputs.items():
        command += ["--input", f"{stream}={path}"]
    done = subprocess.run(
        [*command, *options], cwd=folder, capture_output=True, text=True, check=False, timeout=400
    )
    shown = done.stdout + done.stderr
    assert (folder / "report.json").exists(), shown
    report = orjson.loads((folder / "report.json").read_bytes())
    lines = [orjson.loads(line) for line in (folder / "r.jsonl").read_bytes().splitlines()]
    return Ran(done.returncode, shown, report, lines)


def rooms() -> dict[str, Path]:
    return {room: DATA / "room_climate" / f"node-{i}.csv.gz" for i, room in enumerate(ROOMS, 1)}


def agreed(ran: Ran) -> None:
    assert ran.code == 0, ran.shown
    assert ran.report["ok"]
    for query in ran.report["queries"].values():
        assert [query[what] for what in ("lost", "doubled", "uncorrected", "wrong")] == [0] * 4


def test_a_silence_of_three_bounds_turns_tentative_and_is_corrected(tmp_path: Path) -> None:
    """Two queries over some of the same streams, tumbling and sliding, a filter, a computed field.

    On a machine that is too busy other windows may be answered tentatively too; those of the
    silence must be, and must name who was silent.
    """
    ran = rehearse(
        tmp_path,
        ROOMS_YAML + "queries:\n" + CLIMATE + FELT,
        rooms(),
        *("--speed", "60", "--duration", "24s"),
        *("--fault", "at=8s silence room-2 for 6s"),
    )
    agreed(ran)
    assert ran.lines[0]["kind"] == "start"
    for name in ("climate", "felt"):
        assert ran.report["queries"][name]["n_tentative"] >= 3
    silenced, heard = (
        next(e["wall"] for e in ran.report["events"] if e["event"] == event)
        for event in ("silenced", "heard")
    )
    in_silence = [
        line
        for line in ran.lines
        if line.get("label") == "tentative" and silenced < line["due_at"] < line["seen_at"] < heard
    ]
    assert len(in_silence) >= 3
    assert all("room-2" in line["missing"] for line in in_silence)
    kinds = {line["kind"] for line in ran.lines}
    assert {"stable", "tentative", "boundary", "undo", "rec_done"} <= kinds


def test_two_rooms_joined_while_a_room_is_silent_and_an_orderer_dies(tmp_path: Path) -> None:
    """The join looks 20 s back: whoever starts again must have read that much again."""
    ran = rehearse(
        tmp_path,
        JOIN_YAML,
        {room: path for room, path in rooms().items() if room in ROOMS[:2]},
        *("--speed", "60", "--duration", "16s"),
        *("--fault", "at=4s silence room-2 for 5s", "--fault", "at=7s kill orderer/draught.0.a"),
        *("--fault", "at=12s kill orderer"),
    )
    agreed(ran)
    assert ran.report["queries"]["draught"]["n_tentative"] >= 1
    rows = [line for line in ran.lines if line["kind"] == "stable"]
    assert len(rows) > 10
    assert all(set(row["fields"]) == {"difference", "humidity"} for row in rows)
    pairs = [row["fields"]["difference"]["count"] for row in rows]
    assert max(pairs) > 6, "a reading joins several"


def test_every_reading_in_order_without_a_window_and_without_spark(tmp_path: Path) -> None:
    """R21: a silence, then the death of a root; one query has two children and three parts."""
    ran = rehearse(
        tmp_path,
        READINGS_YAML,
        {room: path for room, path in rooms().items() if room in ROOMS[:2]},
        *("--speed", "60", "--duration", "14s"),
        *("--fault", "at=2s silence room-2 for 6s", "--fault", "at=10s kill root/humid.1"),
    )
    agreed(ran)
    assert not [e for e in ran.report["events"] if e["process"].startswith("aggregator")]
    assert ran.report["queries"]["warm"]["n_tentative"] >= 3
    rows = [line for line in ran.lines if line["kind"] == "stable"]
    assert {row["part"] for row in rows if row["query"] == "humid"} == {1, 2}
    warm = [row for row in rows if row["query"] == "warm"]
    assert len(warm) > 50
    assert [row["stime"] for row in warm] == sorted(row["stime"] for row in warm)
    assert all(row["window_start"] <= row["stime"] < row["window_end"] for row in warm)
    assert all(set(row["fields"]) == {"f", "humidity"} for row in warm)
    runs = [line["windows"] for line in ran.lines if line["kind"] == "boundary"]
    assert max(runs) > 1, "empty buckets share a boundary where they come together"


def test_a_chain_passes_on_what_is_missing_and_corrects_itself(tmp_path: Path) -> None:
    """R20 and DPC, section 6.3: a source is silent, then the query that is read loses its root."""
    ran = rehearse(
        tmp_path,
        ROOMS_YAML + "queries:\n" + CHAIN,
        {room: path for room, path in rooms().items() if room != "room-4"},
        *("--speed", "60", "--duration", "18s"),
        *("--fault", "at=4s silence room-2 for 6s", "--fault", "at=13s kill root/minutes"),
    )
    agreed(ran)
    named = {
        query: {
            name
            for line in ran.lines
            if line["kind"] == "boundary" and line["query"] == query
            for name in line["missing"]
        }
        for query in ("minutes", "hours")
    }
    assert named["minutes"] == {"room-2"}
    assert "room-2" in named["hours"], "by its own name, through the query that lacked it"
    assert named["hours"] <= {"room-2", "minutes", "room-3"}
    kinds = {line["kind"] for line in ran.lines if line.get("query") == "hours"}
    assert {"stable", "tentative", "boundary", "undo", "rec_done"} <= kinds
    events = [(e["process"], e["event"]) for e in ran.report["events"]]
    assert ("root/minutes.0", "ready") in events


def test_decimal_commas_and_missing_values_of_a_year_of_air(tmp_path: Path) -> None:
    ran = rehearse(
        tmp_path,
        ROAD_YAML,
        {"road": DATA / "air_quality.csv.gz"},
        *("--speed", "2500000"),
    )
    agreed(ran)
    rows = [line for line in ran.lines if line["kind"] == "stable"]
    assert len(rows) > 350
    assert all(set(row["fields"]) == {"co", "fahrenheit"} for row in rows)


def test_a_file_that_steps_back_and_a_proxy_that_dies(tmp_path: Path) -> None:
    """The same file twice: late by a minute's patience, in time with an hour's."""
    path = DATA / "nab" / "machine_temperature_system_failure.csv.gz"
    ran = rehearse(
        tmp_path,
        MACHINE_YAML,
        {"patient": path, "strict": path},
        *("--speed", "500000", "--fault", "at=4s kill proxy/strict"),
    )
    agreed(ran)
    assert ran.report["quarantine"]["patient"] == {}
    assert ran.report["quarantine"]["strict"]["late"] > 0
    events = [(e["process"], e["event"]) for e in ran.report["events"]]
    assert ("proxy/strict", "killed") in events
    assert ("proxy/strict", "ready") in events


def test_the_demo_shows_windows_turn_tentative_undone_and_exact(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slackwater.cli.app", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tentative, without room-2" in done.stdout
    assert "undone, exact answers follow" in done.stdout
    assert "exact (corrected)" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.endswith("0 lost, 0 doubled, 0 uncorrected, 0 wrong")
