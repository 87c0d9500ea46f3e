"""Cost of the page's gateway, and how late its readers see an answer; the pipeline runs beside it.

At rest with one query and with twenty; one reader of ten windows a second; then a thousand readers
of ten queries, a tenth of which take 1 kB/s. A slow reader is cut off, comes back, and goes on.
What each reader got is compared with all that any got: without a hole and in order, or a snapshot.

Run with ``python -m bench.gateway [--seconds 30] [--readers 1000]``; prints Markdown. The readers
are a process of their own (``bench/gateway_readers.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import psutil
from bench.live import KEYS, QUERY, STREAMS, Feeder, LiveAnswers, Up
from numpy.typing import NDArray

from slackwater.machine.web import find_web
from slackwater.runtime.service.datadir import read_run

PER_S: Final = 50
"""Readings a second of each of the four streams, of ten keys."""
SETTLE_S: Final = 10.0
ADDITIONS: Final = 20_000_000
MORE: Final = (
    "  {name}: {{from: [{of}], window: {window}, aggregate: [count, avg, min, max],"
    " bound: 2s, replicas: 1}}\n"
)
QUICK: Final = "quick"
RESAMPLES: Final = 2_000
Turn: TypeAlias = tuple[list[float], list[float]]
"""How late first answers were, in ms: without the readers, and beside them."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--readers", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=3, help="without readers, then with them")
    options = parser.parse_args()
    print(f"{ADDITIONS:,} additions took {additions_s():.2f} s before the bench (0.8 s when quiet)")
    print("\n| at rest, one page | gateway (cores) | MB |\n|---|---|---|")
    for queries in (1, 20):
        with running(queries) as (up, port):
            cores, mb, _ = read(up, port, [QUERY], 1, 0, options.seconds)
            print(f"| {queries} quer{'y' if queries == 1 else 'ies'} | {cores:.3f} | {mb:.0f} |")
    with running(10, quick=True) as (up, port):
        cores, mb, quick = read(up, port, [QUICK], 1, 0, options.seconds)
        print("\n| | written to received, p50 | p99 (ms) | gateway (cores) | MB |")
        print("|---|---|---|---|---|")
        print(f"| 1 reader, 10 windows/s | {quick['p50_ms']:.0f} | {quick['p99_ms']:.0f} |", end="")
        print(f" {cores:.2f} | {mb:.0f} |")
        slow = options.readers // 10
        names = [QUERY, *(f"q{n}" for n in range(1, 10))]
        turns, lost = list[Turn](), 0
        for _ in range(options.turns):  # in turn, since other work on the machine comes and goes
            alone, beside = first_answers_ms(up, options.seconds), list[float]()
            watching = threading.Thread(
                target=lambda into=beside: into.extend(first_answers_ms(up, options.seconds))
            )
            watching.start()
            cores, mb, many = read(up, port, names, options.readers - slow, slow, options.seconds)
            watching.join()
            turns.append((alone, beside))
            lost += many["holes"]
        print(f"| {options.readers} readers, {slow} of them slow, 10 queries |", end="")
        print(f" {many['p50_ms']:.0f} | {many['p99_ms']:.0f} | {cores:.2f} | {mb:.0f} |")
        print(
            f"\nSlow readers cut: {many['cut']} of {slow}, the last one {many['cut_s_max']:.1f} s"
            f" after it connected; {many['changes']:,} changes received, {lost} holes or"
            f" repeats in all turns, {many['snapshots']} snapshots; p99 while all connect"
            f" {many['begin_p99_ms']:.0f} ms."
        )
        print_moves(turns)
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"\n{ADDITIONS:,} additions took {additions_s():.2f} s after it, load {load}")
    return int(lost > 0)


def print_moves(turns: Sequence[Turn]) -> None:
    """Print the percentiles of all turns' answers together, and by how much the readers move them.

    The interval is of the bootstrap over whole turns: answers that are near in time are late
    together, so turns are what is independent.
    """
    print("\n| first answers of the pipeline (ms) | p50 | p90 | p99 |\n|---|---|---|---|")
    rows = [percentiles(turns, beside=beside) for beside in (False, True)]
    for name, row in zip(("alone", "beside the readers"), rows, strict=True):
        print(f"| {name} | " + " | ".join(f"{ms:.0f}" for ms in row) + " |")
    print("| moves by | " + " | ".join(f"{ms:+.1f}" for ms in rows[1] - rows[0]) + " |")
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        of = [turns[n] for n in rng.integers(len(turns), size=len(turns))]
        drawn.append(percentiles(of, beside=True) - percentiles(of, beside=False))
    low, high = np.percentile(drawn, [5, 95], axis=0)
    between = (f"{a:+.1f} to {b:+.1f}" for a, b in zip(low, high, strict=True))
    print("| of that, 90 % in | " + " | ".join(between) + " |")
    counts = (sum(len(turn[n]) for turn in turns) for n in (0, 1))
    print(f"\n{len(turns)} turns; answers alone and beside: " + ", ".join(map(str, counts)))


def percentiles(turns: Sequence[Turn], *, beside: bool) -> NDArray[np.float64]:
    """p50, p90 and p99 of the answers of all turns, in ms."""
    of = np.concatenate([turn[beside] for turn in turns])
    return np.asarray(np.percentile(of, [50, 90, 99]), np.float64)


def additions_s() -> float:
    """How long a loop of additions takes: longer if others use the machine."""
    began, total = time.perf_counter(), 0
    for number in range(ADDITIONS):
        total += number
    return time.perf_counter() - began


@contextmanager
def running(
    queries: int, *, quick: bool = False, keys: int = KEYS, others: str = "1s"
) -> Iterator[tuple[Up, int]]:
    """Run `up --web` with so many queries, and feed it; the port of the page.

    Each key has a reading a second or more. ``others``: windows of all queries but the first.
    """
    of = ", ".join(STREAMS)
    windows = {f"q{n}": f"{{size: {others}}}" for n in range(1, queries)}
    windows |= {QUICK: "{size: 1s, slide: 100ms}"} if quick else {}
    more = "".join(MORE.format(name=n, of=of, window=window) for n, window in windows.items())
    web = find_web("")
    with tempfile.TemporaryDirectory(prefix="slackwater-gateway-") as folder:
        up = Up(
            Path(folder),
            1,
            more=", sporadic: true, disorder: 100ms",
            queries=more,
            options=("--web", str(web)),
        )
        up.start()
        try:
            up.wait_ready()
            feeder = Feeder(up.bootstrap, max(PER_S, keys), keys=keys)
            feeder.start()
            time.sleep(SETTLE_S)
            yield up, web.port
            feeder.stop()
        finally:
            up.stop()


def read(
    up: Up, port: int, queries: list[str], fast: int, slow: int, seconds: float
) -> tuple[float, float, dict[str, Any]]:
    """Run readers; return the gateway's cores, its greatest memory in MB, and what they report."""
    run = read_run(up.folder / "data")
    assert run is not None
    process = psutil.Process(run.processes["gateway"])
    command = [sys.executable, "-m", "bench.gateway_readers", str(port), ",".join(queries)]
    readers = subprocess.Popen(
        [*command, str(fast), str(slow), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    before, began, mb = process.cpu_times(), time.monotonic(), 0.0
    while readers.poll() is None:
        mb = max(mb, process.memory_info().rss / 1e6)
        time.sleep(0.2)
    after, took = process.cpu_times(), time.monotonic() - began
    assert readers.stdout is not None
    report: dict[str, Any] = json.loads(readers.stdout.read())
    used = after.user + after.system - before.user - before.system
    return used / took, mb, report


def first_answers_ms(up: Up, seconds: float) -> list[float]:
    """How late the pipeline's first answers are, ten a second, as a consumer reads them."""
    seen = LiveAnswers(up.bootstrap, QUICK)
    seen.start()
    time.sleep(5.0)  # what was there before is read
    seen.first_late_s.clear()
    time.sleep(seconds)
    seen.end()
    return [1_000 * s for s in seen.first_late_s]


if __name__ == "__main__":
    sys.exit(main())
