"""The judge of a query with ``having``: what it requires, forbids, and leaves to rounding."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.histories import Root, batch, expectations

from slackwater.deployment.parse import parse_deployment
from slackwater.judge.batch import BatchSource, compute_from, windows_source
from slackwater.judge.check import Verdict, compare
from slackwater.judge.check_having import HavingChecker
from slackwater.judge.having import HavingJudge, spread_of

SHOWN = (("x", ("count", "sum", "avg", "min", "max", "distinct", "p99")),)
CELLS = batch(
    {
        (second, key): {"room-1": 2, "room-2": n}
        for second in range(1_000, 1_010)
        for key, n in (("a", 3), ("b", 1), ("c", 0))
    }
)
"""Readings of the value 2: five of a, three of b, two of c, in each window."""
KEPT = {cell: of for cell, of in CELLS.items() if cell[1] != "c"}
HAVING = HavingJudge("x_count >= 3", (("x", ("count", "sum", "min", "max")),))


def spread(name: str, number: float | None, **values: float) -> tuple[float | None, ...]:
    return spread_of(name, number, **({"count": 10, "scale": 20.0, "deviation": 1.0} | values))


@pytest.mark.parametrize(
    ("text", "name", "number", "verdict"),
    [
        ("x_count >= 3", "count", 3, True),
        ("x_count > 3", "count", 3, False),
        ("x_avg > 20", "avg", 20.000001, True),
        ("x_avg > 20", "avg", 20.0, None),  # its last bits depend on the order of additions
        ("x_avg > 20", "avg", 19.999999999999, None),
        ("x_avg >= 20", "avg", 19.99999, False),
        ("x_avg IS NULL", "avg", None, True),
        ("x_max > 20", "max", 20.1, True),
        ("x_distinct > 100", "distinct", 100, None),  # an estimate
        ("x_distinct > 100", "distinct", 150, True),
        ("x_p99 > 100", "p99", 100.5, None),
        ("x_p99 > 100", "p99", 102.0, True),
        ("x_sum < 1", "sum", 1.0, None),
    ],
)
def test_what_rounding_decides_is_not_judged(
    text: str, name: str, number: float | None, verdict: bool | None
) -> None:
    having = HavingJudge(text, SHOWN)
    assert having.figures == (("x", name),)
    assert having.verdicts([("k", [spread(name, number)])]) == [verdict]


def test_an_overflow_that_may_be_is_tried_as_null() -> None:
    having = HavingJudge("x_sum > 0", SHOWN)
    assert having.verdicts([("k", [spread("sum", 1e308, scale=1e308)])]) == [None]


def test_many_figures_are_tried_one_by_one() -> None:
    shown = tuple((f"f{i}", ("avg",)) for i in range(12))
    having = HavingJudge(" AND ".join(f"f{i}_avg > {i}" for i in range(12)), shown)
    clear = [spread("avg", i + 1.0) for i in range(12)]
    close = [*clear[:7], spread("avg", 7.0), *clear[8:]]
    assert having.verdicts([("a", clear), ("b", close)]) == [True, None]


@given(st.lists(st.tuples(st.text("ab", max_size=2), st.none() | st.floats(-9, 9)), max_size=9))
def test_each_row_has_its_own_verdict(rows: list[tuple[str, float | None]]) -> None:
    having = HavingJudge("x_avg > 0 OR key = 'a'", SHOWN)
    found = having.holds([(key, {"x": {"avg": number}}) for key, number in rows])
    assert found == [(number is not None and number > 0) or key == "a" for key, number in rows]


def history(cells: Any = KEPT) -> list[dict[str, Any]]:
    """Return two stable windows, two tentative ones without room-2, their corrections, the rest."""
    root = Root(expectations(), cells)
    root.stable(2)
    root.tentative(2, ["room-2"])
    root.stable(8)
    return root.records


def judge(records: list[dict[str, Any]], **changes: Any) -> Verdict:
    checker = HavingChecker(expectations(**changes), CELLS, HAVING)
    for record in records:
        checker.feed(record)
    return checker.finish()


def without(records: list[dict[str, Any]], kind: str, key: str = "") -> list[dict[str, Any]]:
    """Leave out the rows of one kind, or one of a key, as a correct root would have left it out."""
    found: list[dict[str, Any]] = []
    dropped = 0
    for record in records:
        if record["kind"] == kind and (not key or record["key"] == key):
            dropped += 1
            continue
        if record["kind"] == "boundary" and record["label"] == kind:
            found.append(record | {"keys": record["keys"] - dropped})
            dropped = 0
        else:
            found.append(record)
    return [record | {"seq": seq} for seq, record in enumerate(found)]


def test_a_history_without_the_keys_that_the_condition_drops_passes() -> None:
    """The tentative answers lack room-2: no key has three readings, so they have no rows."""
    verdict = judge(without(history(), "tentative"))
    assert verdict.findings == []
    assert verdict.rows == 20


def test_a_row_that_must_not_be_there_is_found() -> None:
    verdict = judge(without(history(CELLS), "tentative"))
    assert verdict.wrong >= 10
    assert "key 'c' does not satisfy having, and has a row" in " ".join(verdict.findings)


def test_a_row_that_must_be_there_is_found_missing() -> None:
    verdict = judge(without(without(history(), "tentative"), "stable", "b"))
    assert verdict.lost == 10


def test_a_tentative_row_must_satisfy_the_condition_by_its_own_figures() -> None:
    verdict = judge(history())
    assert "has figures that do not satisfy having" in verdict.findings[0]


def test_a_tentative_answer_that_lacks_nothing_has_all_rows() -> None:
    root = Root(expectations(), KEPT)
    root.stable(2)
    root.tentative(2, [])
    root.stable(8)
    assert judge(root.records).ok
    verdict = judge(without(root.records, "tentative", "b"))
    assert "key 'b' is absent, but no reading of it is missing" in verdict.findings[0]


def test_a_tentative_row_of_an_unknown_key_is_found() -> None:
    root = Root(expectations(), KEPT)
    root.stable(2)
    root.tentative(1, [])
    root.records[-2]["key"] = "z"
    verdict = judge(root.records)
    assert "key 'z' is tentative, and unknown" in " ".join(verdict.findings)


def test_a_query_that_reads_it_has_the_rows_alone() -> None:
    text = """\
apiVersion: slackwater/v1
streams:
  s: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
queries:
  q: {from: [s], window: {size: 1s}, aggregate: [count, max], having: x_max > 2, bound: 2s}
  r: {from: [q], window: {size: 2s}, aggregate: [sum], bound: 4s}
"""
    query = parse_deployment(text, "f.yaml").deployment.queries["q"]
    rows = [(0, ("s",), "a", (1.0,)), (1, ("s",), "b", (3.0,))]
    result = compute_from(query, {"s": BatchSource(("x",), rows)})
    assert sorted(key for _, key in result) == ["a", "b"], "the judge knows all keys"
    read = windows_source(query, result, ("x",))
    assert [(key, values) for _, _, key, values in read.rows] == [("b", (1, 3.0))]


def test_what_is_computed_from_an_estimate_may_differ_by_as_much() -> None:
    """The maximum of medians that are within a percent is within a percent."""
    text = """\
apiVersion: slackwater/v1
streams:
  s: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
queries:
  q: {from: [s], window: {size: 1s}, aggregate: [quantiles: [0.5]], bound: 2s}
  exact: {from: [s], window: {size: 1s}, aggregate: [avg], bound: 2s}
  r: {from: [q], window: {size: 2s}, aggregate: [max, count], bound: 4s}
"""
    queries = parse_deployment(text, "f.yaml").deployment.queries
    rows = [(0, ("s",), "a", (40.0,))]
    sources = {"s": BatchSource(("x",), rows)}
    read = {
        n: windows_source(queries[n], compute_from(queries[n], sources), ("x",))
        for n in ("q", "exact")
    }
    (fields,) = compute_from(queries["r"], read).values()
    for number, is_same in ((40.3, True), (41.0, False)):
        found = compare(fields, {"x_p50": {"max": number, "count": 1}}, ("max", "count"))
        assert (found is None) is is_same
    assert compare(fields, {"x_p50": {"max": 40.0, "count": 2}}, ("max", "count")) is not None
    assert read["exact"].scale == 40.0
