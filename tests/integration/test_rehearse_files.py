"""``slackwater rehearse`` on files of other kinds: another format, backward steps, a year.

What is judged holds however long an answer takes, so other tests may run beside these.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.rehearsing import DATA, at, rehearse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

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


def test_decimal_commas_and_missing_values_of_a_year_of_air(tmp_path: Path) -> None:
    ran = rehearse(tmp_path, ROAD_YAML, {"road": DATA / "air_quality.csv.gz"}, "--speed", "2500000")
    ran.agreed()
    rows = ran.of("daily", "stable")
    assert len(rows) > 350
    assert all(set(row["fields"]) == {"co", "fahrenheit"} for row in rows)


def test_a_file_that_steps_back_and_a_proxy_that_dies(tmp_path: Path) -> None:
    """The same file twice: late by a minute's patience, in time with an hour's."""
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
