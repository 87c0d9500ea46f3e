"""First answers of each part, and the sum of the stable ones, as a consumer reads them."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bench.live import QUERY

from slackwater.codec.results import parse_result, parse_time
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.runtime.logs.kafka import KafkaTransport


@dataclass(frozen=True, slots=True)
class First:
    """A part's first answer of a window: normal time, time of reading (s), readings counted."""

    part: int
    due_s: float
    seen_s: float
    counted: int
    is_tentative: bool

    @property
    def late_s(self) -> float:
        """Delay after its normal time."""
        return self.seen_s - self.due_s


@dataclass
class PartAnswers(threading.Thread):
    """Reads the results of all parts of the query, until the end of the program."""

    transport: KafkaTransport
    parts: int
    first: dict[tuple[int, str], First] = field(default_factory=dict)
    """By part and end of the window."""
    stable: Counter[str] = field(default_factory=Counter)
    """Readings in stable answers, by end of the window."""
    times: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Stable answers, by part and end of the window."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._lock = threading.Lock()
        self._counted: Counter[tuple[int, str, str]] = Counter()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Read."""
        reader = self.transport.reader(isolation="read_committed")
        topics = [Names().results(QUERY, kind) for kind in RESULT_KINDS]
        reader.assign({(topic, part): 0 for topic in topics for part in range(self.parts)})
        while True:
            records = reader.poll(5_000, 0.02)
            now_s = time.time()
            with self._lock:
                for raw in records:
                    self._take(parse_result(raw.value), now_s)

    def _take(self, row: dict[str, Any], now_s: float) -> None:
        kind, part, end = row["kind"], row["part"], row.get("window_end", "")
        if kind in ("stable", "tentative"):
            self._counted[part, kind, end] += row["fields"]["v"]["count"]
        elif kind == "boundary":
            label, due_s = row["label"], parse_time(row["due_at"]) / 1e6
            counted = self._counted.pop((part, label, end), 0)
            one = First(part, due_s, now_s, counted, label == "tentative")
            self.first.setdefault((part, end), one)
            if label == "stable":
                self.stable[end] += counted
                self.times[part, end] += 1

    def due(self, begin_s: float, end_s: float) -> list[First]:
        """First answers that were due then."""
        with self._lock:
            return [one for one in self.first.values() if begin_s <= one.due_s < end_s]

    def usual_s(self, begin_s: float, end_s: float) -> float:
        """The median delay of first answers that were read then; negative: before they were due."""
        return statistics.median(one.late_s for one in self.seen(begin_s, end_s))

    def usually_seen(self, begin_s: float, end_s: float, usual_s: float) -> list[First]:
        """First answers that would have been read then with the usual delay.

        An exact answer does not wait for its normal time, which allows a source a pause, so answers
        that are due just after a fault have been there before it.
        """
        return self.due(begin_s - usual_s, end_s - usual_s)

    def seen(self, begin_s: float, end_s: float) -> list[First]:
        """First answers that were read then."""
        with self._lock:
            return [one for one in self.first.values() if begin_s <= one.seen_s < end_s]

    def wrong(self, begin_s: float, end_s: float, per_window: int) -> list[str]:
        """Ends of windows that were due then and do not have each reading in one stable answer."""
        with self._lock:
            ends = {end for (_, end), one in self.first.items() if begin_s < one.due_s <= end_s}
            doubled = {end for (_, end), times in self.times.items() if times > 1}
            return sorted(end for end in ends if self.stable[end] != per_window or end in doubled)
