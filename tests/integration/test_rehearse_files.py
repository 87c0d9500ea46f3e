"""``slackwater rehearse`` on files of other kinds: another format, backward steps, a year.

The checks do not depend on time, so other tests may run in parallel.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.rehearsing import DATA, at, rehearse
from tests.support.reader_that_dies import RAISING, WORD, install

pytestmark = [pytest.mark.slow]

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
DYING_YAML = """\
apiVersion: slackwater/v1
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
  b: {key: {field: k}, time: {field: t, unit: s}, fields: [x]}
  c: {http: {}, key: {field: k}, time: {field: t, unit: s}, fields: [x], sporadic: true}
queries:
  q:
    from: [a, b, c]
    window: {size: 1m}
    aggregate: [count]
    bound: 2s
    replicas: 1
"""


# Its short form: tests/unit/formats/test_proxy_csv.py reads the same file against an oracle.
@pytest.mark.drill
def test_decimal_commas_and_missing_values_of_a_year_of_air(tmp_path: Path) -> None:
    ran = rehearse(tmp_path, ROAD_YAML, {"road": DATA / "air_quality.csv.gz"}, "--speed", "2500000")
    ran.agreed()
    rows = ran.of("daily", "stable")
    assert len(rows) > 350
    assert all(set(row["fields"]) == {"co", "fahrenheit"} for row in rows)


@pytest.mark.drill
def test_a_file_that_steps_back_and_a_proxy_that_dies(tmp_path: Path) -> None:
    """The same file twice: late with a disorder of a minute, in time with an hour."""
    path = DATA / "nab" / "machine_temperature_system_failure.csv.gz"
    ran = rehearse(
        tmp_path,
        MACHINE_YAML,
        {"patient": path, "strict": path},
        *("--speed", "500000", *at("4s kill proxy/strict")),
    )
    ran.agreed()
    assert ran.report["quarantine"]["patient"] == {}
    assert ran.report["quarantine"]["strict"]["late"] > 0
    assert {("proxy/strict", "killed"), ("proxy/strict", "ready")} <= ran.events()


@pytest.mark.drill
def test_a_line_that_ends_its_reader_is_in_no_window_and_no_other_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line of CSV, and one of JSON: the first crashes the process, the other raises."""
    monkeypatch.setenv("PYTHONPATH", install(tmp_path / "site"))
    inputs = {}
    rows = [f"{second},a,1" for second in range(600)]
    rows[300] = f"300,a,1,{WORD.decode()}"
    inputs["a"] = tmp_path / "a.csv"
    inputs["a"].write_text("t,k,x\n" + "\n".join(rows) + "\n")
    for room, name in (("b", "b.ndjson"), ("c", "c.json")):
        readings = [json.dumps({"t": second, "k": room, "x": 1}) for second in range(600)]
        inputs[room] = tmp_path / name
        if room == "b":
            readings[300] = json.dumps({"t": 300, "k": room, "x": 1, "y": RAISING.decode()})
            inputs[room].write_text("\n".join(readings))
        else:
            inputs[room].write_text(f"[{','.join(readings)}]")
    ran = rehearse(tmp_path, DYING_YAML, inputs, "--speed", "60")
    ran.agreed()
    assert ran.report["quarantine"] == {"a": {"crash": 1}, "b": {"crash": 1}, "c": {}}
    assert ("proxy/a", "ended by SIGABRT") in ran.events()
    counts = {
        (row["window_start"][14:16], row["key"]): row["fields"]["x"]["count"]
        for row in ran.of("q", "stable")
    }
    wanted = {(f"{minute:02}", room): 60 for minute in range(10) for room in inputs}
    assert counts == wanted | {("05", "a"): 59, ("05", "b"): 59}
