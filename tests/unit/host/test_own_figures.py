"""A new aggregate is one entry in the table of aggregates, also if it brings figures of its own.

A product and a sketch go from the deployment file to the judge. Spark's part of the path is in
``tests/unit/spark/test_own_figures.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from tests.support.own_figures import BY_HAND, own_figures
from tests.unit.deployment.test_sharing import MINUTE, children, deployed

from slackwater.codec import decode_delta, encode_delta, fingerprint
from slackwater.codec.results import ResultHead
from slackwater.deployment.parse import parse_deployment
from slackwater.deployment.sharing import share
from slackwater.host.orderer import bucket_contents_key, operators_of
from slackwater.host.results import ResultsWriter
from slackwater.host.root import contents_of_windows
from slackwater.judge.batch import BatchSource, compute_from
from slackwater.judge.check import compare
from slackwater.model.deployment import WindowSpec
from slackwater.model.errors import DeploymentError
from slackwater.model.records import DeltaRecord, Kind, Position, RootState, SourceColumns
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import PaneShare, PaneStore, window_of
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import Answered, StableWindow, Transaction
from slackwater.protocols.dpc.soutput.config import Commit

NAN: Final = math.nan
WINDOW_US: Final = 30
NAMES: Final = ("count", "product", "median", "avg", "min")
QUERY: Final = replace(
    MINUTE, sources=("a",), window=WindowSpec(WINDOW_US, WINDOW_US), aggregate=NAMES
)
FILE: Final = """\
apiVersion: slackwater/v1
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x], expect_every: 1s}
queries:
  q: {from: [a], window: {size: 1s}, aggregate: [count, product, median], bound: 2s}
"""
CHILDREN: Final[list[dict[int, dict[str, list[float]]]]] = [
    {0: {"k": [2.0, 30.0], "m": [11.0]}, 10: {"k": [NAN, 0.5]}, 20: {"z": [NAN], "m": [7.0, 24.0]}},
    {0: {"k": [38.0]}, 10: {}, 20: {"m": [0.25]}},
]
"""Of each child: bucket start -> key -> readings; the buckets are of 10 us."""


__all__ = ["own_figures"]
with_entries = pytest.mark.usefixtures("own_figures")


PRODUCT_AT: Final = -1
"""The figures of aggregates are in the order of their names: the bins, then the product."""


def delta_of(readings: dict[str, list[float]], child: int, start: int) -> DeltaRecord:
    """Return the delta of a bucket, as the aggregator computes it from these readings."""

    def column(figure: Any, nothing: float) -> Any:
        there = ([v for v in of if not math.isnan(v)] for of in readings.values())
        return np.array([[figure(values) if values else nothing for values in there]])

    return DeltaRecord(
        Kind.INSERTION, child, 0, 0, start, start + 10, start, keys=tuple(readings),
        fields=("x",), count=column(len, 0.0), sum=column(sum, 0.0),
        m2=column(lambda values: 0.0, 0.0), min=column(min, NAN), max=column(max, NAN),
        others={name: column(of, 1.0 * (name == "product")) for name, of in BY_HAND.items()},
    )  # fmt: skip


def answer(children: Sequence[dict[int, dict[str, list[float]]]]) -> dict[str, Any]:
    """Return the row of each key of the window [0, 30), on the way of its deltas."""
    table = KeyTable()
    contents = contents_of_windows(QUERY, ("x",))["contents"](table, ("x",))
    stores = [PaneStore(Grid(10, QUERY.window), contents, 0) for _ in children]
    for number, (store, buckets) in enumerate(zip(stores, children, strict=True)):
        for start, readings in buckets.items():
            sent = encode_delta(delta_of(readings, number, start))
            store.add(Position(start), start + 10, contents.of(decode_delta(sent)))
    share_ = window_of([store.window(0, WINDOW_US) for store in stores], contents)
    rows = len(share_.slice)
    window: StableWindow[PaneShare[Any]] = StableWindow(
        0, rows, 0, 0, WINDOW_US, None, rows, share_, ()
    )
    writer = ResultsWriter(ResultHead("q", 0), ("x",), QUERY.aggregate)
    before = Answered(0, 0, 0, 0)
    state = RootState("root/q.0", 0, 0, 0, 0, 0, (), ())
    commit = Commit(Transaction((window,), before, before, more=False), state, table)
    lines = writer.lines(commit, emitted_at=1)
    values = [json.loads(value) for key, value in next(iter(lines))[1] if key is not None]
    return {row["key"]: row["fields"]["x"] for row in values}


@with_entries
def test_an_aggregate_is_one_entry_from_the_file_to_the_judge() -> None:
    parsed = parse_deployment(FILE, "f.yaml").deployment
    assert parsed.queries["q"].aggregate == ("count", "product", "median")
    found = answer(CHILDREN)
    assert {key: (of["product"], of["median"]) for key, of in found.items()} == {
        "k": (1140.0, 5.0), "m": (462.0, 5.0), "z": (None, None),
    }  # fmt: skip
    rows = [
        (start, ("a",), key, (None if math.isnan(value) else value,))
        for buckets in CHILDREN
        for start, keys in buckets.items()
        for key, values in keys.items()
        for value in values
    ]
    expected = compute_from(QUERY, {"a": BatchSource(("x",), rows)})
    assert {key for _, key in expected} == set(found)
    for (_, key), fields in expected.items():
        assert compare(fields, {"x": found[key]}, NAMES) is None
        for name in ("product", "median"):
            assert compare(fields, {"x": found[key] | {name: 7.5}}, NAMES) is not None


def test_without_the_entry_the_file_is_refused() -> None:
    with pytest.raises(DeploymentError, match=r"aggregate\[1\]: must be .* not 'product'"):
        parse_deployment(FILE, "f.yaml")


@with_entries
def test_a_product_beyond_doubles_is_null_and_named() -> None:
    huge = [{start: {"k": [1e150]} for start in (0, 10, 20)}]
    found = answer(huge)
    assert found["k"]["product"] is None
    rows = [(start, ("a",), "k", (1e150,)) for start in (0, 10, 20)]
    (fields,) = compute_from(QUERY, {"a": BatchSource(("x",), rows)}).values()
    names = ("count", "product", "avg")
    given = {name: found["k"][name] for name in names}
    assert compare(fields, {"x": given}, names, ["x"]) is None


@with_entries
def test_a_delta_without_the_figure_has_nothing_of_it() -> None:
    """Queries share deltas only with such that have the same figures; this is a safeguard."""
    contents = contents_of_windows(QUERY, ("x",))["contents"](KeyTable(), ("x",))
    lacking = replace(delta_of({"k": [5.0]}, 0, 0), others={})
    folding = contents.folding()
    for record in (lacking, delta_of({"k": [3.0]}, 0, 10)):
        folding.add(contents.of(record))
    assert folding.result().figures[PRODUCT_AT].tolist() == [[3.0]]


@with_entries
def test_keys_that_come_and_go_have_the_product_of_their_readings() -> None:
    """The fold over other key lists, which grows, and the one over the same keys agree."""
    rng = np.random.default_rng(3)
    parts = [
        {f"k{i}": [float(rng.integers(-3, 4))] for i in rng.choice(30, 12, replace=False)}
        for _ in range(12)
    ]
    table = KeyTable()
    contents = contents_of_windows(QUERY, ("x",))["contents"](table, ("x",))
    folding = contents.folding()
    for readings in parts:
        folding.add(contents.of(delta_of(readings, 0, 0)))
    names, figures = folding.result().sorted(table)
    wanted = {k: math.prod(of[k][0] for of in parts if k in of) for k in names}
    assert dict(zip(names, figures[PRODUCT_AT, 0].tolist(), strict=True)) == wanted


@with_entries
def test_only_deltas_with_figures_of_their_own_have_another_schema() -> None:
    wide = delta_of({"k": [5.0]}, 0, 0)
    plain = replace(wide, others={})
    assert encode_delta(wide)[2:10] == fingerprint("wide_delta")
    assert encode_delta(plain)[2:10] == fingerprint("delta")
    assert decode_delta(encode_delta(plain)).others == {}


@with_entries
def test_an_orderer_leaves_room_for_the_figure() -> None:
    """A piece is cut where its delta would be too large, also one with a further figure."""
    deployment, columns = deployed(MINUTE), SourceColumns(
        np.zeros(100, np.int64), np.arange(100, dtype=np.int32), [f"{i:03}" for i in range(100)],
        ("x",), (np.ones(100),),
    )  # fmt: skip
    keys = []
    for aggregate in (("count",), ("count", "product")):
        spec = replace(MINUTE, aggregate=aggregate)
        operators = operators_of(deployment, spec, ["s1"])
        operators._input_fields = ("x",)
        # 50 keys of 40 bytes with five figures of 8 bytes.
        operators._delta_bytes_max = 50 * 80
        keys.append([len(p.keys) for p in operators.bucket([[(columns, 0)]], 0, 10)])
    assert keys == [[50, 50], [45, 45, 10]]


@with_entries
def test_queries_share_children_only_with_the_same_figures() -> None:
    one = replace(MINUTE, name="one", aggregate=("product",))
    two = replace(MINUTE, name="two", aggregate=("count", "product"))
    of = children(share(deployed(MINUTE, one, two, replace(MINUTE, name="max"))))
    assert of == {"minute": "minute", "max": "minute", "one": "one", "two": "one"}
    deployment = deployed(MINUTE, one)
    assert bucket_contents_key(deployment, MINUTE, ()) != bucket_contents_key(deployment, one, ())
