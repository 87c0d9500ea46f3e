"""The join of delta-CRDTs as Fargo has it, which the panes of the root are held against.

A map of identified slices, in which versions decide. No process uses it: a root has its panes.

Fargo (section 3.5) keeps, per replica, a value that only grows, and joins by taking the larger. A
sum of readings of both signs does not only grow, so here the pair (version, value) takes its place
and the version decides. The map goes from (child, replica, bucket) to what was written for it.

A *writing* is one complete telling of a bucket, in ``pieces`` pieces which hold disjoint keys
(rule-3). Its version orders it:

- by rank: stable before stable with a gap (trace-15) before tentative;
- among tentative writings of one replica, by their place in its live log (rule-13). The pieces of
  a writing are consecutive there, so ``seq - piece`` is the same for all of them, and names it;
- stable pieces have no version beyond their rank: whoever wrote them wrote the same (rule-3), and
  a bucket may be completed by another replica than began it (trace-32). Their key names no replica.

Tentative writings of two replicas are never compared: which replica to believe is DPC's Table II,
a judgement of the moment, and a lattice order over replicas would stick to a dead one (trace-7).
Joining keeps the greatest complete writing and the incomplete ones above it, since a set of pieces
with a hole is no slice (rule-13) and must not take away the one before it.

All values are immutable; ``join`` is the only way to combine them. It is idempotent, commutative
and associative, because it is a union of sets of identified pieces, followed by dropping what lies
below the greatest complete writing, which no later union can bring back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from slackwater.model.records import DeltaRecord, Gap, Kind
from slackwater.primitives.deltas import KeyTable, Slice

ANY_REPLICA: Final = -1
"""In a ``DeltaKey``: stable pieces, which are the same whoever wrote them."""


class Rank(IntEnum):
    """What the label of a piece is worth."""

    TENTATIVE = 0
    GAPPED = 1
    """Stable, but made after retention had taken readings away (rule-28)."""
    STABLE = 2


class Version(NamedTuple):
    """Orders the writings of one ``DeltaKey``. ``inc`` and ``place`` are 0 where stable."""

    rank: Rank
    inc: int = 0
    place: int = 0


class DeltaKey(NamedTuple):
    """Where a writing belongs: one bucket of one replica of one child."""

    child: int
    replica: int
    bucket_start: int


@dataclass(frozen=True, slots=True)
class DeltaPiece:
    """One piece: its slice, and what its readings lack."""

    slice: Slice
    missing: tuple[str, ...] = ()
    gap: tuple[Gap, ...] = ()

    def to_bytes(self, table: KeyTable) -> bytes:
        """Equal pieces, equal bytes."""
        return repr((self.missing, self.gap)).encode() + b"\0" + self.slice.to_bytes(table)


@dataclass(frozen=True, slots=True)
class Writing:
    """The pieces of one version that have been seen, by their number (None: not yet)."""

    version: Version
    pieces: tuple[DeltaPiece | None, ...]

    @property
    def complete(self) -> bool:
        """Only then it says something of the bucket."""
        return None not in self.pieces

    def join(self, other: Writing) -> Writing:
        """The union of the pieces: those with one identity are one piece, seen twice."""
        if len(self.pieces) != len(other.pieces):
            raise ValueError(f"{self.version} in {len(self.pieces)} and {len(other.pieces)} pieces")
        pairs = zip(self.pieces, other.pieces, strict=True)
        return Writing(self.version, tuple(mine or theirs for mine, theirs in pairs))


@dataclass(frozen=True, slots=True)
class BucketDelta:
    """What is known of one ``DeltaKey``: writings by rising version, none below a complete one."""

    bucket_end: int
    writings: tuple[Writing, ...]

    def join(self, other: BucketDelta) -> BucketDelta:
        """The least value that holds both."""
        if self.bucket_end != other.bucket_end:
            raise ValueError(f"bucket ends at {self.bucket_end} and at {other.bucket_end}")
        merged = {writing.version: writing for writing in self.writings}
        for writing in other.writings:
            known = merged.get(writing.version)
            merged[writing.version] = writing if known is None else known.join(writing)
        least = max((v for v, w in merged.items() if w.complete), default=min(merged))
        kept = sorted(version for version in merged if version >= least)
        return BucketDelta(self.bucket_end, tuple(merged[version] for version in kept))

    def best(self) -> Writing | None:
        """The greatest complete writing, if there is one."""
        first = self.writings[0]
        return first if first.complete else None

    def to_bytes(self, table: KeyTable) -> bytes:
        """Equal values, equal bytes."""
        parts = [b"%d" % self.bucket_end]
        for writing in self.writings:
            parts.append(repr((*writing.version, len(writing.pieces))).encode())
            parts += [b"-" if piece is None else piece.to_bytes(table) for piece in writing.pieces]
        return b"\0\0".join(parts)


def delta_of(
    record: DeltaRecord, table: KeyTable, fields: tuple[str, ...]
) -> tuple[DeltaKey, BucketDelta]:
    """The delta-mutator: one record with readings, as the smallest value that contains it."""
    assert record.kind in (Kind.INSERTION, Kind.TENTATIVE), "only these are pieces of a bucket"
    if not 0 <= record.piece < record.pieces:
        raise ValueError(f"piece {record.piece} of {record.pieces}")
    if record.kind is Kind.INSERTION:
        replica, version = ANY_REPLICA, Version(Rank.GAPPED if record.gap else Rank.STABLE)
    else:
        place = record.seq - record.piece
        replica, version = record.replica, Version(Rank.TENTATIVE, record.inc, place)
    piece = DeltaPiece(Slice.of(record, table, fields), record.missing, record.gap)
    pieces = tuple(piece if i == record.piece else None for i in range(record.pieces))
    key = DeltaKey(record.child, replica, record.bucket_start)
    return key, BucketDelta(record.bucket_end, (Writing(version, pieces),))


@dataclass(frozen=True, slots=True)
class DeltaMap:
    """The product of all ``BucketDelta``: the state of the merge, and each delta to it."""

    entries: Mapping[DeltaKey, BucketDelta] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, record: DeltaRecord, table: KeyTable, fields: tuple[str, ...]) -> DeltaMap:
        """A map of one record."""
        key, value = delta_of(record, table, fields)
        return cls(MappingProxyType({key: value}))

    def join(self, other: DeltaMap) -> DeltaMap:
        """The least map that holds both."""
        if not other.entries:
            return self
        joined = dict(self.entries)
        for key, value in other.entries.items():
            mine = joined.get(key)
            joined[key] = value if mine is None else mine.join(value)
        return DeltaMap(MappingProxyType(joined))

    def delta_since(self, state: DeltaMap, table: KeyTable) -> DeltaMap:
        """The entries that would change ``state``: what need not be passed on is left out.

        This is the removal of redundant state (Fargo, section 2.5.4, "RR").
        """
        news = {}
        for key, value in self.entries.items():
            known = state.entries.get(key)
            if known is None or known.join(value).to_bytes(table) != known.to_bytes(table):
                news[key] = value
        return DeltaMap(MappingProxyType(news))

    def __iter__(self) -> Iterator[DeltaKey]:
        return iter(sorted(self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    def to_bytes(self, table: KeyTable) -> bytes:
        """Equal maps, equal bytes."""
        parts = [repr(tuple(key)).encode() + self.entries[key].to_bytes(table) for key in self]
        return b"\0\0\0".join(parts)
