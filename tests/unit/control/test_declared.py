"""The queries of a deployment file in the record of `up`: what is added, seen and refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from tests.unit.control.test_admission import ONE, STREAMS, THREE, TWO, parsed
from tests.unit.control.test_recorded import names

from slackwater.control.applied import AppliedQuery, from_text, to_text
from slackwater.control.control_object import (
    AcknowledgeView,
    ApplyQuery,
    ControlObject,
    DeleteQuery,
    JoinNode,
    MoveFragment,
    Operation,
    PauseQuery,
    ResumeQuery,
)
from slackwater.control.control_state import CHILDREN, ControlState
from slackwater.control.declared import DeclaredQueries
from slackwater.control.generations import as_generation
from slackwater.control.recorded import (
    applied_queries,
    assignment,
    deleted_since,
    deployment_of,
    fragment_specs,
)
from slackwater.deployment.sharing import share
from slackwater.model.deployment import Deployment
from slackwater.protocols.iads.messages import Stamp
from slackwater.runtime.service.registry import QueryDefinition, QueryState

WIDE: Final = ONE.replace("one:", "wide:").replace("1s}, agg", "4s}, agg")


def registered(deployment: Deployment, **states: QueryState) -> dict[str, QueryDefinition]:
    """The entries of these queries in the registry, as `up` makes them from a file."""
    return {
        name: QueryDefinition(name, 0, 0, 1, spec, state=states.get(name, "running"))
        for name, spec in deployment.queries.items()
    }


class World:
    """The record of `up`, whose stack has started a deployment."""

    def __init__(self, *queries: str, **states: QueryState) -> None:
        self.here = parsed(*queries)
        self.registered = registered(self.here, **states)
        self.record = ControlObject(frozenset({"up"}), ControlState())
        self._time = 0
        self.start()

    def start(self) -> None:
        """`up` starts, again perhaps."""
        self.declared = DeclaredQueries(self.here, self.registered, "beginning")
        self.do(*self.declared.imports(self.state, self.registered))

    @property
    def state(self) -> ControlState:
        return self.record.state

    def do(self, *operations: Operation, view: int = 1) -> None:
        for operation in operations:
            self._time += 1
            assert not self.record.apply(operation, Stamp(view, self._time, "up")).refusal

    def refusal(self, operation: Operation) -> str:
        return self.declared.why_refused(operation, self.state, self.registered)

    def apply(self, name: str, deployment: Deployment) -> str:
        operation = ApplyQuery(name, to_text(AppliedQuery(name, deployment)))
        refusal = self.refusal(operation)
        if not refusal:
            self.do(operation)
        return refusal


def test_what_runs_is_recorded_once_and_a_paused_query_is_paused() -> None:
    world = World(ONE, THREE, three="paused")
    wanted = {name: query.wanted for name, query in world.state.queries.items()}
    assert wanted == {"one": "running", "three": "paused"}
    assert world.declared.imports(world.state, world.registered) == []
    assert world.declared.known(world.state, world.registered) == {"one": 0, "three": 0}


def test_a_new_query_of_the_file_is_recorded_before_it_is_registered() -> None:
    """With ``clock: data`` its start time is known with the first reading; it can be paused."""
    world = World(ONE)
    world.here = parsed(ONE, THREE)
    (found,) = DeclaredQueries(world.here, world.registered, 5).imports(world.state, {})
    assert isinstance(found, ApplyQuery)
    assert from_text("three", found.definition).start == 5
    world.start()
    assert {*world.state.live_queries()} == {"one", "three"}
    assert world.declared.known(world.state, world.registered) == {"one": 0}
    assert world.refusal(PauseQuery("three")) == ""


def test_a_record_that_was_lost_is_filled_with_what_runs() -> None:
    world = World(ONE)
    assert world.apply("two", parsed(ONE, TWO)) == ""
    world.here, world.registered = parsed(ONE, TWO), registered(parsed(ONE, TWO), two="paused")
    again = ControlObject(frozenset({"up"}), ControlState())
    world.record = again
    world.start()
    assert {n: q.wanted for n, q in again.state.queries.items()} == {
        "one": "running",
        "two": "paused",
    }


def test_a_query_that_the_file_no_longer_has_stays_and_does_not_run() -> None:
    world = World(ONE, THREE)
    world.here = parsed(THREE)
    world.start()
    assert {*world.state.live_queries()} == {"one", "three"}
    assert world.declared.view(world.state).live_queries() == ("three",)
    assert world.declared.known(world.state, world.registered) == {"three": 0}
    assert "there is no query one" in world.refusal(PauseQuery("one"))
    world.here = parsed(ONE, THREE)
    world.start()
    assert {*world.declared.view(world.state).live_queries()} == {"one", "three"}


def test_streams_are_those_of_the_file() -> None:
    world = World(ONE)
    changed = STREAMS.replace("expect_every: 1s", "expect_every: 2s")
    world.here = parsed(ONE, streams=changed)
    world.start()
    view = deployment_of(applied_queries(world.declared.view(world.state)))
    assert view.streams == world.here.streams
    assert world.apply("three", parsed(ONE, THREE, streams=changed)) == ""
    view = deployment_of(applied_queries(world.declared.view(world.state)))
    assert {*view.queries} == {"one", "three"}
    # Query three is not registered, and the file is changed again: no query is left out.
    world.here = parsed(ONE, streams=STREAMS.replace("expect_every: 1s", "expect_every: 3s"))
    again = parsed(ONE.replace("one:", "another:"), streams=changed)
    world.do(ApplyQuery("another", to_text(AppliedQuery("another", again))))
    world.start()
    view = deployment_of(applied_queries(world.declared.view(world.state)))
    assert {*view.queries} == {"one", "three", "another"}
    assert view.streams == world.here.streams


@pytest.mark.parametrize("is_in_the_file", [True, False])
def test_a_deletion_that_was_not_carried_out_is_carried_out_after_the_restart(
    is_in_the_file: bool,
) -> None:
    world = World(ONE, THREE)
    world.do(DeleteQuery("three"))
    world.here = parsed(ONE, THREE) if is_in_the_file else parsed(ONE)
    world.start()
    assert world.state.live_queries() == ("one",), "it is not recorded again"
    assert not world.declared.may_forget(world.state, world.registered), "else it would be"
    known = world.declared.known(world.state, world.registered)
    assert deleted_since(known, world.state) == ["three"]
    world.registered["three"] = replace(world.registered["three"], state="deleted")
    assert world.declared.may_forget(world.state, world.registered)


def test_queries_that_are_recorded_and_do_not_run_yet_are_known() -> None:
    world = World(ONE)
    assert world.apply("two", parsed(ONE, TWO)) == ""
    text = TWO.replace("two", "four").replace("[one]", "[two]").replace("5s", "9s")
    assert world.apply("four", parsed(ONE, TWO, text)) == ""
    assert "is read by four" in world.refusal(DeleteQuery("two"))
    assert world.refusal(PauseQuery("four")) == ""
    world.do(DeleteQuery("four"))
    assert world.refusal(DeleteQuery("two")) == ""
    assert "there is no query four" in world.refusal(PauseQuery("four"))


def test_a_paused_query_is_not_changed() -> None:
    world = World(ONE)
    changed, name = as_generation(parsed(ONE.replace("2s", "3s")), "one", world.state)
    world.do(PauseQuery("one"))
    assert "is paused" in world.apply(name, changed), "though the registry does not have it yet"
    world.do(ResumeQuery("one"))
    assert world.apply(name, changed) == ""


def test_a_deleted_query_is_continued_with_its_window_only() -> None:
    """The registry has its definition, also when the record has forgotten it."""
    world = World(ONE, THREE)
    world.do(DeleteQuery("one"))
    world.registered["one"] = replace(world.registered["one"], state="deleted")
    world.here = parsed(THREE)
    world.do(AcknowledgeView(2), view=2)
    assert world.state.live_queries() == ("three",)
    assert "has been deleted" in world.apply("one", parsed(ONE, THREE))
    wider = ONE.replace("size: 1s", "size: 2s")
    changed, name = as_generation(parsed(wider, THREE), "one", world.state)
    assert "window of a query cannot be changed" in world.apply(name, changed)
    changed, name = as_generation(parsed(ONE.replace("2s,", "3s,"), THREE), "one", world.state)
    assert world.apply(name, changed) == ""


def test_another_machine_is_refused() -> None:
    assert "has one machine" in World(ONE).refusal(JoinNode("n2", 1))


def test_a_stream_that_was_added_is_known_before_its_query_runs() -> None:
    world = World(ONE)
    with_c = STREAMS.replace(
        "queries:", "  c: {key: {value: c}, time: {column: t, unit: s}, fields: [y]}\nqueries:"
    )
    reader = THREE.replace("[b]", "[c]")
    assert world.apply("three", parsed(reader, streams=with_c)) == ""
    view = deployment_of(applied_queries(world.declared.view(world.state)))
    assert {*view.streams} == {"a", "b", "c"}
    again = reader.replace("three", "four")
    assert world.apply("four", parsed(again, streams=with_c)) == ""
    other = parsed(again.replace("four", "five"), streams=with_c.replace("[y]}", "[y, z]}"))
    assert "stream c runs with another definition" in world.apply("five", other)


def test_shared_children_are_placed_once_and_outlive_the_query_they_are_named_after() -> None:
    world = World(ONE)
    world.record = ControlObject(frozenset({"up"}), ControlState())
    world.here = share(parsed(ONE, WIDE))
    world.registered = registered(world.here)
    assert world.here.queries["wide"].child_query == "one"
    world.start()
    world.do(JoinNode("up", 100))

    def place() -> None:
        for spec in fragment_specs(world.declared.view(world.state)):
            if (spec.query, spec.fragment) not in world.state.placement:
                world.do(MoveFragment(spec.query, spec.fragment, "up"))

    place()
    assert (CHILDREN, "one.0.a") in world.state.placement
    children = {f"orderer/one.{child}.{replica}" for child in (0,) for replica in "ab"}
    assigned = assignment(world.declared.view(world.state), "up")
    assert {*assigned.fragments} == children | {"root/one.0", "root/wide.0"}
    world.do(DeleteQuery("one"))
    world.do(AcknowledgeView(2), view=2)
    view = world.declared.view(world.state)
    assert "one" not in view.queries, "its tombstone has been dropped"
    assert {*assignment(view, "up").fragments} == children | {"root/wide.0"}
    proxies = {"proxy/a", "proxy/b"}
    assert names(view) == {*children, *proxies, "root/wide.0", "registration/wide"}


def test_a_record_that_is_made_again_has_the_children_of_one_that_is_deleted() -> None:
    """`up` makes a lost record again from the registry: a query reads on what it has joined."""
    world = World(WIDE)
    shared = share(parsed(ONE, WIDE))
    world.registered = registered(shared, one="deleted")
    world.here = share(parsed(WIDE), shared.queries)
    world.record = ControlObject(frozenset({"up"}), ControlState())
    world.start()
    assert world.state.live_queries() == ("wide",)
    children = {"orderer/one.0.a", "orderer/one.0.b"}
    proxies = {"proxy/a", "proxy/b"}
    assert names(world.state) == {*children, *proxies, "root/wide.0", "registration/wide"}
