"""The catch-up reader: replays logs from parked positions, beside the live consumer (rule-12).

Records that the live consumer has read recently are returned from memory (``recent.py``). Older
ones are read by a separate client of the broker.

A parked cursor is only a position. After each step the owner of parked cursors requests the
positions to read next. If the requested position of a log is the reader's own, reading continues
without a seek. A request that changes nothing therefore costs the comparison of two small
dictionaries. The alternative, to seek the live consumer back and forth, starves the live line
(trace-14) and discards prefetched records at each seek.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from slackwater.model.limits import PREFETCH_KIB_MAX
from slackwater.runtime.logs.recent import RecentRecords
from slackwater.runtime.logs.transport import (
    Isolation,
    Log,
    LogError,
    PositionGoneError,
    RawRecord,
    Reader,
    Transport,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gone:
    """Retention has deleted the wanted position; the log now begins at ``beginning`` (rule-28)."""

    log: Log
    beginning: int


class CatchUpReader:
    """Reads logs from requested positions. For one thread.

    ``read`` does not wait, neither for records nor, after retention has deleted a position, for the
    log's beginning: another thread requests it, and meanwhile the log is not read.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        isolation: Isolation = "read_uncommitted",
        prefetch_kib_max: int = PREFETCH_KIB_MAX,
        recent: RecentRecords | None = None,
    ) -> None:
        self._transport = transport
        self._recent = recent or RecentRecords()
        self._make = partial(
            transport.reader, isolation=isolation, prefetch_kib_max=prefetch_kib_max
        )
        # Created at the first use: most of the time nothing is parked, and an idle client has
        # threads, too.
        self._made: Reader | None = None
        # Per log the offset after the last returned record. A request for any offset from there to
        # the reader's position, which is greater if markers follow, continues the reading.
        self._resume_from: dict[Log, int] = {}
        self._gone: dict[Log, tuple[int, Future[int]]] = {}
        """The wanted positions that are gone, until the log's beginning is known."""
        self._requesting: ThreadPoolExecutor | None = None

    @property
    def _reader(self) -> Reader:
        if self._made is None:
            self._made = self._make()
        return self._made

    def want(self, positions: Mapping[Log, int]) -> None:
        """Read exactly these logs from the given offsets; logs already at them continue."""
        if not positions and self._made is None:
            return
        self._reader.unassign(self._reader.assigned - positions.keys())
        changed = {
            log: offset for log, offset in positions.items() if not self._continues(log, offset)
        }
        self._reader.assign(changed)
        self._resume_from = {
            log: changed.get(log, self._resume_from.get(log, offset))
            for log, offset in positions.items()
        }

    def poll(self, budget_ms: float = 0.0, records_max: int = 500) -> list[RawRecord]:
        """Return available records; waits up to ``budget_ms`` for the first.

        Raises ``PositionGoneError`` if retention has removed a position. The caller must then
        request another position of that log, or drop the log, before the next call.
        """
        if not self._resume_from:
            return []
        records = self._reader.poll(records_max, budget_ms / 1000)
        for record in records:
            self._resume_from[record.log] = record.offset + 1
        return records

    def read(self, positions: Mapping[Log, int], records_max: int) -> list[RawRecord] | Gone:
        """Request positions and return available records, or ``Gone`` if a position is removed."""
        for log in list(self._gone):
            if (gone := self._beginning(log, positions.get(log))) is not None:
                return gone
        readable = {log: offset for log, offset in positions.items() if log not in self._gone}
        found, older = self._from_memory(readable, records_max)
        self.want(older)
        try:
            return found + self.poll(0.0, records_max)
        except PositionGoneError as error:
            if error.log not in older:
                return found  # it was read until now
            if self._requesting is None:
                self._requesting = ThreadPoolExecutor(1, thread_name_prefix="beginnings")
            request = self._requesting.submit(self._request, error.log)
            self._gone[error.log] = older[error.log], request
            _log.warning("%s", error)
            return found

    def _request(self, log: Log) -> int:
        return self._transport.beginning_offsets([log])[log]

    def _beginning(self, log: Log, wanted: int | None) -> Gone | None:
        """Return the beginning of a log that lacks the wanted position; None if not known yet."""
        gone, request = self._gone[log]
        if wanted == gone and not request.done():
            return None
        del self._gone[log]
        if wanted != gone:
            return None  # the session wants another position of the log, or none
        try:
            beginning = request.result()
        except LogError as error:
            # The position is read again, found to be gone again, and the beginning requested again.
            _log.warning("%s", error)
            return None
        _log.info("%s:%d is continued at %d", *log, beginning)
        return Gone(log, beginning)

    def _from_memory(
        self, positions: Mapping[Log, int], records_max: int
    ) -> tuple[list[RawRecord], dict[Log, int]]:
        """Return records held in memory, and the positions to be read from the broker."""
        found: list[RawRecord] = []
        older: dict[Log, int] = {}
        share = max(records_max // max(len(positions), 1), 1)
        for log, offset in positions.items():
            records = self._recent.read(
                log, offset, share, also_older_half=log not in self._resume_from
            )
            if records is None:
                older[log] = offset
            else:
                found += records
        return found, older

    def position(self, log: Log) -> int:
        """Return the offset below which all visible records of a log have been returned."""
        return self._reader.position(log)

    @property
    def wanted(self) -> frozenset[Log]:
        """Logs being read."""
        return frozenset() if self._made is None else self._made.assigned

    def close(self) -> None:
        """Close the reader."""
        if self._requesting is not None:
            self._requesting.shutdown(wait=False, cancel_futures=True)
        if self._made is not None:
            self._made.close()

    def _continues(self, log: Log, offset: int) -> bool:
        if log not in self._reader.assigned:
            return False
        return self._resume_from[log] <= offset <= self._reader.position(log)
