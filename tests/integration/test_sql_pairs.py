"""Queries of a file beside the same as statements, on real processes: equal results, byte for byte.

Both read one history with ``clock: data``, so that months of windows take no time. All that an
exact answer says is compared but its name, its numbers, and the times at which it was due and
written.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from tests.support.waiting import eventually
from tests.unit.sql.test_same_as_file import FIRST, PAIRS, SHORT, STREAMS, WITHIN

from slackwater.model.errors import SlackwaterError
from slackwater.model.names import Names
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.datadir import read_run

BATCH: Final = 9
"""Pairs that run at a time."""
NOT_HERE: Final = {"all options", "children with names"}
"""Copies and mergers need ``clock: wall``, and the children eight partitions."""
BEGIN_S: Final = 1_640_995_200
"""2022-01-01 00:00:00 UTC."""
HOURS: Final = range(0, 24 * 110, 11)
"""More than a quarter of a year, with a reading now and then in each stream."""
LATER_S: Final = 200 * 86_400
"""After them each stream has one more reading: it ends all windows."""
OF_THE_RUN: Final = re.compile(rb',"(?:due|emitted)_at":"[^"]+"|"(?:seq|epoch)":\d+,')
"""Empty windows are told of in one record or in several, and a machine that is too slow answers
tentatively first, so numbers depend on the pace.
"""
OF_ROOM: Final = [
    (f"{{from: [room-1], {written}, bound: 2s}}", text if "EMIT" in text else f"{text} {WITHIN}")
    for written, text in SHORT
]
ALL: Final = [pair for name, pair in PAIRS.items() if name not in NOT_HERE] + OF_ROOM


def write_history(folder: Path) -> list[dict[str, object]]:
    """Write the files of three streams; return the messages of the fourth."""
    numbers = random.Random(7)
    lines: dict[str, list[str]] = {"room-1": ["node,ts,temperature"], "room-2": ["d,t,T"]}
    lines["words"] = ["k,t,distinct,KEY,window_start"]
    messages = []
    for hour in [*HOURS, HOURS.stop + LATER_S // 3_600]:
        at_s = BEGIN_S + 3_600 * hour
        day = datetime.fromtimestamp(at_s, UTC)
        key = numbers.choice(["a", "it's", "hall"])
        x, y = round(numbers.uniform(-20, 30), 2), numbers.randrange(9)
        lines["room-1"].append(f"{key},{at_s * 1_000 + numbers.randrange(1_000)},{x}")
        lines["room-2"].append(f"{day:%Y-%m-%d},{day:%H},{round(numbers.uniform(-20, 30), 1)}")
        lines["words"].append(f"{key},{at_s},{y},{numbers.randrange(4)},{hour % 7}")
        message = {"mote": key, "at": at_s * 1_000_000, "temperature": x, "group": y}
        message |= {"emit": numbers.randrange(3), "status": numbers.choice(["ok", "it's", "off"])}
        messages.append(message)
    for stream, written in lines.items():
        (folder / f"{stream}.csv").write_text("\n".join(written) + "\n")
    return messages


@pytest.mark.slow
@pytest.mark.drill
@pytest.mark.timeout(900)
@pytest.mark.parametrize("begin", range(0, len(ALL), BATCH))
def test_the_results_of_a_statement_are_those_of_the_file(tmp_path: Path, begin: int) -> None:
    pairs = ALL[begin : begin + BATCH]
    messages = write_history(tmp_path)
    of_file = [f"  file{n}: {written}\n" for n, (written, _) in enumerate(pairs)]
    head = FIRST.replace("bound: 2s", "bound: 1s, replicas: 1")
    (tmp_path / "d.yaml").write_text(f"clock: data\n{STREAMS}{head}{''.join(of_file)}")
    creates = [f"CREATE QUERY text{n} AS {text};\n" for n, (_, text) in enumerate(pairs)]
    (tmp_path / "d.sql").write_text("".join(creates))
    directory = ["--data-dir", str(tmp_path / "data")]

    def slackwater(*words: str, code: int = 0) -> bool:
        command = [sys.executable, "-m", "slackwater.cli.app", *words, *directory]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in {0, code}, done.stdout + done.stderr
        return done.returncode == 0

    command = [sys.executable, "-m", "slackwater.cli.app", "up", str(tmp_path / "d.yaml")]
    with (tmp_path / "up.log").open("ab") as log:
        up = subprocess.Popen([*command, *directory], stdout=log, stderr=log)
    try:
        eventually(lambda: slackwater("query", "list", code=3), "it runs")
        slackwater("sql", "-f", str(tmp_path / "d.sql"))
        run = read_run(tmp_path / "data")
        assert run is not None
        producer = Producer({"bootstrap.servers": run.bootstrap})
        for message in messages:
            producer.produce("lab-readings", json.dumps(message).encode())
        assert producer.flush(30) == 0
        files = [f"{name}={tmp_path / name}.csv" for name in ("room-1", "room-2", "words")]
        slackwater("ingest", *files)
        transport = KafkaTransport(run.bootstrap)
        with_rows = 0
        for n, (written, _) in enumerate(pairs):
            one = answers(transport, f"file{n}", len(pairs))
            other = answers(transport, f"text{n}", len(pairs))
            assert one == other, written
            with_rows += bool(one)
        assert with_rows >= len(pairs) // 2, "of some conditions and joins nothing is true"
    finally:
        up.terminate()
        up.wait()


def answers(transport: KafkaTransport, query: str, n_pairs: int) -> list[bytes]:
    """Wait for the end of the history; return the exact rows, without what is of the run."""
    log = (Names().results(query, "stable"), 0)
    last = datetime.fromtimestamp(BEGIN_S + 3_600 * HOURS.stop, UTC).isoformat()
    found: list[bytes] = []

    def has_ended() -> bool:
        try:
            found[:] = [
                each.value for each in read_to_end(transport, log, isolation="read_committed")
            ]
        except SlackwaterError:  # the topic does not exist yet
            return False
        ends = (json.loads(each) for each in reversed(found))
        return any(end["kind"] == "boundary" and end["window_end"] > last for end in ends)

    eventually(has_ended, f"{query} has answered all", within_s=60.0 * n_pairs)
    rows = [each for each in found if b'"kind":"stable"' in each]
    return [OF_THE_RUN.sub(b"", each).replace(query.encode(), b"q", 1) for each in rows]
