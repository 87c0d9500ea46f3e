"""State movement: which panes and heads are written, and which head a start takes.

In Flux (sections 3.3.1 and 5.3.1) the copy that works stops, and its state is sent to the new one.
Here it is written beside the answers, and nobody stops: a complete pane never changes, so it is
written once, and a *head* names the panes of one moment. A copy that starts reads a head and its
panes, and then the logs from the positions in the head. The paper's versions, by which both copies
agree on the moment, are the positions.

A head is written after all its panes are acknowledged, so it is complete once it can be read
(trace-61). Two heads are kept: while one takes the place of the one before the last, the other can
be read. Only what neither of them names is deleted. A head saves reading; nothing depends on it,
since S in the state record is a place to read from, too. It is written when that would take
long (``HeadPace``): windows that are answered soon need none.

``HeadWriter`` writes some pieces in each turn, and has few of them in flight: orderers write
through the same producer. Contents are named by their digest, so a copy that has been fenced writes
what the other one has written.

Pure: times are arguments, in us.
"""

from __future__ import annotations

from collections import deque
from collections.abc import (
    Callable,
    Container,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sized,
)
from dataclasses import dataclass, replace
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from slackwater.model.heads import (
    Head,
    HeadKey,
    Key,
    PaneColumns,
    PaneKey,
    PaneRecord,
    PaneRef,
    Stored,
    StoredState,
    text_of,
)
from slackwater.primitives.digests import recorded

TURN_CELLS_MAX: Final = 1 << 17
"""Numbers handled in one turn: 1 MiB, some milliseconds."""
STEP_CELLS: Final = 1 << 13
"""What a step takes beside its numbers, in numbers: some tenths of a millisecond."""
IN_FLIGHT_CELLS_MAX: Final = 2 * TURN_CELLS_MAX
"""Numbers that are written and not acknowledged."""
REF_CELLS: Final = 1 << 6
"""What a reference, or a deletion, counts as."""
PLACES: Final = 2
"""Heads of a term that are kept."""

V = TypeVar("V", bound=Sized)
W_contra = TypeVar("W_contra", contravariant=True)
PaneAt = tuple[int, int]
"""A pane by its child and its start."""


class Extracted(Protocol[W_contra]):
    """What a writer needs of the contents of panes (``primitives.deltas.Aggregates``)."""

    def pieces(self, value: W_contra) -> int:
        """Return in how many pieces it is written."""
        ...

    def cells(self, value: W_contra) -> int:
        """Return how many numbers it has."""
        ...

    def digest_of_piece(self, value: W_contra, piece: int) -> tuple[int, ...]:
        """Return what a piece adds to the digest."""
        ...

    def total_digest(self, of_pieces: Iterable[tuple[int, ...]]) -> int:
        """Return the digest of all pieces."""
        ...

    def extract(self, value: W_contra, piece: int) -> PaneColumns:
        """Return a piece."""
        ...


@dataclass(frozen=True, slots=True)
class HeadPace:
    """How often a head is written: when a start would read for longer than ``reread_us_max``.

    At most one in ``period_us``.
    """

    reread_us_max: int
    period_us: int


def complete_heads(heads: Iterable[Head], present: Container[Key], stable_from: int) -> list[Head]:
    """Return the heads whose panes from ``stable_from`` (S) on are present, the newest first.

    Panes before S may have been deleted.
    """

    def is_complete(head: Head) -> bool:
        return all(
            PaneKey(ref, piece) in present
            for ref in head.panes
            if ref.start >= stable_from
            for piece in range(ref.pieces)
        )

    newest = sorted(heads, key=lambda head: head.order, reverse=True)
    return [head for head in newest if is_complete(head)]


class WriteStep(NamedTuple):
    """A step of writing, and how many numbers it handles; without a key nothing is written."""

    cells: int
    key: Key | None = None
    record: Stored = None


class HeadWriter(Generic[V]):
    """Writes the panes and heads of one copy while it answers.

    Args:
        term: the term in which the copy answers.
        contents: the contents of its panes.
        stored: what others have stored; of their panes only the keys count.
        stable_from: S.
        pace: how often a head is written.
    """

    def __init__(
        self,
        term: int,
        contents: Extracted[V],
        stored: StoredState,
        stable_from: int,
        pace: HeadPace,
    ) -> None:
        self._term = term
        self._pace = pace
        self._contents = contents
        self._keys = {*stored.keys}
        known = complete_heads(stored.heads, self._keys, stable_from)
        self.heads = known[:PLACES][::-1]
        """The heads that are stored, at most two, the older one first."""
        self._refs: dict[PaneAt, tuple[V, PaneRef]] = {}
        """The references of the panes in these heads that this copy has written or found."""
        self._written_at: int | None = None
        self._number = 0
        self._work: Iterator[WriteStep] | None = None
        self._in_flight: deque[int] = deque()
        self._is_waiting = False
        self._writes_from: int | None = None

    def may_cut(self, now: int, reread_us: Callable[[Head | None], int]) -> bool:
        """Return whether a head is to be written; ``reread_us`` of the newest one, or of none."""
        if self._work is not None:
            return False
        if self._written_at is not None and now - self._written_at < self._pace.period_us:
            return False
        return reread_us(self.heads[-1] if self.heads else None) >= self._pace.reread_us_max

    def cut(self, head: Head, panes: Mapping[PaneAt, V], now: int) -> None:
        """Begin to write a head, which has no number and no references, and its panes."""
        assert self._work is None, "one head at a time"
        self._written_at = now
        self._writes_from = min((start for _, start in panes), default=None)
        self._work = self._write(replace(head, term=self._term, number=self._number), panes)
        self._number += 1

    @property
    def writes_from(self) -> int | None:
        """Start of the first pane of the head that is being written."""
        return None if self._work is None else self._writes_from

    @property
    def is_busy(self) -> bool:
        """Whether ``write`` has more to do at once."""
        return self._work is not None and not self._is_blocked

    @property
    def _is_blocked(self) -> bool:
        if self._is_waiting:
            return bool(self._in_flight)
        return sum(self._in_flight) >= IN_FLIGHT_CELLS_MAX

    def write(self) -> list[tuple[Key, Stored]]:
        """Return what is to be written in this turn, in order."""
        found: list[tuple[Key, Stored]] = []
        cells = 0
        while self._work is not None and not self._is_blocked and cells < TURN_CELLS_MAX:
            step = next(self._work, None)
            if step is None:
                self._work = None
                break
            cells += step.cells + STEP_CELLS
            if step.key is not None:
                self._in_flight.append(step.cells)
                found.append((step.key, step.record))
        return found

    def acknowledged(self) -> None:
        """Record that the next of the written records is in the log."""
        self._in_flight.popleft()

    def _write(self, head: Head, panes: Mapping[PaneAt, V]) -> Iterator[WriteStep]:
        """Yield the steps of writing a head, in order."""
        refs = []
        for (child, start), value in sorted(panes.items(), key=lambda pane: pane[0]):
            known = self._refs.get((child, start))
            if known is None or known[0] is not value:
                known = value, (yield from self._write_pane(child, start, value))
                self._refs[child, start] = known
            refs.append(known[1])
        yield from self._acknowledgements()
        head = replace(head, panes=tuple(refs))
        key = HeadKey(self._term, head.number % PLACES)
        self._keys.add(key)
        yield WriteStep(REF_CELLS * len(refs), key, head)
        yield from self._acknowledgements()
        self.heads = [*self.heads, head][-PLACES:]
        yield from self._deletions()

    def _write_pane(self, child: int, start: int, value: V) -> Generator[WriteStep, None, PaneRef]:
        """Yield the steps of writing a pane; one that is there already is only named."""
        contents, of_pieces = self._contents, []
        pieces, cells = contents.pieces(value), contents.cells(value)
        for piece in range(pieces):
            of_pieces.append(contents.digest_of_piece(value, piece))
            yield WriteStep(cells // pieces)
        digest = recorded(contents.total_digest(of_pieces))
        ref = PaneRef(child, start, len(value), pieces, digest)
        for piece in range(pieces):
            key = PaneKey(ref, piece)
            if key not in self._keys:
                self._keys.add(key)
                record = PaneRecord(ref, piece, contents.extract(value, piece))
                yield WriteStep(cells // pieces, key, record)
        return ref

    def _acknowledgements(self) -> Iterator[WriteStep]:
        """Wait until all that has been written is in the log."""
        self._is_waiting = True
        while self._in_flight:
            yield WriteStep(0)
        self._is_waiting = False

    def _deletions(self) -> Iterator[WriteStep]:
        """Delete what neither of the two heads names."""
        if len(self.heads) < PLACES:
            return
        named = {ref for head in self.heads for ref in head.panes}
        places = {HeadKey(head.term, head.number % PLACES) for head in self.heads}
        self._refs = {at: known for at, known in self._refs.items() if known[1] in named}
        unnamed = [
            key
            for key in self._keys
            if (key.ref not in named if isinstance(key, PaneKey) else key not in places)
        ]
        for key in sorted(unnamed, key=text_of):
            self._keys.discard(key)
            yield WriteStep(REF_CELLS, key)
