"""A history with ``clock: data`` on real processes: empty event time takes no time (trace-24)."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually

from slackwater.model.errors import SlackwaterError
from slackwater.model.names import Names
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.datadir import read_run

pytestmark = [pytest.mark.slow]

FILE = """\
apiVersion: slackwater/v1
clock: data
streams:
  room: {key: {column: node}, time: {column: at, unit: s}, fields: [x]}
queries:
  daily:
    {from: [room], window: {size: 1d}, aggregate: [count, sum, max], bound: 2s, replicas: 1}
  odd: {from: [room], where: x % 2 = 1, bound: 2s, replicas: 1}
  monthly:
    from: [daily]
    select: {sum: x_sum}
    window: {size: 30d}
    aggregate: [count, sum]
    bound: 4s
    replicas: 1
"""
BEGIN_S = 1_640_995_200
"""2022-01-01 00:00:00 UTC."""
DAY_S = 86_400
READINGS = 2_000
LATER = 1_000
"""Readings that arrive after queries have been added and changed."""
CHANGED = FILE.replace("x % 2 = 1", "x % 2 = 0") + (
    "  all: {from: [room], window: {size: 10d}, aggregate: [count], bound: 2s, replicas: 1}\n"
)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a deployment that runs, with a reading an hour in ``room.csv``."""
    (tmp_path / "d.yaml").write_text(FILE)
    lines = [f"n{i % 3},{time_of(i)},{i}\n" for i in range(READINGS)]
    (tmp_path / "room.csv").write_text("node,at,x\n" + "".join(lines))
    command = [sys.executable, "-m", "slackwater.cli.app", "up"]
    command += ["--deployment", str(tmp_path / "d.yaml"), "--data-dir", str(tmp_path / "data")]
    with (tmp_path / "up.log").open("ab") as log:
        up = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield tmp_path
    finally:
        up.terminate()
        up.wait()


def time_of(reading: int) -> int:
    """The time of a reading in seconds: within the first half of its hour."""
    return BEGIN_S + 3_600 * reading + 97 * reading % 1_800


def slackwater(folder: Path, *words: str) -> tuple[int, str]:
    """Run a command; return its exit code and its output."""
    command = [sys.executable, "-m", "slackwater.cli.app", *words]
    command += ["--data-dir", str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def rows(transport: KafkaTransport, query: str) -> list[dict[str, Any]]:
    """The rows of all stable answers."""
    log = (Names().results(query, "stable"), 0)
    try:
        answers = list(read_to_end(transport, log, isolation="read_committed"))
    except SlackwaterError:  # the topic does not exist yet
        return []
    return [row for raw in answers if (row := json.loads(raw.value))["kind"] == "stable"]


@pytest.mark.drill
def test_a_reading_an_hour_is_answered_as_fast_as_it_is_read(folder: Path) -> None:
    eventually(lambda: slackwater(folder, "ingest", "room", str(folder / "room.csv"))[0] == 0)
    run = read_run(folder / "data")
    assert run is not None
    transport = KafkaTransport(run.bootstrap)
    days = -(-(time_of(READINGS - 1) - BEGIN_S) // DAY_S)
    keys = days * 3
    odd = [i for i in range(READINGS) if i % 2]
    eventually(lambda: len(rows(transport, "odd")) >= len(odd), "all rows are there")
    eventually(lambda: len(rows(transport, "daily")) >= keys, "all days are there")

    assert [row["fields"]["x"] for row in rows(transport, "odd")] == odd
    wanted: dict[tuple[int, str], list[int]] = defaultdict(list)
    for i in range(READINGS):
        wanted[(time_of(i) - BEGIN_S) // DAY_S, f"n{i % 3}"].append(i)
    found = [row["fields"]["x"] for row in rows(transport, "daily")]
    of_keys = [wanted[key] for key in sorted(wanted)]
    assert [row["count"] for row in found] == [len(of) for of in of_keys]
    assert [row["max"] for row in found] == [max(of) for of in of_keys]
    assert all(math.isclose(row["sum"], sum(of)) for row, of in zip(found, of_keys, strict=True))

    months = {(day * DAY_S + BEGIN_S) // (30 * DAY_S) for day in range(days)}
    eventually(lambda: len(rows(transport, "monthly")) >= 3 * len(months), "all months are there")
    of_months = [row["fields"]["sum"] for row in rows(transport, "monthly")]
    assert sum(row["count"] for row in of_months) == keys
    assert math.isclose(sum(row["sum"] for row in of_months), sum(range(READINGS)))

    # At most a bucket for each reading, and a run of the 14,400 empty ones before the next.
    for query in ("daily", "odd"):
        ordered = Names().ordered(query, 0)
        ends = transport.end_offsets([(ordered, 0), (ordered, 1)])
        assert 0 < ends[ordered, 0] < 2.1 * READINGS + 100

    code, audited = slackwater(folder, "audit", "daily")
    assert code == 0, audited

    # Queries are added and changed while it runs; the new one begins with the history.
    (folder / "changed.yaml").write_text(CHANGED)
    code, applied = slackwater(folder, "query", "apply", str(folder / "changed.yaml"), "--wait")
    assert code == 0, applied
    tens = {(time_of(i) - BEGIN_S) // (10 * DAY_S) for i in range(READINGS)}
    eventually(lambda: len(rows(transport, "all")) >= 3 * len(tens), "all of the history is there")
    assert sum(row["fields"]["x"]["count"] for row in rows(transport, "all")) == READINGS
    last = time_of(READINGS - 1) // (30 * DAY_S) * (30 * DAY_S) + 30 * DAY_S
    later = range(10_000, 10_000 + LATER)
    lines = [f"n0,{last + 3_600 * at},{x}\n" for at, x in enumerate(later)]
    (folder / "later.csv").write_text("node,at,x\n" + "".join(lines))
    assert slackwater(folder, "ingest", "room", str(folder / "later.csv"))[0] == 0
    even = [x for x in later if not x % 2]
    eventually(lambda: len(rows(transport, "odd")) >= len(odd) + len(even), "all rows are there")
    assert [row["fields"]["x"] for row in rows(transport, "odd")] == odd + even
