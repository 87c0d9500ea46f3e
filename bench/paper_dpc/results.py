"""A consumer's view of a query: the time and the label of each unit's first answer."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import orjson

from slackwater.model.names import RESULT_KINDS, Names
from slackwater.runtime.logs.kafka import KafkaTransport


@dataclass(frozen=True, slots=True)
class First:
    """The first answer of a window: its normal time, the delay until it was read, its label.

    ``empty``: it has no rows.
    """

    due: float
    late: float
    tentative: bool
    empty: bool


@dataclass
class Seen:
    """By window start (us), in the order of reading."""

    first: dict[int, First] = field(default_factory=dict)
    stable_to: float = 0.0
    """Normal time of the last window that is stable; they become so in order."""
    tentative: int = 0
    """Number of windows answered tentatively."""


class Results(threading.Thread):
    """Reads a query's three topics as a consumer, until stopped."""

    def __init__(self, transport: KafkaTransport, query: str) -> None:
        super().__init__(name=f"results of {query}", daemon=True)
        self._reader = transport.reader(isolation="read_committed")
        self._reader.assign({(Names().results(query, kind), 0): 0 for kind in RESULT_KINDS})
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._seen = Seen()

    def run(self) -> None:
        """Process records; a record counts as read when it was returned."""
        while not self._stopping.is_set():
            records = self._reader.poll(5_000, 0.02)
            now = time.time()
            with self._lock:
                for raw in records:
                    if b'"kind":"boundary"' in raw.value:
                        self._take(orjson.loads(raw.value), now)
        self._reader.close()

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self.join()

    def between(self, begin: float, end: float) -> list[First]:
        """Return the first answers of windows that were due then (wall time, s)."""
        with self._lock:
            return [one for one in self._seen.first.values() if begin < one.due <= end]

    @property
    def tentative(self) -> int:
        """Return the number of windows answered tentatively so far."""
        with self._lock:
            return self._seen.tentative

    def wait_until_stable(self, due: float, within_s: float) -> None:
        """Wait until all windows due by then are stable."""
        until = time.monotonic() + within_s
        while True:
            with self._lock:
                if self._seen.stable_to >= due:
                    return
            if time.monotonic() > until:
                raise SystemExit(f"not all is stable {within_s:.0f} s after the failure")
            time.sleep(0.05)

    def _take(self, line: dict[str, Any], now: float) -> None:
        due = datetime.fromisoformat(line["due_at"]).timestamp()
        begin, end = (datetime.fromisoformat(line[f"window_{edge}"]) for edge in ("start", "end"))
        tentative, windows = line["label"] == "tentative", line["windows"]
        # One record answers a run of empty windows, which do not overlap in any experiment.
        size = (end - begin).total_seconds() / windows
        for behind in range(windows):
            start = begin.timestamp() + behind * size
            was_due = due - (windows - 1 - behind) * size
            first = First(was_due, now - was_due, tentative, not line["keys"])
            self._seen.first.setdefault(round(start * 1e6), first)
        if tentative:
            self._seen.tentative += windows
        else:
            self._seen.stable_to = max(self._seen.stable_to, due)


def figures(values: list[float]) -> dict[str, float]:
    """Return count, mean, p50, p99 and maximum; raise an error without data."""
    if not values:
        raise SystemExit("there is nothing to measure: no answer was seen in time")
    p50, p99 = (float(v) for v in np.percentile(values, [50, 99]))
    return {
        "n": len(values),
        "mean": float(np.mean(values)),
        "p50": p50,
        "p99": p99,
        "max": max(values),
    }
