"""Panes and heads: the state of a root outside its process (Flux, section 3.3).

A *pane* is written piece by piece, with the text of its keys: the numbers of keys are local to a
process. A *head* names the panes that a root holds at one moment, and the positions in its logs
from which reading continues there. Both are in ``sw.panes.<query>``, in the partition of the part.
The key of a piece names its content: what is written twice is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from slackwater.model.records import Gap, LogPosition, Ragged, type_f64

HEAD: Final = "head"


@dataclass(frozen=True, slots=True, eq=False)
class PaneColumns:
    """Some rows of a pane: ``figures`` has the shape (figures, fields, keys)."""

    keys: Sequence[str]
    figures: type_f64
    states: Mapping[str, Ragged]


class PaneRef(NamedTuple):
    """A pane with rows: where it begins, how many it has, in how many pieces, and their digest.

    It names one content (``primitives.digests``): copies that hold different versions of a pane,
    because readings are lost, write both.
    """

    child: int
    start: int
    rows: int
    pieces: int
    digest: int


class Noted(NamedTuple):
    """Readings that retention has deleted in [start, end)."""

    start: int
    end: int
    gap: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class LogHead:
    """Where both lines continue in a log after a head is installed.

    Every seq below ``contiguous_seq`` has been read, as in a state record, which may be older.
    """

    child: int
    replica: int
    line: int
    stable: LogPosition
    live: LogPosition
    contiguous_seq: int

    @property
    def first(self) -> int:
        """The offset of the first record that is read again."""
        return min(self.stable.offset, self.live.offset)


@dataclass(frozen=True, slots=True)
class Head:
    """The panes of a part at one moment between two transactions, and the positions there.

    ``number`` counts the heads of a term. S, T, the epoch and the next seq are those of the last
    transaction (``RootState``). ``frontiers`` has the event time of each child up to which whole
    buckets are in ``panes``: the last pane of a child may be the beginning of one.
    """

    term: int
    number: int
    next_seq: int
    epoch: int
    stable_from: int
    answered_to: int
    frontiers: tuple[int, ...]
    noted: tuple[tuple[Noted, ...], ...]
    panes: tuple[PaneRef, ...]
    logs: tuple[LogHead, ...]

    @property
    def order(self) -> tuple[int, int]:
        """The greatest is the newest."""
        return self.term, self.number


@dataclass(frozen=True, slots=True, eq=False)
class PaneRecord:
    """One piece of a pane."""

    ref: PaneRef
    piece: int
    columns: PaneColumns


class PaneKey(NamedTuple):
    """The key of a piece of a pane, in the partition of its part."""

    ref: PaneRef
    piece: int


class HeadKey(NamedTuple):
    """The key of a head. A term has two: each head takes the place of the one before the last."""

    term: int
    place: int


Key: TypeAlias = PaneKey | HeadKey
Stored: TypeAlias = PaneRecord | Head | None
"""A record of ``sw.panes.<query>``; None deletes what was stored under its key."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """What is stored of a part: its heads, and the pieces of the panes that they name.

    ``keys`` are those of all records, also those that no head names.
    """

    heads: tuple[Head, ...] = ()
    pieces: Mapping[PaneKey, PaneRecord] | None = None
    keys: frozenset[Key] = frozenset()


def text_of(key: Key) -> str:
    """Return the key as it is in Kafka."""
    if isinstance(key, HeadKey):
        return f"{HEAD}/{key.term}/{key.place}"
    return "/".join(map(str, (*key.ref, key.piece)))


def parse_key(text: str) -> Key | None:
    """Return the inverse of ``text_of``; None of another text."""
    first, *rest = text.split("/")
    try:
        if first == HEAD:
            return HeadKey(*map(int, rest))
        *ref, piece = map(int, (first, *rest))
        return PaneKey(PaneRef(*ref), piece)
    except (TypeError, ValueError):
        return None
