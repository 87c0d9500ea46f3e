"""trace-32: a bucket above the size limit is written as several records, none a repeat.

A reader that moves its frontier to the bucket's end with the first piece drops the others, the same
ones in all replicas, so that comparing replicas shows nothing.

See trace-32.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.paper.stage import FIELDS, MS, Orderer, Root, Settings, Source, aggregated

from slackwater.codec.delta_records import encode_delta
from slackwater.codec.ordered_records import encode_ordered
from slackwater.model.limits import RECORD_BYTES_MAX
from slackwater.model.records import DeltaRecord, Gap, Kind, OrderedRecord, Position, SourceColumns
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.answers import StableWindow, TentativeWindow
from slackwater.protocols.dpc.soutput.config import DeltaLog
from slackwater.protocols.dpc.sunion.operators import Operators

KEYS = [f"k{i}" for i in range(10)]


def records(
    columns: SourceColumns,
    kind: Kind = Kind.INSERTION,
    replica: int = 0,
    inc: int = 0,
    *,
    gaps: tuple[Gap, ...] = (),
    operators: Operators | None = None,
) -> list[OrderedRecord]:
    """Return an orderer's records of bucket [0, 100 ms) of ``columns``, three keys in each."""
    operators = operators or Operators(FIELDS, None, None, KeyTable(), piece_bytes_max=170)
    pieces = operators.bucket([[(columns, 0)]], 0, 100 * MS)
    return [
        OrderedRecord(
            kind, 0, replica, inc, 0, 100 * MS, i, len(pieces), 0, -1, None,
            () if kind is Kind.INSERTION else ("s2",), gaps, p.keys, p.offsets, p.fields, p.values,
            p.stimes, p.key_index,
        )
        for i, p in enumerate(pieces)
    ]  # fmt: skip


def pieces_of(kind: Kind, replica: int = 0, inc: int = 0) -> list[OrderedRecord]:
    """Return the bucket with two readings of each of ten keys."""
    times = np.arange(0, 20 * MS, MS, dtype=np.int64)
    which = np.arange(20, dtype=np.int32) % 10
    columns = SourceColumns(times, which, KEYS, FIELDS, (np.arange(20, dtype=float),))
    return records(columns, kind, replica, inc)


def root_over(*logs: list[OrderedRecord]) -> tuple[Root, list[Orderer]]:
    settings = Settings()
    replicas = [
        Orderer([Source("s1"), Source("s2")], settings, replica=r) for r in range(len(logs))
    ]
    root = Root(replicas, settings)
    for orderer, log in zip(replicas, logs, strict=True):
        for record in log:
            line = LineName.LIVE if record.kind is Kind.TENTATIVE else LineName.STABLE
            orderer.logs[line].append(record)
    return root, replicas


def test_r32_pieces_are_cut_between_keys_and_all_of_them_count() -> None:
    pieces = pieces_of(Kind.INSERTION)
    root, _ = root_over(pieces)

    root.listen()
    root.step(100)

    assert [len(p.keys) for p in pieces] == [3, 3, 3, 1]
    (answer,) = [s.effect for s in root.emitted if isinstance(s.effect, StableWindow)]
    assert answer.content is not None
    assert answer.content.slice.count.tolist() == [[2.0] * 10]


@pytest.mark.parametrize("many", [13, 14, 15, 29, 200])
def test_r32_one_key_with_more_readings_than_a_record_holds(many: int) -> None:
    """A file whose times are days: one bucket has a whole day. Its orderer ended, for ever."""
    which = np.array([0, *[1] * many, 2, 2, 3], np.int32)
    readings = np.arange(len(which), dtype=float)
    columns = SourceColumns(np.zeros(len(which), np.int64), which, KEYS, FIELDS, (readings,))
    pieces = records(columns)
    root, _ = root_over(pieces)

    root.listen()
    root.step(100)

    assert all(8 * len(p.values[0]) + 40 * len(p.keys) <= 170 + 40 for p in pieces)
    assert len(pieces) > 1 + many // 22
    (answer,) = [s.effect for s in root.emitted if isinstance(s.effect, StableWindow)]
    assert answer.content is not None
    figures = answer.content.slice
    assert figures.count.tolist() == [[1, many, 2, 1]]
    assert figures.sum.tolist() == [[0, readings[1 : many + 1].sum(), 2 * many + 3, many + 3]]
    assert figures.max.tolist() == [[0, many, many + 2, many + 3]]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_r32_a_replica_that_dies_in_the_middle_is_completed_by_the_other(cut: int) -> None:
    pieces = pieces_of(Kind.INSERTION)
    others = [replace(p, replica=1) for p in pieces]
    root, _ = root_over(pieces[:cut], others)

    root.listen()
    root.step(100)

    (answer,) = [s.effect for s in root.emitted if isinstance(s.effect, StableWindow)]
    assert answer.content is not None
    assert answer.content.slice.count.tolist() == [[2.0] * 10]


GAP = (Gap("s1", 5),)


def with_a_gap(replica: int, inc: int = 0, left: int = 5) -> list[OrderedRecord]:
    """Return the same bucket with ``left`` keys; retention has deleted the others' readings."""
    if not left:
        return [OrderedRecord(Kind.BOUNDARY, 0, replica, inc, 0, 100 * MS, gap=GAP)]
    times = np.arange(0, 2 * left * MS, MS, dtype=np.int64)
    which = np.arange(2 * left, dtype=np.int32) % left
    columns = SourceColumns(times, which, KEYS[-left:], FIELDS, (np.ones(2 * left),))
    return records(columns, replica=replica, inc=inc, gaps=GAP)


def answer_of(root: Root) -> tuple[int, bool] | None:
    """Return the number of keys of the only stable window, and whether it reports a loss."""
    found = [s.effect for s in root.emitted if isinstance(s.effect, StableWindow)]
    if not found:
        return None
    (answer,) = found
    assert answer.content is not None
    assert answer.content.slice.count.tolist() == [[2.0] * len(answer.content.slice)]
    return len(answer.content.slice), bool(answer.gap)


def read_on(root: Root, replicas: list[Orderer], *, ended: tuple[int, ...] = ()) -> None:
    """Let the root read all records; some replicas' logs have been read to their ends."""
    for _ in range(3):
        root.listen()
        root.step(100)
        root.core.ordered(
            {
                DeltaLog(0, r, LineName.STABLE): (0, len(replicas[r].logs[LineName.STABLE]))
                for r in ended
            }
        )


@pytest.mark.parametrize("left", [0, 2, 5, 9])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_r32_a_bucket_begun_without_a_gap_is_completed_with_one(cut: int, left: int) -> None:
    """A ended between its pieces, and B has lost readings: no log can have the rest of A's."""
    root, replicas = root_over(pieces_of(Kind.INSERTION)[:cut], with_a_gap(1, left=left))
    read_on(root, replicas)
    assert answer_of(root) is None, "A's log may have it"
    read_on(root, replicas, ended=(0,))
    assert answer_of(root) == (left, True)


def test_r32_a_bucket_begun_with_a_gap_goes_on_with_it() -> None:
    """A returns, and has the bucket without a gap, after B's first piece was taken."""
    root, replicas = root_over([], with_a_gap(1)[:1])
    read_on(root, replicas, ended=(0,))
    replicas[0].logs[LineName.STABLE] += pieces_of(Kind.INSERTION)
    read_on(root, replicas)
    assert answer_of(root) is None, "B's log may have the rest"
    replicas[1].logs[LineName.STABLE] += with_a_gap(1)[1:]
    read_on(root, replicas)
    assert answer_of(root) == (5, True)


def test_r32_a_bucket_begun_with_a_gap_is_completed_without_one() -> None:
    root, replicas = root_over([], with_a_gap(1)[:1])
    read_on(root, replicas, ended=(0,))
    replicas[0].logs[LineName.STABLE] += pieces_of(Kind.INSERTION)
    read_on(root, replicas, ended=(1,))
    assert answer_of(root) == (10, False)


@pytest.mark.parametrize("left", [0, 2, 5, 9])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_r32_a_replica_that_ended_between_its_pieces_sends_the_bucket_again(
    cut: int, left: int
) -> None:
    """Meanwhile retention has deleted some of its source.

    Its output is not the rest of the bucket.
    """
    root, (replica,) = root_over(pieces_of(Kind.INSERTION)[:cut])
    log = replica.logs[LineName.STABLE]
    replica.crash()
    assert (log[-1].kind, log[-1].frontier, log[-1].first_id) == (Kind.START, Position(0), 0)
    log += with_a_gap(0, inc=len(log) - 1, left=left)
    read_on(root, [replica])
    assert answer_of(root) == (left, True)


def lives_of_a_replica(rng: Random, replica: int) -> tuple[list[OrderedRecord], set[int]]:
    """Return a replica's records of the bucket after its first START, and the complete key counts.

    Each life has lost more than the one before, and all but the last are incomplete.
    """
    log: list[OrderedRecord] = []
    lives = sorted(rng.sample([10, 9, 5, 2, 0], rng.randint(0, 3)), reverse=True)
    for life, left in enumerate(lives):
        inc = len(log) + 1 if life else 0  # the orderers of a stage write a START at 0 first
        if life:
            at = Position(0)
            log.append(OrderedRecord(Kind.START, 0, replica, -1, 0, 0, last_id=-1, frontier=at))
        emitted = pieces_of(Kind.INSERTION, replica, inc)
        if left < 10:
            emitted = with_a_gap(replica, inc, left)
        is_last = life + 1 == len(lives)
        cut = rng.randint(0, len(emitted) if is_last else len(emitted) - 1)
        log += emitted[:cut]
        if cut == len(emitted):
            return log, {left}
    return log, set()


@given(st.integers(0, 2**32))
def test_r32_versions_of_a_bucket_are_never_mixed_and_a_whole_one_is_found(seed: int) -> None:
    """For any losses of the replicas between their pieces, read in any order."""
    rng = Random(seed)
    lives = [lives_of_a_replica(rng, replica) for replica in range(rng.randint(1, 3))]
    root, replicas = root_over(*([] for _ in lives))
    coming = [(r, record) for r, (log, _) in enumerate(lives) for record in log]
    order = sorted(coming, key=lambda _: rng.random())  # of replicas; each log in its own order
    logs = [iter(log) for log, _ in lives]
    for replica, _ in order:
        replicas[replica].logs[LineName.STABLE].append(next(logs[replica]))
        if rng.random() < 0.5:
            ended = tuple(r for r in range(len(lives)) if rng.random() < 0.3)
            read_on(root, replicas, ended=ended)
    for _ in range(4):
        read_on(root, replicas, ended=tuple(range(len(lives))))
    complete = set().union(*(found for _, found in lives))
    answer = answer_of(root)
    assert (answer is None) == (not complete)
    if answer is not None:
        keys, is_lossy = answer
        assert keys in complete
        assert is_lossy == (keys < 10)


def test_r32_an_incomplete_bucket_is_no_answer() -> None:
    """Neither stable nor tentative: a window counts only complete buckets."""
    root, replicas = root_over(pieces_of(Kind.INSERTION)[:3])
    replicas[0].logs[LineName.LIVE] += pieces_of(Kind.TENTATIVE)[:2]

    root.listen()
    root.step(100)
    early = list(root.emitted)
    root.step(5_000)

    assert early == []
    first = root.emitted[0].effect
    assert isinstance(first, TentativeWindow)
    assert first.missing == ("s1", "s2")
    assert first.rows == 0


def test_r32_the_aggregate_of_a_piece_keeps_its_place() -> None:
    deltas = [aggregated(p, seq) for seq, p in enumerate(pieces_of(Kind.INSERTION), start=1)]

    assert [(d.piece, d.pieces, d.seq) for d in deltas] == [(i, 4, i + 1) for i in range(4)]


@pytest.mark.parametrize(
    ("keys", "fields", "key_bytes", "each"),
    [
        (60_000, 10, 14, 1),
        (140_000, 3, 14, 1),
        (250_000, 1, 14, 1),
        (20_000, 1, 1_000, 1),
        (40, 1, 500_000, 1),
        (1, 2, 14, 2_500_000),
        (3, 1, 500_000, 1_100_000),
    ],
)
def test_r32_what_is_made_of_a_piece_fits_a_record_too(
    keys: int, fields: int, key_bytes: int, each: int
) -> None:
    """One reading of each of many keys: their figures take five times the size of the readings.

    The keys themselves may take more than either, and one key's readings more than a record may
    have.
    """
    names = tuple(f"f{i}" for i in range(fields))
    operators = Operators(names, None, None, KeyTable())
    columns = SourceColumns(
        np.zeros(keys * each, np.int64), np.arange(keys * each, dtype=np.int32) % keys,
        [f"sensor-{i:07}".ljust(key_bytes, "-") for i in range(keys)],
        names, (np.ones(keys * each),) * fields,
    )  # fmt: skip
    pieces = records(columns, operators=operators)
    assert sum(len(p.values[0]) for p in pieces) == keys * each
    for i, p in enumerate(pieces):
        ones = np.ones((fields, len(p.keys)))
        delta = DeltaRecord(
            Kind.INSERTION, 0, 0, 0, 0, 100 * MS, 0, i, len(pieces), 0, -1, None,
            (), (), p.keys, 0, p.fields, ones, ones, ones, ones, ones,
        )  # fmt: skip
        assert len(encode_ordered(p)) <= RECORD_BYTES_MAX
        assert len(encode_delta(delta)) <= RECORD_BYTES_MAX


@pytest.mark.parametrize("distinct", [20_000, 10])
def test_r32_rows_with_long_keys_fit_a_record(distinct: int) -> None:
    operators = Operators(FIELDS, None, None, KeyTable(), rows=True)
    keys = [f"{i}".ljust(1_000, "\N{SNOWMAN}") for i in range(distinct)]
    columns = SourceColumns(
        np.zeros(20_000, np.int64), np.arange(20_000, dtype=np.int32) % distinct,
        keys, FIELDS, (np.ones(20_000),),
    )  # fmt: skip
    pieces = records(columns, operators=operators)

    assert sum(len(p.stimes) for p in pieces) == 20_000
    assert all(len(encode_ordered(p)) <= RECORD_BYTES_MAX for p in pieces)
