"""Many keys in a running deployment: a million of them with a reading each ten seconds.

    python -m bench.keys_live [--keys 1000000] [--every 10] [--window 60] [--parts 4] [--windows 3]

`slackwater up` with one topic of JSON messages, one reading each, and one query whose roots have a
share of the keys each. The sender is a process of its own, and so is what reads results: neither
is counted. A row is *late* by the time from its window's normal time until a consumer has read it.
The first windows are not measured. In the end each row of the measured windows is compared with
what was sent. Memory is the largest resident set of a process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import psutil
from bench.idle import cpu_s
from bench.live import Up
from bench.wakeups import kind_of
from confluent_kafka import Consumer, Producer, TopicPartition

from slackwater.codec.results import parse_result, parse_time
from slackwater.model.names import RESULT_KINDS, Names

QUERY, STREAM = "many", "lab"
TICK_MS: Final = 20
WARM_WINDOWS: Final = 1
WAIT_S_MAX: Final = 60.0
LOOK_S: Final = 1.0
BOUNDARY: Final = b'"kind":"boundary"'
HEAD_BYTES: Final = 120
"""A result's kind is in its first bytes."""
MESSAGE: Final = b'{"device":"trip-%07d","time":%d,"speed":%.2f,"site":"lab-7"}'
FILE: Final = """\
apiVersion: slackwater/v1
streams:
  {stream}: {{topic: {{name: in-{stream}, format: json}}, key: {{field: device}},
       time: {{field: time, unit: ms}}, fields: [speed], expect_every: 1s}}
queries:
  {query}: {{from: [{stream}], window: {{size: {window}s}}, aggregate: [count, sum, min, max],
       bound: 5s, parts: {parts}, replicas: {replicas}, copies: {copies}}}
"""


def values_of(numbers: Any) -> Any:
    """Return the values of readings by their numbers; sums of some are exact."""
    return numbers * 7_919 % 1_000 / 4


def send(bootstrap: str, keys: int, per_s: int) -> None:
    """Send until ended. Reading n, counted since the epoch, is of key n % ``keys``."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    count = per_s * TICK_MS // 1_000
    tick = time.time_ns() // 1_000_000 // TICK_MS + 1
    while True:
        time.sleep(max(0.0, (tick + 1) * TICK_MS / 1e3 - time.time()))
        numbers = tick * count + np.arange(count)
        times_ms = tick * TICK_MS + np.arange(count) * TICK_MS // count
        columns = (numbers % keys).tolist(), times_ms.tolist(), values_of(numbers).tolist()
        messages = [{"value": MESSAGE % row} for row in zip(*columns, strict=True)]
        producer.produce_batch(f"in-{STREAM}", messages, partition=0)
        producer.poll(0)
        tick += 1


@dataclass
class Arrivals(threading.Thread):
    """Reads results until stopped; notes when rows were read, and does not parse them."""

    bootstrap: str
    parts: int
    late_s: dict[int, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    """By end of the window (s): delays, with their number of rows."""
    complete: Counter[int] = field(default_factory=Counter)
    """Stable boundaries, by end of the window (s)."""
    tentative: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._ending = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Read."""
        consumer = reader(self.bootstrap, self.parts, RESULT_KINDS)
        waiting: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
        while not self._ending.is_set():
            messages, now_s = consumer.consume(20_000, 0.1), time.time()
            rows: Counter[tuple[str, int]] = Counter()
            for message in messages:
                log = str(message.topic()), int(message.partition() or 0)
                value = bytes(message.value() or b"")
                rows[log] += 1
                if value.find(BOUNDARY, 0, HEAD_BYTES) >= 0:
                    row = parse_result(value)
                    end = parse_time(row["window_end"]) // 1_000_000
                    due_s = parse_time(row["due_at"]) / 1e6
                    waiting[log].append((now_s, rows.pop(log) - 1))
                    self.late_s[end] += [(at - due_s, n) for at, n in waiting.pop(log)]
                    (self.complete if row["label"] == "stable" else self.tentative)[end] += 1
            for log, n in rows.items():
                waiting[log].append((now_s, n))
        consumer.close()

    def stop(self) -> None:
        """Stop."""
        self._ending.set()
        self.join()


def reader(bootstrap: str, parts: int, kinds: Any) -> Consumer:
    """Return a consumer of all committed results of these kinds."""
    config = {"bootstrap.servers": bootstrap, "group.id": "seen", "log_level": 0}
    consumer = Consumer({**config, "isolation.level": "read_committed"})
    topics = [Names().results(QUERY, kind) for kind in kinds]
    consumer.assign([TopicPartition(topic, part, 0) for topic in topics for part in range(parts)])
    return consumer


class Memory(threading.Thread):
    """The largest resident set of each process (bytes), by kind and pid."""

    def __init__(self, up: Up) -> None:
        super().__init__(daemon=True)
        self._up, self._ending = up, threading.Event()
        self.largest: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        """Look each second until stopped."""
        while not self._ending.wait(LOOK_S):
            for process in self._up.processes():
                try:
                    of = kind_of(process.cmdline()), process.pid
                    self.largest[of] = max(self.largest.get(of, 0), process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    def stop(self) -> None:
        """Stop."""
        self._ending.set()
        self.join()


def wrong_rows(bootstrap: str, options: argparse.Namespace, ends: list[int]) -> dict[int, int]:
    """Read the stable rows of these windows again; return how many of each are wrong or absent."""
    keys, per_s, size = options.keys, options.keys // options.every, options.window
    expected = {}
    for end in ends:
        numbers = np.arange((end - size) * per_s, end * per_s)
        of = np.bincount(numbers % keys, values_of(numbers), keys)
        expected[f"{end}"] = of, np.zeros(keys, np.int64)
    consumer, each = reader(bootstrap, options.parts, ["stable"]), size // options.every
    left = dict.fromkeys(ends, options.parts)
    wrong: Counter[int] = Counter()
    while any(left.values()):
        messages = consumer.consume(20_000, 20.0)
        if not messages:
            raise SystemExit(f"windows are not complete: {left}")
        for message in messages:
            line = orjson.loads(message.value() or b"null")
            end = parse_time(line["window_end"]) // 1_000_000 if "window_end" in line else 0
            if end not in left:
                continue
            if line["kind"] == "boundary":
                left[end] -= 1
                continue
            sums, seen = expected[f"{end}"]
            key, of = int(line["key"].removeprefix("trip-")), line["fields"]["speed"]
            seen[key] += 1
            wrong[end] += of["count"] != each or of["sum"] != sums[key]
    consumer.close()
    return {end: wrong[end] + int((expected[f"{end}"][1] != 1).sum()) for end in ends}


def main() -> int:
    """Measure, and print Markdown; 1 if a row is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=10, help="seconds between a key's readings")
    parser.add_argument("--window", type=int, default=60, help="seconds")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--windows", type=int, default=3, help="measured ones")
    parser.add_argument("--send", nargs=3, metavar=("BOOTSTRAP", "KEYS", "RATE"))
    options = parser.parse_args()
    if options.send:
        send(options.send[0], int(options.send[1]), int(options.send[2]))
        return 0
    with tempfile.TemporaryDirectory(prefix="slackwater-keys-") as made:
        return measured(Path(made), options)


def measured(folder: Path, options: argparse.Namespace) -> int:
    """Run a deployment; print its figures; return 1 if a row is wrong."""
    of = {name: getattr(options, name) for name in ("window", "parts", "replicas", "copies")}
    up = Up(folder, options.replicas)
    (folder / "deployment.yaml").write_text(FILE.format(stream=STREAM, query=QUERY, **of))
    up.start()
    sender, memory = None, Memory(up)
    try:
        up.wait_ready()
        words = map(str, (up.bootstrap, options.keys, options.keys // options.every))
        sender = subprocess.Popen([sys.executable, "-m", "bench.keys_live", "--send", *words])
        arrivals = Arrivals(up.bootstrap, options.parts)
        arrivals.start()
        memory.start()
        size = options.window
        first = (int(time.time()) // size + 1 + WARM_WINDOWS) * size
        ends = [first + (n + 1) * size for n in range(options.windows)]
        time.sleep(first + size / 2 - time.time())
        before, began = cpu_s(up.processes()), time.monotonic()
        give_up = ends[-1] + WAIT_S_MAX
        while any(arrivals.complete[end] < options.parts for end in ends):
            if time.time() > give_up or sender.poll() is not None:
                print(f"not all windows are answered: {dict(arrivals.complete)}")
                break
            time.sleep(LOOK_S)
        spent, took_s = cpu_s(up.processes()), time.monotonic() - began
        memory.stop()
        arrivals.stop()
        sender.terminate()
        sender.wait()
        ends = [end for end in ends if arrivals.complete[end] == options.parts]
        wrong = wrong_rows(up.bootstrap, options, ends)
    finally:
        if sender is not None and sender.poll() is None:
            sender.kill()
        up.stop()
    if ends:
        show(options, arrivals, ends, wrong)
    print("| process | MB at most | cores |\n|---|---|---|")
    for kind in sorted(spent):
        held = sorted((mb for (of, _), mb in memory.largest.items() if of == kind), reverse=True)
        cores = (spent[kind] - before.get(kind, 0.0)) / took_s
        print(f"| {kind} | {', '.join(f'{mb / 1e6:.0f}' for mb in held)} | {cores:.2f} |")
    return int(any(wrong.values()) or len(ends) < options.windows)


def show(
    options: argparse.Namespace, arrivals: Arrivals, ends: list[int], wrong: dict[int, int]
) -> None:
    """Print a line for each window, and one for all."""
    print(f"{options.keys:,} keys, {options.keys // options.every:,} readings/s\n")
    print("| window | rows | late, s: p50 | p99 | last | tentative | wrong |")
    print(f"|{'---|' * 7}")
    every: list[tuple[float, int]] = []
    for name, of in (*enumerate(ends, 1), ("all", 0)):
        found = arrivals.late_s[of] if of else every
        every += found if of else []
        late = np.repeat([at for at, _ in found], [n for _, n in found])
        shown = " | ".join(f"{q:.2f}" for q in (*np.percentile(late, [50, 99]), late.max()))
        tentative = arrivals.tentative[of] if of else sum(arrivals.tentative[end] for end in ends)
        bad = wrong[of] if of else sum(wrong.values())
        print(f"| {name} | {len(late):,} | {shown} | {tentative} | {bad} |", flush=True)
    print()


if __name__ == "__main__":
    sys.exit(main())
