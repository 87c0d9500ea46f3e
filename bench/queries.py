"""Cost of a query: 1, 3, 10, ... queries over the same four streams, on this machine.

Each row is one `slackwater rehearse` with a silence of 5 s in one stream, so every window of every
query is compared with a batch computation. Its child processes are sampled from /proc meanwhile. A
row that fails is printed with the reason: overload is a result, too. The second table has the
wake-ups of the processes by kind, over the steady part.

The queries have the same sources, so they share their children (decision 93). With ``--distinct``
each has a different ``where``, and therefore its own children.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from bench.wakeups import Wakeups

STREAMS: Final = ("s1", "s2", "s3", "s4")
KEYS: Final = 10
SILENT_AT_S: Final = 20.0
SILENT_S: Final = 5.0
STEADY_S: Final = (6.0, 19.0)
"""The part of the replay over which CPU is measured: warm, and before the silence."""
SAMPLE_EVERY_S: Final = 1.0
WINDOWS: Final = ("{size: 1s}", "{size: 5s, slide: 1s}", "{size: 10s, slide: 2s}", "{size: 2s}")
START_US: Final = 1_600_000_000_000_000


@dataclass(slots=True)
class Usage:
    """Resources used by the processes of one rehearsal."""

    processes_max: int = 0
    memory_mb_max: float = 0.0
    """Sum of proportional set sizes: memory that processes share counts once."""
    began_at: float | None = None
    steady: list[tuple[float, float]] = field(default_factory=list)
    """(seconds of replay, CPU seconds of all processes up to then)."""
    wakeups: Wakeups = field(default_factory=Wakeups)
    """Over the steady part."""

    @property
    def cores(self) -> float:
        """CPU of all processes together over the steady part."""
        if len(self.steady) < 2:
            return float("nan")
        (t0, c0), (t1, c1) = self.steady[0], self.steady[-1]
        return (c1 - c0) / (t1 - t0)


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", default="1,3,10,20,30")
    parser.add_argument("--rate", type=int, default=400, help="readings/s of all streams together")
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--distinct", action="store_true", help="queries that share no children")
    options = parser.parse_args()
    print(
        f"{options.rate} readings/s over {len(STREAMS)} streams, {KEYS} keys, X = 2 s,"
        f" two replicas, one stream silent for {SILENT_S:g} s,"
        f" {'children of their own' if options.distinct else 'children shared'}\n"
    )
    print(
        "| queries | processes | memory MB | cores, steady | ready after s | exact | clean p50 ms"
        " | clean p99 ms | latest ms | beyond bound |"
    )
    print("|" + "---|" * 10, flush=True)
    worst, usages = 0, {count: Usage() for count in map(int, options.queries.split(","))}
    for count, usage in usages.items():
        with tempfile.TemporaryDirectory(prefix="slackwater-queries-") as folder:
            text = deployment(count, distinct=options.distinct)
            worst |= row(Path(folder), count, text, options.rate, options.seconds, usage)
    print(f"\n{wakeups(usages)}")
    return worst


def wakeups(usages: Mapping[int, Usage]) -> str:
    """Wake-ups a second, by number of queries and kind of process."""
    rates = {count: usage.wakeups.per_s() for count, usage in usages.items()}
    kinds = sorted({kind for of in rates.values() for kind in of})
    lines = [
        "| wake-ups/s | " + " | ".join([*kinds, "all"]) + " |",
        "|" + "---|" * (len(kinds) + 2),
    ]
    for count, of in rates.items():
        cells = [
            f"{each:,.0f}" for each in [*(of.get(kind, 0.0) for kind in kinds), sum(of.values())]
        ]
        lines.append(f"| {count} queries | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def row(folder: Path, queries: int, text: str, rate: int, seconds: int, usage: Usage) -> int:
    """Run one rehearsal and print its line; return 1 if its results were not exact."""
    (folder / "deployment.yaml").write_text(text)
    for number, stream in enumerate(STREAMS):
        rows = "".join(readings(number, rate // len(STREAMS), seconds))
        (folder / f"{stream}.csv").write_text(rows)
    command = [
        *(sys.executable, "-m", "slackwater.cli.app", "rehearse", "--speed", "1"),
        *("--deployment", str(folder / "deployment.yaml"), "--wait", "240s"),
        *(arg for s in STREAMS for arg in ("--input", f"{s}={folder / s}.csv")),
        *("--fault", f"at={SILENT_AT_S:g}s silence {STREAMS[1]} for {SILENT_S:g}s"),
        *("--out", str(folder / "results.jsonl"), "--report", str(folder / "report.json")),
    ]
    began = time.monotonic()
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, text=True)
        stop = threading.Event()
        sampler = threading.Thread(target=sample, args=(process.pid, folder, usage, stop))
        sampler.start()
        process.wait()
        stop.set()
        sampler.join()
    report = folder / "report.json"
    if not report.is_file():
        tail = (folder / "output").read_text().strip().splitlines()[-1:]
        print(f"| {queries} | {usage.processes_max} | no report: {' '.join(tail)} |", flush=True)
        return 1
    found = json.loads(report.read_text())
    print(line(queries, usage, began, found), flush=True)
    return int(any(wrongs(query) for query in found["queries"].values()))


def line(queries: int, usage: Usage, began: float, report: dict[str, Any]) -> str:
    """Return the line of one rehearsal. Percentiles are those of the worst query."""
    all_of = list(report["queries"].values())
    clean = [query["latency_ms"]["clean"] for query in all_of]
    ready = float("nan") if usage.began_at is None else usage.began_at - began
    cells = [
        str(queries),
        str(usage.processes_max),
        f"{usage.memory_mb_max:,.0f}",
        f"{usage.cores:.2f}",
        f"{ready:.0f}",
        "yes" if not any(map(wrongs, all_of)) else "NO",
        worst_of(figures["p50"] for figures in clean),
        worst_of(figures["p99"] for figures in clean),
        worst_of(query["latency_ms"]["all"]["max"] for query in all_of),
        str(sum(query["beyond_bound"] for query in all_of)),
    ]
    return "| " + " | ".join(cells) + " |"


def worst_of(values: Iterator[float | None]) -> str:
    """Return the largest of some figures, of which some may be missing."""
    known = [value for value in values if value is not None]
    return f"{max(known):,.0f}" if known else "-"


def wrongs(query: dict[str, Any]) -> int:
    """Windows of one query whose stable answers differ from the batch computation."""
    return int(sum(query[word] for word in ("lost", "doubled", "uncorrected", "wrong")))


def deployment(queries: int, *, distinct: bool = False) -> str:
    """Return the deployment file.

    Tumbling and sliding windows alternately, over all four streams.
    """
    stream = "{key: {column: k}, time: {column: t, unit: us}, fields: [v], disorder: 100ms}"
    lines = ["apiVersion: slackwater/v1", "clock: wall", "streams:"]
    lines += [f"  {name}: {stream}" for name in STREAMS]
    lines.append("queries:")
    for number in range(queries):
        lines += [
            f"  q{number}:",
            f"    from: [{', '.join(STREAMS)}]",
            f"    window: {WINDOWS[number % len(WINDOWS)]}",
            "    aggregate: [count, avg, min, max]",
            "    bound: 2s",
        ]
        if distinct:
            lines.append(f"    where: v > {-number - 1}")
    return "\n".join(lines) + "\n"


def readings(stream: int, per_s: int, seconds: int) -> Iterator[str]:
    """Write a CSV file: ``per_s`` readings a second, evenly spaced, keys in turn."""
    yield "t,k,v\n"
    step_us = 1_000_000 // per_s
    for i in range(per_s * seconds):
        stime = START_US + i * step_us + stream * step_us // len(STREAMS)
        yield f"{stime},k{i % KEYS},{(i * 7919 + stream) % 1000 / 10}\n"


def sample(pid: int, folder: Path, usage: Usage, stop: threading.Event) -> None:
    """Sample the processes below ``pid`` once a second; CPU of those that ended is included."""
    spent: dict[tuple[int, float], float] = {}
    parent = psutil.Process(pid)
    ticks = 0
    while not stop.wait(SAMPLE_EVERY_S):
        now = time.monotonic()
        if usage.began_at is None and "of replay, anchored" in (folder / "output").read_text():
            usage.began_at = now
        try:
            below = parent.children(recursive=True)
        except psutil.NoSuchProcess:
            return
        memory = 0.0
        for process in [parent, *below]:
            try:
                times = process.cpu_times()
                spent[process.pid, process.create_time()] = times.user + times.system
                memory += process.memory_full_info().pss / 1e6 if ticks % 5 == 0 else 0.0
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        ticks += 1
        usage.processes_max = max(usage.processes_max, len(below))
        usage.memory_mb_max = max(usage.memory_mb_max, memory)
        if usage.began_at is not None and STEADY_S[0] <= now - usage.began_at <= STEADY_S[1]:
            usage.steady.append((now - usage.began_at, sum(spent.values())))
            usage.wakeups.look([parent, *below], now)


if __name__ == "__main__":
    sys.exit(main())
