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
    """About what is buffered ahead of the line: what H bounds (rule-12)."""
    passed_bytes: int
    """About what is kept of what the line has passed, for an operator that looks back."""

    @property
    def future_bytes(self) -> int:
        """About what is kept of readings that are stamped ahead of what was promised."""
        ...

    def excess_bytes(self, start: int, end: int) -> int:
        """About what is held without need by a line whose next bucket is [start, end).

        That is what lies ahead of the bucket, and what should have been released. What the line
        needs for the bucket is not in it, nor what an operator looks back to: both are as large as
        the readings are many.
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
        """Where what the line has not passed yet begins."""
        ...

    @property
    def rebuild(self) -> SourcePosition:
        """Position to replay from for all that the line still needs."""
        ...

    def park(self) -> None:
        """Drop the buffer; a catch-up reader reads it again."""
        ...

    @property
    def gaps(self) -> Sequence[tuple[int, int, Gap]]:
        """Losses to retention, and the event times they may lie in."""
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
