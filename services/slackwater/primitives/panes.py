"""Panes: fold a child's slices into windows, always in the same order of operations.

Floating-point addition is not associative, so the order of additions must be fixed. The grid alone
determines it (rule-21, trace-28): the buckets of a child's *pane* (the interval between
neighbouring window edges) fold left into the pane, the panes of a window fold left into the child's
share, and the children's shares fold left in index order. Two copies that read the same slices
therefore agree bit for bit, whenever they restart and however their input is divided into pieces.
The pieces of a bucket have disjoint keys (rule-3), so adding them in turn changes no order of
additions. An incremental sum over a sliding window, which adds the new and subtracts the old, would
cost less, but its last bits would depend on every restart.

``PaneStore`` belongs to the stable line. It receives each slice once, in order, and folds it at
once. It keeps one open fold and the panes of unanswered windows. It has no snapshot, because
replaying from the start of the first open window rebuilds it.

``LivePanes`` belongs to the live line. For each bucket it keeps the slice chosen last, which is
replaced and never added to (trace-7), in addition to what the stable store has. It is bounded
(trace-5): when the chosen slices exceed ``cells_max`` or ``bytes_max``, the oldest are folded and
can no longer be replaced. Later versions of them are ignored; the stable line corrects the answer.

Both are for one child of one query. The type of a slice is defined by a ``Contents``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Generic, NamedTuple

from slackwater.model.records import Gap, Position
from slackwater.primitives.contents import Contents, V, folded
from slackwater.primitives.digests import combined
from slackwater.primitives.windows import Grid


@dataclass(frozen=True, slots=True)
class Notes:
    """What an interval of event time lacks: missing streams, and readings lost to retention."""

    missing: frozenset[str] = frozenset()
    lost: tuple[Gap, ...] = ()

    @classmethod
    def of(cls, missing: Iterable[str] = (), gap: Iterable[Gap] = ()) -> Notes:
        """Return the notes of a record."""
        return cls(frozenset(missing), tuple(gap))

    def __add__(self, other: Notes) -> Notes:
        """Combine neighbouring intervals: the union of missing streams, and of losses.

        A loss is recorded in every bucket that may lack its readings, but counts once.
        """
        if other == NOTHING:
            return self
        lost = tuple(sorted({*self.lost, *other.lost}))
        return Notes(self.missing | other.missing, lost)


NOTHING: Final = Notes()
"""Nothing is missing and nothing is lost."""


@dataclass(frozen=True, slots=True)
class PaneShare(Generic[V]):
    """One child's share of a window, or that of all children combined."""

    slice: V
    notes: Notes = NOTHING


class _Noted(NamedTuple):
    start: int
    end: int
    notes: Notes


class PaneStore(Generic[V]):
    """The stable slices of one child, folded into panes; the next slice begins at ``frontier``.

    ``start`` must be the start of the first open window, so that its panes are complete.
    """

    def __init__(self, grid: Grid, contents: Contents[V], start: int) -> None:
        self._grid = grid
        self._contents = contents
        self._frontier = Position(start)
        self._open = contents.folding()
        self._pieces: list[V] = []  # of the bucket at the frontier
        self._starts: list[int] = []  # of complete panes that are not empty, ascending
        self._panes: dict[int, V] = {}
        self._noted: list[_Noted] = []  # ascending; empty while nothing is missing or lost

    @property
    def frontier(self) -> Position:
        """Position before which everything has been added."""
        return self._frontier

    @property
    def complete_to(self) -> int:
        """Event time before which all panes are complete."""
        return self._grid.pane_start(self._frontier.bucket_start)

    def add(
        self, at: Position, bucket_end: int, value: V, notes: Notes = NOTHING,
        *, last: bool = True,
    ) -> None:  # fmt: skip
        """Add the piece at the frontier; a bucket counts once its ``last`` piece is added.

        ``notes`` are the bucket's: all its pieces have the same, and those of the last piece are
        used (trace-32).
        """
        assert at == self._frontier, f"{at} is not next, the frontier is {self._frontier}"
        self._pieces.append(value)
        if not last:
            self._frontier = Position(at.bucket_start, at.piece + 1)
            return
        for piece in self._pieces:
            self._open.add(piece)
        self._pieces.clear()
        self._note(at.bucket_start, bucket_end, notes)
        self._move(bucket_end)

    def begin_again(self) -> None:
        """Drop the pieces of the incomplete bucket: another version of it follows."""
        self._pieces.clear()
        self._frontier = Position(self._frontier.bucket_start)

    def advance(self, to: int, notes: Notes = NOTHING) -> None:
        """Add a run of empty buckets up to ``to``, in constant time."""
        assert self._frontier.piece == 0, "the bucket at the frontier is incomplete"
        assert to > self._frontier.bucket_start, "frontiers never decrease"
        self._note(self._frontier.bucket_start, to, notes)
        self._move(to)

    def window(self, start: int, end: int) -> PaneShare[V]:
        """Return the child's share of a complete window."""
        assert end <= self._frontier.bucket_start, "the window is not complete"
        return PaneShare(folded(self._contents, self.panes(start, end)), self.notes(start, end))

    def panes(self, start: int, end: int) -> list[V]:
        """Return the complete panes in [start, end) that have rows, in order."""
        return [self._panes[p] for p in self._starts_in(start, end)]

    def _starts_in(self, start: int, end: int) -> list[int]:
        first = bisect_left(self._starts, start)
        return self._starts[first : bisect_left(self._starts, end, first)]

    def digest(self, start: int, end: int) -> int | None:
        """Return the digest of complete panes; None of noted ones, which have versions."""
        assert end <= self.complete_to, "the panes are not complete"
        if self.notes(start, end) != NOTHING:
            return None
        digest = self._contents.digest
        return sum(combined(at, digest(self._panes[at])) for at in self._starts_in(start, end))

    def notes(self, start: int, end: int) -> Notes:
        """Return the notes of [start, end)."""
        within = (noted for noted in self._noted if start < noted.end and noted.start < end)
        return sum((noted.notes for noted in within), NOTHING)

    def open_slice(self) -> V:
        """Return the fold of the buckets from ``complete_to`` to the frontier."""
        return self._open.result()

    def eventful_from(self, e: int) -> int | None:
        """Return the first time from ``e`` on with rows or notes; None if there is none.

        It is the start of a complete pane with rows, or the beginning of notes.
        """
        at = bisect_left(self._starts, e)
        rows = self._starts[at : at + 1]
        noted = [max(noted.start, e) for noted in self._noted if noted.end > e][:1]
        return min(rows + noted, default=None)

    def drop_before(self, e: int) -> None:
        """Drop the panes before ``e``, whose windows are all answered."""
        count = bisect_left(self._starts, e)
        for start in self._starts[:count]:
            del self._panes[start]
        del self._starts[:count]
        self._noted = [noted for noted in self._noted if noted.end > e]

    def fork(self, at: int) -> PaneStore[V]:
        """Return a store that starts at ``at``, the frontier or a later cut point.

        At the frontier it starts with a copy of the open pane, at a later point without contents.
        """
        other = PaneStore(self._grid, self._contents, at)
        if at == self._frontier.bucket_start:
            other._open.add(self.open_slice())
            other._noted = [noted for noted in self._noted if noted.end > self.complete_to]
        return other

    def __len__(self) -> int:
        """Number of panes kept."""
        return len(self._starts)

    def _note(self, start: int, end: int, notes: Notes) -> None:
        if notes == NOTHING:
            return
        last = self._noted[-1] if self._noted else None
        if last is not None and last.end == start and last.notes == notes and not notes.lost:
            self._noted[-1] = _Noted(last.start, end, notes)  # one entry for an entire outage
        else:
            self._noted.append(_Noted(start, end, notes))

    def _move(self, to: int) -> None:
        assert self._grid.is_cut(to), f"{to} is not a cut point"
        was = self.complete_to
        self._frontier = Position(to)
        if self.complete_to == was:
            return
        value = self._open.result()
        if len(value):
            self._starts.append(was)
            self._panes[was] = value
        self._open = self._contents.folding()


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


def window_of(shares: Sequence[PaneShare[V]], contents: Contents[V]) -> PaneShare[V]:
    """Combine the children's shares of a window, given in index order (rule-21)."""
    notes = NOTHING
    for share in shares:
        notes += share.notes
    return PaneShare(contents.merge(share.slice for share in shares), notes)


def empty_windows(stores: Sequence[PaneStore[V]], grid: Grid, first: int) -> int:
    """Count the windows from ``first`` on that are complete and empty in every store.

    Empty means without rows and notes. The time taken does not depend on the number of windows: a
    jump of a month is one run (trace-24).
    """
    frontier = min(store.frontier.bucket_start for store in stores)
    to = grid.later(grid.last_window_ending_by(frontier))
    for store in stores:
        pane = store.eventful_from(first)
        if pane is not None:
            to = min(to, grid.first_window_holding(pane))
    return max(0, grid.windows_between(first, to))
