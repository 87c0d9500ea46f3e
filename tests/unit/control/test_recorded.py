"""What a record means for nodes: the fragments that are to run, and where each of them is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support import definitions
from tests.unit.control.test_admission import ONE, STREAMS, THREE, TWO, parsed

from slackwater.control import control_state
from slackwater.control.admission import why_refused_of_client, why_refused_on_nodes
from slackwater.control.applied import AppliedQuery, to_text
from slackwater.control.control_object import (
    ApplyQuery,
    ControlObject,
    DeleteQuery,
    DrainNode,
    JoinNode,
    MoveFragment,
    Operation,
    PauseQuery,
)
from slackwater.control.control_state import CHILDREN, ControlState, Wanted, drop_tombstones
from slackwater.control.placement import NodeReports, Standing, plan_moves
from slackwater.control.recorded import (
    REGISTRATION,
    applied_queries,
    assignment,
    deleted_since,
    deployment_of,
    fragment_specs,
    key_in,
    key_of,
    lacks_queries,
    not_applied,
    process_of,
)
from slackwater.deployment.sharing import share
from slackwater.model.deployment import Deployment
from slackwater.model.errors import UsageError
from slackwater.model.names import Names
from slackwater.protocols.iads.messages import Stamp

TOPICS = STREAMS.replace(
    "a: {key: {value: a}, time: {column: t",
    "a: {topic: {name: a, format: json}, key: {value: a}, time: {field: t",
)


def apply(name: str, *queries: str, streams: str = STREAMS) -> ApplyQuery:
    return ApplyQuery(name, to_text(AppliedQuery(name, parsed(*queries, streams=streams))))


def recorded(*operations: Operation, member: str = "a") -> ControlState:
    """The state of a controller after these operations, none of which is refused."""
    found = ControlObject(frozenset({"a", member}), ControlState())
    for time, operation in enumerate(operations, 1):
        assert found.apply(operation, Stamp(1, time, member)).refusal == ""
    return found.state


def names(state: ControlState) -> set[str]:
    return {process_of(spec.query, spec.fragment) for spec in fragment_specs(state)}


def test_a_query_needs_its_fragments_its_registration_and_the_proxies_of_its_streams() -> None:
    state = recorded(apply("one", ONE))
    assert names(state) == {
        *("orderer/one.0.a", "orderer/one.0.b", "root/one.0"),
        *("registration/one", "proxy/a", "proxy/b"),
    }
    groups = {spec.fragment: spec.group for spec in fragment_specs(state)}
    assert groups["orderer.0.a"] == groups["orderer.0.b"] != groups["root.0"]


def test_the_copies_of_a_part_are_a_group_as_replicas_are() -> None:
    state = recorded(apply("one", ONE.replace("bound: ", "copies: 2, parts: 2, bound: ")))
    groups = {s.fragment: s.group for s in fragment_specs(state) if s.fragment.startswith("root")}
    assert groups == {
        **dict.fromkeys(("root.0.a", "root.0.b"), "root.0"),
        **dict.fromkeys(("root.1.a", "root.1.b"), "root.1"),
    }
    assert key_of("root/one.1.b") == ("one", "root.1.b")


def test_nothing_of_a_paused_query_runs_but_its_registration_and_its_inputs() -> None:
    state = recorded(apply("one", ONE), PauseQuery("one"))
    assert names(state) == {"registration/one", "proxy/a", "proxy/b"}


def test_nothing_of_a_deleted_query_runs() -> None:
    assert names(recorded(apply("one", ONE), DeleteQuery("one"))) == set()


def test_the_registration_of_a_deleted_query_carries_out_the_deletion() -> None:
    state = recorded(
        apply("one", ONE),
        JoinNode("n1", 9),
        MoveFragment("one", REGISTRATION, "n1"),
        MoveFragment(*key_of("root/one.0"), "n1"),
        DeleteQuery("one"),
    )
    assert names(state) == {"registration/one"}


def test_a_query_has_been_deleted_if_its_tombstone_is_there_or_has_been_dropped() -> None:
    state = recorded(apply("one", ONE), DeleteQuery("one"), apply("two", ONE, TWO))
    known = {name: entry.generation for name, entry in state.queries.items()}
    assert deleted_since(known, state) == ["one"]
    dropped = drop_tombstones(state, view_number=2)
    assert deleted_since(known, dropped) == ["one"]
    unused = dropped.generation_unused
    assert deleted_since({"three": unused}, dropped) == [], "other controllers have recorded it"


@pytest.mark.parametrize(
    "process", ["orderer/one.0.a", "root/one.12", "registration/one", "proxy/lab", "proxy/lab.1"]
)
def test_a_fragment_is_found_in_the_record_by_the_name_that_status_prints(process: str) -> None:
    assert process_of(*key_of(process)) == process


def test_the_placements_of_shared_children_are_dropped_when_no_query_reads_them() -> None:
    wide = ONE.replace("one:", "wide:").replace("size: 1s", "size: 4s")
    both = share(parsed(ONE, wide))
    texts = {name: to_text(AppliedQuery(name, both)) for name in both.queries}
    applied = [ApplyQuery(name, text) for name, text in texts.items()]
    placed = [MoveFragment(CHILDREN, "one.0.a", "n1"), MoveFragment("-streams", "a", "n1")]
    deleted = [DeleteQuery("one"), DeleteQuery("wide")]
    for count, kept in ((1, {"-streams", CHILDREN}), (2, {"-streams"})):
        state = recorded(*applied, JoinNode("n1", 9), *placed, *deleted[:count])
        assert {of for of, _ in drop_tombstones(state, view_number=2).placement} == kept


def test_the_orderer_of_children_that_queries_share_has_their_key() -> None:
    wide = ONE.replace("one:", "wide:").replace("size: 1s", "size: 4s")
    both = share(parsed(ONE, wide))
    texts = {name: to_text(AppliedQuery(name, both)) for name in both.queries}
    state = recorded(*(ApplyQuery(name, text) for name, text in texts.items()))
    assert key_in(state, "orderer/one.0.a") == (CHILDREN, "one.0.a")
    assert key_in(state, "root/wide.0") == ("wide", "root.0")
    assert key_in(recorded(apply("one", ONE)), "orderer/one.0.a") == ("one", "orderer.0.a")
    with pytest.raises(UsageError):
        key_in(state, "host/0")


@pytest.mark.parametrize("text", ["", "one", "host/0", "root/one", "orderer/one.0"])
def test_what_is_no_fragment_cannot_be_moved(text: str) -> None:
    with pytest.raises(UsageError):
        key_of(text)


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (
            "root/one.0",
            r"root/one\.0 is not one fragment: name one of root/one\.0\.a, root/one\.0\.b",
        ),
        ("root/one.1.c", r"there is no fragment root/one\.1\.c; the nearest is root/one\.1\.[ab] "),
        ("one.0.a", r"the nearest is root/one\.0\.a "),
        ("orderer/one.0", r"name one of orderer/one\.0\.a, orderer/one\.0\.b"),
        ("proxy/c", r"the nearest is proxy/[ab] "),
        ("proxy", r"proxy is not one fragment: name one of proxy/a, proxy/b"),
        ("root/another.0", r"there is no fragment root/another\.0; the nearest is root/one"),
        ("?", r"there is no fragment \?; there are: orderer/one\.0\.a, .* and 4 more"),
    ],
)
def test_a_fragment_that_is_not_there_is_told_with_the_nearest_that_is(
    process: str, message: str
) -> None:
    state = recorded(apply("one", ONE.replace("bound: ", "copies: 2, parts: 2, bound: ")))
    with pytest.raises(UsageError, match=message) as caught:
        key_in(state, process)
    assert caught.value.exit_code == 2
    with pytest.raises(UsageError, match="there are: none"):
        key_in(ControlState(), process)


def test_a_node_is_assigned_what_is_placed_on_it() -> None:
    state = recorded(
        apply("one", ONE),
        JoinNode("n1", 9),
        JoinNode("n2", 9),
        MoveFragment(*key_of("orderer/one.0.a"), "n1"),
        MoveFragment(*key_of("orderer/one.0.b"), "n2"),
        MoveFragment(*key_of("proxy/a"), "n1"),
        MoveFragment("one", REGISTRATION, "n1"),
    )
    first = assignment(state, "n1")
    assert first.fragments.keys() == {"orderer/one.0.a"}
    assert first.proxies.keys() == {"proxy/a"}
    assert first.registered == {"one": Wanted.RUNNING}
    assert assignment(state, "n2").fragments.keys() == {"orderer/one.0.b"}
    numbers = [*first.numbers().values(), *assignment(state, "n2").numbers().values()]
    assert len({*numbers}) == 4
    paused = ControlObject(frozenset("a"), state)
    paused.apply(PauseQuery("one"), Stamp(2, 1, "a"))
    later = assignment(paused.state, "n1")
    assert (later.fragments, later.registered) == ({}, {"one": Wanted.PAUSED})
    paused.apply(DeleteQuery("one"), Stamp(2, 2, "a"))
    assert assignment(paused.state, "n1").registered == {"one": Wanted.DELETED}


def test_a_proxy_with_a_spool_stays_where_it_was_placed_and_one_of_a_topic_does_not() -> None:
    state = recorded(
        apply("one", ONE, streams=TOPICS),
        JoinNode("n1", 9),
        MoveFragment(*key_of("proxy/a"), "n1"),
        MoveFragment(*key_of("proxy/b"), "n1"),
    )
    bound = {s.fragment: s.bound_node for s in fragment_specs(state)}
    assert (bound["a"], bound["b"]) == ("", "n1")


def test_what_reads_a_stream_prefers_the_nodes_of_its_site() -> None:
    sited = STREAMS.replace("expect_every: 1s", "expect_every: 1s, site: hall")
    one = "  one: {from: [a, b], window: {size: 1s}, aggregate: [avg], bound: 2s, children: 2}\n"
    specs = fragment_specs(recorded(apply("one", one, streams=sited)))
    hall, labels = (("site", "hall"),), {spec.fragment: spec.prefers for spec in specs}
    assert labels == {
        **dict.fromkeys(("a", "orderer.0.a", "orderer.0.b"), hall),
        **dict.fromkeys(("b", "orderer.1.a", "orderer.1.b", "root.0", REGISTRATION), ()),
    }


def test_a_proxy_and_one_replica_are_placed_at_the_site_and_the_other_replica_elsewhere() -> None:
    sited = STREAMS.replace("fields: ", "site: hall, fields: ")
    state = recorded(
        apply("one", ONE, streams=sited),
        JoinNode("n1", 9),
        JoinNode("n2", 9, (("site", "hall"),)),
    )
    reports = NodeReports(dict.fromkeys(("n1", "n2"), Standing.STEADY))
    placed = {m.fragment: m.node for m in plan_moves(state, fragment_specs(state), reports).moves}
    assert {placed["a"], placed["b"]} == {"n2"}
    assert {placed["orderer.0.a"], placed["orderer.0.b"]} == {"n1", "n2"}


def test_the_alerts_of_a_query_are_evaluated_on_one_node_and_on_another_when_that_is_gone() -> None:
    delivery, rules = "delivery/one.alerts", "alerts: {hot: {query: one, when: x_avg > 26}}\n"
    assert delivery not in names(recorded(apply("one", ONE)))
    state = recorded(apply("one", ONE, rules), JoinNode("n1", 9), JoinNode("n2", 9))
    assert delivery in names(state)
    controller = ControlObject(frozenset("a"), state)

    def settled(view: int, **standings: Standing) -> str:
        """Carry the moves out; return the node that evaluates the alerts."""
        for time in range(1, 50):
            plan = plan_moves(
                controller.state, fragment_specs(controller.state), NodeReports(standings)
            )
            if not plan.moves:
                break
            for number, move in enumerate(plan.moves):
                assert not controller.apply(move, Stamp(view, 100 * time + number, "a")).refusal
        (found,) = (
            node for node in standings if delivery in assignment(controller.state, node).fragments
        )
        return found

    first = settled(2, n1=Standing.STEADY, n2=Standing.STEADY)
    other = {"n1": "n2", "n2": "n1"}[first]
    gone = {first: Standing.SUSPECTED, other: Standing.STEADY}
    assert settled(3, **gone) == other


def test_of_two_halves_the_first_query_by_name_keeps_a_stream_that_both_have() -> None:
    other = STREAMS.replace("fields: [x, y]", "fields: [x, y, z]")
    state = recorded(apply("one", ONE), apply("three", THREE, streams=other))
    assert applied_queries(state).keys() == {"one"}
    assert "stream b" in not_applied(state)["three"]


def test_a_query_waits_while_what_it_reads_was_deleted_in_the_other_half() -> None:
    state = recorded(apply("two", ONE, TWO))
    assert applied_queries(state) == {}
    assert "that it reads" in not_applied(state)["two"]
    assert names(state) == set()


def test_a_definition_that_cannot_be_read_leaves_the_others() -> None:
    state = recorded(ApplyQuery("broken", "x"), apply("one", ONE))
    assert applied_queries(state).keys() == {"one"}
    assert "cannot be read" in not_applied(state)["broken"]


def test_the_deployment_of_the_record_is_that_of_all_its_queries() -> None:
    state = recorded(apply("one", ONE), apply("two", ONE, TWO))
    assert deployment_of(applied_queries(state)) == parsed(ONE, TWO)
    assert deployment_of({}) == Deployment("wall", {}, {})


def hostile(name: str, **changed: object) -> ApplyQuery:
    """A definition of the right types that no deployment file can have."""
    text = json.loads(to_text(AppliedQuery(name, parsed(ONE if name == "one" else THREE))))
    text["deployment"]["queries"][name] |= changed
    return ApplyQuery(name, json.dumps(text))


HOSTILE = [
    hostile("three", replicas=27),
    hostile("three", replicas=10**6),
    hostile("three", sources=["three"]),
    hostile("three", sources=[]),
    hostile("three", sources=["nowhere"]),
]


@pytest.mark.parametrize("operation", HOSTILE)
def test_a_definition_that_nothing_can_run_is_refused_and_left_out(operation: ApplyQuery) -> None:
    assert "cannot be read" in why_refused_on_nodes(operation, ControlState())
    state = recorded(operation, apply("one", ONE))
    assert applied_queries(state).keys() == {"one"}
    assert "three" in not_applied(state)
    assert {spec.query for spec in fragment_specs(state)} == {"one", control_state.STREAMS}


def test_two_halves_cannot_make_a_circle_of_queries() -> None:
    circle = ONE.replace("[a, b]", "[two]")
    state = recorded(apply("one", circle, TWO.replace("[one]", "[a]")), apply("two", ONE, TWO))
    assert applied_queries(state) == {}
    assert not_applied(state).keys() == {"one", "two"}


# --- what controllers of nodes refuse -------------------------------------------------------------


def test_a_query_brings_its_streams() -> None:
    assert why_refused_on_nodes(apply("one", ONE), ControlState()) == ""
    assert why_refused_on_nodes(apply("three", THREE), recorded(apply("one", ONE))) == ""


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (ApplyQuery("four", "x"), "cannot be read"),
        (apply("one", ONE.replace("1s", "2s", 1)), "runs with another definition"),
        (
            apply("three", THREE, streams=STREAMS.replace("[x, y]", "[x, y, z]")),
            "stream b runs with another definition",
        ),
        (DeleteQuery("one"), "is read by two"),
    ],
)
def test_what_does_not_fit_the_record_is_refused(operation: Operation, text: str) -> None:
    state = recorded(apply("one", ONE), apply("two", ONE, TWO))
    assert text in why_refused_on_nodes(operation, state)


def test_streams_of_files_are_refused_since_nothing_can_feed_them_on_nodes() -> None:
    refusal = why_refused_of_client(apply("one", ONE), ControlState())
    assert refusal.startswith("query one reads a, b from files, which `slackwater ingest`")
    assert why_refused_of_client(definitions.apply("q"), ControlState()) == ""


def test_a_move_names_a_fragment_that_is_there_and_a_node_that_takes_it() -> None:
    joined = (JoinNode("n1", 9), JoinNode("n2", 9), DrainNode("n1"))
    state = recorded(definitions.apply("q"), *joined)
    there = "orderer/q.0.a, orderer/q.0.b, registration/q, root/q.0"
    refusal = why_refused_of_client(MoveFragment("q", "root.9", "n2"), state)
    assert refusal == f"there is no root/q.9; there are: {there}"
    refusal = why_refused_of_client(MoveFragment("q", "root.0", "n1"), state)
    assert refusal.startswith("node n1 is draining, and takes no fragments until it is started")
    assert why_refused_of_client(MoveFragment("q", "root.0", "n2"), state) == ""
    assert why_refused_of_client(MoveFragment("other", "root.0", "n2"), state) == ""
    nothing = recorded(*joined)
    refusal = why_refused_of_client(MoveFragment(control_state.STREAMS, "lab", "n2"), nothing)
    assert refusal == "there is no proxy/lab; there are: none", "it was recorded"


def test_another_prefix_is_refused() -> None:
    deployment = replace(parsed(THREE), names=Names("plant-"))
    operation = ApplyQuery("three", to_text(AppliedQuery("three", deployment)))
    assert "another prefix" in why_refused_on_nodes(operation, recorded(apply("one", ONE)))


def test_a_definition_that_cannot_be_read_is_also_refused_as_the_first() -> None:
    assert "cannot be read" in why_refused_on_nodes(ApplyQuery("four", "x"), ControlState())


@pytest.mark.parametrize("operation", [JoinNode("n1", 1), DrainNode("n1"), PauseQuery("none")])
def test_what_names_nodes_or_unknown_queries_is_left_to_the_object(operation: Operation) -> None:
    assert why_refused_on_nodes(operation, ControlState()) == ""


def test_no_query_can_have_the_name_under_which_proxies_are_placed() -> None:
    found = ControlObject(frozenset("a"), ControlState())
    refusal = found.apply(ApplyQuery(control_state.STREAMS, "x"), Stamp(1, 1, "a")).refusal
    assert "is no name" in refusal


def test_a_state_lacks_what_was_not_deleted() -> None:
    """Entries of a query only become greater, until the tombstone of its deletion is dropped."""
    obj = ControlObject(frozenset("a"), ControlState())
    obj.apply(definitions.apply("q"), Stamp(7, 1, "a"))
    record = obj.state
    assert lacks_queries(ControlState(), record)
    assert not lacks_queries(record, record)
    again = ControlObject(frozenset("a"), ControlState())
    again.apply(definitions.apply("q", "x > 1"), Stamp(1, 1, "a"))
    assert lacks_queries(again.state, record), "it was applied to an empty record"
    obj.apply(DeleteQuery("q"), Stamp(7, 2, "a"))
    assert not lacks_queries(obj.state, record)
    assert not lacks_queries(ControlState(), obj.state), "there is nothing to lack"
    dropped = drop_tombstones(obj.state, 8)
    assert not dropped.queries
    assert not lacks_queries(dropped, record)
