"""Quarantine: unusable readings are stored and counted (guarantee-6).

Readings that are malformed, late, too far ahead of the clock or before a query's start are written
to ``sw.quarantine.<stream>`` as JSON, with input position and text. An entry is identified by
(stream, position). A proxy writes entries before the record whose input position passes them, and a
restarted proxy resumes at that position. So only entries after the last record can be written
twice, and a count must be of distinct entries (trace-23).

Rejected: a transaction over both topics. Source logs must not be transactional, since transaction
markers take offsets, which readers of offsets would see as holes (trace-9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from slackwater.model.names import Names
from slackwater.protocols.dpc.source.core import Reason, Refused
from slackwater.runtime.logs.transport import NoAnswerError, Writer

REASONS: Final[tuple[Reason, ...]] = (
    "malformed",
    "crash",
    "late",
    "before_start",
    "ahead",
    "superseded",
    "duplicate",
)
NOT_FINITE: Final = "not_finite"
"""The heartbeat's counter of values that were NaN or Infinity in JSON; their readings are used."""
PAYLOAD_CHARS_MAX: Final = 4096
DETAIL_CHARS_MAX: Final = 1024
KEY_SHOWN_CHARS_MAX: Final = 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """One unusable reading. ``stime`` and ``key`` are None where they could not be parsed."""

    position: str
    reason: Reason
    stime: int | None
    detail: str
    payload: str
    key: str | None = None


def why(refused: Refused, stime: int) -> str:
    """Return the detail of a reading that the source core has refused."""
    if refused.clock_us is None:
        return ""
    return f"{(stime - refused.clock_us) / 1e6:.3f} s ahead of the proxy's clock"


def iso(us: int) -> str:
    """Format an event or wall time for JSON."""
    try:
        text = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds")
    except OverflowError:
        return f"{us}us"
    return text.replace("+00:00", "Z")


def to_json(
    stream: str, entry: QuarantineEntry, now_us: int, incarnation: int | None = None
) -> bytes:
    """Encode the entry as written to the topic; ``incarnation`` is that of its source log."""
    return orjson.dumps(
        {
            "stream": stream,
            "position": entry.position,
            **({} if incarnation is None else {"incarnation": incarnation}),
            "reason": entry.reason,
            "stime": None if entry.stime is None else iso(entry.stime),
            "key": None if entry.key is None else _text(entry.key, KEY_SHOWN_CHARS_MAX),
            "detail": _text(entry.detail, DETAIL_CHARS_MAX),
            "payload": _text(entry.payload, PAYLOAD_CHARS_MAX),
            "quarantined_at": iso(now_us),
        }
    )


def _text(text: str, chars_max: int) -> str:
    """Return a text that can be written: valid UTF-8, truncated to the maximum length."""
    return text[:chars_max].encode(errors="replace").decode()


class Quarantine:
    """Writes and counts a stream's entries."""

    def __init__(self, writer: Writer, stream: str, names: Names) -> None:
        self._writer = writer
        self._stream = stream
        self._topic = names.quarantine(stream)
        self._waiting = False
        self.counts: Counter[str] = Counter()

    def put(
        self, entries: Iterable[QuarantineEntry], now_us: int, incarnation: int | None = None
    ) -> None:
        """Write entries; records that pass them must wait for ``settle``.

        ``incarnation``: of the writer, where another may write at the same time (a topic's).
        """
        for entry in entries:
            self.counts[entry.reason] += 1
            self.send(entry.position, to_json(self._stream, entry, now_us, incarnation))
            self._waiting = True

    def send(
        self, position: str, value: bytes, on_delivery: Callable[[int], None] | None = None
    ) -> None:
        """Write an encoded entry without counting it."""
        self._writer.append(self._topic, 0, value, position.encode(), on_delivery)

    def count(self, reason: Reason, n: int) -> None:
        """Count entries written by an earlier incarnation."""
        if n:
            self.counts[reason] += n

    def count_all(self, entries: Iterable[QuarantineEntry]) -> None:
        """Count entries by their reasons."""
        self.counts.update(entry.reason for entry in entries)

    def all_counts(self) -> dict[str, int]:
        """Return the counts of all reasons, zeros included."""
        return {reason: self.counts[reason] for reason in REASONS}

    def settle(self, timeout_s: float = 0.1) -> bool:
        """Whether all entries are in the topic; waits up to the time-out."""
        if self._waiting:
            try:
                self._writer.await_delivered(timeout_s)
            except NoAnswerError:
                return False
            self._waiting = False
        return True
