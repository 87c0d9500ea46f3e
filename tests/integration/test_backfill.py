"""``slackwater backfill`` on real processes; without a window, so without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.slow]

FILE = """\
apiVersion: slackwater/v1
clock: wall
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
  b: {key: {column: k}, time: {column: t, unit: s}, fields: [x], disorder: 1h}
queries:
  large: {from: [a, b], where: x >= 10, bound: 2s, replicas: 1}
"""


def test_files_of_unlike_length_are_run_to_their_ends(tmp_path: Path) -> None:
    """Stream b begins a year before a, and ends a year before it."""
    (tmp_path / "d.yaml").write_text(FILE)
    year = 365 * 24
    a = [f"n,{3_600 * (year + hour)},{hour % 20}" for hour in range(year)]
    b = [f"m,{3_600 * hour},{hour % 20}" for hour in range(year)] + ["m,never,1"]
    for name, rows in (("a", a), ("b", b)):
        (tmp_path / f"{name}.csv").write_text("k,t,x\n" + "".join(f"{row}\n" for row in rows))
    pq.write_table(pcsv.read_csv(tmp_path / "a.csv"), tmp_path / "a.parquet")
    command = [sys.executable, "-m", "slackwater.cli.app", "backfill", "d.yaml", "large"]
    command += ["--from", "a=a.parquet", "--from", "b=b.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "large.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert {row["kind"] for row in records} == {"stable"}
    found = [(row["key"], row["fields"]["x"]) for row in records]
    large = [hour % 20 for hour in range(year) if hour % 20 >= 10]
    assert found == [("m", x) for x in large] + [("n", x) for x in large]
    assert [row["stime"] for row in records] == sorted(row["stime"] for row in records)
    assert f"large: {len(records):,} rows in " in done.stdout
    assert "quarantine: 1 malformed" in done.stdout
    assert f"{2 * year:,} readings in " in done.stdout
