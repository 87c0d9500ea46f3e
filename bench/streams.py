"""Cost of one more stream, idle and at 100 readings/s, in a deployment of one query.

    python -m bench.streams [--more 20] [--seconds 30] [--declare 'expect_every: 1h']

`slackwater up` with the four empty topics of `bench.idle`, and then with more topics that no query
reads: first empty, then with 100 readings/s each. The cost of one is the difference divided by
their number; it contains what the broker does for it. A sporadic stream (the default) sends a
watermark at every cut point, four times a second; one with `expect_every` sends none while it is
silent.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.idle import SETTLE_S, cpu_s
from bench.live import Feeder, Up

PER_S: Final = 100
SPORADIC: Final = "sporadic: true, disorder: 100ms"
KINDS: Final = ("proxy", "broker")


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--more", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--declare", default=SPORADIC)
    options = parser.parse_args()
    names = [f"more-{number}" for number in range(options.more)]
    print("| more streams | readings/s each | proxy, % of a core | broker | all | of one more |")
    print("|---|---|---|---|---|---|")
    with running([], "") as up:
        base = used(up, options.seconds)
        row(0, 0, base, base)
    with running(names, options.declare) as up:
        row(len(names), 0, used(up, options.seconds), base)
        feeder = Feeder(up.bootstrap, PER_S, names)
        feeder.start()
        row(len(names), PER_S, used(up, options.seconds), base)
        feeder.stop()
    return 0


@contextlib.contextmanager
def running(unread: Sequence[str], declared: str) -> Iterator[Up]:
    """Run a deployment with these streams besides the query's, and what they declare."""
    with tempfile.TemporaryDirectory(prefix="slackwater-streams-") as folder:
        others = dict.fromkeys(unread, f", {declared}")
        up = Up(Path(folder), 1, more=f", {SPORADIC}", unread=others)
        up.start()
        try:
            up.wait_ready()
            yield up
        finally:
            up.stop()


def used(up: Up, seconds: float) -> Mapping[str, float]:
    """Return the share of a core that each kind of process uses."""
    time.sleep(SETTLE_S)
    before, began = cpu_s(up.processes()), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return {
        kind: (after - before.get(kind, 0.0)) / took
        for kind, after in cpu_s(up.processes()).items()
    }


def row(more: int, per_s: int, used_: Mapping[str, float], base: Mapping[str, float]) -> None:
    """Print a line."""
    shares = " | ".join(f"{100 * used_.get(kind, 0.0):.1f}" for kind in KINDS)
    everything = sum(used_.values())
    each = f"{100 * (everything - sum(base.values())) / more:.2f}" if more else ""
    print(f"| {more} | {per_s} | {shares} | {100 * everything:.1f} | {each} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
