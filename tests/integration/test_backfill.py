"""``slackwater backfill`` on real processes; without a window, so without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from slackwater.codec.results import format_time
from slackwater.machine.starting import READY, STAGES
from slackwater.model.names import Names
from slackwater.runtime.logs.topics import ensure_inputs, own_topics

pytestmark = [pytest.mark.slow]

FILE = """\
apiVersion: slackwater/v1
clock: wall
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
  b: {http: {}, key: {field: k}, time: {field: t, unit: s}, fields: [x], disorder: 1h,
      sporadic: true}
queries:
  large: {from: [a, b], where: x >= 10, bound: 2s, replicas: 1}
"""


def test_files_of_unlike_length_are_run_to_their_ends(tmp_path: Path) -> None:
    """Stream b, of JSON, begins a year before a, and ends a year before it: two months of each."""
    (tmp_path / "d.yaml").write_text(FILE)
    year, hours = 365 * 24, 60 * 24
    a = [f"n,{3_600 * (year + hour)},{hour % 20}" for hour in range(hours)]
    b = [json.dumps({"k": "m", "t": 3_600 * hour, "x": hour % 20}) for hour in range(hours)]
    b += ['{"k": "m", "t": "never", "x": 1}']
    (tmp_path / "a.csv").write_text("k,t,x\n" + "".join(f"{row}\n" for row in a))
    for name, rows in (("b-1", b[700:]), ("b-2", b[:700])):
        (tmp_path / f"{name}.ndjson").write_text("".join(f"{row}\n" for row in rows))
    pq.write_table(pcsv.read_csv(tmp_path / "a.csv"), tmp_path / "a.parquet")
    command = [sys.executable, "-m", "slackwater.cli.app", "backfill", "d.yaml", "large"]
    command += ["--from", "a=a.parquet", "--from", "b=b-*.ndjson", "--check"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    began = [line.partition(" s: ")[2] for line in done.stdout.splitlines() if READY in line]
    assert began[0] == "Kafka"
    assert sorted(began[1:]) == sorted(STAGES[kind] for kind in ("proxy", "orderer", "root"))
    lines = (tmp_path / "large.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert {row["kind"] for row in records} == {"stable"}
    found = [(row["key"], row["fields"]["x"]) for row in records]
    large = [hour % 20 for hour in range(hours) if hour % 20 >= 10]
    assert found == [("m", x) for x in large] + [("n", x) for x in large]
    assert [row["stime"] for row in records] == sorted(row["stime"] for row in records)
    assert f"large: {len(records):,} rows in " in done.stdout
    assert "quarantine: 1 malformed" in done.stdout
    assert f"{2 * hours:,} readings in " in done.stdout
    verdict = done.stdout.splitlines()[-1]
    assert verdict.startswith(f"checked {len(records):,} rows in ")
    assert "0 lost, 0 doubled, 0 uncorrected, 0 wrong; all results equal" in verdict


JOINED = """\
apiVersion: slackwater/v1
prefix: in-topic.
clock: wall
streams:
  a: {topic: {name: TOPIC, format: json, from: end}, key: {field: k}, time: {field: t, unit: s},
      fields: [x], disorder: 1m, sporadic: true}
  b: {key: {column: k}, time: {column: t, unit: s}, fields: [y], disorder: 1m}
queries:
  near: {from: [a, b], join: {left: a, right: b, within: 10m}, bound: 2s}
  rising: {from: [near], where: right_y > left_x, select: {by: right_y - left_x}, bound: 4s}
"""


def test_a_topic_and_a_file_are_joined_and_a_chain_follows(bootstrap: str, tmp_path: Path) -> None:
    """Readings of twelve days are in a topic; one more comes while the command runs."""
    topic = f"history-{tmp_path.name}"
    ensure_inputs(bootstrap, {topic: 3})  # partition 2 stays empty
    (tmp_path / "d.yaml").write_text(JOINED.replace("TOPIC", topic))
    left = [(f"n{i % 2}", 3_600 * i + 37 * i % 1_800, i * 7 % 20) for i in range(300)]
    right = [(f"n{i % 2}", 3_600 * i + 53 * i % 1_800, i * 11 % 20) for i in range(300)]
    producer = Producer({"bootstrap.servers": bootstrap})

    def send(key: str, time: int, value: int) -> None:
        message = json.dumps({"k": key, "t": time, "x": value})
        producer.produce(topic, message.encode(), partition=int(key[1]))

    for reading in left:
        send(*reading)
    producer.flush()
    lines = [f"{key},{time},{value}\n" for key, time, value in right]
    (tmp_path / "b.csv").write_text("k,t,y\n" + "".join(lines))
    command = [sys.executable, "-m", "slackwater.cli.app", "backfill", "d.yaml", "rising"]
    command += ["--from", "a=beginning", "--from", "b=b.csv", "--bootstrap", bootstrap]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        output = [run.stdout.readline()]
        while "ready after" not in output[-1]:
            assert output[-1], output
            output.append(run.stdout.readline())
        send("n0", left[-1][1], 0)
        producer.flush()
        output += run.stdout.readlines()
    assert run.returncode == 0, "".join(output)

    pairs = [
        (max(t, other), k, y - x)
        for i, (k, t, x) in enumerate(left)
        for key, other, y in right[max(0, i - 2) : i + 3]
        if key == k and abs(t - other) <= 600 and y > x
    ]
    rows = [json.loads(line) for line in (tmp_path / "rising.jsonl").read_text().splitlines()]
    assert {row["kind"] for row in rows} == {"stable"}
    found = [(row["stime"], row["key"], row["fields"]["by"]) for row in rows]
    wanted = [(format_time(1_000_000 * t), k, by) for t, k, by in sorted(pairs)]
    assert len(wanted) > 20
    assert sorted(found) == sorted(wanted)
    assert f"{len(left) + len(right):,} readings in " in output[-1]
    assert not [name for name in own_topics(bootstrap, Names()) if name.startswith("in-topic.")]
