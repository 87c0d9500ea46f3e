"""The interfaces of a line's cursor: what source logs and result topics have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from slackwater.model.records import Gap, SourceColumns, SourcePosition


class Cursor(Protocol):
    """A line's cursor in one log: ``SourceCursor`` for readings, ``ResultCursor`` for results.

    Times are us of event time.
    """

    offset: int
    boundary: int
    attached: bool
    hole_inc: int | None
    bytes_held: int
    """Approximate bytes buffered ahead of the line; H bounds them (rule-12)."""
    passed_bytes: int
    """Approximate bytes retained, though the line has passed them, for a join."""

    @property
    def buckets_held(self) -> int:
        """Upper bound of the buckets with readings, and runs of empty ones, that are buffered."""
        ...

    @property
    def future_bytes(self) -> int:
        """Approximate bytes of readings stamped ahead of the watermark."""
        ...

    def excess_bytes(self, start: int, end: int) -> int:
        """Approximate bytes that a line whose next bucket is [start, end) does not need.

        These are records after the bucket, and records that should have been released. Records of
        the bucket and records that a join looks back to are not included: they are needed, however
        large they are.
        """
        ...

    def offer(self, offset: int, record: Any) -> bool:
        """Process the record at ``offset``; True if it counts."""
        ...

    def jump(self, beginning: int) -> None:
        """Move to ``beginning``: retention removed the next record."""
        ...

    def skip_to(self, offset: int) -> None:
        """Move to ``offset``: the live consumer delivered nothing between the two offsets."""
        ...

    def columns(self, start: int, end: int) -> Iterable[tuple[SourceColumns, int]]:
        """The columns that hold readings of [start, end), each with its previous watermark.

        Readings below the previous watermark do not count (trace-23).
        """
        ...

    def next_reading(self, start: int) -> int | None:
        """A lower bound of the smallest buffered stime >= start; None if there is none."""
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
        """(from, to, gap): lost readings, and the event times [from, to) in which they may lie."""
        ...

    @property
    def buffered_to(self) -> int:
        """The event time that the buffer reaches."""
        ...


class LiveCursor(Cursor, Protocol):
    """A cursor of the live line, which may skip records (rule-13)."""

    def seek(self, end: int) -> None:
        """Skip a backlog: continue at the offset ``end``."""
        ...

    def passed(self, start: int) -> int:
        """The end of complete event time, for a line whose next bucket begins at ``start``."""
        ...
