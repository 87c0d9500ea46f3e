"""Fargo, section by section, and the places where its text or its listings are wrong.

The thesis is Sharma, *Fault Tolerant Distributed Window Aggregations for Internet of Things*. Each
test names the section on which it is based, and has three parts: set-up, events, expectations. If a
listing of the thesis gives a wrong result, the test computes that result and shows that the product
does not; ``docs/protocols/fargo.md`` lists them.
"""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.paper.stage import FIELDS, MS, Orderer, Root, Settings, Source, aggregated, label
from tests.support.deltamap import DeltaMap
from tests.support.uplinks import CHILD, GRID, PANE, pieces_of
from tests.support.window_starts import starts_covering

from slackwater.deployment.children import planned
from slackwater.deployment.parse import parse_deployment
from slackwater.deployment.sharing import share
from slackwater.model.deployment import WindowSpec
from slackwater.model.limits import NEVER
from slackwater.model.merged import MergedRecord
from slackwater.model.records import (
    DeltaRecord,
    Gap,
    Kind,
    LogPosition,
    OrderedRecord,
    Position,
    SourcePosition,
    SourceRecord,
)
from slackwater.primitives.aggregates import AggregateColumns, columns_of
from slackwater.primitives.deltas import Aggregates, Slice, fold
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import PaneStore, window_of
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.answers import StableWindow
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.protocols.dpc.sunion.cursor import SourceCursor
from slackwater.protocols.fargo.merger import Merger
from slackwater.protocols.fargo.parent import MergedPanes
from slackwater.protocols.fargo.uplink import Uplink

Readings = dict[str, list[float]]


def ordered(
    readings: Readings,
    start: int = 0,
    end: int = 10,
    *,
    child: int = 0,
    replica: int = 0,
    kind: Kind = Kind.INSERTION,
) -> OrderedRecord:
    """Return one cut's readings as records of an orderer."""
    keys = sorted(readings)
    flat = [value for key in keys for value in readings[key]]
    counts = [len(readings[key]) for key in keys]
    return OrderedRecord(
        kind,
        child,
        replica,
        0,
        start,
        end,
        keys=keys,
        offsets=np.concatenate(([0.0], np.cumsum(counts, dtype=float))),
        fields=FIELDS,
        values=(np.array(flat),),
    )


def delta(readings: Readings, start: int = 0, *, child: int = 0, replica: int = 0) -> DeltaRecord:
    return aggregated(ordered(readings, start, start + 10, child=child, replica=replica), seq=start)


def tentative(readings: Readings, seq: int, *, replica: int = 0) -> DeltaRecord:
    record = ordered(readings, replica=replica, kind=Kind.TENTATIVE)
    return aggregated(record, seq)


def slice_of(readings: Readings, table: KeyTable) -> Slice:
    return Slice.of(delta(readings), table, FIELDS)


def figures(value: Slice, table: KeyTable) -> AggregateColumns:
    _, columns = value.sorted(table)
    return AggregateColumns(*columns)


def aggregate(name: str, parts: list[Readings]) -> list[float]:
    """An aggregate over some cuts, per key in key order."""
    table = KeyTable()
    total = fold([slice_of(part, table) for part in parts], table, 1)
    with np.errstate(invalid="ignore"):  # as in the encoder: 0 / 0 of an empty group is null
        return [float(v) for v in columns_of(figures(total, table), (name,))[0][0]]


def joined(parts: list[DeltaRecord], table: KeyTable) -> DeltaMap:
    return reduce(DeltaMap.join, (DeltaMap.of(p, table, FIELDS) for p in parts), DeltaMap())


# Section 2.5.4 and 3.5: delta-CRDTs.


def test_2_5_3_a_delta_group_is_the_join_of_its_deltas() -> None:
    """Definition 23: the state after an update is the state before it joined with the delta."""
    table = KeyTable()
    deltas = [delta({"k": [1.0]}, start) for start in (0, 10, 20)]

    group = joined(deltas[1:], table)
    by_group = joined(deltas[:1], table).join(group)
    one_by_one = joined(deltas, table)

    assert by_group.to_bytes(table) == one_by_one.to_bytes(table)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_3_5_1_theorem_1_merge_is_idempotent_commutative_and_associative(
    order: tuple[int, ...],
) -> None:
    """Includes negative readings, which the thesis' state loses (see below)."""
    table = KeyTable()
    emitted = [
        delta({"k": [3.0, -5.0]}, 0),
        delta({"k": [-1.0]}, 10),
        tentative({"k": [9.0]}, seq=1),
        tentative({"k": [-9.0]}, seq=2),
    ]
    once = joined(emitted, table).to_bytes(table)

    again = joined([emitted[i] for i in order] + emitted, table)
    left, right = joined([emitted[i] for i in order[:2]], table), joined(emitted, table)

    assert again.to_bytes(table) == once
    assert left.join(right).to_bytes(table) == right.join(left).to_bytes(table) == once


def test_2_5_4_rr_what_is_known_already_is_not_passed_on() -> None:
    """Figure 2.9: r3 has {0 -> 2}; of {0 -> 2, 1 -> 1} only {1 -> 1} is new."""
    table = KeyTable()
    known = joined([delta({"k": [2.0]}, child=0)], table)
    received = joined([delta({"k": [2.0]}, child=0), delta({"k": [1.0]}, child=1)], table)

    news = received.delta_since(known, table)

    assert [key.child for key in news] == [1]
    assert known.join(news).to_bytes(table) == received.to_bytes(table)
    assert not len(received.delta_since(received, table))


def test_2_5_4_bp_nothing_flows_back() -> None:
    """Figure 2.8. Difference: there is nothing to filter.

    A delta log has one writer and is read by all, so data from a replica is never sent back to it.
    """
    settings = Settings()
    source = Source("s1")
    replicas = [Orderer([source], settings, replica=r) for r in range(2)]
    root = Root(replicas, settings)
    source.emit([10], boundary_ms=100)

    for replica in replicas:
        replica.listen()
        replica.step(100)
    root.listen()
    root.step(100)

    for r, replica in enumerate(replicas):
        writers = {record.replica for log in LineName for record in replica.logs[log]}
        assert writers == {r}
    assert [label(one.effect) for one in root.emitted] == ["stable"]


# Section 3.4.2: windows and their instances.


@given(
    size=st.integers(1, 50),
    slide=st.integers(1, 50),
    times=st.lists(st.integers(-500, 500), min_size=2, max_size=2),
)
def test_3_4_2_a_window_instance_has_the_same_id_everywhere(
    size: int, slide: int, times: list[int]
) -> None:
    """Definition 26: (window, start, end). Difference: by event time, not by each node's clock.

    Two nodes that receive the query at different times identify the same instances.
    """
    slide = min(size, slide)
    grid = Grid(5, WindowSpec(size, slide))

    ids = [{(s, grid.window_end(s)) for s in starts_covering(grid, first, 600)} for first in times]

    low = max(times)
    shared = [{i for i in mine if i[1] > low} for mine in ids]
    assert shared[0] == shared[1]
    assert all(start % slide == 0 and end == start + size for start, end in ids[0])


# Section 3.4.4: cuts and payloads.


@given(
    w=st.integers(1, 40), size=st.integers(1, 90), slide=st.integers(1, 90), k=st.integers(-5, 5)
)
def test_3_4_4_definition_27_cuts_are_a_partition_of_each_window(
    w: int, size: int, slide: int, k: int
) -> None:
    """Union and disjointness, conditions 2 and 3. Difference: [a, b) where the thesis has (a, b].

    A reading at a window's start is therefore in that window, and a boundary t completes windows
    that end at t. In the thesis' count of cuts start and end are exchanged, which makes it
    negative; the grid's is at least size / w, and more if w does not divide the window (trace-27).
    """
    slide = min(size, slide)
    grid = Grid(w, WindowSpec(size, slide))
    start = k * slide

    cuts = grid.cuts(start, grid.window_end(start)).tolist()

    assert (cuts[0], cuts[-1]) == (start, start + size)
    assert all(0 < b - a <= w for a, b in pairwise(cuts))
    assert len(cuts) - 1 >= math.ceil(size / w)
    assert all(grid.bucket_start(e) == a for a, b in pairwise(cuts) for e in (a, b - 1))


def test_3_4_4_figure_3_8_sums_and_counts_of_four_cuts() -> None:
    """The figure's events: 6, 1 | 2, 7, 1 | 4, 4 | 3."""
    cuts: list[Readings] = [{"k": v} for v in ([6.0, 1.0], [2.0, 7.0, 1.0], [4.0, 4.0], [3.0])]

    sums = [aggregate("sum", [cut]) for cut in cuts]
    counts = [aggregate("count", [cut]) for cut in cuts]

    assert sums == [[7.0], [10.0], [8.0], [3.0]]
    assert counts == [[2.0], [3.0], [2.0], [1.0]]
    assert aggregate("sum", cuts) == [28.0]
    assert aggregate("count", cuts) == [8.0]


def test_3_4_4_definition_28_a_payload_has_the_position_of_its_node() -> None:
    """Difference: positions per sensor are in the state record (rule-5), not in each payload.

    A payload names its bucket, and its seq identifies its predecessor; so a reader needs no
    offsets, and a child that takes over reads them from the state record.
    """
    settings = Settings()
    one, two = Source("s1"), Source("s2")
    orderer = Orderer([one, two], settings)

    one.emit([10, 20], boundary_ms=100)
    two.emit([30], boundary_ms=200)
    orderer.listen()
    (record,) = orderer.step(100)
    orderer.save()
    payload = aggregated(record, seq=1)

    assert (payload.bucket_start, payload.bucket_end, payload.seq) == (0, 100 * MS, 1)
    assert [s.next.next_id for s in orderer.saved.streams] == [2, 0]
    assert orderer.saved.frontier == 100 * MS


# Section 3.4.5: re-streaming.


def test_3_4_5_re_streaming_begins_behind_what_was_aggregated() -> None:
    """A node that takes over continues from the replicated offsets: no repeats, no losses."""
    settings = Settings()
    source = Source("s1")
    node = Orderer([source], settings)
    source.emit([10, 20], boundary_ms=100)
    node.listen()
    node.step(100)
    node.save()
    source.emit([110, 120, 130], boundary_ms=200)

    node.crash()
    node.listen()
    node.step(200)

    log = [r for r in node.logs[LineName.STABLE] if r.kind is not Kind.START]
    assert [(r.bucket_start // MS, r.offsets[-1]) for r in log] == [(0, 2.0), (100, 3.0)]
    assert [(r.first_id, r.last_id) for r in log] == [(0, 1), (2, 4)]


def test_3_4_5_definition_30_events_lost() -> None:
    """Figure 3.13: 100 was the last one aggregated, 201 is the first that still exists.

    The example counts 100 lost events, 101 to 200; the definition's formula, 201 - 100 + 1, gives
    102. The example is correct. The results also name the loss.
    """
    cursor = SourceCursor(SourcePosition(7, 101, 0, 40), strict=True)

    cursor.jump(9)
    first_left = SourceRecord(Kind.INSERTION, "s1", 0, 201, 201, 60, 55, 55)
    accepted = cursor.offer(9, first_left)

    assert accepted
    assert [gap for _, _, gap in cursor.gaps] == [Gap("s1", 100)]


# Section 3.2: several trees.

QUERY = "{{from: [s0, s1, s2, s3], window: {window}, aggregate: [avg], bound: 2s, children: {of}}}"
OF_TREES = {"zones": "{north: [s0, s2], south: [s1, s3]}", "city": "1"}
WINDOWS = {"": "{size: 3s}", "-slide": "{size: 6s, slide: 2s}"}
TENTH = 100 * MS
TREES = "\n".join(
    [
        "{apiVersion: slackwater/v1, clock: data, streams: {",
        *(
            f"s{at}: {{key: {{value: k}}, time: {{column: at, unit: us}}, fields: [t]}},"
            for at in range(4)
        ),
        "}, queries: {",
        *(
            f"{tree}{suffix}: {QUERY.format(window=window, of=of)},"
            for tree, of in OF_TREES.items()
            for suffix, window in WINDOWS.items()
        ),
        "}}",
    ]
)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 119), st.integers(-9, 9)), max_size=60))
def test_3_2_definition_25_two_trees_over_the_same_streams_with_two_queries_each(
    readings: list[tuple[int, int, int]],
) -> None:
    """A topology is a union of trees that share a root.

    In the thesis each zone has a tree, and the root merges their shares; here zones are children of
    one tree, and two trees differ in how they divide the same streams. The queries on a tree read
    one set of children. Both trees give the same answers.
    """
    deployment = share(parse_deployment(TREES, "trees.yaml").deployment)
    queries = deployment.queries
    assert {name: query.child_query for name, query in queries.items()} == {
        tree + suffix: tree for tree in OF_TREES for suffix in WINDOWS
    }
    found = {}
    for name, query in queries.items():
        window, tree = query.window, queries[query.child_query]
        assert window is not None
        logs, table = planned(deployment, tree), KeyTable()
        grid, contents = Grid(5 * TENTH, window, query.cut_windows), Aggregates(table, FIELDS)
        stores = [PaneStore(grid, contents, 0) for _ in range(tree.children)]
        for child, store in enumerate(stores):
            for start, end in pairwise(grid.cuts(0, 120 * TENTH).tolist()):
                mine = [
                    float(value)
                    for stream, at, value in readings
                    if logs.child_of(f"s{stream}", 0) == child and start <= at * TENTH < end
                ]
                record = ordered({"k": mine} if mine else {}, start, end, child=child)
                store.add(Position(start), end, contents.of(aggregated(record, seq=start)))
        for start in range(0, 120 * TENTH - window.size_us + 1, window.slide_us):
            shares = [store.window(start, start + window.size_us) for store in stores]
            merged = figures(window_of(shares, contents).slice, table)
            found[name, start] = merged.count.tolist(), merged.sum.tolist()
    for (name, start), answer in found.items():
        at = range(start // TENTH, (start + queries[name].window.size_us) // TENTH)  # type: ignore[union-attr]
        values = [value for _, when, value in readings if when in at]
        assert answer == (([[len(values)]], [[sum(values)]]) if values else ([[]], [[]]))


# Sections 3.4.6 and 3.4.8: merging.


def test_3_4_5_a_parent_over_a_link_is_sent_what_it_has_not_got() -> None:
    """The states of a child are re-streamed from what the parent has, once it can be reached.

    In the thesis the parent asks for an offset. Here it is in the parent's log: the end of the last
    pane there. A state that was sent, and whose acknowledgement the link has lost, is not repeated.
    """
    child = [pieces_of(n * PANE, n * PANE + PANE, rows=5)[0] for n in range(6)]
    parent: list[MergedRecord] = []

    def connect(acknowledged: int, arrived: int) -> None:
        uplink = Uplink(CHILD, 1, 0)
        uplink.centre_has(parent[-1].end if parent else NEVER)
        for offset, state in enumerate(child):
            uplink.take(offset, state)
        sent = uplink.write()
        parent.extend(sent[:arrived])
        for _ in range(acknowledged):
            uplink.acknowledged()

    connect(acknowledged=1, arrived=3)  # the link is cut
    connect(acknowledged=0, arrived=1)  # again
    connect(acknowledged=2, arrived=2)
    assert [state.start // PANE for state in parent] == [0, 1, 2, 3, 4, 5]


def test_3_5_what_the_parent_has_from_another_node_is_redundant() -> None:
    """RR: of a state that is received, what is there already is removed; here it is not sent."""
    one, other = Uplink(CHILD, 1, 0), Uplink(CHILD, 1, 0)
    for offset in range(4):
        for uplink in (one, other):
            uplink.take(offset, *pieces_of(offset * PANE, offset * PANE + PANE, rows=5))
    parent = one.write()
    for _ in parent[:3]:
        one.acknowledged()
    other.centre_has(one.has_to)
    parent += other.write()
    assert [state.start // PANE for state in parent] == [0, 1, 2, 3, 3], "one was on its way"
    panes, frontier, used = MergedPanes(GRID, lambda e: e, PANE, 1), 0, []
    for state in parent:
        if (found := panes.take(state, Position(frontier), 0)) is not None:
            used.append(frontier // PANE)
            frontier = found.end
    assert used == [0, 1, 2, 3], "and is dropped by its start"


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_3_4_6_the_order_in_which_children_arrive_does_not_change_a_bit(
    order: tuple[int, ...],
) -> None:
    """Floating-point sums depend on their brackets: 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1.

    The thesis merges states in the order of arrival. Here the shape is that of the grid: children
    in index order (rule-21, trace-28).
    """
    grid = Grid(10, WindowSpec(10, 10))
    table = KeyTable()
    children = [PaneStore(grid, Aggregates(table, ("t",)), 0) for _ in range(3)]
    emitted = [slice_of({"k": [0.1 * (1 + c)]}, table) for c in range(3)]

    for child in order:
        children[child].add(Position(0), 10, emitted[child])
    share = window_of([c.window(0, 10) for c in children], Aggregates(table, ("t",)))

    assert float(share.slice.sum[0, 0]) == (0.1 + 0.1 * 2) + 0.1 * 3
    assert (0.1 + 0.1 * 2) + 0.1 * 3 != 0.1 + (0.1 * 2 + 0.1 * 3)


def test_3_4_8_a_group_of_n_survives_n_minus_1_failures() -> None:
    """Two replicas send the same states to the same parent; one of them ends."""
    settings = Settings()
    source = Source("s1")
    replicas = [Orderer([source], settings, replica=r) for r in range(2)]
    root = Root(replicas, settings)

    for now in range(100, 2_001, 100):
        source.emit([now - 50], now)
        for replica in replicas if now <= 1_000 else replicas[1:]:
            replica.listen()
            replica.step(now)
        root.listen()
        root.step(now)

    answers = [one.effect for one in root.emitted if isinstance(one.effect, StableWindow)]
    assert [a.window_start // MS for a in answers] == list(range(0, 2_000, 100))
    assert {label(one.effect) for one in root.emitted} == {"stable"}


def test_3_4_8_of_n_intermediate_nodes_n_minus_1_may_fail_at_any_pane() -> None:
    """Three mergers write to one log, with no leader and no election; two of them end.

    In the thesis the group replicates each state and elects who goes on (3.4.3). Here each of them
    sends what the others send, and the parent uses the first record of each pane (rule-36).
    """
    grid, table = Grid(10, WindowSpec(20, 20)), KeyTable()
    contents = Aggregates(table, ("t",))
    mergers = [Merger(0, grid, contents, 0) for _ in range(3)]
    parent, store = MergedPanes(grid, lambda e: e, 5, replicas=1), PaneStore(grid, contents, 0)
    parent.begin(Position(0), 0, has_unread=False)
    for bucket in range(8):
        at = LogPosition(bucket + 1, bucket + 1, 0, Position(10 * (bucket + 1)))
        working = mergers if bucket < 3 else mergers[1:] if bucket < 5 else mergers[2:]
        for merger in working:
            value = slice_of({"k": [0.1 * (bucket + 1)]}, table)
            merger.panes.add(Position(10 * bucket), 10 * (bucket + 1), value)
            merger.look(lambda _, at=at: [at])  # type: ignore[misc]
            for record in merger.write():
                merger.acknowledged()
                usable = parent.take(record, store.frontier, record.end)
                if usable is not None:
                    store.add_panes(usable.end, contents.install(usable.pieces))
    assert store.frontier == Position(80)
    sums = [float(store.window(start, start + 20).slice.sum[0, 0]) for start in range(0, 80, 20)]
    assert sums == [0.1 + 0.2, 0.1 * 3 + 0.4, 0.5 + 0.1 * 6, 0.1 * 7 + 0.8]
    assert parent.used == 4


# Section 3.5: what the listings get wrong.


def test_3_5_3_the_maximum_of_negative_readings_is_negative() -> None:
    """Algorithm 5 starts from an array of zeros."""
    readings = [-7.0, -3.0, -11.0]

    thesis = reduce(max, readings, 0.0)
    ours = aggregate("max", [{"k": readings}])
    over_cuts = aggregate("max", [{"a": [-2.0], "k": readings}, {"b": [-1.0]}, {"k": [-5.0]}])

    assert thesis == 0.0
    assert ours == [-3.0]
    assert over_cuts == [-2.0, -1.0, -3.0]


def test_3_5_4_the_minimum_of_positive_readings_is_positive() -> None:
    """Algorithm 6 starts from zeros, too."""
    readings = [7.0, 3.0, 11.0]

    thesis = reduce(min, readings, 0.0)
    ours = aggregate("min", [{"k": readings}])
    over_cuts = aggregate("min", [{"a": [2.0], "k": readings}, {"b": [1.0]}, {"k": [5.0]}])

    assert thesis == 0.0
    assert ours == [3.0]
    assert over_cuts == [2.0, 1.0, 3.0]


def test_3_5_5_the_range_of_readings_far_from_zero() -> None:
    """Algorithm 7 keeps both, from zeros: the range of 20 to 22 degrees would be 22."""
    readings = [20.0, 22.0, 21.0]

    thesis = reduce(max, readings, 0.0) - reduce(min, readings, 0.0)
    ours = aggregate("range", [{"k": readings}])

    assert thesis == 22.0
    assert ours == [2.0]


def test_3_5_2_zeros_are_readings() -> None:
    """Algorithms 3 and 4 update for value > 0 and value < 0 only: the average of 4, 0, 0 is 4."""
    readings = [4.0, 0.0, -0.0]
    counted = [v for v in readings if v > 0 or v < 0]

    ours = aggregate("avg", [{"k": readings}])

    assert sum(counted) / len(counted) == 4.0
    assert ours == [4.0 / 3.0]
    assert aggregate("count", [{"k": readings}]) == [3.0]


def test_3_5_1_sums_of_both_signs() -> None:
    """Algorithm 3 keeps the negative part as a negative number and then subtracts it.

    Its merge takes the larger of two such parts, which is the older one. Here a slice is a value
    with a version, and the version decides.
    """
    positive, negative = [5.0, 2.0], [-3.0, -1.0]
    table = KeyTable()

    thesis = sum(positive) - sum(negative)
    thesis_merge = max(sum(negative[:1]), sum(negative))
    ours = aggregate("sum", [{"k": positive + negative}])
    older = tentative({"k": [-3.0]}, seq=1)
    newer = tentative({"k": [-3.0, -1.0]}, seq=2)
    (kept,) = joined([newer, older], table).entries.values()

    assert thesis == 11.0
    assert thesis_merge == -3.0
    assert ours == [3.0]
    best = kept.best()
    assert best is not None
    (piece,) = best.pieces
    assert piece is not None
    assert piece.slice.sum.tolist() == [[-4.0]]


def test_3_5_2_merging_averages_of_both_signs() -> None:
    """Algorithm 4's merge writes the negative part into the positive one; the text has it right."""
    cuts: list[Readings] = [{"k": [6.0]}, {"k": [-2.0]}, {"k": [-1.0, 3.0]}]

    ours = aggregate("avg", cuts)

    assert ours == [6.0 / 4.0]


def test_3_5_a_group_without_values_is_no_zero() -> None:
    """A key whose readings are all missing, and a cut without the key: no value, not 0."""
    cuts: list[Readings] = [{"empty": [math.nan, math.nan], "full": [-1.0]}, {"full": [-3.0]}]

    by = {name: aggregate(name, cuts) for name in ("count", "avg", "min", "max", "range")}

    assert by["count"] == [0.0, 2.0]
    assert all(math.isnan(by[name][0]) for name in ("avg", "min", "max", "range"))
    assert [by[name][1] for name in ("avg", "min", "max", "range")] == [-2.0, -3.0, -1.0, 2.0]


# Section 3.6: exactly once, also under a false suspicion.


def test_3_6_a_falsely_suspected_node_does_not_count_twice() -> None:
    """The thesis concedes that events are then aggregated twice ("at least once").

    Here the payloads of both nodes have the same identity, so the second is a repeat.
    """
    settings = Settings()
    source = Source("s1")
    orderer = Orderer([source], settings)
    root = Root([orderer], settings)
    source.emit([10, 20, 30], boundary_ms=100)
    source.emit([110], boundary_ms=200)
    orderer.listen()
    orderer.step(200)
    log = orderer.logs[LineName.STABLE]

    stable_log = root.config.logs[0]
    for offset, seq in enumerate([0, 1, 0, 1, 1, 0, 2, 2]):  # both nodes send
        root.core.receive(stable_log, offset, aggregated(log[seq], seq))
    (commit,) = root.core.step(200 * MS)

    assert isinstance(commit, Commit)
    answers = [one for one in commit.transaction.effects if isinstance(one, StableWindow)]
    contents = [one.content for one in answers if one.content is not None]
    assert [share.slice.count.tolist() for share in contents] == [[[3.0]], [[1.0]]]
    assert root.core.holes == ()
