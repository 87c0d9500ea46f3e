"""Cuts a part's results, in the order of ``seq``, into batches that end where answers are complete.

A batch ends after the boundary of a window, and after an UNDO only when the stable answers have
come that replace what it revokes (rule-22): whoever sees a batch sees no answer that is revoked and
not replaced. Such a batch is at most one transaction of the root, whose size rule-23 limits.

A batch has the *position after it*: the next ``seq``, and per topic the offset after the last
record used. Who has stored it together with what the batch led to begins there, and sees the batch
neither never nor twice.

Rejected: to end a batch at each transaction of the root. A reader does not see where one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slackwater.codec.results import parse_time
from slackwater.model.names import ResultKind

ResultRecord = Mapping[str, Any]
LastStart = Callable[[int, int], int]
"""The start of the window that is some windows after the one with this start, in us."""


@dataclass(frozen=True, slots=True)
class PartPosition:
    """Where reading a part goes on: ``offsets`` by topic; without one, at its beginning."""

    next_seq: int = 0
    offsets: Mapping[ResultKind, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeliveryBatch:
    """Results of a part, in order, and the position after them."""

    part: int
    records: tuple[ResultRecord, ...]
    after: PartPosition


class BatchCutter:
    """Cuts the results of one part. ``later`` is the ``later`` of the query's grid of windows."""

    def __init__(self, part: int, start: PartPosition, later: LastStart) -> None:
        self.part = part
        self._later = later
        self._next_seq = start.next_seq
        self._offsets = dict(start.offsets)
        self._records: list[ResultRecord] = []
        self._rows = 0
        """Rows at the end of ``_records`` whose boundary has not come."""
        self._undone_to: int | None = None
        """Start of the last window that has been revoked and not replaced."""

    def offer(self, kind: ResultKind, offset: int, record: ResultRecord) -> DeliveryBatch | None:
        """Accept the next record, of this topic; return the batch that it completes."""
        self._next_seq = record["seq"] + 1
        self._offsets[kind] = offset + 1
        self._records.append(record)
        match record["kind"]:
            case "stable" | "tentative":
                self._rows += 1
                return None
            case "undo":
                self._undone_to = parse_time(record["undo_to"])
            case "boundary":
                self._rows = 0
                self._replace(record)
        return None if self._rows or self._undone_to is not None else self._cut()

    def skip(self, next_seq: int) -> None:
        """Accept that retention has deleted the records before ``next_seq``.

        Rows without their boundary are dropped. What replaces revoked answers may be gone, too.
        """
        del self._records[len(self._records) - self._rows :]
        self._rows, self._undone_to = 0, None
        self._next_seq = next_seq

    def _replace(self, boundary: ResultRecord) -> None:
        if self._undone_to is None or boundary["label"] != "stable":
            return
        if last_start(boundary, self._later) >= self._undone_to:
            self._undone_to = None

    def _cut(self) -> DeliveryBatch:
        after = PartPosition(self._next_seq, dict(self._offsets))
        records, self._records = tuple(self._records), []
        return DeliveryBatch(self.part, records, after)


def last_start(boundary: ResultRecord, later: LastStart) -> int:
    """Return the start of a boundary's last window, us: of one window, or of a run."""
    start, windows = parse_time(boundary["window_start"]), boundary["windows"]
    return start if windows == 1 else later(start, windows - 1)
