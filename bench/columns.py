"""Throughput of messages of columns (`format: json-columns`), end to end.

    python -m bench.columns [--readings 36000000] [--rates 100000,2000000] [--replicas 1]
        [--through producer]

A backlog of messages with 1,000 readings each is written to four partitions by sensor; `slackwater
up` computes windows of a second of 1,000 sensors. The sensors have sent at a rate (`--rates`): at
100,000 readings/s a window of a sensor has 100 readings. Each window is compared with the readings
sent. The rate is that of the difference between this backlog and one of a sixth,
so it does not contain the start; the CPU time of each process, in ns a reading, likewise. With
``--through producer`` the backlog is sent with ``slackwater.Producer``, in numpy columns; each
message goes to a random partition. Its rate and its CPU time are printed too. The
workload is that of `bench.peers`, in which each message is one reading.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import psutil
from bench.idle import cpu_s
from bench.peers import workload
from bench.peers.check import SIZE_MS, TOLERANCE, PeerAnswer
from bench.peers.run import wait_quiet
from bench.peers.workers import PEERS, Job, Seen, Worker

import slackwater
from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics

READINGS_A_MESSAGE: Final = 1_000
ROWS_A_CALL: Final = 10
"""Readings of each sensor in a call of ``send``."""
SENSORS: Final = workload.BACKLOG_SENSORS
NAMES: Final = [f"s{sensor:04d}" for sensor in range(SENSORS)]
KINDS: Final = ("broker", "aggregator's JVM", "proxy", "host")


def main() -> None:
    """Measure two backlogs, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=36_000_000)
    parser.add_argument("--rates", default="100000,2000000")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--through", choices=("messages", "producer"), default="messages")
    options = parser.parse_args()
    through = send if options.through == "producer" else fill
    print("Sent at: the rate of the readings' own times. CPU of each process in ns a reading.\n")
    print(f"| sent at | readings | readings/s | with the start | {' | '.join(KINDS)} |")
    print(f"|{'---|' * (4 + len(KINDS))}")
    for rate in map(int, options.rates.split(",")):
        windows = options.readings // rate
        short_s, of_short = backlog(windows // 6, rate, options.replicas, through)
        long_s, of_long = backlog(windows, rate, options.replicas, through)
        more = (windows - windows // 6) * rate
        ns = (f"{(of_long[name] - of_short[name]) / more * 1e9:.0f}" for name in KINDS)
        print(
            f"| {rate:,} | {windows * rate:,} | {more / (long_s - short_s):,.0f} |"
            f" {windows * rate / long_s:,.0f} | {' | '.join(ns)} |"
        )


def values_of(windows: int, rate: int) -> Any:
    """Return the values by window, reading of a sensor in the window, and sensor."""
    numbers = np.arange(windows * rate, dtype=np.int64)
    values = (1_500 + numbers * 7919 % 1_000) / 100
    return values.reshape(windows, rate // SENSORS, SENSORS)


def fill(bootstrap: str, values: Any, start_ms: int) -> None:
    """Write the backlog in prepared messages."""
    writer = workload.producer(bootstrap)
    rows, sources = READINGS_A_MESSAGE // (SENSORS // workload.SOURCES), workload.SOURCES
    per_window = values.shape[1] * SENSORS
    for window, of_window in enumerate(values):
        for first in range(0, len(of_window), rows):
            for source in range(sources):
                sensors = np.arange(source, SENSORS, sources)
                numbers = np.arange(first, first + rows)[:, None] * SENSORS + sensors
                ts = start_ms + window * SIZE_MS + numbers.ravel() * SIZE_MS // per_window
                columns = {
                    "ts": ts.tolist(),
                    "sensor": rows * [NAMES[sensor] for sensor in sensors],
                    "value": of_window[first : first + rows, sensors].ravel().tolist(),
                }
                workload.put(writer, source, orjson.dumps(columns))
    writer.flush()


def send(bootstrap: str, values: Any, start_ms: int) -> None:
    """Write the same backlog with ``slackwater.Producer``."""
    per_window = values.shape[1] * SENSORS
    names = np.tile(NAMES, ROWS_A_CALL)
    wall_s, used_s = time.perf_counter(), time.process_time()
    # A partition is a source: without this setting it would have no messages for up to a second.
    config = {"sticky.partitioning.linger.ms": 0}
    with slackwater.Producer(
        bootstrap=bootstrap, topic=workload.TOPIC, format="json-columns", config=config
    ) as producer:
        for window, of_window in enumerate(values):
            for first in range(0, len(of_window), ROWS_A_CALL):
                part = of_window[first : first + ROWS_A_CALL].ravel()
                numbers = np.arange(first * SENSORS, first * SENSORS + len(part))
                ts = start_ms + window * SIZE_MS + numbers * SIZE_MS // per_window
                producer.send({"ts": ts, "sensor": names[: len(part)], "value": part})
    wall_s, used_s = time.perf_counter() - wall_s, time.process_time() - used_s
    print(
        f"(sent by Producer: {values.size:,} readings, {values.size / wall_s:,.0f} readings/s,"
        f" {used_s / values.size * 1e9:.0f} ns of CPU a reading)",
        file=sys.stderr,
    )


def put_each(bootstrap: str, ts: int) -> None:
    """Write one reading to each partition."""
    writer = workload.producer(bootstrap)
    for source in range(workload.SOURCES):
        columns = {"ts": [ts], "sensor": NAMES[source], "value": 0.0}
        workload.put(writer, source, orjson.dumps(columns))
    writer.flush()


def backlog(
    windows: int, rate: int, replicas: int, fill: Callable[[str, Any, int], None]
) -> tuple[float, dict[str, float]]:
    """Return the seconds from the start to the last answer, and the CPU seconds of each process."""
    start_ms = (int(time.time()) - 3_600) * 1_000 - windows * SIZE_MS
    values = values_of(windows, rate)
    with tempfile.TemporaryDirectory(prefix="slackwater-columns-") as folder:
        broker = EmbeddedBroker(Path(folder) / "broker", heap_mib_max=1_024, runs_long=True)
        with broker:
            layout = [TopicLayout(workload.TOPIC, workload.SOURCES, {})]
            ensure_topics(broker.bootstrap, layout)
            fill(broker.bootstrap, values, start_ms)
            put_each(broker.bootstrap, start_ms + windows * SIZE_MS + workload.CLOSING_MS)
            job = Job(
                broker.bootstrap,
                Path(folder),
                sources=False,
                format="json-columns",
                replicas=replicas,
            )
            peer = PEERS["slackwater"]
            worker, seen = Worker(peer, job), Seen(broker.bootstrap, peer.topics)
            of_broker = psutil.Process(broker.pid)
            began_s, before = time.time(), cpu_s([of_broker])
            worker.start()
            seen.start()
            try:
                wait_quiet(worker, seen, windows * SENSORS)
                used = dict(cpu_s([of_broker, *worker.processes()]))
                used["broker"] -= before["broker"]
            finally:
                worker.kill()
                seen.stop()
    end_ms = start_ms + windows * SIZE_MS
    answers = [each for each in seen.answers if start_ms <= each.place[1] < end_ms]
    check(values, start_ms, answers)
    return max(each.seen_s for each in answers) - began_s, used


def check(values: Any, start_ms: int, answers: list[PeerAnswer]) -> None:
    """Compare all windows; raise an error if one is wrong, doubled or lost."""
    lows, highs = values.min(axis=1), values.max(axis=1)
    means, count = values.mean(axis=1), values.shape[1]
    numbers = {name: number for number, name in enumerate(NAMES)}
    unmarked = [each for each in answers if not each.marked]
    places = {each.place for each in unmarked}
    if len(places) != len(unmarked) or len(places) != len(values) * SENSORS:
        raise SystemExit(f"{len(unmarked)} answers of {len(places)} windows")
    for each in unmarked:
        at = (each.place[1] - start_ms) // SIZE_MS, numbers[each.place[0]]
        found = each.figures
        if (found.count, found.min, found.max) != (count, lows[at], highs[at]) or not math.isclose(
            found.avg, means[at], rel_tol=TOLERANCE
        ):
            raise SystemExit(f"{each.place}: {found}, is {count}, {means[at]}, {lows[at]}")


if __name__ == "__main__":
    main()
