"""Panes: fold a child's slices into windows, always in the same order of operations.

Floating-point addition is not associative, so the order of additions must be fixed. The grid alone
fixes it (rule-21, trace-28): within a child the buckets of a *pane* (the stretch between
neighbouring window edges) fold left into the pane, the panes of a window fold left into the child's
share, and the children's shares fold left in index order. Two copies that read the same slices
therefore agree bit for bit, whenever each was restarted and however its input came in pieces; the
pieces of a bucket hold disjoint keys (rule-3), so taking them in turn adds no bracket. An
incremental sum that follows a sliding window, add the new and subtract the old, would cost less,
but its last bits would depend on every restart.

``PaneStore`` is the stable line's: slices come once, in order, and are folded as they come; it
keeps one open fold and the panes of windows still to be answered, and takes no snapshot, because
reading again from the first open window's start builds the same.

``LivePanes`` is the live line's: per bucket the slice that was chosen last, replaced and never
added (trace-7), on top of whatever the stable store has already. It is bounded (trace-5): chosen
slices beyond ``cells_max`` or ``bytes_max`` are folded from the oldest on, after which they cannot
be replaced; later versions are ignored, and the stable line corrects.

Both are for one child of one query. The type of a slice is defined by a
``Contents``: figures to be merged (``slackwater.primitives.deltas``) or, without a window, rows to
be put behind each other (``slackwater.primitives.rows``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from slackwater.model.records import BucketRecord, Gap, Position
from slackwater.primitives.windows import Grid


class Content(Protocol):
    """What a stretch of event time contains; its length is the number of its rows."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """About its size in memory."""
        ...


V = TypeVar("V", bound=Content)


class Folding(Protocol[V]):
    """A left fold of contents in the order of event time."""

    def add(self, value: V) -> None:
        """One more, to the right of all before."""
        ...

    def result(self) -> V:
        """What has been folded so far; the fold may go on, the value stays."""
        ...


class Contents(Protocol[V]):
    """How the contents of one query come out of records, and how they combine."""

    @property
    def empty(self) -> V:
        """No rows: the neutral element."""
        ...

    def of(self, record: BucketRecord) -> V:
        """What one piece of a bucket contains."""
        ...

    def folding(self) -> Folding[V]:
        """An empty fold."""
        ...

    def merge(self, shares: Iterable[V]) -> V:
        """The children's shares of one stretch of time, in index order, as one."""
        ...


def folded(contents: Contents[V], values: Iterable[V]) -> V:
    """The left fold of the values in their order."""
    folding = contents.folding()
    for value in values:
        folding.add(value)
    return folding.result()


@dataclass(frozen=True, slots=True)
class Notes:
    """What a stretch of event time lacks: streams not complete, readings lost to retention."""

    missing: frozenset[str] = frozenset()
    lost: tuple[Gap, ...] = ()

    @classmethod
    def of(cls, missing: Iterable[str] = (), gap: Iterable[Gap] = ()) -> Notes:
        """The notes of a record."""
        return cls(frozenset(missing), tuple(gap))

    def __add__(self, other: Notes) -> Notes:
        """Of neighbouring stretches: the union of what is missing, and of what is lost.

        A loss is felt by every bucket that it may have had readings in, and is one loss.
        """
        if other == NOTHING:
            return self
        lost = tuple(sorted({*self.lost, *other.lost}))
        return Notes(self.missing | other.missing, lost)


NOTHING: Final = Notes()
"""Nothing is missing and nothing is lost."""


@dataclass(frozen=True, slots=True)
class PaneShare(Generic[V]):
    """One child's part in a window, or all children's together."""

    slice: V
    notes: Notes = NOTHING


class _Noted(NamedTuple):
    start: int
    end: int
    notes: Notes


class PaneStore(Generic[V]):
    """The stable slices of one child, folded into panes; ``frontier`` is where the next belongs.

    ``start`` has to be a window's edge where a fold of the pane shall be complete: the start of
    the first open window.
    """

    def __init__(self, grid: Grid, contents: Contents[V], start: int) -> None:
        self._grid = grid
        self._contents = contents
        self._frontier = Position(start)
        self._open = contents.folding()
        self._pieces: list[V] = []  # of the bucket at the frontier
        self._starts: list[int] = []  # of the complete panes that are not empty, rising
        self._panes: dict[int, V] = {}
        self._noted: list[_Noted] = []  # rising; empty as long as all is well

    @property
    def frontier(self) -> Position:
        """Everything before it has been added."""
        return self._frontier

    @property
    def complete_to(self) -> int:
        """Every pane that ends by then is complete."""
        return self._grid.pane_start(self._frontier.bucket_start)

    def add(
        self, at: Position, bucket_end: int, value: V, notes: Notes = NOTHING,
        *, last: bool = True,
    ) -> None:  # fmt: skip
        """The piece at the frontier. A bucket counts when its ``last`` piece is there (trace-32).

        ``notes`` are the bucket's: all its pieces say the same, and the last is taken.
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
        """Drop the pieces of the begun bucket: another version of it follows."""
        self._pieces.clear()
        self._frontier = Position(self._frontier.bucket_start)

    def advance(self, to: int, notes: Notes = NOTHING) -> None:
        """A run of empty buckets up to ``to``; its length costs nothing."""
        assert self._frontier.piece == 0, "inside a bucket there is no empty one"
        assert to > self._frontier.bucket_start, "frontiers never decrease"
        self._note(self._frontier.bucket_start, to, notes)
        self._move(to)

    def window(self, start: int, end: int) -> PaneShare[V]:
        """The child's share of a window that is complete."""
        assert end <= self._frontier.bucket_start, "the window is not complete"
        return PaneShare(folded(self._contents, self.panes(start, end)), self.notes(start, end))

    def panes(self, start: int, end: int) -> list[V]:
        """The complete panes in [start, end) that have rows, in order."""
        first = bisect_left(self._starts, start)
        return [self._panes[p] for p in self._starts[first : bisect_left(self._starts, end, first)]]

    def notes(self, start: int, end: int) -> Notes:
        """What is noted of [start, end)."""
        notes = NOTHING
        for noted in self._noted:
            if start < noted.end and noted.start < end:
                notes += noted.notes
        return notes

    def open_slice(self) -> V:
        """The whole buckets from ``complete_to`` to the frontier's bucket."""
        return self._open.result()

    def eventful_from(self, e: int) -> int | None:
        """The first complete pane from ``e`` on with rows or notes: before it all is empty."""
        at = bisect_left(self._starts, e)
        rows = self._starts[at : at + 1]
        noted = [max(noted.start, e) for noted in self._noted if noted.end > e][:1]
        return min(rows + noted, default=None)

    def drop_before(self, e: int) -> None:
        """Drop the panes before ``e``: all windows that hold them are answered."""
        count = bisect_left(self._starts, e)
        for start in self._starts[:count]:
            del self._panes[start]
        del self._starts[:count]
        self._noted = [noted for noted in self._noted if noted.end > e]

    def fork(self, at: int) -> PaneStore[V]:
        """Another store that goes on from ``at``: from here, or, past the frontier, from nothing.

        Where the open pane is taken over it goes on in the same shape.
        """
        other = PaneStore(self._grid, self._contents, at)
        if at == self._frontier.bucket_start:
            other._open.add(self.open_slice())
            other._noted = [noted for noted in self._noted if noted.end > self.complete_to]
        return other

    def __len__(self) -> int:
        """How many panes are kept."""
        return len(self._starts)

    def _note(self, start: int, end: int, notes: Notes) -> None:
        if notes == NOTHING:
            return
        last = self._noted[-1] if self._noted else None
        if last is not None and last.end == start and last.notes == notes and not notes.lost:
            self._noted[-1] = _Noted(last.start, end, notes)  # an outage is one entry
        else:
            self._noted.append(_Noted(start, end, notes))

    def _move(self, to: int) -> None:
        assert self._grid.is_cut(to), f"{to} is no cut point"
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
    """What was chosen for [start, end): one bucket, or a run of empty ones (``value`` None)."""

    start: int
    end: int
    value: V | None
    notes: Notes
    stable: bool

    @property
    def nbytes(self) -> int:
        return 0 if self.value is None else self.value.nbytes


class LivePanes(Generic[V]):
    """The slices that answers are made of before they are stable. ``streams`` are the child's.

    Where nothing is known of a bucket all ``streams`` are missing from it (rule-20).
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
        self._cells: list[_Cell[V]] = []  # disjoint, rising
        self._sealed: PaneStore[V] | None = None
        self._needed_from = stable.frontier.bucket_start

    def copy(self) -> LivePanes[V]:
        """A copy on which choices are tentative.

        Shared state changes only in ``seal``: once one of the two has sealed, the other is void.
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
        """The slice chosen for a whole bucket. Replaces; but nothing tentative what is stable."""
        self._replace(_Cell(bucket_start, bucket_end, value, notes, stable))

    def put_empty(
        self, start: int, end: int, notes: Notes = NOTHING, *, stable: bool = False
    ) -> None:
        """The buckets of [start, end) are chosen to be empty."""
        run: _Cell[V] = _Cell(start, end, None, notes, stable)
        self._replace(run)

    def seal(self) -> None:
        """Folds the oldest slices beyond the bounds, in the shape they would be folded in anyway.

        To be called when a choice has been made for good, before the next one.
        """
        self._forget_overtaken()
        while self._cells and (len(self._cells) > self._cells_max or self._bytes > self._bytes_max):
            if self._sealed is None:
                # Like the live line, it goes on from where the stable one is.
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
        """The child's share of a window as it is known now, and what that lacks."""
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
        """What the child's share of [start, end) lacks, without computing it."""
        assert start >= self._needed_from, "what it lacks has been forgotten"
        self._forget_overtaken()
        notes, at = self._stable.notes(start, end), self._stable.frontier.bucket_start
        if self._sealed is not None:
            notes += self._sealed.notes(start, end)
            at = self._sealed.frontier.bucket_start
        return notes if at >= end else self._with_notes(notes, max(at, start), end)

    def drop_before(self, e: int) -> None:
        """Drop everything before ``e``: all windows that hold it are answered."""
        self._needed_from = max(self._needed_from, e)
        self._forget_overtaken()
        if self._sealed is not None:
            self._sealed.drop_before(e)

    def __len__(self) -> int:
        """How many buckets and runs are kept apart."""
        return len(self._cells)

    def _settled(self) -> int:
        """Before it nothing is replaced: it is stable, sealed, or no more needed."""
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
        """A pane that the stable line has not completed."""
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
    """The whole window: the children's shares, in index order (rule-21)."""
    notes = NOTHING
    for share in shares:
        notes += share.notes
    return PaneShare(contents.merge(share.slice for share in shares), notes)


def empty_windows(stores: Sequence[PaneStore[V]], grid: Grid, first: int) -> int:
    """How many windows from ``first`` on are complete, and in every store without rows or notes.

    Constant time however many: a jump of a month is one run (trace-24).
    """
    assert grid.window is not None
    frontier = min(store.frontier.bucket_start for store in stores)
    to = grid.last_window_ending_by(frontier) + grid.window.slide_us
    for store in stores:
        pane = store.eventful_from(first)
        if pane is not None:
            to = min(to, grid.first_window_holding(pane))
    return max(0, to - first) // grid.window.slide_us
