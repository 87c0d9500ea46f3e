"""Skipped records: counts and log lines for foreign or unreadable records.

Any client with write access can write anything to an internal topic: a producer with the wrong
broker address, a test, a later version. A reader therefore never fails because of a record. It
skips the record and reports it here. The count for each topic is part of the process's heartbeat,
where ``slackwater status`` reads it. Offset and reason are logged, at most once a minute for each
topic and reason, since a foreign producer may write a thousand records a second.

The counts are those of the process: all readers use the one object ``SKIPPED``. (A *window* that is
skipped is something else: see rule-20.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

LINE_EVERY_S: Final = 60.0
"""Minimum interval between two log lines for one topic and reason."""
TOPICS_REPORTED_MAX: Final = 8
"""Topics in a heartbeat: those with the most skipped records."""
DETAIL: Final = "skipped"
"""Heartbeat detail: the count over all topics; ``skipped:<topic>`` is the count of one topic."""


class SkippedRecords:
    """Counts skipped records by topic and logs them at a limited rate. Thread-safe."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._unlogged: Counter[tuple[str, str]] = Counter()
        self._logged_s: dict[tuple[str, str], float] = {}

    def note(self, topic: str, partition: int, offset: int, reason: str, found: str = "") -> None:
        """Count a skipped record.

        ``reason`` is one of a few texts, by which lines are limited; ``found`` has the details.
        """
        what, now_s = (topic, reason), self._now_s()
        with self._lock:
            self._counts[topic] += 1
            if now_s - self._logged_s.get(what, -LINE_EVERY_S) < LINE_EVERY_S:
                self._unlogged[what] += 1
                return
            self._logged_s[what] = now_s
            unlogged = self._unlogged.pop(what, 0)
        _log.warning(
            "%s:%d:%d is skipped: %s%s%s",
            *(topic, partition, offset, reason),
            f" ({found})" if found else "",
            f"; {unlogged} more since the last line" if unlogged else "",
        )

    def counts(self) -> dict[str, int]:
        """Return the number of skipped records since the process started, by topic."""
        with self._lock:
            return dict(self._counts)

    def detail(self) -> dict[str, int]:
        """Return the counts as heartbeat details; empty if nothing was skipped."""
        with self._lock:
            if not self._counts:
                return {}
            most = self._counts.most_common(TOPICS_REPORTED_MAX)
            reported = {f"{DETAIL}:{topic}": count for topic, count in sorted(most)}
            return {DETAIL: self._counts.total(), **reported}


SKIPPED: Final = SkippedRecords()
