"""Cost of a deployment with little load: wake-ups and CPU of its processes, one query.

`slackwater up` with four topics, first empty, then with a few readings a second in each. Except for
heartbeats, no process should wake without input or a due deadline.

Run with ``python -m bench.idle [--replicas 1] [--copies 1] [--rates 0,400] [--seconds 20]``; prints
Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import psutil
from bench.live import STREAMS, Feeder, LiveAnswers, Up
from bench.wakeups import Wakeups, kind_of

SETTLE_S = 8.0


def main() -> int:
    """Measure and print a table for each rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--copies", type=int, default=1, help="copies of each root")
    parser.add_argument("--rates", default="0,400", help="readings/s of all topics together")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slackwater-idle-") as folder:
        # The query's declaration is the last one in the file.
        copies = f"    copies: {options.copies}\n"
        more = ", sporadic: true, disorder: 100ms"
        up = Up(Path(folder), options.replicas, more=more, queries=copies)
        up.start()
        try:
            up.wait_ready()
            for rate in map(int, options.rates.split(",")):
                table(up, rate, options.seconds)
        finally:
            up.stop()
    return 0


def table(up: Up, rate: int, seconds: float) -> None:
    """Measure one rate."""
    feeder = Feeder(up.bootstrap, rate // len(STREAMS)) if rate else None
    seen = LiveAnswers(up.bootstrap)
    if feeder is not None:
        feeder.start()
    seen.start()
    time.sleep(SETTLE_S)
    seen.first_late_s.clear()
    woken, before = Wakeups(), cpu_s(up.processes())
    began = time.monotonic()
    woken.look(up.processes(), began)
    time.sleep(seconds)
    woken.look(up.processes(), time.monotonic())
    took = time.monotonic() - began
    used = {
        kind: (after - before.get(kind, 0.0)) / took
        for kind, after in cpu_s(up.processes()).items()
    }
    if feeder is not None:
        feeder.stop()
    late_ms = [1000 * late for late in seen.first_late_s] or [float("nan")]
    p50, p99 = np.percentile(late_ms, [50, 99])
    print(f"\n{rate} readings/s; first answers p50 {p50:.0f} ms, p99 {p99:.0f} ms\n")
    print("| | wake-ups/s | % of a core |")
    print("|---|---|---|")
    rates = woken.per_s()
    for kind, per_s in rates.items():
        print(f"| {kind} | {per_s:,.0f} | {100 * used.get(kind, 0.0):.1f} |")
    print(f"| all | {sum(rates.values()):,.0f} | {100 * sum(used.values()):.1f} |", flush=True)


def cpu_s(processes: Iterable[psutil.Process]) -> Mapping[str, float]:
    """CPU seconds so far, by kind of process."""
    spent: dict[str, float] = defaultdict(float)
    for process in processes:
        try:
            times = process.cpu_times()
            spent[kind_of(process.cmdline())] += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return spent


if __name__ == "__main__":
    sys.exit(main())
