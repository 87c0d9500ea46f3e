"""Which operations a machine admits, and what it says against the others."""

from __future__ import annotations

import pytest

from slackwater.control.admission import RunningQueries, why_refused
from slackwater.control.applied import AppliedQuery, from_text, to_text
from slackwater.control.control_object import (
    ApplyQuery,
    DeleteQuery,
    JoinNode,
    PauseQuery,
    ResumeQuery,
)
from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import Deployment
from slackwater.model.names import ROOT

STREAMS = """\
apiVersion: slackwater/v1
streams:
  a: {key: {value: a}, time: {column: t, unit: s}, fields: [x], expect_every: 1s}
  b: {key: {value: b}, time: {column: t, unit: s}, fields: [x, y]}
queries:
"""
ONE = "  one: {from: [a, b], window: {size: 1s}, aggregate: [avg], bound: 2s}\n"
TWO = "  two: {from: [one], window: {size: 1m}, aggregate: [max], bound: 5s}\n"
THREE = "  three: {from: [b], where: y > 1, bound: 5s}\n"


def parsed(*queries: str, streams: str = STREAMS) -> Deployment:
    """Parse queries; each has one copy of its parts, unless its text has ``copies``."""
    one = (q if "copies: " in q else q.replace("bound: ", "copies: 1, bound: ") for q in queries)
    return parse_deployment(streams + "".join(one), "d.yaml").deployment


def known(*queries: str, deleted: str = "") -> RunningQueries:
    running = parsed(*queries)
    deadlines = {name: running.deadline_us(name) for name in running.queries}
    return RunningQueries(running, deadlines, dict.fromkeys({deleted} - {""}))


def refusal(name: str, of: Deployment, has: RunningQueries) -> str:
    return why_refused(ApplyQuery(name, to_text(AppliedQuery(name, of))), has)


def test_a_text_has_all_that_a_query_reads_and_nothing_else() -> None:
    complete = parsed(ONE, TWO, THREE)
    applied = from_text("two", to_text(AppliedQuery("two", complete, 7)))
    assert applied.start == 7
    assert applied.deployment == parsed(ONE, TWO)
    only_b = from_text("three", to_text(AppliedQuery("three", complete))).deployment
    assert only_b.streams == {"b": complete.streams["b"]}
    assert only_b.deadline_us("three", ROOT) == complete.deadline_us("three", ROOT)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"query": "one", "deployment": 3}', "x" * 9])
def test_another_text_is_refused(text: str) -> None:
    assert "the definition cannot be read" in why_refused(ApplyQuery("one", text), known(ONE))


def test_with_event_time_from_the_data_queries_are_admitted_too() -> None:
    data = STREAMS.replace("streams:", "clock: data\nstreams:")
    has = RunningQueries(parsed(ONE, streams=data), {}, {})
    assert refusal("three", parsed(ONE, THREE, streams=data), has) == ""


def test_a_text_that_lacks_a_stream_is_refused() -> None:
    part = parsed(ONE)
    text = to_text(AppliedQuery("one", Deployment("wall", {}, part.queries)))
    reason = why_refused(ApplyQuery("one", text), known(THREE))
    assert "does not have all that it reads" in reason


def test_new_queries_over_what_runs_are_admitted() -> None:
    assert refusal("two", parsed(ONE, TWO), known(ONE)) == ""
    assert refusal("three", parsed(ONE, THREE), known(ONE)) == ""
    assert refusal("one", parsed(ONE), known(ONE)) == "", "it runs already"


@pytest.mark.parametrize(
    ("name", "of", "has", "reason"),
    [
        ("one", parsed(ONE.replace("2s", "3s")), known(ONE), "runs with another definition"),
        ("two", parsed(ONE, TWO), known(THREE), "reads query one, which does not run"),
        (
            "two",
            parsed(ONE.replace("avg", "min"), TWO),
            known(ONE),
            "reads query one, which runs with another definition",
        ),
        ("three", parsed(ONE, THREE), known(ONE, deleted="three"), "has been deleted"),
        (
            "three",
            parsed(THREE, streams=STREAMS.replace("[x, y]", "[y]")),
            known(ONE),
            "stream b runs with another definition",
        ),
        (
            "three",
            parsed(THREE, streams=STREAMS.replace("streams:", "clock: data\nstreams:")),
            known(ONE),
            "needs clock: data, and this deployment has wall",
        ),
        (
            "three",
            parsed(THREE, streams=STREAMS.replace("streams:", "prefix: p.\nstreams:")),
            known(ONE),
            "another prefix",
        ),
        (
            "two",
            parsed(ONE, TWO.replace("5s", "1s")),
            known(ONE),
            "deadline of query one, which is registered, forward from 1900ms to 800ms",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, of: Deployment, has: RunningQueries, reason: str
) -> None:
    assert reason in refusal(name, of, has)


def test_a_query_that_is_read_is_not_deleted() -> None:
    assert why_refused(DeleteQuery("one"), known(ONE, TWO)) == (
        "query one is read by two: delete that first"
    )
    assert why_refused(DeleteQuery("two"), known(ONE, TWO)) == ""


@pytest.mark.parametrize("kind", [DeleteQuery, PauseQuery, ResumeQuery])
def test_an_unknown_query_is_named_with_those_that_there_are(kind: type[DeleteQuery]) -> None:
    assert why_refused(kind("on"), known(ONE, TWO)) == ("there is no query on; there are: one, two")


def test_one_machine_takes_no_nodes() -> None:
    assert "one machine" in why_refused(JoinNode("n", 4), known(ONE))
