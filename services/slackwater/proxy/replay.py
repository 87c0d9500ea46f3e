"""Replays a file as a sensor: readings in the file's order, each sent when its time is due.

A reading is due when the event clock reaches the largest time up to it in the file, so a file with
decreasing times is sent in its own order. Nothing is spooled: the file is the spool, and the line
number is the position. A restarted replay reads the file from the beginning, which restores the
largest time and the counts, and continues at the position in the log's last record. Ids and late
readings are the same, whatever was flushed when.

Where a file is ingested into a live stream, one wrong year must not hold back the rest of the file
(``pause_us_max``). A *leap* is a reading more than a day ahead of most readings that follow it, or
after a pause beyond the maximum; it is due together with its neighbours. It is then ahead of the
clock, and goes to quarantine. A gap of days in the data is not a leap, since
most later readings lie beyond it too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from slackwater.formats.pieces import FilePiece, Guard
from slackwater.formats.readingsfile import open_readings
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import SlackwaterError
from slackwater.model.limits import FOREVER, NEVER
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.protocols.dpc.source.core import Refused
from slackwater.proxy.quarantine import QuarantineEntry, why

DAY_US: Final = 86_400_000_000
PIECE_BYTES_PACED: Final = 512 * 1024
"""Piece size when paced. A piece is parsed in one go, which delays boundaries by about 10 ms."""


@dataclass(frozen=True, slots=True)
class Due:
    """Output of a file: readings, quarantine entries, blank lines."""

    arrived: Arrived
    lines: type_i64
    entries: tuple[QuarantineEntry, ...]
    blank: int
    piece: FilePiece

    def refused(self, refused: Refused) -> list[QuarantineEntry]:
        """Return quarantine entries for readings that the core refused."""
        return [
            QuarantineEntry(
                position=str(int(self.lines[i])),
                reason=refused.reason,
                stime=int(self.arrived.stimes[i]),
                detail=why(refused, int(self.arrived.stimes[i])),
                payload=self.piece.text(int(self.lines[i])),
                key=self.arrived.keys[int(self.arrived.key_index[i])],
            )
            for i in refused.indices.tolist()
        ]


@dataclass(slots=True)
class _Open:
    """The piece that is being sent."""

    piece: FilePiece
    times: type_i64
    """The largest stime up to each reading."""
    at: int = 0
    malformed_at: int = 0
    blank_reported: bool = False

    @property
    def left(self) -> bool:
        return self.at < len(self.times)


class Replay:
    """Replay of one file, up to ``end_at_us`` (event time) if given."""

    def __init__(
        self,
        spec: StreamSpec,
        path: Path,
        end_at_us: int | None = None,
        piece_bytes: int = PIECE_BYTES_PACED,
        guard: Guard | None = None,
        *,
        pause_us_max: int | None = None,
    ) -> None:
        file = open_readings(spec, path, piece_bytes, guard)
        self._pieces: Iterator[FilePiece] = file.pieces()
        self._ahead: deque[FilePiece] = deque()
        """Pieces read ahead, to see what follows the current one."""
        self._pause_us_max = pause_us_max
        self._end_at_us = FOREVER if end_at_us is None else end_at_us
        self._largest = NEVER
        self._open: _Open | None = None
        self.exhausted = False
        """Whether all readings have been sent."""
        self._failed: SlackwaterError | None = None
        self._load()
        self._look_for_end()

    @property
    def damage(self) -> SlackwaterError | None:
        """The error that ends the file, reported once everything before it has been taken."""
        return None if self._ahead or self._open is not None else self._failed

    def skip(self, position: int) -> Iterator[Due]:
        """Yield the pieces that an earlier incarnation has processed: lines before ``position``."""
        while self._open is not None and self._begins_before(self._open, position):
            n = int(np.searchsorted(self._open.piece.lines, position)) - self._open.at
            yield self._take(n)

    @staticmethod
    def _begins_before(opened: _Open, position: int) -> bool:
        if opened.left:
            return int(opened.piece.lines[opened.at]) < position
        return opened.piece.arrived.position <= position

    def take(self, now_us: int, readings_max: int) -> Due | None:
        """Return the output due at ``now_us``, at most ``readings_max``; None if nothing is due."""
        if self._open is None or self.exhausted:
            return None
        limit = min(now_us, self._end_at_us)
        n = int(np.searchsorted(self._open.times, limit, "right")) - self._open.at
        if n <= 0 and self._open.left:
            self._look_for_end()
            return None
        return self._take(min(n, readings_max))

    def due_us(self, readings: int) -> int | None:
        """Return the time at which this many more readings are due, as far as is known."""
        if self._open is None or not self._open.left:
            return None
        at = min(self._open.at + readings, len(self._open.times)) - 1
        due = int(self._open.times[at])
        return due if due <= self._end_at_us else None

    def _take(self, n: int) -> Due:
        opened = self._open
        assert opened is not None
        piece, start = opened.piece, opened.at
        opened.at = end = min(start + max(n, 0), len(opened.times))
        complete = not opened.left
        position = piece.arrived.position if complete else int(piece.lines[end])
        bad = opened.malformed_at
        while bad < len(piece.malformed) and piece.malformed[bad].line < position:
            bad += 1
        malformed = piece.malformed[opened.malformed_at : bad]
        opened.malformed_at = bad
        blank = 0 if opened.blank_reported else piece.blank
        opened.blank_reported = True
        arrived = replace(piece.arrived.take(slice(start, end)), position=position)
        entries = tuple(
            QuarantineEntry(str(m.line), m.reason, m.stime, m.detail, m.text) for m in malformed
        )
        due = Due(arrived, piece.lines[start:end], entries, blank, piece)
        if complete:
            self._load()
        self._look_for_end()
        return due

    def _load(self) -> None:
        self._open = None
        pause_us_max = self._pause_us_max
        self._read_ahead(1 if pause_us_max is None else 2)
        if not self._ahead:
            return
        piece = self._ahead.popleft()
        paced = piece.arrived.stimes
        if pause_us_max is not None:
            following = self._ahead[0].arrived.stimes if self._ahead else paced[:0]
            paced = without_leaps(paced, following, self._largest, pause_us_max)
        times = np.maximum(np.maximum.accumulate(paced), self._largest)
        if len(times):
            self._largest = int(times[-1])
        self._open = _Open(piece, times)

    def _read_ahead(self, pieces: int) -> None:
        while len(self._ahead) < pieces and self._failed is None:
            try:
                piece = next(self._pieces, None)
            except SlackwaterError as error:
                self._failed = error
                return
            if piece is None:
                return
            self._ahead.append(piece)

    def _look_for_end(self) -> None:
        opened = self._open
        self.exhausted = opened is None or (
            opened.left and int(opened.times[opened.at]) > self._end_at_us
        )


def without_leaps(
    stimes: type_i64, following: type_i64, before: int, pause_us_max: int
) -> type_i64:
    """Replace the time of each leap by that of the previous reading, else of the next.

    ``before`` is the largest time so far, ``following`` the times of the next piece.
    """
    head = np.array([before] if before > NEVER else [], np.int64)
    both = np.concatenate((head, stimes, following))
    steps = np.diff(both)
    if not ((steps < -DAY_US) | (steps > pause_us_max)).any():
        return stimes
    starts = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(np.abs(steps) > DAY_US) + 1))
    ends = np.append(starts[1:], len(both))
    lows, sizes = np.minimum.reduceat(both, starts), ends - starts
    is_leap = np.zeros(len(starts), np.bool_)
    reached = int(both[0]) if len(head) else None
    for i in range(len(head), len(starts)):
        behind = sizes[i + 1 :]
        ahead_of_most = 2 * behind[lows[i + 1 :] < lows[i] - DAY_US].sum() > behind.sum()
        is_leap[i] = ahead_of_most or (reached is not None and lows[i] - reached > pause_us_max)
        if not is_leap[i]:
            last = int(both[ends[i] - 1])
            reached = last if reached is None else max(reached, last)
    kept = np.flatnonzero(~np.repeat(is_leap, sizes))
    here = np.arange(len(head), len(head) + len(stimes))
    replaced: type_i64 = both[kept[np.maximum(np.searchsorted(kept, here, "right") - 1, 0)]]
    return replaced
