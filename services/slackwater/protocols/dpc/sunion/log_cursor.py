"""Interfaces of a line's cursors, for logs of readings and for results of another query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from slackwater.model.records import Gap, SourceColumns, SourcePosition


class Cursor(Protocol):
    """A line's cursor in one log of any kind; see ``SourceCursor``."""

    offset: int
    boundary: int
    attached: bool
    hole_inc: int | None
    bytes_held: int
    """Approximate bytes buffered ahead of the line; H bounds them (rule-12)."""
    passed_bytes: int
    """Approximate bytes that the line has passed, retained for an operator that looks back."""

    @property
    def future_bytes(self) -> int:
        """Approximate bytes of readings stamped ahead of the watermark."""
        ...

    def excess_bytes(self, start: int, end: int) -> int:
        """Approximate bytes held without need by a line whose next bucket is [start, end).

        These are records after the bucket, and records that should have been released. Records for
        the bucket and records that an operator looks back to are not included: their size depends
        on the number of readings alone.
        """
        ...

    def offer(self, offset: int, record: Any) -> bool:
        """Process the record at ``offset``; True if it counts."""
        ...

    def jump(self, beginning: int) -> None:
        """Move to ``beginning``: retention removed the next record."""
        ...

    def skip_to(self, offset: int) -> None:
        """Move to ``offset``: the live consumer passed the next record."""
        ...

    def columns(self, start: int, end: int) -> Iterable[tuple[SourceColumns, int]]:
        """The columns that hold readings of [start, end), and the floor of each."""
        ...

    def next_reading(self, start: int) -> int | None:
        """A lower bound of the smallest stime >= start that is buffered."""
        ...

    def pass_to(self, start: int) -> None:
        """Drop everything below ``start``, which the line has passed."""
        ...

    @property
    def next(self) -> SourcePosition:
        """Position of the first record that the line has not passed."""
        ...

    @property
    def rebuild(self) -> SourcePosition:
        """Position from which replay restores everything that the line still needs."""
        ...

    def park(self) -> None:
        """Drop the buffer; a catch-up reader reads it again."""
        ...

    @property
    def gaps(self) -> Sequence[tuple[int, int, Gap]]:
        """Losses to retention, with the ranges of event time in which they may lie."""
        ...

    @property
    def buffered_to(self) -> int:
        """The largest event time the buffer reaches."""
        ...


class LiveCursor(Cursor, Protocol):
    """A cursor of the live line, which may skip records (rule-13)."""

    def seek(self, end: int) -> None:
        """Skip a backlog."""
        ...

    def passed(self, start: int) -> int:
        """How far the log is complete, for a line whose next bucket begins at ``start``."""
        ...
