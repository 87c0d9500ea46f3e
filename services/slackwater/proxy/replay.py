"""A file as a sensor: its readings in the file's order, each when its time has come.

A reading is due when the event clock shows the largest time up to it in its file, so that a file
that steps back is sent as it stands. Nothing is spooled: the file is the spool, and a line number
the position in it. A restarted replay reads the file again from its beginning, which gives it the
largest time and the counts, and goes on at the position that the log's last record carries: the
same ids, the same late readings, whatever was flushed when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from slackwater.model.deployment import StreamSpec
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source import NEVER, Arrived, Refused
from slackwater.proxy.csvfile import CsvFile, Piece
from slackwater.proxy.quarantine import Entry

piece_bytes_paced: Final = 512 * 1024
"""A piece is parsed in one go, while boundaries wait: about 10 ms."""
FOREVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class Due:
    """What has come of a file: readings, what cannot be used, blank lines."""

    arrived: Arrived
    lines: type_i64
    entries: tuple[Entry, ...]
    blank: int
    piece: Piece

    def refused(self, refused: Refused) -> list[Entry]:
        """Quarantine entries for readings that the core refused."""
        return [
            Entry(
                position=str(int(self.lines[i])),
                reason=refused.reason,
                stime=int(self.arrived.stimes[i]),
                detail="",
                payload=self.piece.text(int(self.lines[i])),
            )
            for i in refused.indices.tolist()
        ]


@dataclass(slots=True)
class _Open:
    """The piece that is being sent."""

    piece: Piece
    times: type_i64
    """The largest stime up to each reading."""
    at: int = 0
    malformed_at: int = 0
    blank_told: bool = False

    @property
    def left(self) -> bool:
        return self.at < len(self.times)


class Replay:
    """One file, up to ``end_at_us`` (event time) if that is given."""

    def __init__(
        self,
        spec: StreamSpec,
        path: Path,
        end_at_us: int | None = None,
        piece_bytes: int = piece_bytes_paced,
    ) -> None:
        self._file = CsvFile(spec, path, piece_bytes)
        self._pieces: Iterator[Piece] = self._file.pieces()
        self._end_at_us = FOREVER if end_at_us is None else end_at_us
        self._largest = NEVER
        self._open: _Open | None = None
        self.exhausted = False
        """No reading is left that is to be sent."""
        self._load()

    def skip(self, position: int) -> Iterator[Due]:
        """What an earlier incarnation has dealt with: all lines before ``position``."""
        while self._open is not None and self._begins_before(self._open, position):
            n = int(np.searchsorted(self._open.piece.lines, position)) - self._open.at
            yield self._take(n)

    @staticmethod
    def _begins_before(opened: _Open, position: int) -> bool:
        if opened.left:
            return int(opened.piece.lines[opened.at]) < position
        return opened.piece.arrived.position <= position

    def take(self, now_us: int, readings_max: int) -> Due | None:
        """What is due at ``now_us``, at most so many readings; None if there is nothing."""
        if self._open is None or self.exhausted:
            return None
        limit = min(now_us, self._end_at_us)
        n = int(np.searchsorted(self._open.times, limit, "right")) - self._open.at
        if n <= 0 and self._open.left:
            self._look_for_end()
            return None
        return self._take(min(n, readings_max))

    def due_us(self, readings: int) -> int | None:
        """When this many more readings will be due, as far as has been read."""
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
        whole = not opened.left
        position = piece.arrived.position if whole else int(piece.lines[end])
        bad = opened.malformed_at
        while bad < len(piece.malformed) and piece.malformed[bad].line < position:
            bad += 1
        malformed = piece.malformed[opened.malformed_at : bad]
        opened.malformed_at = bad
        blank = 0 if opened.blank_told else piece.blank
        opened.blank_told = True
        arrived = replace(piece.arrived.take(slice(start, end)), position=position)
        entries = tuple(
            Entry(str(m.line), "malformed", m.stime, m.detail, m.text) for m in malformed
        )
        due = Due(arrived, piece.lines[start:end], entries, blank, piece)
        if whole:
            self._load()
        self._look_for_end()
        return due

    def _load(self) -> None:
        self._open = None
        piece = next(self._pieces, None)
        if piece is not None:
            stimes = piece.arrived.stimes
            times = np.maximum(np.maximum.accumulate(stimes), self._largest)
            if len(times):
                self._largest = int(times[-1])
            self._open = _Open(piece, times)

    def _look_for_end(self) -> None:
        opened = self._open
        self.exhausted = opened is None or (
            opened.left and int(opened.times[opened.at]) > self._end_at_us
        )
