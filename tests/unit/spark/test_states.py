"""The aggregator copies the states of an ordered record, for each part those of its keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pyspark.sql import SparkSession
from tests.unit.spark.test_transforms import COMPLETE, SPLIT, record, source

from slackwater.codec import decode_delta, encode_delta, encode_ordered, fingerprint
from slackwater.model.records import Kind, OrderedRecord
from slackwater.primitives.aggregates import states_of
from slackwater.primitives.states import lifted
from slackwater_spark.transforms import Route, deltas

AGGREGATES = ("first", "p50", "top2", "distinct")
STATES = states_of(AGGREGATES)
NAMES = tuple(state.name for state in STATES)
SLICES: tuple[list[float], ...] = ([2.0, 30.0, 2.0], [np.nan, 7.0], [np.nan], [], [-0.5], [8.0] * 5)


def with_states() -> OrderedRecord:
    plain = record(*SLICES)
    times = np.arange(len(plain.values[0]))
    return replace(plain, states=lifted(STATES, plain.offsets, plain.values, times))


def by_key(keys: object, states: object) -> dict[str, dict[str, list[list[float]]]]:
    """Return of each key and state the entries (id, weight)."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for name, of in states.items():  # type: ignore[attr-defined]
        ends = np.concatenate(([0], np.cumsum(of.lengths[0]))).astype(int)
        for i, key in enumerate(keys):  # type: ignore[arg-type, var-annotated]
            pair = np.stack([of.ids[0], of.weights[0]])[:, ends[i] : ends[i + 1]]
            found.setdefault(key, {})[name] = pair.tolist()
    return found


@pytest.mark.parametrize("route", [COMPLETE, SPLIT], ids=["whole", "split"])
def test_each_part_has_the_states_of_its_keys(spark: SparkSession, route: Route) -> None:
    made = with_states()
    wide = replace(route, states=NAMES)
    damaged = made.states["bins"]
    short = replace(damaged, ids=(damaged.ids[0][:-1],), weights=(damaged.weights[0][:-1],))
    values = [
        encode_ordered(made),
        encode_ordered(record([1.0])),  # of an orderer of before: there are no states
        encode_ordered(replace(made, states={"bins": short})),
    ]
    rows = deltas(source(spark, values), [wide]).collect()
    assert len(rows) == 3 * len(route.delta_topics)
    found: dict[str, dict[str, list[list[float]]]] = {}
    kinds = []
    for row in rows:
        value = bytes(row.value)
        assert value[2:10] == fingerprint("wide_delta")
        delta = decode_delta(value)
        assert encode_delta(delta) == value or not delta.states
        kinds.append(delta.kind)
        if delta.states:
            assert tuple(delta.states) == NAMES
            found |= by_key(delta.keys, delta.states)
    assert found == by_key(made.keys, made.states)
    assert kinds.count(Kind.VOID) == len(route.delta_topics)


def test_routes_without_states_have_the_deltas_of_before(spark: SparkSession) -> None:
    value = [encode_ordered(record([1.0, 2.0], [3.0]))]
    other = replace(SPLIT, ordered_topic="other", states=NAMES)
    beside = deltas(source(spark, value), [COMPLETE, other]).collect()
    alone = deltas(source(spark, value), [COMPLETE]).collect()
    assert [bytes(row.value) for row in beside] == [bytes(row.value) for row in alone]
    assert bytes(alone[0].value)[2:10] == fingerprint("delta")
