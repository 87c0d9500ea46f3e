"""Tables IV and V: what serializing costs, by bucket size and by boundary interval (section 7).

A source writes a reading every 10 ms and, apart from them, a boundary at every multiple of the
boundary interval. Its clock is a little slow, so that in a run its readings pass through every
place in a bucket of 10 ms once. Otherwise all of them would have the latency of the place where the
run happened to begin, anything from 5 to 15 ms. A reading's latency is the time of its
visibility in ``sw.ordered`` less the time at which it was written to the source log, both of this
machine's clock, through the broker twice. The column of 0 is a plain consumer of the source log:
the way through Kafka once, with nothing sorted. The grid's w is given to the query; its windows
have no part in this, so there is neither aggregator nor root.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from bench.paper_dpc.system import System, deployment_text, running

from slackwater.codec.ordered_records import decode_ordered
from slackwater.codec.source_records import decode_source
from slackwater.model.names import Names
from slackwater.model.records import Kind
from slackwater.runtime.logs.topics import ordered_partition
from slackwater.runtime.logs.transport import Log

BUCKETS_MS = (10, 50, 100, 150, 200, 300, 500)
BOUNDARIES_MS = (50, 100, 150, 200, 300, 500)
QUICK_BUCKETS_MS, QUICK_BOUNDARIES_MS = (10, 100), (100,)
SECONDS, QUICK_SECONDS = 12.0, 5.0
EVERY_US = 10_000
PAPER_IV = dict(
    zip((0, *BUCKETS_MS), (0, 13.3, 31.1, 56.6, 81.5, 106.5, 156.6, 258.0), strict=True)
)
PAPER_V = dict(zip((0, 10, *BOUNDARIES_MS), (0, 13.3, 37.3, 62.1, 87.0, 111.6, 166.2, 269.4),
                   strict=True))  # fmt: skip
QUERY = "{from: [s1], window: {size: 3s}, aggregate: [max], bound: 3s, replicas: 1}"


def run(*, quick: bool) -> dict[str, Any]:
    """Measure; each configuration on a system of its own, since w is fixed at registration."""
    buckets = QUICK_BUCKETS_MS if quick else BUCKETS_MS
    boundaries = QUICK_BOUNDARIES_MS if quick else BOUNDARIES_MS
    seconds = QUICK_SECONDS if quick else SECONDS
    by_bucket = {}
    direct: list[float] = []
    for bucket in buckets:
        by_bucket[str(bucket)], once = measure(bucket, 10, seconds)
        direct += once
    by_boundary = {"10": by_bucket["10"]}
    for boundary in boundaries:
        by_boundary[str(boundary)], once = measure(10, boundary, seconds)
        direct += once
    nothing = summary(direct)
    return {"bucket": {"0": nothing} | by_bucket, "boundary": {"0": nothing} | by_boundary}


def measure(
    bucket_ms: int, boundary_ms: int, seconds: float
) -> tuple[dict[str, float], list[float]]:
    """Return latencies (ms) in the ordered log, and those of the source log itself."""
    text = deployment_text(("s1",), {"q": QUERY})
    with running(text, per_s=0, w_us=bucket_ms * 1000, only=("orderer",)) as system:
        ordered: Log = (Names().ordered("q", 0), ordered_partition(0, live=False))
        seen = speak_and_listen(system, ordered, boundary_ms * 1000, seconds)
    found = summary(seen[ordered])
    print(f"  bucket {bucket_ms} ms, boundary {boundary_ms} ms: {found['mean']:.1f} ms", flush=True)
    return found, seen[Names().source("s1"), 0]


def speak_and_listen(
    system: System, ordered: Log, boundary_us: int, seconds: float
) -> dict[Log, list[float]]:
    """Write readings and boundaries in time, and record when each reading is read from each log."""
    source = system.sources["s1"]
    log: Log = (Names().source("s1"), 0)
    reader = system.transport.reader()
    reader.assign(system.transport.end_offsets([log, ordered]))
    seen: dict[Log, list[float]] = {log: [], ordered: []}
    next_reading = time.time() * 1e6 + EVERY_US // 3
    next_boundary = (int(next_reading) // boundary_us + 1) * boundary_us
    slow_us = EVERY_US / (seconds * 1e6 / EVERY_US)
    begin = time.time() + 1
    end, watermark = begin + seconds, 0
    while (now := time.time()) < end:
        due = min(next_reading, next_boundary)
        if now * 1e6 >= due:
            if due == next_boundary:
                watermark, next_boundary = next_boundary, next_boundary + boundary_us
                source.emit(np.zeros(0), watermark)
            else:
                next_reading += EVERY_US + slow_us
                source.emit(np.array([int(due)]), watermark)
            continue
        for raw in reader.poll(100, min(due / 1e6 - now, 0.001)):
            at = time.time()
            for written in values_of(raw.topic, raw.value):
                if at > begin:
                    seen[raw.topic, raw.partition].append(at * 1e3 - written / 1e3)
    reader.close()
    return seen


def values_of(topic: str, value: bytes) -> list[float]:
    """Return the times (us) at which the readings of a record were written."""
    if topic.startswith("sw.source."):
        source = decode_source(value)
        if source.kind is not Kind.INSERTION or source.columns is None:
            return []
        return [float(v) for v in source.columns.load().values[0]]
    record = decode_ordered(value)
    return [float(v) for v in record.values[0]] if record.kind is Kind.INSERTION else []


def summary(values: list[float]) -> dict[str, float]:
    """Return the figures as in the tables (ms)."""
    if not values:
        raise SystemExit("no reading was seen: there is nothing to measure")
    array = np.array(values)
    return {
        "n": len(values),
        "min": float(array.min()),
        "max": float(array.max()),
        "mean": float(array.mean()),
        "std": float(array.std()),
    }
