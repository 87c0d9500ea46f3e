"""Cost of one more stream, idle and at 100 readings/s, in a deployment of one query.

    python -m bench.streams [--more 20] [--seconds 30] [--declare 'expect_every: 1h']

`slackwater up` with the four empty topics of `bench.idle`, beside which a producer writes 100
messages/s to each of 20 topics that are no streams; and then with these topics as streams that no
query reads, first empty and then written to. The cost of one stream is the difference divided by
their number; it contains what the broker does for it, but for the producer's own writes. A sporadic
stream (the default) sends a watermark at every cut point, four times a second; one with
`expect_every` sends none while it is silent.
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
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PER_S: Final = 100
COMPILED_S: Final = 40.0
"""Time after the start in which the JVMs compile, which is no cost of a stream."""
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
    print("| more topics | streams | readings/s each | proxy | broker | all | of one more stream |")
    print("|---|---|---|---|---|---|---|")
    bases: dict[int, Mapping[str, float]] = {}
    for streams in (0, len(names)):
        with running(names if streams else [], options.declare) as up:
            for topic in names if not streams else ():
                make_topic(up.bootstrap, f"in-{topic}")
            time.sleep(COMPILED_S)
            for per_s in (0, PER_S):
                feeder = Feeder(up.bootstrap, PER_S, names) if per_s else None
                if feeder is not None:
                    feeder.start()
                shares = used(up, options.seconds)
                bases.setdefault(per_s, shares)
                row(len(names), streams, per_s, shares, bases[per_s])
                if feeder is not None:
                    feeder.stop()
    return 0


def make_topic(bootstrap: str, topic: str) -> None:
    """Create a topic with one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result()


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


def row(
    topics: int, streams: int, per_s: int, used_: Mapping[str, float], base: Mapping[str, float]
) -> None:
    """Print a line."""
    shares = " | ".join(f"{100 * used_.get(kind, 0.0):.1f}" for kind in KINDS)
    everything = sum(used_.values())
    each = f"{100 * (everything - sum(base.values())) / streams:.2f}" if streams else ""
    cells = (topics, streams, per_s, shares, f"{100 * everything:.1f}", each)
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
