"""Reference for the root's panes: the join of delta-CRDTs as in Fargo.

A map of identified slices, in which versions decide. No process uses it: a root has its panes.

Fargo (section 3.5) keeps, per replica, a value that only increases, and joins by taking the larger.
A sum of readings of both signs does not only increase, so the pair (version, value) replaces it,
and the version decides. The map goes from (child, replica, bucket) to the records written for it.

A *writing* is one complete version of a bucket, in ``pieces`` pieces with disjoint keys (rule-3).
Versions are ordered:

- by rank: stable before stable with a gap (trace-15) before tentative;
- among tentative writings of one replica, by their place in its live log (rule-13). The pieces of a
  writing are consecutive there, so ``seq - piece`` is the same for all of them, and identifies it;
- stable pieces have no version beyond their rank: all writers write the same (rule-3), and a bucket
  may be completed by another replica (trace-32). Their key names no replica.

Tentative writings of two replicas are never compared: the choice between them is DPC's Table II,
which depends on the current states, and a lattice order over replicas would always prefer the same
one, even after its end (trace-7). The join keeps the greatest complete writing and the incomplete
ones above it, since a set of pieces with a hole is not a slice (rule-13) and must not replace the
one before it.

All values are immutable; ``join`` is the only way to combine them. It is idempotent, commutative
and associative, because it is a union of sets of identified pieces, followed by the removal of
writings below the greatest complete one, which no later union can restore.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from slackwater.model.records import DeltaRecord, Gap, Kind
from slackwater.primitives.deltas import Slice
from slackwater.primitives.key_table import KeyTable

ANY_REPLICA: Final = -1
"""Replica of stable pieces in a ``DeltaKey``: they are the same from every writer."""


class Rank(IntEnum):
    """Precedence of a piece by its label."""

    TENTATIVE = 0
    GAPPED = 1
    """Stable, but written after retention had deleted readings (rule-28)."""
    STABLE = 2


class Version(NamedTuple):
    """Order of the writings of one ``DeltaKey``. ``inc`` and ``place`` are 0 for stable ones."""

    rank: Rank
    inc: int = 0
    place: int = 0


class DeltaKey(NamedTuple):
    """The place of a writing: one bucket of one replica of one child."""

    child: int
    replica: int
    bucket_start: int


@dataclass(frozen=True, slots=True)
class DeltaPiece:
    """One piece: its slice, and its missing streams."""

    slice: Slice
    missing: tuple[str, ...] = ()
    gap: tuple[Gap, ...] = ()

    def to_bytes(self, table: KeyTable) -> bytes:
        """Encode the piece; equal pieces give equal bytes."""
        return repr((self.missing, self.gap)).encode() + b"\0" + self.slice.to_bytes(table)


@dataclass(frozen=True, slots=True)
class Writing:
    """The known pieces of one version, by number (None: not yet known)."""

    version: Version
    pieces: tuple[DeltaPiece | None, ...]

    @property
    def complete(self) -> bool:
        """Whether all pieces are known; only then the writing counts."""
        return None not in self.pieces

    def join(self, other: Writing) -> Writing:
        """Return the union of the pieces: those with the same identity are repeats."""
        if len(self.pieces) != len(other.pieces):
            raise ValueError(f"{self.version} in {len(self.pieces)} and {len(other.pieces)} pieces")
        pairs = zip(self.pieces, other.pieces, strict=True)
        return Writing(self.version, tuple(mine or theirs for mine, theirs in pairs))


@dataclass(frozen=True, slots=True)
class BucketDelta:
    """The writings of one ``DeltaKey`` by ascending version, none below a complete one."""

    bucket_end: int
    writings: tuple[Writing, ...]

    def join(self, other: BucketDelta) -> BucketDelta:
        """Return the least value that contains both."""
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
        """Return the greatest complete writing, if there is one."""
        first = self.writings[0]
        return first if first.complete else None

    def to_bytes(self, table: KeyTable) -> bytes:
        """Encode the value; equal values give equal bytes."""
        parts = [b"%d" % self.bucket_end]
        for writing in self.writings:
            parts.append(repr((*writing.version, len(writing.pieces))).encode())
            parts += [b"-" if piece is None else piece.to_bytes(table) for piece in writing.pieces]
        return b"\0\0".join(parts)


def delta_of(
    record: DeltaRecord, table: KeyTable, fields: tuple[str, ...]
) -> tuple[DeltaKey, BucketDelta]:
    """Delta-mutator: return one record with readings as the smallest value that contains it."""
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
        """Return a map of one record."""
        key, value = delta_of(record, table, fields)
        return cls(MappingProxyType({key: value}))

    def join(self, other: DeltaMap) -> DeltaMap:
        """Return the least map that contains both."""
        if not other.entries:
            return self
        joined = dict(self.entries)
        for key, value in other.entries.items():
            mine = joined.get(key)
            joined[key] = value if mine is None else mine.join(value)
        return DeltaMap(MappingProxyType(joined))

    def delta_since(self, state: DeltaMap, table: KeyTable) -> DeltaMap:
        """Return the entries that would change ``state``; others need not be forwarded.

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
        """Encode the map; equal maps give equal bytes."""
        parts = [repr(tuple(key)).encode() + self.entries[key].to_bytes(table) for key in self]
        return b"\0\0\0".join(parts)
