"""Readings that cannot be used, kept and counted (guarantee-6).

Nothing that a sensor sent disappears: what is malformed, late, too far in the future or before a
query's start goes to ``sw.quarantine.<stream>`` as JSON, with its place in the input and its text.
An entry is identified by (stream, position). A proxy writes entries before the record whose input
position passes them, and a restarted one begins behind that position; so only entries after the
last record can be written twice, and whoever counts, counts distinct ones (trace-23).

Rejected: a transaction over both topics. Source logs must not be transactional, since markers take
offsets and leave holes for whoever reads offsets (trace-9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from slackwater.model.names import Names
from slackwater.protocols.dpc.source.core import Reason
from slackwater.runtime.logs.transport import NoAnswerError, Writer

REASONS: Final[tuple[Reason, ...]] = (
    "malformed",
    "crash",
    "late",
    "before_start",
    "future",
    "superseded",
)
PAYLOAD_CHARS_MAX: Final = 4096
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """One unusable reading. ``stime`` is None where no time could be read."""

    position: str
    reason: Reason
    stime: int | None
    detail: str
    payload: str


def iso(us: int) -> str:
    """An event or wall time as all JSON of ours writes it."""
    try:
        text = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds")
    except OverflowError:
        return f"{us}us"
    return text.replace("+00:00", "Z")


def to_json(stream: str, entry: QuarantineEntry, now_us: int) -> bytes:
    """The entry as the topic carries it."""
    return orjson.dumps(
        {
            "stream": stream,
            "position": entry.position,
            "reason": entry.reason,
            "stime": None if entry.stime is None else iso(entry.stime),
            "detail": entry.detail,
            "payload": entry.payload[:PAYLOAD_CHARS_MAX].encode(errors="replace").decode(),
            "quarantined_at": iso(now_us),
        }
    )


class Quarantine:
    """Writes a stream's entries, and knows how many there were."""

    def __init__(self, writer: Writer, stream: str, names: Names) -> None:
        self._writer = writer
        self._stream = stream
        self._topic = names.quarantine(stream)
        self._waiting = False
        self.counts: Counter[str] = Counter()

    def put(self, entries: Iterable[QuarantineEntry], now_us: int) -> None:
        """Write entries; records that pass them must wait until ``settle``."""
        for entry in entries:
            self.counts[entry.reason] += 1
            value = to_json(self._stream, entry, now_us)
            self._writer.append(self._topic, 0, value, entry.position.encode())
            self._waiting = True

    def count(self, reason: Reason, n: int) -> None:
        """Entries that an earlier incarnation has written."""
        if n:
            self.counts[reason] += n

    def count_all(self, entries: Iterable[QuarantineEntry]) -> None:
        """The same, each by its reason."""
        self.counts.update(entry.reason for entry in entries)

    def all_counts(self) -> dict[str, int]:
        """Every reason, also those that did not occur."""
        return {reason: self.counts[reason] for reason in REASONS}

    def settle(self, timeout_s: float = 0.1) -> bool:
        """Are all entries in the topic? Waits a little if they are not."""
        if self._waiting:
            try:
                self._writer.await_delivered(timeout_s)
            except NoAnswerError:
                return False
            self._waiting = False
        return True
