"""What a line needs of a cursor, whatever the log holds: readings, or results of another query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from slackwater.model.records import Gap, SourceColumns, SourcePosition


class Cursor(Protocol):
    """A line's place in one log, whatever the log holds; see ``SourceCursor``."""

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
        """Take the record at ``offset`` into account; says whether it counted."""
        ...

    def jump(self, beginning: int) -> None:
        """Retention took what was to be read next."""
        ...

    def skip_to(self, offset: int) -> None:
        """The live consumer went on at ``offset``, beyond the record that was next."""
        ...

    def columns(self, start: int, end: int) -> Iterable[tuple[SourceColumns, int]]:
        """The columns that hold readings of [start, end), and the floor of each."""
        ...

    def next_reading(self, start: int) -> int | None:
        """A lower bound of the smallest stime >= start that is buffered."""
        ...

    def pass_to(self, start: int) -> None:
        """The line has taken everything below ``start``: forget it."""
        ...

    @property
    def next(self) -> SourcePosition:
        """Where what the line has not passed yet begins."""
        ...

    @property
    def rebuild(self) -> SourcePosition:
        """Where to read from to have all again that the line still needs."""
        ...

    def park(self) -> None:
        """Forget what is buffered; a catch-up reader reads it again."""
        ...

    @property
    def gaps(self) -> Sequence[tuple[int, int, Gap]]:
        """What retention took, and the event times it may have lain in."""
        ...

    @property
    def buffered_to(self) -> int:
        """The largest event time the buffer reaches."""
        ...


class LiveCursor(Cursor, Protocol):
    """The live line's, which may leave things out (rule-13)."""

    def seek(self, end: int) -> None:
        """Leave out a backlog."""
        ...

    def passed(self, start: int) -> int:
        """How far the log is complete, for a line whose next bucket begins at ``start``."""
        ...
