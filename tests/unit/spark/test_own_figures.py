"""Spark's part of a new aggregate that is one entry in the table, and the audit's.

The rest of the path is in ``tests/unit/host/test_own_figures.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pyspark.sql import SparkSession
from tests.support.own_figures import BINS, own_figures
from tests.unit.spark.test_transforms import COMPLETE, SPLIT, record, source

from slackwater.codec import decode_delta, encode_delta, encode_ordered, fingerprint
from slackwater.judge.batch import exact_aggregates
from slackwater.primitives.aggregates import AGGREGATES, others_of
from slackwater_spark.audit.query import figures_column
from slackwater_spark.transforms import Route, deltas

NAMES = ("count", "product", "median")
NAN = math.nan


__all__ = ["own_figures"]
pytestmark = pytest.mark.usefixtures("own_figures")


def made(spark: SparkSession, routes: Sequence[Route], topic: str) -> list[bytes]:
    """Return the deltas of a record, and of one that does not decode."""
    value = encode_ordered(record([2.0, 30.0, 11.0], [NAN, 7.0], [NAN], [], [-0.5]))
    rows = deltas(source(spark, [value, b"?"], topic=topic), routes).collect()
    return [bytes(row.value) for row in rows]


def test_the_figure_is_in_the_deltas_of_its_queries_only(spark: SparkSession) -> None:
    with_product = replace(SPLIT, others=others_of(NAMES))
    without = replace(COMPLETE, ordered_topic="other")
    products: dict[str, float] = {}
    bins: dict[str, list[float]] = {}
    for value in made(spark, [with_product, without], "o"):
        delta = decode_delta(value)
        assert value[2:10] == fingerprint("wide_delta")
        assert encode_delta(delta) == value
        products |= zip(delta.keys, delta.others["product"].ravel().tolist(), strict=True)
        counts = np.stack([delta.others[name].ravel() for name in BINS], axis=1)
        bins |= zip(delta.keys, counts.tolist(), strict=True)
    assert products == {"k0": 660.0, "k1": 7.0, "k2": 1.0, "k3": 1.0, "k4": -0.5}
    assert bins == {
        "k0": [1.0, 1.0, 0.0, 1.0], "k1": [1.0, 0.0, 0.0, 0.0],
        **dict.fromkeys(("k2", "k3", "k4"), [0.0] * 4),
    }  # fmt: skip
    alone = made(spark, [without], "other")
    assert made(spark, [with_product, without], "other") == alone
    assert {value[2:10] for value in alone} == {fingerprint("delta")}


def test_the_audit_computes_it(spark: SparkSession) -> None:
    rows = spark.sql(
        "select * from values (1, 2D), (1, 3D), (1, null), (1, 31D), (2, 14D) as t(k, c0)"
    )
    found = rows.groupBy("k").agg(figures_column("c0", NAMES).alias("f")).collect()
    assert {row.k: (row.f["count"], row.f["product"], row.f["median"]) for row in found} == {
        1: (3.0, 186.0, 5.0),
        2: (1.0, 14.0, 15.0),
    }


@pytest.mark.parametrize("name", [*AGGREGATES, "product", "p50", "p975", "top2"])
def test_the_audit_and_the_batch_computation_agree(spark: SparkSession, name: str) -> None:
    values = np.random.default_rng(1).normal(20.0, 5.0, 40).tolist()
    text = ", ".join(f"({value!r}D, {at})" for at, value in enumerate(values))
    rows = spark.sql(f"select * from values (null, -1), {text} as t(c0, order_)")
    (row,) = rows.agg(figures_column("c0", (name,)).alias("f")).collect()
    exact = exact_aggregates([((), value) for value in values], 0.0, (name,))
    assert row.f[name] == pytest.approx(exact.numbers[name], rel=1e-12)
