"""`kill -9` of all processes under load: time until correct answers, and answers in time, return.

`slackwater up` runs with its own broker, and its readings come through topics. Then it and all its
child processes are killed at once, and the command is run again at once. The feeder continues,
keeps readings while the broker is down, and sends them when it is back, as a gateway of sensors
would.

Columns, in seconds since the kill: the broker responds; all processes report ready; the first new,
correct stable answer; the first correct one that is within a second of its normal time, from which
on all are. ``CPU s`` is the CPU time of all processes until then: on a machine with other load it
is more informative than the seconds. ``wrong`` counts stable answers that lack readings, or have
too many.

Run with ``python -m bench.restart [--replicas 1,2] [--rate 3000] [--repeat 1]``; prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.live import STREAMS, Feeder, LiveAnswer, LiveAnswers, Up

from slackwater.machine.broker import answers
from slackwater.runtime.logs.cluster import Cluster

WARM_S: Final = 10.0
IN_TIME_S: Final = 1.0
IN_TIME_RUN: Final = 5
"""Number of consecutive windows in time that end the restart."""
WAIT_S_MAX: Final = 300.0
FIRST_WINDOWS: Final = 5
"""The feeder begins after the query: these windows are empty, or have a part of a second."""


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", default="1,2")
    parser.add_argument("--rate", type=int, default=3_000, help="readings/s of all streams")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="leave data and logs in folders here")
    options = parser.parse_args()
    print(f"{options.rate} readings/s over {len(STREAMS)} topics, windows of 1 s, X = 2 s\n")
    print("| replicas | broker | ready | right | in time | CPU s | wrong |")
    print("|---|---|---|---|---|---|---|", flush=True)
    wrong = 0
    for replicas in map(int, options.replicas.split(",")):
        for number in range(options.repeat):
            with tempfile.TemporaryDirectory(prefix="slackwater-restart-") as made:
                folder = Path(made) if options.keep is None else options.keep
                folder = folder / f"{replicas}-{number}"
                folder.mkdir(parents=True)
                wrong += row(folder, replicas, options.rate)
    return int(wrong > 0)


def row(folder: Path, replicas: int, rate: int) -> int:
    """One kill, one line of the table; return the number of wrong stable answers."""
    up = Up(folder, replicas, more=", expect_every: 1s")
    up.start()
    try:
        up.wait_ready()
        feeder, seen = Feeder(up.bootstrap, rate // len(STREAMS)), LiveAnswers(up.bootstrap)
        feeder.start()
        seen.start()
        in_time(seen.stable, 0.0)
        time.sleep(WARM_S)
        kept = len(seen.stable)
        killed_s = time.time()
        up.kill()
        up.start()
        while not answers(Cluster(up.bootstrap), timeout_s=1.0):
            time.sleep(0.05)
        broker_s = time.time()
        up.wait_ready(2)
        ready_s = time.time()
        over = in_time(seen.stable, killed_s)
        used_s = sum(sum(process.cpu_times()[:2]) for process in up.processes())
        new = [answer for answer in seen.stable[kept:] if answer.seen_s > killed_s]
        right_s = next(answer.seen_s for answer in new if answer.counted == rate)
        # The very first readings precede the query.
        wrong = sum(answer.counted != rate for answer in seen.stable[FIRST_WINDOWS:])
        moments = [broker_s, ready_s, right_s, over.seen_s]
        cells = [str(replicas), *(f"{moment - killed_s:.1f}" for moment in moments)]
        cells += [f"{used_s:.1f}", str(wrong)]
        print("| " + " | ".join(cells) + " |", flush=True)
        feeder.stop()
        return wrong
    finally:
        up.stop()


def in_time(stable: Sequence[LiveAnswer], since_s: float) -> LiveAnswer:
    """Wait for a run of stable answers in time, read since then; return the first of them."""
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        recent = [answer for answer in list(stable) if answer.seen_s > since_s]
        late = max((i for i, each in enumerate(recent) if each.late_s > IN_TIME_S), default=-1)
        if len(recent) - late > IN_TIME_RUN:
            return recent[late + 1]
        time.sleep(0.1)
    raise SystemExit("answers do not come in time any more")


if __name__ == "__main__":
    sys.exit(main())
