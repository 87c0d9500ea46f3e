"""The slices from which tentative answers are computed, in panes (``slackwater.primitives.panes``).

``LivePanes`` belongs to the live line. For each bucket it keeps the slice chosen last, which is
replaced and never added to (trace-7), in addition to what the stable store has. It is bounded
(trace-5): when the chosen slices exceed ``cells_max`` or ``bytes_max``, the oldest are folded and
can no longer be replaced. Later versions of them are ignored; the stable line corrects the answer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic

from slackwater.model.records import Position
from slackwater.primitives.contents import Contents, V, folded
from slackwater.primitives.panes import NOTHING, Notes, PaneShare, PaneStore
from slackwater.primitives.windows import Grid


@dataclass(frozen=True, slots=True)
class _Cell(Generic[V]):
    """The choice for [start, end): one bucket, or a run of empty ones (``value`` is None)."""

    start: int
    end: int
    value: V | None
    notes: Notes
    stable: bool

    @property
    def nbytes(self) -> int:
        return 0 if self.value is None else self.value.nbytes


class LivePanes(Generic[V]):
    """The slices of one child from which tentative answers are computed.

    A bucket without a slice lacks all of the child's ``streams`` (rule-20).
    """

    __slots__ = (
        "_absent", "_bytes", "_bytes_max", "_cells", "_cells_max", "_contents", "_grid",
        "_needed_from", "_sealed", "_stable",
    )  # fmt: skip

    def __init__(
        self, grid: Grid, contents: Contents[V], stable: PaneStore[V],
        *, streams: Sequence[str], cells_max: int = 600, bytes_max: int = 256 << 20,
    ) -> None:  # fmt: skip
        assert cells_max > 0
        self._grid = grid
        self._contents = contents
        self._stable = stable
        self._absent = Notes.of(streams)
        self._cells_max = cells_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._cells: list[_Cell[V]] = []  # disjoint, ascending
        self._sealed: PaneStore[V] | None = None
        self._needed_from = stable.frontier.bucket_start

    def copy(self) -> LivePanes[V]:
        """Return a copy for choices that may be discarded.

        ``seal`` changes state that both share: once one of the two is sealed, the other is invalid.
        """
        other: LivePanes[V] = object.__new__(LivePanes)
        for name in LivePanes.__slots__:
            setattr(other, name, getattr(self, name))
        other._cells = self._cells.copy()
        return other

    def put(
        self, bucket_start: int, bucket_end: int, value: V, notes: Notes = NOTHING,
        *, stable: bool = False,
    ) -> None:  # fmt: skip
        """Choose the slice of a complete bucket; a tentative one does not replace a stable one."""
        self._replace(_Cell(bucket_start, bucket_end, value, notes, stable))

    def put_empty(
        self, start: int, end: int, notes: Notes = NOTHING, *, stable: bool = False
    ) -> None:
        """Choose the buckets of [start, end) to be empty."""
        run: _Cell[V] = _Cell(start, end, None, notes, stable)
        self._replace(run)

    def seal(self) -> None:
        """Fold the oldest slices until the rest is within the bounds; they become final.

        The order of additions is the same as without folding them now. Call it after the choices
        for an answer are final, before the next ones are made.
        """
        self._forget_overtaken()
        while self._cells and (len(self._cells) > self._cells_max or self._bytes > self._bytes_max):
            if self._sealed is None:
                # It starts where the stable store ends, like the live line.
                at = max(self._stable.frontier.bucket_start, self._needed_from)
                self._sealed = self._stable.fork(at)
            cell = self._cells.pop(0)
            self._bytes -= cell.nbytes
            frontier = self._sealed.frontier.bucket_start
            if frontier < cell.start:
                self._sealed.advance(cell.start, self._absent)
            if cell.value is None:
                self._sealed.advance(cell.end, cell.notes)
            else:
                self._sealed.add(Position(cell.start), cell.end, cell.value, cell.notes)

    def window(self, start: int, end: int) -> PaneShare[V]:
        """Return the child's current share of a window, with what it lacks."""
        assert start >= self._needed_from, "the window's slices have been dropped"
        self._forget_overtaken()
        known = min(max(self._stable.complete_to, start), end)
        slices = self._stable.panes(start, known)
        notes = self._stable.notes(start, known)
        for pane in pairwise(self._grid.edges(known, end).tolist()):
            share = self._pane(*pane)
            slices.append(share.slice)
            notes += share.notes
        return PaneShare(folded(self._contents, slices), notes)

    def notes(self, start: int, end: int) -> Notes:
        """Return what the child's share of [start, end) lacks, without computing the share."""
        assert start >= self._needed_from, "the window's notes have been dropped"
        self._forget_overtaken()
        notes, at = self._stable.notes(start, end), self._stable.frontier.bucket_start
        if self._sealed is not None:
            notes += self._sealed.notes(start, end)
            at = self._sealed.frontier.bucket_start
        return notes if at >= end else self._with_notes(notes, max(at, start), end)

    def drop_before(self, e: int) -> None:
        """Drop everything before ``e``, where all windows are answered."""
        self._needed_from = max(self._needed_from, e)
        self._forget_overtaken()
        if self._sealed is not None:
            self._sealed.drop_before(e)

    def __len__(self) -> int:
        """Number of buckets and runs that are kept separately."""
        return len(self._cells)

    def _settled(self) -> int:
        """Return the time before which slices are final: stable, sealed, or no longer needed."""
        sealed = self._needed_from if self._sealed is None else self._sealed.frontier.bucket_start
        return max(self._stable.frontier.bucket_start, self._needed_from, sealed)

    def _replace(self, cell: _Cell[V]) -> None:
        self._forget_overtaken()
        start = max(cell.start, self._settled())
        if start >= cell.end:
            return
        new, at = [], start
        first = bisect_right(self._cells, start, key=lambda c: c.end)
        last = bisect_left(self._cells, cell.end, key=lambda c: c.start)
        for old in self._cells[first:last]:
            self._bytes -= old.nbytes
            if old.start < start:
                new.append(replace(old, end=start))
            if old.stable and not cell.stable:
                if at < old.start:
                    new.append(replace(cell, start=at, end=old.start))
                new.append(replace(old, start=max(old.start, start), end=min(old.end, cell.end)))
                at = min(old.end, cell.end)
            if old.end > cell.end:
                rest = replace(old, start=cell.end)
                break
        else:
            rest = None
        if at < cell.end:
            new.append(replace(cell, start=at))
        if rest is not None:
            new.append(rest)
        self._cells[first:last] = new
        self._bytes += sum(c.nbytes for c in new)

    def _forget_overtaken(self) -> None:
        stable_to = self._stable.frontier.bucket_start
        if self._sealed is not None and self._sealed.frontier.bucket_start <= stable_to:
            self._sealed = None
        count = bisect_right(self._cells, self._settled(), key=lambda c: c.end)
        self._bytes -= sum(cell.nbytes for cell in self._cells[:count])
        del self._cells[:count]

    def _pane(self, start: int, end: int) -> PaneShare[V]:
        """Return a pane that the stable line has not completed."""
        base = self._stable if self._sealed is None else self._sealed
        at = base.frontier.bucket_start
        if end <= at:
            return base.window(start, end)
        if at <= start:
            return self._with_cells(PaneShare(self._contents.empty), start, end)
        return self._with_cells(PaneShare(base.open_slice(), base.notes(start, at)), at, end)

    def _with_cells(self, base: PaneShare[V], start: int, end: int) -> PaneShare[V]:
        total = self._contents.folding()
        total.add(base.slice)
        for cell in self._cells_of(start, end):
            if cell.value is not None:
                total.add(cell.value)
        return PaneShare(total.result(), self._with_notes(base.notes, start, end))

    def _with_notes(self, notes: Notes, start: int, end: int) -> Notes:
        at = start
        for cell in self._cells_of(start, end):
            if cell.start > at:
                notes += self._absent
            notes += cell.notes
            at = cell.end
        return notes + self._absent if at < end else notes

    def _cells_of(self, start: int, end: int) -> Sequence[_Cell[V]]:
        first = bisect_right(self._cells, start, key=lambda c: c.end)
        return self._cells[first : bisect_left(self._cells, end, first, key=lambda c: c.start)]
