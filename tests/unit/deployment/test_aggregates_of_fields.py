"""``aggregate`` by field: the file, the rows, what a reader of the query sees, and the judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slackwater.cli.statements.shown import described
from slackwater.deployment.parse import parse_deployment
from slackwater.deployment.sharing import share
from slackwater.judge.batch import BatchSource, compute_from, windows_source
from slackwater.judge.check import compare
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import DeploymentError
from slackwater.model.row_fields import shown_of

FILE = """\
apiVersion: slackwater/v1
streams:
  s: {key: {column: k}, time: {column: t, unit: s}, fields: [x, y, z], disorder: 200ms}
queries:
  some:
    from: [s]
    window: {size: 1s}
    aggregate: {y: [max, avg], x: [count, quantiles: [0.5]]}
    bound: 2s
  reader: {from: [some], window: {size: 2s}, aggregate: [sum], bound: 4s}
"""
AT = 1_000_000


def parsed(text: str = FILE) -> Deployment:
    return parse_deployment(text, "f.yaml").deployment


def test_each_field_has_its_aggregates_in_the_order_of_the_file() -> None:
    some = parsed().queries["some"]
    assert some.of_fields == (("y", ("max", "avg")), ("x", ("count", "p50")))
    assert some.aggregate == ("max", "avg", "count", "p50"), "what the children compute for"
    assert parsed().output_fields("some") == ("x", "y", "z")


def test_a_list_is_for_all_fields() -> None:
    reader = parsed().queries["reader"]
    assert reader.of_fields == ()
    assert shown_of(("a", "b"), reader.aggregate) == (("a", ("sum",)), ("b", ("sum",)))


def test_a_reader_has_a_column_for_each_number() -> None:
    assert parsed().fields_of("some") == ("y_max", "y_avg", "x_count", "x_p50")
    assert parsed().input_fields("reader") == ("y_max", "y_avg", "x_count", "x_p50")


def test_a_definition_is_read_as_written_and_an_earlier_one_has_none() -> None:
    for query in parsed().queries.values():
        assert QuerySpec.from_json(query.to_json()) == query
    assert "of_fields" not in parsed().queries["reader"].to_json()


def test_queries_that_differ_in_their_rows_only_share_children() -> None:
    text = FILE.replace("x: [count, quantiles: [0.5]]", "x: [count]")
    beside = "  beside: {from: [s], window: {size: 3s}, aggregate: [min], bound: 2s}\n"
    queries = share(parsed(text + beside)).queries
    assert {queries[name].child_query for name in ("some", "beside")} == {"some"}
    assert {*queries["some"].child_aggregates} == {"max", "avg", "count", "min"}
    assert queries["some"].of_fields == (("y", ("max", "avg")), ("x", ("count",)))


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ("{w: [max]}", "aggregate.w: there is no field 'w': there are x, y, z"),
        ("{xx: [max]}", "aggregate.xx: there is no field 'xx'; did you mean 'x'?"),
        ("{x: [maximum]}", "aggregate.x[0]: must be 'count'"),
        ("{x: max}", "aggregate.x: must be a list, [a, b]"),
        ("{x: [max, max]}", "aggregate.x: lists an aggregate twice"),
        ("{x: [max], y: []}", "aggregate.y: must not be empty"),
        ("{}", "aggregate: "),
        ("[max, maximum]", "aggregate[1]: must be 'count'"),
        ("{quantiles: [0.5]}", "aggregate.quantiles"),
        ("{top: 3}", "aggregate.top"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(written: str, reported: str) -> None:
    text = FILE.replace("{y: [max, avg], x: [count, quantiles: [0.5]]}", written)
    with pytest.raises(DeploymentError) as caught:
        parsed(text)
    assert f"f.yaml:8: queries.some.{reported}" in str(caught.value)


def test_the_judge_computes_and_demands_exactly_these() -> None:
    some = parsed().queries["some"]
    rows = [(AT, ("s",), "k", (1.0, 5.0, 9.0)), (AT + 1, ("s",), "k", (2.0, 6.0, 9.0))]
    result = compute_from(some, {"s": BatchSource(("x", "y", "z"), rows)})
    ((cell, exact),) = result.items()
    assert cell == (AT, "k")
    assert {name: dict(of.numbers) for name, of in exact.items()} == {
        "y": {"max": 6.0, "avg": 5.5},
        "x": {"count": 2, "p50": 1.0},
    }
    row = {"y": {"max": 6.0, "avg": 5.5}, "x": {"count": 2, "p50": 1.0}}
    assert compare(exact, row, some.aggregate) is None
    for wrong in (
        row | {"z": {"max": 9.0}},
        row | {"y": {"max": 6.0}},
        row | {"y": {"max": 6.0, "avg": 5.5, "count": 2}},
    ):
        assert compare(exact, wrong, some.aggregate) is not None
    read = windows_source(some, result, ("x", "y", "z"))
    assert read.fields == ("y_max", "y_avg", "x_count", "x_p50")
    assert [values for *_, values in read.rows] == [(6.0, 5.5, 2, 1.0)]
    of_all = replace(some, of_fields=())
    assert (
        windows_source(of_all, compute_from(of_all, {"s": BatchSource(("x",), [])}), ()).rows == []
    )


def test_statements_describe_the_columns_that_rows_have() -> None:
    rows = [*described(parsed(), "some")]
    assert [name for name, _, _ in rows[3:]] == [*parsed().fields_of("some")]
    assert ("x_count", "BIGINT", "count of x") in rows
