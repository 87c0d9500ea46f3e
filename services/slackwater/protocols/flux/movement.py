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

``HeadWriter`` writes some pieces in each turn (``common.pane_writing``). Contents are named by
their digest, so a copy that has been fenced writes what the other one has written.

Pure: times are arguments, in us.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeAlias, TypeVar

from slackwater.model.heads import (
    Head,
    HeadKey,
    Key,
    PaneKey,
    PaneRecord,
    PaneRef,
    Stored,
    StoredState,
    text_of,
)
from slackwater.protocols.common.pane_writing import Extracted, Steps, TurnWriter, WriteStep, named

REF_CELLS: Final = 1 << 6
"""What a reference, or a deletion, counts as."""
PLACES: Final = 2
"""Heads of a term that are kept."""

V = TypeVar("V", bound=Sized)
PaneAt = tuple[int, int]
"""A pane by its child and its start."""
Keyed: TypeAlias = tuple[Key, Stored]


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
        self._turns: TurnWriter[Keyed] = TurnWriter()
        self._writes_from: int | None = None

    def may_cut(self, now: int, reread_us: Callable[[Head | None], int]) -> bool:
        """Return whether a head is to be written; ``reread_us`` of the newest one, or of none."""
        if self._turns.has_work:
            return False
        if self._written_at is not None and now - self._written_at < self._pace.period_us:
            return False
        return reread_us(self.heads[-1] if self.heads else None) >= self._pace.reread_us_max

    def cut(self, head: Head, panes: Mapping[PaneAt, V], now: int) -> None:
        """Begin to write a head, which has no number and no references, and its panes."""
        self._written_at = now
        self._writes_from = min((start for _, start in panes), default=None)
        head = replace(head, term=self._term, number=self._number)
        self._turns.begin(self._write(head, panes))
        self._number += 1

    @property
    def writes_from(self) -> int | None:
        """Start of the first pane of the head that is being written."""
        return self._writes_from if self._turns.has_work else None

    @property
    def is_busy(self) -> bool:
        """Whether ``write`` has more to do at once."""
        return self._turns.is_busy

    def write(self) -> list[Keyed]:
        """Return what is to be written in this turn, in order."""
        return self._turns.write()

    def acknowledged(self) -> None:
        """Record that the next of the written records is in the log."""
        self._turns.acknowledged()

    def _write(self, head: Head, panes: Mapping[PaneAt, V]) -> Iterator[WriteStep[Keyed]]:
        """Yield the steps of writing a head, in order."""
        refs = []
        for (child, start), value in sorted(panes.items(), key=lambda pane: pane[0]):
            known = self._refs.get((child, start))
            if known is None or known[0] is not value:
                known = value, (yield from self._write_pane(child, start, value))
                self._refs[child, start] = known
            refs.append(known[1])
        yield from self._turns.acknowledgements()
        head = replace(head, panes=tuple(refs))
        key = HeadKey(self._term, head.number % PLACES)
        self._keys.add(key)
        yield WriteStep(REF_CELLS * len(refs), (key, head))
        yield from self._turns.acknowledgements()
        self.heads = [*self.heads, head][-PLACES:]
        yield from self._deletions()

    def _write_pane(self, child: int, start: int, value: V) -> Steps[Keyed]:
        """Yield the steps of writing a pane; one that is there already is only named."""
        contents = self._contents
        ref = yield from named(contents, child, start, value)
        for piece in range(ref.pieces):
            key = PaneKey(ref, piece)
            if key not in self._keys:
                self._keys.add(key)
                record = PaneRecord(ref, piece, contents.extract(value, piece))
                yield WriteStep(contents.cells(value) // ref.pieces, (key, record))
        return ref

    def _deletions(self) -> Iterator[WriteStep[Keyed]]:
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
            yield WriteStep(REF_CELLS, (key, None))
