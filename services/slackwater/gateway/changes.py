"""Makes changes of records: what a reader of a live page is told, each encoded once.

A record is one row of a window, so a reader of records would show half a window. A change is what
``BestAnswers`` calls a change: an answer with all its rows, an UNDO, REC_DONE; and a gap, or a
range of records that retention deleted (``cut``). Its body is one line of JSON with the fields of
the records (docs/reference/results.md).

The size of a body is bounded, since it is kept for all readers: of a window with more rows than
``ROWS_MAX``, or with keys of 65,536 characters, the first rows are sent, and ``rows_left_off``
counts the others. An answer that lacks rows since they were read from the middle has
``incomplete``.

Pure: records in, bytes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from slackwater.client.follow import Seen
from slackwater.delivery.merge import Cut

ROWS_MAX: Final = 1_000
"""Rows of an answer that are sent, of one part."""
ROWS_BYTES_MAX: Final = 256 * 1024
_OF_ANSWERS: Final = (
    *("label", "window_start", "window_end", "windows", "keys", "missing", "lost", "skipped"),
    *("due_at", "emitted_at"),
)
_HEAD: Final = ("query", "generation", "part", "seq", "epoch")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one part, up to the record ``seq``; ``body`` is a JSON object in one line."""

    part: int
    seq: int
    body: bytes


@dataclass(slots=True)
class _Rows:
    """Encoded rows of a window whose boundary has not been read."""

    encoded: list[bytes] = field(default_factory=list)
    count: int = 0
    bytes: int = 0

    def add(self, record: Mapping[str, Any]) -> None:
        self.count += 1
        if len(self.encoded) >= ROWS_MAX or self.bytes > ROWS_BYTES_MAX:
            return
        row = {"key": record["key"], "fields": record["fields"]}
        row |= {name: record[name] for name in ("stime", "overflow") if name in record}
        self.encoded.append(orjson.dumps(row))
        self.bytes += len(self.encoded[-1])
        if self.bytes > ROWS_BYTES_MAX:
            self.encoded.pop()


class Changes:
    """Takes what a follower returns, in its order."""

    def __init__(self) -> None:
        self._rows: dict[int, _Rows] = {}
        self.begins: dict[int, int] = {}
        """The first ``seq`` of each part."""

    def take(self, item: Seen | Cut) -> Change | None:
        """Return the change that this item completes; None if it completes none."""
        if isinstance(item, Cut):
            self.begins.setdefault(item.part, item.first)
            self._rows.pop(item.part, None)
            cut = {"kind": "cut", "part": item.part, "first": item.first, "last": item.last}
            return Change(item.part, item.last, orjson.dumps(cut))
        record = item.record
        part, kind = record["part"], record["kind"]
        self.begins.setdefault(part, record["seq"])
        if item.repeat:
            return None
        if kind in ("stable", "tentative"):
            self._rows.setdefault(part, _Rows()).add(record)
            return None
        head = {"kind": kind} | {name: record[name] for name in _HEAD if name in record}
        if kind != "boundary":
            rest = {name: value for name, value in record.items() if name not in head}
            return Change(part, record["seq"], orjson.dumps(head | rest))
        rows = self._rows.pop(part, None) or _Rows()
        head |= {"kind": "answer"} | {n: record[n] for n in _OF_ANSWERS if n in record}
        if rows.count != record["keys"]:
            head["incomplete"] = True
        if left_off := rows.count - len(rows.encoded):
            head["rows_left_off"] = left_off
        head["rows"] = [orjson.Fragment(row) for row in rows.encoded]
        return Change(part, record["seq"], orjson.dumps(head))
