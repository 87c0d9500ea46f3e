"""What a change of a query must leave as it is for the queries that read its results (trace-43)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.control.test_admission import parsed
from tests.unit.control.test_recorded import names, recorded

from slackwater.control.admission import RunningQueries, why_refused, why_refused_on_nodes
from slackwater.control.applied import AppliedQuery, to_text
from slackwater.control.control_object import ApplyQuery, DeleteQuery, PauseQuery
from slackwater.control.control_state import ControlState, join
from slackwater.control.generations import as_generation
from slackwater.control.readers import in_circles, readers_through, serves, why_not_read_on
from slackwater.control.recorded import applied_queries, deployment_of, not_applied
from slackwater.model.deployment import Deployment
from slackwater.model.names import ROOT

STREAMS = """\
apiVersion: slackwater/v1
streams:
  a: {key: {value: k}, time: {column: t, unit: s}, fields: [x], expect_every: 1s}
  b: {key: {value: k}, time: {column: t, unit: s}, fields: [x, y], expect_every: 1s}
  slow: {key: {value: k}, time: {column: t, unit: s}, fields: [x], expect_every: 9s}
  learns:
    topic: {name: t, format: json}
    key: {value: k}
    time: {field: t, unit: s}
    fields: [x]
    expect_every: auto
queries:
"""
Q = "  q: {from: [a, b], select: {x: x}, window: {size: 1s}, aggregate: [avg], bound: 4s}\n"
ALL = "  all: {from: [q], window: {size: 1m}, aggregate: [max], bound: 5s}\n"
SOME = "  some: {from: [q], select: {z: x_avg}, window: {size: 1m}, aggregate: [max], bound: 5s}\n"
TOP = "  top: {from: [some], window: {size: 1h}, aggregate: [max], bound: 6s}\n"


def of(*queries: str) -> Deployment:
    return parsed(*queries, streams=STREAMS)


def applied(name: str, *queries: str) -> ApplyQuery:
    return ApplyQuery(name, to_text(AppliedQuery(name, of(*queries))))


def change(query: str, state: ControlState, *queries: str) -> ApplyQuery:
    deployment, name = as_generation(of(*queries), query, state)
    return ApplyQuery(name, to_text(AppliedQuery(name, deployment)))


def running(*queries: str) -> ControlState:
    """A record with all queries of a file."""
    return recorded(*(applied(query.name, *queries) for query in of(*queries).in_order()))


def refusal(state: ControlState, changed: str) -> str:
    return why_refused_on_nodes(change("q", state, changed), state)


CHAIN = running(Q, SOME, TOP)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("[a, b]", "[a]"),
        ("bound: 4s", "bound: 9s"),
        ("bound: 4s", "bound: 300ms"),
        ("[avg]", "[max, avg]"),
        ("{x: x}", "{y: y, x: x * 2}"),
        ("{x: x},", "{x: x}, where: x > 0,"),
        ("bound: 4s", "bound: 4s, margin: 2s"),
    ],
)
def test_a_query_that_is_read_can_be_changed(was: str, becomes: str) -> None:
    assert refusal(CHAIN, Q.replace(was, becomes)) == ""


@pytest.mark.parametrize(
    ("readers", "was", "becomes", "reason"),
    [
        (
            (SOME, TOP),
            *("[avg]", "[max]"),
            "query q is read by some, which needs x_avg: keep this in the results",
        ),
        (
            (SOME, ALL),
            *("x: x", "y: y"),
            "query q is read by all, some, which needs x_avg: keep this in the results",
        ),
        (
            (ALL,),
            *("[avg]", "[avg, max]"),
            "query q is read by all, which has no `select`, so its fields would have x_max too",
        ),
        (
            (SOME,),
            *("[a, b]", "[a, slow]"),
            "query q is read by some, whose lateness would change from 1s to 9s",
        ),
        (
            (SOME,),
            *("margin: 50ms", "margin: 3s"),
            "leaves 4900ms for the answers of q, and its 2 stages with a margin of 3s need 6s",
        ),
        (
            (SOME, TOP),
            *("[a, b]", "[a, top]"),
            "query q would read query top, which reads q",
        ),
    ],
)  # fmt: skip
def test_what_the_readers_need_is_named(
    readers: tuple[str, ...], was: str, becomes: str, reason: str
) -> None:
    q = Q.replace("bound: 4s", "bound: 9s, margin: 50ms")
    state, changed = running(q, *readers), q.replace(was, becomes)
    assert changed != q
    # A file with a circle is refused by itself; the readers of this client's file are others.
    others = [TOP.replace("[some]", "[a]")] if "top" in becomes else []
    operation = change("q", state, changed, *others)
    assert reason in why_refused_on_nodes(operation, state)


def test_a_change_of_the_order_of_columns_changes_a_reader_without_a_select() -> None:
    q = Q.replace("[avg]", "[avg, max]")
    state = running(q, ALL)
    assert "its fields would have another order" in refusal(state, Q.replace("[avg]", "[max, avg]"))


def test_lateness_is_that_of_all_readers_also_through_others() -> None:
    """The lateness of ``top`` is that of its own slow stream, before and after."""
    top = TOP.replace("[some]", "[some, slow]").replace("TOP", "top")
    changed = Q.replace("[a, b]", "[a, slow]")
    before, (added, name) = of(Q, SOME, top), as_generation(of(changed), "q", ControlState())
    assert [each.name for each in readers_through("q", before)] == ["some", "top"]
    reasons = list(why_not_read_on(added.queries[name], added, before))
    assert [reason.partition(" would")[0] for reason in reasons] == [
        "query q is read by some, whose lateness"
    ]
    direct = of(Q, SOME.replace("[q]", "[q, slow]"))
    assert not list(why_not_read_on(added.queries[name], added, direct))


def test_a_learning_stream_is_neither_added_nor_removed() -> None:
    """Its steps change the lateness while it is learned, whatever the initial value is."""
    slow = SOME.replace("[q]", "[q, slow]")
    state = running(Q, slow)
    reason = refusal(state, Q.replace("[a, b]", "[a, learns]"))
    assert "whose lateness would change with that of learns, which is learned" in reason


def test_a_change_over_a_query_that_reads_it_has_no_circle() -> None:
    queries = of(Q, SOME, TOP).queries.values()
    assert in_circles(queries) == set()
    q, some, top = queries
    later = replace(q, name="q.g1", sources=("top",))
    assert in_circles([q, later, some, top]) == {"q.g1", "some", "top"}
    assert in_circles([later, some, replace(top, sources=("a",))]) == set()


def test_readers_go_on_with_the_generation_that_answers() -> None:
    """In the record a reader has the definition of before, with which it was applied."""
    changed = Q.replace("[a, b]", "[a]").replace("[avg]", "[max, avg]")
    both = recorded(*_operations(Q, SOME, TOP), change("q", CHAIN, changed))
    assert not not_applied(both)
    assert names(CHAIN) <= names(both)
    after = recorded(*_operations(Q, SOME, TOP), change("q", CHAIN, changed), DeleteQuery("q"))
    assert not not_applied(after)
    assert {"root/q.g1.0", "root/some.0", "root/top.0"} <= names(after)
    deployment = deployment_of(applied_queries(after))
    assert deployment.queries_of("some") == ("q.g1",)
    assert deployment.deadline_us("q.g1", ROOT) == of(Q, SOME, TOP).deadline_us("q", ROOT)
    assert deployment.source_streams("top") == ("a",)
    assert deployment.fields_of("q") == ("x_max", "x_avg")
    # A query that is applied now reads the changed one, with its present definition.
    new = SOME.replace("some", "new").replace("x_avg", "x_max")
    assert why_refused_on_nodes(applied("new", changed, new), after) == ""
    assert "reads query q, which runs with another definition" in why_refused_on_nodes(
        applied("new", Q, new.replace("x_max", "x_avg")), after
    )
    assert "reads query q, which is being changed: wait" in why_refused_on_nodes(
        applied("new", changed, new), both
    )
    # A further change has the same readers.
    assert "which needs x_max" in why_refused_on_nodes(
        change("q", after, Q.replace("[a, b]", "[a]")), after
    )


def test_a_client_s_file_need_not_have_the_readers() -> None:
    """The deadlines in effect are those with the readers, and no other query is blamed for them."""
    state = running(Q, SOME.replace("5s", "1s").replace("4s", "1s"))
    changed = change("q", state, Q.replace("[a, b]", "[a]"))
    both = recorded(*_operations(Q, SOME.replace("5s", "1s")), changed)
    new = SOME.replace("some", "new").replace("[q]", "[a]").replace("x_avg", "x")
    assert why_refused_on_nodes(applied("new", new), both) == ""


def _operations(*queries: str) -> list[ApplyQuery]:
    return [applied(query.name, *queries) for query in of(*queries).in_order()]


def test_the_replaced_generation_is_deleted_though_the_query_is_read() -> None:
    changed = change("q", CHAIN, Q.replace("[a, b]", "[a]"))
    both = recorded(*_operations(Q, SOME, TOP), changed)
    assert why_refused_on_nodes(DeleteQuery("q"), both) == ""
    assert why_refused_on_nodes(DeleteQuery("q.g1"), both) == "", "cancelled"
    after = recorded(*_operations(Q, SOME, TOP), changed, DeleteQuery("q"))
    assert why_refused_on_nodes(DeleteQuery("q.g1"), after) == (
        "query q.g1 is read by some: delete that first"
    )
    assert "is paused" in why_refused_on_nodes(
        change("q", CHAIN, Q.replace("[a, b]", "[a]")),
        recorded(*_operations(Q, SOME, TOP), PauseQuery("q")),
    )


def test_a_reader_waits_if_a_split_has_left_it_without_what_it_needs() -> None:
    """One half changes q, which has no reader there; the other applies a reader of q."""
    first = [applied("q", Q)]
    alone = recorded(*first)
    half = recorded(*first, change("q", alone, Q.replace("[avg]", "[max]")), DeleteQuery("q"))
    other = recorded(*first, applied("some", Q, SOME))
    assert set(not_applied(join(half, other))) == {"some"}
    wider = recorded(*first, change("q", alone, Q.replace("[avg]", "[max, avg]")), DeleteQuery("q"))
    assert not not_applied(join(wider, other))
    assert not serves(of(Q), as_generation(of(Q.replace("1s}", "2s}")), "q", alone)[0], "q")


def test_a_circle_that_a_split_has_made_is_cut() -> None:
    """Each half makes one of two queries read the other one."""
    r = "  r: {from: [a], select: {x: x}, window: {size: 1s}, aggregate: [avg], bound: 4s}\n"
    first = [applied("q", Q), applied("r", r)]
    both = recorded(*first)
    q_reads_r = Q.replace("[a, b]", "[a, r]").replace("x: x", "x: x_avg")
    r_reads_q = r.replace("[a]", "[a, q]").replace("x: x", "x: x_avg")
    one = recorded(*first, change("q", both, q_reads_r, r), DeleteQuery("q"))
    other = recorded(*first, change("r", both, Q, r_reads_q), DeleteQuery("r"))
    assert not not_applied(one)
    assert not not_applied(other)
    reasons = not_applied(join(one, other))
    assert reasons["r.g1"] == "it reads a query that reads it"
    assert reasons["q.g1"].startswith("a query that it reads is not there")


def test_a_deleted_query_is_continued_as_its_next_generation() -> None:
    gone = recorded(applied("q", Q), DeleteQuery("q"))
    again = change("q", gone, Q.replace("avg", "min"))
    assert again.query == "q.g1"
    assert why_refused_on_nodes(again, gone) == ""
    assert {"root/q.g1.0", "orderer/q.g1.0.a"} <= names(
        recorded(applied("q", Q), DeleteQuery("q"), again)
    ), "nothing answers before it, so its roots start at once"
    assert "its next generation can continue them" in why_refused_on_nodes(applied("q", Q), gone)


@pytest.mark.parametrize(
    ("was", "becomes", "what"),
    [("1s}", "2s}", "window"), ("bound", "parts: 2, bound", "number of parts")],
)
def test_the_results_of_a_deleted_query_keep_their_form(was: str, becomes: str, what: str) -> None:
    """On one machine the registry has the deleted definition; nodes compare at registration."""
    here = of(Q)
    rest = replace(here, queries={})
    known = RunningQueries(rest, {}, {"q": here.queries["q"], "q.g4": None})
    changed, _ = as_generation(of(Q.replace(was, becomes)), "q", ControlState(generation_unused=2))
    operation = ApplyQuery("q.g2", to_text(AppliedQuery("q.g2", changed)))
    assert f"the {what} of a query cannot be changed" in why_refused(operation, known)
    same, _ = as_generation(of(Q), "q", ControlState(generation_unused=5))
    assert why_refused(ApplyQuery("q.g5", to_text(AppliedQuery("q.g5", same))), known) == ""
    alone = RunningQueries(rest, {}, {})
    assert "there is no query q that generation 5 could continue" in why_refused(
        ApplyQuery("q.g5", to_text(AppliedQuery("q.g5", same))), alone
    )
