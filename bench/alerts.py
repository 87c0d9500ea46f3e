"""Alerts: from a window's normal time to the committed record, and the cost of a row.

Two topics, windows of 1 s, ten keys. The values of a key change every 5 s, so an alert begins and
ends; half a second later those of the next one do. Then one source is cut off for a while: alerts
with ``act`` begin tentatively, after X. A reader of
committed records takes the time at which it sees each record that begins or ends an alert.

Run with ``python -m bench.alerts [--cut 20]``; prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from confluent_kafka import Producer

from slackwater.codec.results import format_time
from slackwater.delivery.batches import DeliveryBatch, PartPosition
from slackwater.delivery.evaluation import AlertEvaluator
from slackwater.delivery.records import AlertRecord, decode_delivery
from slackwater.delivery.rules import alert_rules
from slackwater.deployment.parse import load_deployment, parse_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.primitives.windows import Grid
from slackwater.runtime.logs.topics import ensure_inputs
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

BOUND_US: Final = 1_000_000
STREAM: Final = """\
  {0}: {{topic: {{name: {0}, format: json}}, key: {{field: k}}, time: {{field: at, unit: us}},
    fields: [t], expect_every: 200ms}}
"""
FILE: Final = f"""\
apiVersion: slackwater/v1
streams:
{"".join(STREAM.format(name) for name in ("cut", "steady"))}queries:
  climate: {{from: [cut, steady], window: {{size: 1s}}, aggregate: [count, avg], bound: 1s}}
alerts:
  hot: {{query: climate, when: t_avg > 26, tentative: act}}
"""
OVENS: Final = 10
KEYS: Final = 10_000
WINDOWS: Final = 20


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calm", type=float, default=20.0, help="seconds before the cut")
    parser.add_argument("--cut", type=float, default=20.0, help="seconds without one source")
    options = parser.parse_args()
    print(f"evaluation: {evaluation_us():.2f} us a row, {KEYS:,} keys, one in a hundred fires\n")
    with tempfile.TemporaryDirectory(prefix="slackwater-alerts-") as made:
        seen = _run(Path(made), options.calm, options.cut)
    print("| alerts | n | p50 | max (ms after normal time) | limit |")
    print("|---|---|---|---|---|")
    late = 0
    limit_us = BOUND_US + 500_000
    for is_tentative in (False, True):
        found = [us for us, of in seen if of.began.tentative is is_tentative and _is_new(of)]
        if found:
            late += max(found) > limit_us
            ms = (len(found), np.median(found) / 1000, max(found) / 1000, limit_us / 1000)
            name = "tentative" if is_tentative else "exact"
            print("| {} | {} | {:.0f} | {:.0f} | {:.0f} |".format(name, *ms))
    return int(late > 0)


def _is_new(of: AlertRecord) -> bool:
    """Whether the record is not that of a correction: an exact result was answered soon."""
    is_soon = of.began.tentative or of.answered_at - of.due_at < BOUND_US
    return is_soon and of.state in ("firing", "ended")


def evaluation_us() -> float:
    """Return the time for a row of a window of many keys, parsed already."""
    deployment = parse_deployment(FILE, "bench.yaml").deployment
    query = deployment.queries["climate"]
    grid = Grid(BOUND_US, query.window)
    evaluator = AlertEvaluator(alert_rules(deployment, query, "climate"), grid.later)
    times = {"due_at": format_time(0), "emitted_at": format_time(0)}
    batches = []
    for at in range(WINDOWS):
        window = {"window_start": format_time(at * BOUND_US), "missing": []}
        window |= {"window_end": format_time((at + 1) * BOUND_US)}
        rows = [
            {"kind": "stable", "key": f"k{i}", "fields": {"t": {"avg": 30 - i % 100}}, **window}
            for i in range(KEYS)
        ]
        boundary = {"kind": "boundary", "label": "stable", "windows": 1, **window, **times}
        batches.append(DeliveryBatch(0, (*rows, boundary), PartPosition(at)))
    began = time.perf_counter()
    for batch in batches:
        evaluator.take(batch)
    return (time.perf_counter() - began) * 1e6 / (KEYS * WINDOWS)


def _run(folder: Path, calm_s: float, cut_s: float) -> list[tuple[int, AlertRecord]]:
    path = folder / "deployment.yaml"
    path.write_text(FILE)
    with EmbeddedBroker(folder / "broker") as broker:
        ensure_inputs(broker.bootstrap, {"cut": 1, "steady": 1})
        options = StackOptions(
            path, load_deployment(path), folder / "data", bootstrap=broker.bootstrap
        )
        stack = StackThread(options)
        stopping, is_cut = threading.Event(), threading.Event()
        seen: list[tuple[int, AlertRecord]] = []
        threads = [
            threading.Thread(target=_feed, args=(broker.bootstrap, stopping, is_cut)),
            threading.Thread(target=_read, args=(stack, stopping, seen)),
        ]
        try:
            stack.open()
            stack.start_up()
            threads[0].start()
            while not all(stack.ready().values()):
                stopping.wait(0.2)
            threads[1].start()
            stopping.wait(calm_s)
            is_cut.set()
            stopping.wait(cut_s)
            is_cut.clear()
            stopping.wait(calm_s)
        finally:
            stopping.set()
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            stack.stop()
        return seen


def _feed(bootstrap: str, stopping: threading.Event, is_cut: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    kept: list[bytes] = []
    while not stopping.wait(0.05):
        now = time.time_ns() // 1000
        for oven in range(OVENS):
            value = 30.0 if (now - 500_000 * oven) // 5_000_000 % 2 else 20.0
            reading = json.dumps({"k": f"oven-{oven}", "at": now, "t": value}).encode()
            producer.produce("steady", reading)
            kept.append(reading)
        if not is_cut.is_set():
            for each in kept:
                producer.produce("cut", each)
            kept.clear()
        producer.poll(0)


def _read(
    stack: StackThread, stopping: threading.Event, seen: list[tuple[int, AlertRecord]]
) -> None:
    transport = stack.stack.transport
    log = (transport.names.alerts("climate"), 0)
    reader = transport.reader(isolation="read_committed", fetch_wait_ms_max=10)
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000  # noqa: E731
    reader.assign(transport.end_offsets([log]))
    while not stopping.is_set():
        for raw in reader.poll(100, 0.1):
            record = decode_delivery(raw.value)
            if isinstance(record, AlertRecord):
                seen.append((now_us() - record.due_at, record))
    reader.close()


if __name__ == "__main__":
    raise SystemExit(main())
