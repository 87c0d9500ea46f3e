"""Retention is quicker than an aggregator: nothing is lost, because the orderer says it again.

The aggregator is stopped; what the orderer writes meanwhile is deleted from its log but for the
last records; then the aggregator is killed. Its successor begins where the log begins. The root
finds seqs that nobody will send, jumps, sees a hole, and the orderer goes back to where the results
end (rules 11 and 28). The results are exact, and say of no gap.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime
from pathlib import Path

import orjson
import psutil
import pytest
from tests.integration.test_rehearse import ROOMS_YAML, agreed, rehearse, rooms

from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.topics import ordered_partition, ordered_topic

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(420)]

CLIMATE = """\
queries:
  climate:
    from: [room-1, room-2, room-3, room-4]
    window: {size: 1m}
    aggregate: [count, sum, avg]
    bound: 3s
    replicas: 1
"""
LOG = (ordered_topic("climate", 0), ordered_partition(0, live=False))
PAUSED_S, KILLED_S = 5, 9
LEFT = 5


def bootstrap_of(folder: Path) -> str:
    """Of the rehearsal that runs there, from the command line of its orderer."""
    while True:
        for process in psutil.process_iter(["cmdline", "cwd"]):
            command = process.info["cmdline"] or []
            if "slackwater.orderer" in command and process.info["cwd"] == str(folder):
                return str(command[command.index("--bootstrap") + 1])
        time.sleep(0.2)


def retention(folder: Path, cut: list[tuple[int, int]]) -> None:
    """Between the pause and the kill, delete what the aggregator has not read."""
    out = folder / "r.jsonl"
    while not (out.exists() and out.read_bytes().count(b"\n")):
        time.sleep(0.1)
    start = orjson.loads(out.read_bytes().splitlines()[0])
    anchor = datetime.fromisoformat(start["wall"]).timestamp()
    transport = KafkaTransport(bootstrap_of(folder))
    time.sleep(max(anchor + PAUSED_S + 0.3 - time.time(), 0))
    read = transport.end_offsets([LOG])[LOG]
    time.sleep(max(anchor + KILLED_S - 0.7 - time.time(), 0))
    end = transport.end_offsets([LOG])[LOG]
    transport.delete_records({LOG: end - LEFT})
    cut.append((read, end - LEFT))


def test_seqs_that_nobody_will_send_are_said_again(tmp_path: Path) -> None:
    cut: list[tuple[int, int]] = []
    threading.Thread(target=retention, args=(tmp_path, cut), daemon=True).start()
    ran = rehearse(
        tmp_path,
        ROOMS_YAML + CLIMATE,
        rooms(),
        *("--speed", "60", "--duration", "16s", "--wait", "120s"),
        *("--fault", f"at={PAUSED_S}s pause aggregator/0 for {KILLED_S + 1 - PAUSED_S}s"),
        *("--fault", f"at={KILLED_S}s kill aggregator/0"),
    )

    ((read, beginning),) = cut
    assert beginning > read + 10, "records were lost that the aggregator had not read"
    agreed(ran)
    assert not [line for line in ran.lines if line["kind"] == "gap"]
    assert [line for line in ran.lines if line["kind"] == "rec_done"]
