"""Skipped records: foreign or unreadable ones, counted and logged.

A client that may write to a topic may write anything to it: a stray producer, a test that took the
wrong broker, a program of a later version. A reader of an internal topic therefore never fails
because of a record. Unusable records are skipped and reported here: the count by topic is part of
the process's heartbeat, and so of ``slackwater status``; the place and the reason are in its log,
once a minute for each topic and reason, since a stray producer may write a thousand records a
second.

The counts belong to the process, as its log does: ``SKIPPED`` is the one that readers use.
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
"""A topic and a reason are named so often at most."""
TOPICS_REPORTED_MAX: Final = 8
"""A heartbeat names so many topics, those with the most skipped records."""
DETAIL: Final = "skipped"
"""The heartbeat's counter of all topics; ``skipped:<topic>`` is that of one."""


class SkippedRecords:
    """Counts by topic, and one line a while; from any thread."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._unlogged: Counter[tuple[str, str]] = Counter()
        self._logged_s: dict[tuple[str, str], float] = {}

    def note(self, topic: str, partition: int, offset: int, reason: str, found: str = "") -> None:
        """A record was skipped. ``reason`` is one of few, ``found`` is what is wrong with it."""
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
        """By topic, how many records were skipped since the process started."""
        with self._lock:
            return dict(self._counts)

    def detail(self) -> dict[str, int]:
        """The same for a heartbeat; empty while nothing was skipped."""
        with self._lock:
            if not self._counts:
                return {}
            most = self._counts.most_common(TOPICS_REPORTED_MAX)
            reported = {f"{DETAIL}:{topic}": count for topic, count in sorted(most)}
            return {DETAIL: self._counts.total(), **reported}


SKIPPED: Final = SkippedRecords()
