"""Which alerts stand, which counts are on their way, and which alerts ended last. Pure.

Folds the records of alert topics in the order of each log. What stands is bounded by what fires;
of ended alerts the last ones are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import orjson

from slackwater.delivery.records import AlertRecord

ENDED_MAX: Final = 100
_Place = tuple[str, str, str]


class AlertView:
    """The present state of the alerts of any number of queries."""

    def __init__(self, ended_max: int = ENDED_MAX) -> None:
        self.standing: dict[str, AlertRecord] = {}
        """By id, the record with which it began."""
        self.pending: dict[_Place, AlertRecord] = {}
        self.ended: deque[AlertRecord] = deque(maxlen=ended_max)

    def take(self, record: AlertRecord) -> None:
        """Take the next record of a log."""
        place = record.query, record.rule, record.key
        self.pending.pop(place, None)
        match record.state:
            case "pending":
                self.pending[place] = record
            case "firing":
                self.standing[record.id] = record
            case "ended" | "confirmed" | "withdrawn":
                self.standing.pop(record.id, None)
                self.ended.append(record)
            case "inactive":
                pass

    def of(self, query: str, rule: str, key: str) -> list[AlertRecord]:
        """Return the alerts of a rule that stand for a key: an exact one, a tentative one."""
        place = query, rule, key
        return [r for r in self.standing.values() if (r.query, r.rule, r.key) == place]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; the last ended alert is the first."""
        return {
            "firing": [public(record) for record in self._sorted(self.standing.values())],
            "pending": [public(record) for record in self._sorted(self.pending.values())],
            "ended": [public(record) for record in reversed(self.ended)],
        }

    @staticmethod
    def _sorted(records: Iterable[AlertRecord]) -> list[AlertRecord]:
        return sorted(records, key=lambda r: (r.query, r.rule, r.key, r.began.window_start))


def public(record: AlertRecord) -> dict[str, Any]:
    """Return what receivers see of a record: all but what its evaluation needs."""
    found: dict[str, Any] = orjson.loads(record.encode())
    for name in ("kind", "progress"):
        found.pop(name, None)
    return {"event_id": record.event_id, **found}
