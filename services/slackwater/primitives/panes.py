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
once. It keeps one open fold and the panes of unanswered windows. To read again from the start of
the first open window rebuilds it; to install the panes of another store gives the same bits
(``install``), because each fold goes on from the left.

It is for one child of one query. The type of a slice is defined by a ``Contents``. The live line
has ``slackwater.primitives.live_panes``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple

from slackwater.model.heads import Noted
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

    def install(self, frontier: int, panes: Mapping[int, V], noted: Iterable[Noted]) -> None:
        """Take what another store has ``held``; this one is empty, and may start later.

        ``frontier`` is the start of a bucket; of the pane that holds it the beginning is added.
        """
        assert not self._starts, "panes are installed once"
        start, self._frontier = self._frontier.bucket_start, Position(frontier)
        for at in sorted(panes):
            if at >= self.complete_to:
                self._open.add(panes[at])
            elif at >= start:
                self._starts.append(at)
                self._panes[at] = panes[at]
        within = (of for of in noted if of.end > start)
        self._noted = [_Noted(of.start, of.end, Notes.of((), of.gap)) for of in within]

    def held(self) -> tuple[dict[int, V], tuple[Noted, ...]]:
        """Return all panes with rows by their starts, the beginning of one too, and all losses."""
        panes, beginning = dict(self._panes), self.open_slice()
        if len(beginning):
            panes[self.complete_to] = beginning
        return panes, tuple(Noted(n.start, n.end, n.notes.lost) for n in self._noted)

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

    def skip_to(self, start: int) -> None:
        """Leave out what lies before ``start``, where all windows have been answered."""
        assert start > self._frontier.bucket_start, "frontiers never decrease"
        self._pieces.clear()
        self._open = self._contents.folding()
        self._frontier = Position(start)
        assert self.complete_to == start, f"{start} is not the start of a pane"
        self.drop_before(start)

    def add_panes(self, end: int, value: V, notes: Notes = NOTHING) -> None:
        """Add the complete panes from the frontier to ``end``: of these the first is ``value``.

        ``notes`` are those of all of them.
        """
        start = self._frontier.bucket_start
        assert start == self.complete_to < end, "the pane at the frontier has begun"
        assert not self._frontier.piece, "the bucket at the frontier is incomplete"
        assert self._grid.pane_start(end) == end, f"{end} is not the end of a pane"
        self._note(start, end, notes)
        self._frontier = Position(end)
        if len(value):
            self._starts.append(start)
            self._panes[start] = value

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
