"""Aggregates with a state go from the deployment file over the orderer to the judge.

The aggregator's copy of states is in ``tests/unit/spark/test_states.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest

from slackwater.codec import decode_delta, decode_ordered, encode_delta, encode_ordered
from slackwater.codec.results import ResultHead
from slackwater.deployment.children import planned
from slackwater.deployment.parse import parse_deployment
from slackwater.deployment.sharing import share
from slackwater.host.orderer import operators_of
from slackwater.host.results import ResultsWriter
from slackwater.host.root import contents_of_windows
from slackwater.judge.batch import BatchSource, compute_from
from slackwater.judge.check import compare
from slackwater.model.errors import DeploymentError
from slackwater.model.records import (
    DeltaRecord,
    Kind,
    OrderedRecord,
    Position,
    RootState,
    SourceColumns,
)
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import PaneShare, PaneStore, window_of
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import Answered, StableWindow, Transaction
from slackwater.protocols.dpc.soutput.config import Commit

NAN: Final = math.nan
SECOND_US: Final = 1_000_000
BUCKET_US: Final = 250_000
FILE: Final = """\
apiVersion: slackwater/v1
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x, y], expect_every: 1s}
  b: {key: {column: k}, time: {column: t, unit: s}, fields: [x], expect_every: 1s}
queries:
  q:
    from: [a, b]
    window: {size: 1s}
    aggregate: [count, min, first, last, distinct, quantiles: [0.5, 0.99], top: 2]
    bound: 2s
    children: 2
"""
DEPLOYMENT: Final = parse_deployment(FILE, "f.yaml").deployment
QUERY: Final = DEPLOYMENT.queries["q"]
SensorReading = tuple[int, str, float, float]
"""Time, key, x, y."""


def readings_of(seed: int, fields: int) -> list[SensorReading]:
    """Return readings of one second in the order of a file; many have equal times."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 40, 300)) * 25_000
    rows = []
    for stime, key in zip(times.tolist(), rng.integers(0, 4, 300).tolist(), strict=True):
        x = NAN if rng.random() < 0.2 else round(float(rng.normal(20, 5)), 1)
        rows.append((stime, f"k{key}", x, 1e10 * x if fields == 2 else NAN))
    return rows


def columns_of(rows: Sequence[SensorReading], fields: tuple[str, ...]) -> SourceColumns:
    keys = sorted({row[1] for row in rows})
    return SourceColumns(
        np.array([row[0] for row in rows], np.int64),
        np.array([keys.index(row[1]) for row in rows], np.int32), keys, fields,
        tuple(np.array([row[2 + i] for row in rows]) for i in range(len(fields))),
    )  # fmt: skip


def delta_of(record: OrderedRecord) -> DeltaRecord:
    """Return the delta of an ordered record, as the aggregator makes it."""
    ends = record.offsets.astype(int)
    figures = np.zeros((5, len(record.fields), len(record.keys)))
    for f, column in enumerate(record.values):
        for i in range(len(record.keys)):
            there = column[ends[i] : ends[i + 1]]
            there = there[~np.isnan(there)]
            figures[:, f, i] = len(there), there.sum(), 0.0, NAN, NAN
            if len(there):
                figures[3:, f, i] = there.min(), there.max()
    return DeltaRecord(
        record.kind, record.child, 0, 0, record.bucket_start, record.bucket_end, 0, record.piece,
        record.pieces, keys=record.keys, fields=record.fields, count=figures[0], sum=figures[1],
        m2=figures[2], min=figures[3], max=figures[4], states=record.states,
    )  # fmt: skip


def answer(rows: dict[str, list[SensorReading]], piece_bytes: int = 8 << 20) -> list[bytes]:
    """Return the rows of the window [0, 1 s), on the way of its ordered records and deltas."""
    table = KeyTable()
    contents = contents_of_windows(QUERY, ("x", "y"))["contents"](table, ("x", "y"))
    stores = []
    for child in range(2):
        (name,) = planned(DEPLOYMENT, QUERY).streams_of(child)
        columns = columns_of(rows[name], DEPLOYMENT.fields_of(name))
        operators = operators_of(DEPLOYMENT, QUERY, [name])
        operators._piece_bytes_max = piece_bytes
        store: PaneStore[Any] = PaneStore(Grid(BUCKET_US, QUERY.window), contents, 0)
        for start in range(0, SECOND_US, BUCKET_US):
            pieces = operators.bucket([[(columns, 0)]], start, start + BUCKET_US)
            if not pieces:
                store.advance(start + BUCKET_US)
            for i, piece in enumerate(pieces):
                sent = encode_ordered(
                    OrderedRecord(
                        Kind.INSERTION, child, 0, 0, start, start + BUCKET_US, i, len(pieces),
                        keys=piece.keys, offsets=piece.offsets, fields=piece.fields,
                        values=piece.values, states=piece.states,
                    )
                )  # fmt: skip
                delta = encode_delta(delta_of(decode_ordered(sent)))
                at, last = Position(start, i), i == len(pieces) - 1
                store.add(at, start + BUCKET_US, contents.of(decode_delta(delta)), last=last)
        stores.append(store)
    share_ = window_of([store.window(0, SECOND_US) for store in stores], contents)
    count = len(share_.slice)
    window: StableWindow[PaneShare[Any]] = StableWindow(
        0, count, 0, 0, SECOND_US, None, count, share_, ()
    )
    before = Answered(0, 0, 0, 0)
    commit = Commit(
        Transaction((window,), before, before, more=False),
        RootState("root/q.0", 0, 0, 0, 0, 0, (), ()),
        table,
    )
    writer = ResultsWriter(ResultHead("q", 0), ("x", "y"), QUERY.aggregate)
    lines = next(iter(writer.lines(commit, emitted_at=1)))[1]
    return [value for key, value in lines if key is not None]


ROWS: Final = {"a": readings_of(1, 2), "b": readings_of(2, 1)}


def expected(rows: dict[str, list[SensorReading]]) -> dict[str, Any]:
    """Return the judge's numbers by key."""
    sources = {}
    for name, of in rows.items():
        fields = DEPLOYMENT.fields_of(name)
        kept = [
            (
                stime,
                (name,),
                key,
                tuple(None if math.isnan(v) else v for v in values[: len(fields)]),
            )
            for stime, key, *values in of
        ]
        sources[name] = BatchSource(fields, kept)
    return {key: fields for (_, key), fields in compute_from(QUERY, sources).items()}


def test_the_file_names_one_aggregate_for_each_number() -> None:
    names = ("count", "min", "first", "last", "distinct", "p50", "p99", "top1", "top2")
    assert QUERY.aggregate == names
    assert type(QUERY).from_json(QUERY.to_json()) == QUERY


@pytest.mark.parametrize("piece_bytes", [8 << 20, 2_000])
def test_all_numbers_are_those_of_the_judge(piece_bytes: int) -> None:
    wanted = expected(ROWS)
    found = {row["key"]: row for row in map(json.loads, answer(ROWS, piece_bytes))}
    assert set(found) == set(wanted)
    for key, row in found.items():
        overflow = row.get("overflow", ())
        assert overflow == ["y"], "the quantiles of y are beyond what bins hold"
        assert compare(wanted[key], row["fields"], QUERY.aggregate, overflow) is None
        for name in ("first", "last", "top1", "top2"):
            assert row["fields"]["x"][name] == wanted[key]["x"].numbers[name]
        for name in QUERY.aggregate:
            # A bin is 1.6 % wide at most; distinct may be 8 % off.
            given = row["fields"]["x"]
            wrong = {"x": given | {name: 1.1 * given[name] + 3}, "y": row["fields"]["y"]}
            assert compare(wanted[key], wrong, QUERY.aggregate, overflow) is not None, name


def test_replicas_that_cut_their_records_otherwise_agree_bit_for_bit() -> None:
    assert answer(ROWS) == answer(ROWS, 2_000) == answer(ROWS, 700)


def test_of_equal_times_the_order_is_that_of_the_streams() -> None:
    rows = {
        "a": [(5, "k", 1.0, NAN), (5, "k", 2.0, NAN)],
        "b": [(5, "k", 3.0, NAN), (5, "k", 4.0, NAN)],
    }
    (row,) = map(json.loads, answer(rows))
    of = row["fields"]["x"]
    assert (of["first"], of["last"]) == (1.0, 4.0)
    assert compare(expected(rows)["k"], row["fields"], QUERY.aggregate) is None


def test_a_key_without_values_has_nulls_and_no_distinct_value() -> None:
    rows = {"a": [(5, "k", 1.0, NAN)], "b": [(5, "k", NAN, NAN)]}
    (row,) = map(json.loads, answer(rows))
    nothing = dict.fromkeys(QUERY.aggregate) | {"count": 0, "distinct": 0}
    assert row["fields"]["y"] == nothing
    assert (row["fields"]["x"]["top1"], row["fields"]["x"]["top2"]) == (1.0, None)


def test_queries_share_children_only_with_the_same_states() -> None:
    text = FILE + FILE.split("queries:\n")[1].replace("  q:", "  r:").replace("top: 2", "top: 3")
    text += FILE.split("queries:\n")[1].replace("  q:", "  s:").replace("min, ", "max, ")
    shared = share(parse_deployment(text, "f.yaml").deployment)
    of = {name: query.child_query for name, query in shared.queries.items()}
    assert of == {"q": "q", "r": "r", "s": "q"}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("quantiles: [0.5, 1]", "must be between 0 and 1, as 0.99, not '1'"),
        ("quantiles: [0.0]", "must be between 0 and 1, as 0.99, not '0.0'"),
        ("quantiles: 0.5", "must be a list of 1 to 20 numbers"),
        ("quantiles: [.nan]", "must be between 0 and 1, as 0.99, not '.nan'"),
        ("quantiles: [0.1234567]", "at most 6 decimals, not '0.1234567'"),
        ("quantiles: [0.5, 0.50]", "lists an aggregate twice"),
        ("quantiles: [true]", "must be between 0 and 1, as 0.99, not 'true'"),
        ("top: 0", "must be a whole number from 1 to 100, not '0'"),
        ("top: 2.5", "must be a whole number from 1 to 100, not '2.5'"),
        ("median: 3", "must be 'count'"),
        ("top", "must be 'count', .* quantiles: .* or top: 3, not 'top'"),
        ("p50", "must be 'count', .* not 'p50'"),
    ],
)
def test_a_wrong_parameter_is_an_error_with_its_line(given: str, error: str) -> None:
    text = FILE.replace("quantiles: [0.5, 0.99], top: 2", given)
    with pytest.raises(DeploymentError, match=rf"f.yaml:9: queries.q.aggregate.*{error}"):
        parse_deployment(text, "f.yaml")


def test_top_needs_a_window() -> None:
    text = FILE.replace("    window: {size: 1s}\n", "")
    with pytest.raises(DeploymentError, match=r"f.yaml:8: queries.q.aggregate: needs a window"):
        parse_deployment(text, "f.yaml")
