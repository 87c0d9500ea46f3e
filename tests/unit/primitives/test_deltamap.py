"""The laws of the join (Fargo, section 3.5: idempotent, commutative, associative), and an oracle.

The content of a record is a function of its identity, as in the logs: the same (replica, inc, seq)
never has two contents, and stable pieces are equal for all writers.
"""

from __future__ import annotations

from functools import reduce
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deltamap import ANY_REPLICA, BucketDelta, DeltaKey, DeltaMap, Rank, delta_of

from slackwater.model.records import DeltaRecord, Gap, Kind
from slackwater.primitives.key_table import KeyTable

FIELDS = ("f",)


def record(
    kind: Kind, bucket: int, *, replica: int = 0, inc: int = 0, seq: int = 0,
    piece: int = 0, pieces: int = 1, gapped: bool = False,
) -> DeltaRecord:  # fmt: skip
    stable = kind is Kind.INSERTION
    value = float(bucket if stable else bucket + 100 * replica + 10 * inc + seq - piece)
    column = np.array([[value]])
    return DeltaRecord(
        kind, 0, replica, inc, bucket, bucket + 10, seq, piece, pieces,
        missing=() if stable else ("s1",), gap=(Gap("s1", 3),) if gapped else (),
        keys=[f"key-{piece}"], fields=FIELDS,
        count=np.ones((1, 1)), sum=column, m2=np.zeros((1, 1)), min=column, max=column,
    )  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> DeltaRecord:
    kind = draw(st.sampled_from([Kind.INSERTION, Kind.TENTATIVE]))
    bucket = draw(st.sampled_from([0, 10]))
    pieces = 1 + bucket // 10
    piece = draw(st.integers(0, pieces - 1))
    place = draw(st.integers(0, 2)) * 2
    return record(
        kind, bucket, replica=draw(st.integers(0, 1)), inc=draw(st.integers(0, 1)),
        seq=place + piece, piece=piece, pieces=pieces,
        gapped=kind is Kind.INSERTION and draw(st.booleans()),
    )  # fmt: skip


lists = st.lists(records(), max_size=6)


def joined(parts: list[DeltaRecord], table: KeyTable) -> DeltaMap:
    return reduce(DeltaMap.join, (DeltaMap.of(r, table, FIELDS) for r in parts), DeltaMap())


@given(lists)
def test_join_is_idempotent(a: list[DeltaRecord]) -> None:
    table = KeyTable()
    x = joined(a, table)
    assert x.join(x).to_bytes(table) == x.to_bytes(table)


@given(lists, lists)
def test_join_is_commutative(a: list[DeltaRecord], b: list[DeltaRecord]) -> None:
    table = KeyTable()
    x, y = joined(a, table), joined(b, table)
    assert x.join(y).to_bytes(table) == y.join(x).to_bytes(table)


@given(lists, lists, lists)
def test_join_is_associative(
    a: list[DeltaRecord], b: list[DeltaRecord], c: list[DeltaRecord]
) -> None:
    table = KeyTable()
    x, y, z = joined(a, table), joined(b, table), joined(c, table)
    assert x.join(y).join(z).to_bytes(table) == x.join(y.join(z)).to_bytes(table)


@given(lists, st.randoms(use_true_random=False))
def test_repeats_and_other_orders_give_equal_bytes(a: list[DeltaRecord], random: Random) -> None:
    one, other = KeyTable(), KeyTable()
    shuffled = a + a[:2]
    random.shuffle(shuffled)
    assert joined(a, one).to_bytes(one) == joined(shuffled, other).to_bytes(other)


@given(lists)
def test_the_best_writing_is_that_of_a_plain_map(parts: list[DeltaRecord]) -> None:
    table = KeyTable()
    seen: dict[DeltaKey, dict[tuple[int, int, int], dict[int, float]]] = {}
    for r in parts:
        stable = r.kind is Kind.INSERTION
        key = DeltaKey(0, ANY_REPLICA if stable else r.replica, r.bucket_start)
        version = (1 if r.gap else 2, 0, 0) if stable else (0, r.inc, r.seq - r.piece)
        seen.setdefault(key, {}).setdefault(version, {})[r.piece] = float(r.sum[0, 0])

    result = joined(parts, table)
    assert list(result) == sorted(seen)
    for key, versions in seen.items():
        complete = [
            v for v, pieces in versions.items() if len(pieces) == 1 + key.bucket_start // 10
        ]
        best = result.entries[key].best()
        if not complete:
            assert best is None
            continue
        assert best is not None
        sums = [float(piece.slice.sum[0, 0]) for piece in best.pieces if piece is not None]
        expected = versions[max(complete)]
        assert tuple(best.version) == max(complete)
        assert sums == [expected[i] for i in sorted(expected)]


@given(lists, lists)
def test_what_is_redundant_is_left_out_of_a_delta(
    a: list[DeltaRecord], b: list[DeltaRecord]
) -> None:
    table = KeyTable()
    state, delta = joined(a, table), joined(b, table)
    news = delta.delta_since(state, table)
    assert state.join(news).to_bytes(table) == state.join(delta).to_bytes(table)
    assert len(delta.delta_since(state.join(delta), table)) == 0


def test_a_second_tentative_writing_replaces_and_is_never_added() -> None:
    table = KeyTable()
    first = record(Kind.TENTATIVE, 0, inc=5, seq=1)
    second = record(Kind.TENTATIVE, 0, inc=9, seq=4)
    (entry,) = joined([second, first], table).entries.values()
    best = entry.best()
    assert best is not None
    assert best.version.inc == 9
    assert best.pieces[0] is not None
    assert best.pieces[0].slice.count[0, 0] == 1.0


def test_an_incomplete_set_of_pieces_does_not_take_the_older_one_away() -> None:
    table = KeyTable()
    old = [record(Kind.TENTATIVE, 0, seq=i, piece=i, pieces=2) for i in range(2)]
    half = record(Kind.TENTATIVE, 0, seq=6, piece=0, pieces=2)
    (entry,) = joined([*old, half], table).entries.values()
    best = entry.best()
    assert best is not None
    assert best.version.place == 0
    assert len(entry.writings) == 2


def test_replicas_may_share_the_pieces_of_a_stable_bucket() -> None:
    table = KeyTable()
    parts = [
        record(Kind.INSERTION, 0, replica=0, seq=40, piece=0, pieces=2),
        record(Kind.INSERTION, 0, replica=1, inc=7, seq=99, piece=1, pieces=2),
    ]
    (entry,) = joined(parts, table).entries.values()
    assert entry.best() is not None


def test_stable_without_a_gap_is_preferred() -> None:
    table = KeyTable()
    parts = [record(Kind.INSERTION, 0), record(Kind.INSERTION, 0, replica=1, gapped=True)]
    (entry,) = joined(parts, table).entries.values()
    best = entry.best()
    assert best is not None
    assert best.version.rank is Rank.STABLE


def test_a_writer_that_cuts_one_writing_in_two_ways_is_refused() -> None:
    table = KeyTable()
    _, one = delta_of(record(Kind.INSERTION, 0, pieces=2), table, FIELDS)
    _, other = delta_of(record(Kind.INSERTION, 0, pieces=3), table, FIELDS)
    with pytest.raises(ValueError, match="pieces"):
        one.join(other)
    with pytest.raises(ValueError, match="bucket ends"):
        one.join(BucketDelta(11, one.writings))
