"""Counts quarantined readings as a reader of those topics must."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson


class DistinctCounts:
    """Counts distinct entries of quarantine topics, which may be written twice (trace-23)."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self.counts: dict[str, Counter[str]] = {}

    def add(self, value: bytes) -> None:
        """Count one record of a quarantine topic."""
        entry: dict[str, Any] = orjson.loads(value)
        identity = entry["stream"], entry["position"]
        if identity not in self._seen:
            self._seen.add(identity)
            self.counts.setdefault(entry["stream"], Counter())[entry["reason"]] += 1
