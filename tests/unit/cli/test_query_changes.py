"""What `query apply` and `query delete` request, against a controller that is a value."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.control.test_readers import SOME, Q, of

from slackwater.cli import query_changes
from slackwater.cli.query_changes import (
    apply_queries,
    print_recorded,
    print_recorded_query,
    request_each,
)
from slackwater.control.admission import RunningQueries, why_refused, why_refused_on_nodes
from slackwater.control.applied import Start, from_text
from slackwater.control.control_object import (
    ApplyQuery,
    ControlObject,
    ControlResponse,
    DeleteQuery,
    Operation,
    PauseQuery,
)
from slackwater.control.control_state import CHILDREN, ControlState
from slackwater.control.recorded import applied_queries, fragment_specs
from slackwater.model.deployment import Clock, Deployment, QuerySpec, TopicPartitions, TopicSpec
from slackwater.model.errors import UsageError
from slackwater.model.names import base_of
from slackwater.protocols.iads.messages import Stamp
from slackwater.runtime.service.registry import QueryDefinition, Registry

ALONE = "  alone: {from: [a], window: {size: 1s}, aggregate: [avg], bound: 4s}\n"
CHANGED = Q.replace("[a, b]", "[a]")


class Controller:
    """One controller, which is reached without a network."""

    advice = ""
    has_nodes = False

    def __init__(self, admit: Callable[[Operation, ControlState], str]) -> None:
        self.object = ControlObject(frozenset("a"), ControlState())
        self._admit = admit
        self.requested: list[Operation] = []

    @asynccontextmanager
    async def connect(self, _name: str) -> AsyncIterator[Controller]:
        yield self

    async def state(self) -> Any:
        return SimpleNamespace(state=self.object.state)

    async def request(self, operation: Operation) -> Any:
        refusal = self._admit(operation, self.object.state)
        if refusal:
            return SimpleNamespace(response=ControlResponse(refusal))
        self.requested.append(operation)
        stamp = Stamp(1, len(self.requested), "a")
        return SimpleNamespace(response=self.object.apply(operation, stamp))

    def apply(self, *queries: str) -> list[str]:
        deployment = of(*queries)
        names = [query.name for query in deployment.in_order()]
        return apply_queries(self, deployment, names, "now")  # type: ignore[arg-type]


def machine(deleted: Mapping[str, QuerySpec | None], *running: str) -> Controller:
    """The controller of `up`: its registry has deleted queries, which the record has forgotten."""
    known = RunningQueries(of(*running), {}, deleted)
    controller = Controller(lambda operation, _: why_refused(operation, known))
    controller.object = ControlObject(frozenset("a"), ControlState(generation_unused=3))
    return controller


def nodes() -> Controller:
    return Controller(why_refused_on_nodes)


def test_a_deleted_query_is_applied_as_its_next_generation() -> None:
    controller = nodes()
    assert controller.apply(Q) == ["q"]
    request_each(controller, DeleteQuery, "q")  # type: ignore[arg-type]
    assert controller.apply(CHANGED) == ["q.g1"]
    assert controller.object.state.live_queries() == ("q.g1",)


def test_a_paused_query_is_said_to_be_paused_and_how_it_continues(
    capsys: pytest.CaptureFixture[str],
) -> None:
    controller = nodes()
    controller.apply(Q, ALONE)
    request_each(controller, PauseQuery, "q")  # type: ignore[arg-type]
    capsys.readouterr()
    assert controller.apply(Q, ALONE) == []
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "query alone runs already",
        "query q is paused: `slackwater query resume q` continues it",
    ]
    with pytest.raises(UsageError, match=re.escape("(`slackwater query resume q`)")):
        controller.apply(CHANGED)


def test_queries_are_listed_from_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    controller = nodes()
    print_recorded(controller)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "no query is registered\n"
    controller.apply(Q, ALONE)
    request_each(controller, PauseQuery, "alone")  # type: ignore[arg-type]
    capsys.readouterr()
    print_recorded(controller)  # type: ignore[arg-type]
    alone, q = capsys.readouterr().out.splitlines()
    assert alone.startswith("alone ")
    assert alone.endswith("generation 0  paused")
    assert q.startswith("q ")
    assert " from a, b  window " in q


def test_a_query_is_shown_from_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(name: str) -> dict[str, Any]:
        capsys.readouterr()
        print_recorded_query(controller, name)  # type: ignore[arg-type]
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    controller = nodes()
    with pytest.raises(UsageError, match="there is no query q; registered: none yet"):
        shown("q")
    controller.apply(Q, ALONE)
    request_each(controller, PauseQuery, "alone")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there is no query other; registered: alone, q"):
        shown("other")
    alone, q = shown("alone"), shown("q")
    assert [alone["state"], q.get("state")] == ["paused", None]
    recorded = from_text("q", controller.object.state.queries["q"].definition)
    assert (q["name"], q["generation"], q["start"]) == ("q", 0, recorded.start)
    assert QuerySpec.from_json(q["spec"]) == recorded.deployment.queries["q"]
    assert q["deployment"]["streams"].keys() == {"a", "b"}
    assert q["deployment"]["queries"].keys() == {"q"}

    controller.apply(CHANGED)  # beside the first generation, until the next one answers
    assert [shown(name)["generation"] for name in ("q", "q.g1")] == [0, 1]
    controller.object.apply(DeleteQuery("q"), Stamp(1, 9, "a"))
    assert shown("q")["name"] == "q.g1"
    request_each(controller, DeleteQuery, "q")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there is no query q; registered: alone"):
        shown("q")


def test_it_is_found_although_the_record_has_forgotten_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The registry has not; nothing else is admitted by the second request."""
    gone = {"q": of(Q).queries["q"]}
    assert machine(gone, ALONE).apply(CHANGED) == ["q.g3"]
    assert "query q was deleted: generation 3 is accepted" in capsys.readouterr().out
    # The refusal is that of the first request, which has the remedy.
    with pytest.raises(UsageError, match="query q has been deleted, and its topics keep"):
        machine(gone, ALONE).apply(CHANGED.replace("1s}", "2s}"))
    with pytest.raises(UsageError, match="stream slow runs with another definition"):
        apply_queries(machine({}, ALONE), over_another_stream(), ["q"], "now")  # type: ignore[arg-type]


def of_fixed(partitions: TopicPartitions = "fixed") -> Deployment:
    """A file with q, of which stream a reads a topic."""
    first = of(Q)
    a = replace(first.streams["a"], topic=TopicSpec("readings", partitions=partitions))
    return replace(first, streams={**first.streams, "a": a})


def registry_with(taken_in: int, there: int, *, name: str = "q") -> Callable[[], Registry]:
    """The registry of q, over a stream with this number of source logs."""
    query = replace(of(Q).queries["q"], name=name)
    definition = QueryDefinition(name, 0, 0, 250_000, query, partitions={"a": taken_in})
    known = SimpleNamespace(all_queries=lambda: {name: definition}, partitions={"a": there}.get)
    return lambda: cast(Registry, known)


def test_a_query_takes_in_added_partitions_of_a_fixed_topic_as_its_next_generation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    controller, file = nodes(), of_fixed()

    def apply(find: Callable[[], Registry] | None, start: Start = "now") -> list[str]:
        return apply_queries(controller, file, ["q"], start, find)  # type: ignore[arg-type]

    assert apply(None) == ["q"]
    assert apply(registry_with(2, 2)) == []
    assert "query q runs already" in capsys.readouterr().out
    with pytest.raises(UsageError, match="q lacks partitions, so it is changed, and it continues"):
        apply(registry_with(2, 3), start="beginning")
    capsys.readouterr()
    assert apply(registry_with(2, 3)) == ["q.g1"]
    printed = capsys.readouterr().out
    assert "query q reads 2 of the 3 partitions of a\n" in printed
    assert "query q is changed: generation 1 is accepted" in printed
    assert apply(registry_with(3, 3, name="q.g1")) == []


def test_without_kafka_it_is_said_that_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    controller = nodes()
    for file in (of_fixed("watched"), of_fixed()):
        for _ in range(2):
            apply_queries(controller, file, ["q"], "now")  # type: ignore[arg-type]
        printed = capsys.readouterr().err
        assert ("give --bootstrap to take in added partitions" in printed) == (file == of_fixed())


def over_another_stream() -> Deployment:
    """A file with q over another definition of a stream."""
    first = of(Q)
    slow = replace(first.streams["slow"], expect_every_us=1)
    q = replace(first.queries["q"], sources=("slow",))
    return replace(first, streams={**first.streams, "slow": slow}, queries={"q": q})


def test_a_query_that_is_read_is_not_deleted_while_it_is_changed() -> None:
    """Its last generation would be deleted first, which only cancels the change."""
    controller = nodes()
    controller.apply(Q, SOME)
    assert controller.apply(CHANGED, SOME) == ["q.g1"]
    before = len(controller.requested)
    with pytest.raises(UsageError) as refused:
        request_each(controller, DeleteQuery, "q")  # type: ignore[arg-type]
    assert str(refused.value) == (
        "query q is read by some: delete that first, or cancel the change with `slackwater query"
        " delete q.g1`"
    )
    assert len(controller.requested) == before
    request_each(controller, DeleteQuery, "q.g1")  # type: ignore[arg-type]
    assert [base_of(name) for name in controller.object.state.live_queries()] == ["q", "some"]


def test_a_cancelled_change_that_is_complete_when_the_request_arrives_is_refused() -> None:
    controller = nodes()
    assert controller.apply(Q) == ["q"]
    assert controller.apply(CHANGED) == ["q.g1"]
    controller.object.apply(DeleteQuery("q", beside="q.g1"), Stamp(1, 50, "a"))
    read_before = controller.object.state

    async def state() -> Any:
        queries = {**read_before.queries, "q": read_before.queries["q.g1"]}
        return SimpleNamespace(state=replace(read_before, queries=queries))

    controller.state = state  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="q has been deleted meanwhile"):
        request_each(controller, DeleteQuery, "q.g1")  # type: ignore[arg-type]
    assert controller.object.state.live_queries() == ("q.g1",)


def test_a_query_is_deleted_though_its_change_is_completed_meanwhile() -> None:
    controller = nodes()
    assert controller.apply(Q) == ["q"]
    assert controller.apply(CHANGED) == ["q.g1"]

    async def request(operation: Operation) -> Any:
        completion = DeleteQuery("q", beside="q.g1")
        if "q" in controller.object.state.live_queries():
            assert not controller.object.apply(completion, Stamp(1, 50, "a")).refusal
        return SimpleNamespace(response=controller.object.apply(operation, Stamp(1, 60, "a")))

    controller.request = request  # type: ignore[method-assign]
    request_each(controller, DeleteQuery, "q")  # type: ignore[arg-type]
    assert controller.object.state.live_queries() == ()


@pytest.mark.parametrize(
    ("clock", "start", "recorded"), [("data", "now", "beginning"), ("data", 7, 7), ("wall", 7, 7)]
)
def test_on_nodes_a_query_of_a_history_begins_with_what_the_logs_hold(
    clock: Clock, start: Start, recorded: Start
) -> None:
    """The present is event time of the readings, which no client knows."""
    controller = nodes()
    controller.has_nodes = True
    deployment = replace(of(ALONE), clock=clock)
    apply_queries(controller, deployment, ["alone"], start)  # type: ignore[arg-type]
    (operation,) = controller.requested
    assert isinstance(operation, ApplyQuery)
    assert from_text("alone", operation.definition).start == recorded


MINUTES = "  minute: {from: [a], window: {size: 1m}, aggregate: [avg], bound: 4s}\n"
HOURS = "  hour: {from: [a], window: {size: 1h}, aggregate: [avg, max], bound: 4s}\n"


def of_children(controller: Controller) -> dict[str, str]:
    found = applied_queries(controller.object.state)
    return {name: each.deployment.queries[name].child_query for name, each in found.items()}


def test_queries_that_are_applied_share_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that starts first has them; one that is applied later joins if it can read them."""
    now = [1_700_000_000_000_000]
    clock = SimpleNamespace(now_us=lambda: now[-1])
    monkeypatch.setattr(query_changes, "SystemClock", lambda: clock)
    controller = nodes()
    assert controller.apply(HOURS, MINUTES) == ["minute", "hour"]
    assert controller.apply(ALONE.replace("alone", "soon")) == ["soon"]
    now.append(now[0] + 60_000_000)
    assert controller.apply(ALONE) == ["alone"]
    other = ALONE.replace("alone", "other").replace("avg", "min")
    assert controller.apply(other) == ["other"]
    shared = dict.fromkeys(["alone", "hour", "minute"], "minute")
    assert of_children(controller) == {**shared, "soon": "soon", "other": "other"}
    starts = {
        operation.query: from_text(operation.query, operation.definition).start
        for operation in controller.requested
        if isinstance(operation, ApplyQuery)
    }
    assert starts["minute"] == 1_700_000_040_000_000
    assert starts["hour"] == 1_700_002_800_000_000
    placed = {(s.query, s.fragment) for s in fragment_specs(controller.object.state)}
    assert {(CHILDREN, "minute.0.a"), (CHILDREN, "other.0.a")} <= placed
    # The first one is paused, deleted, or changed: its children go on while others read them.
    request_each(controller, PauseQuery, "minute")  # type: ignore[arg-type]
    placed = {(s.query, s.fragment) for s in fragment_specs(controller.object.state)}
    assert (CHILDREN, "minute.0.a") in placed
    assert ("minute", "root.0") not in placed
    request_each(controller, DeleteQuery, "minute")  # type: ignore[arg-type]
    placed = {(s.query, s.fragment) for s in fragment_specs(controller.object.state)}
    assert (CHILDREN, "minute.0.a") in placed
    assert ("minute", "root.0") not in placed
    assert controller.apply(HOURS.replace("max", "min")) == ["hour.g1"]
    assert controller.apply(ALONE.replace("alone", "late")) == ["late"]
    assert of_children(controller) == {
        **dict.fromkeys(["alone", "hour", "late"], "minute"),
        **{name: name for name in ("hour.g1", "other", "soon")},
    }  # fmt: skip


def test_a_query_does_not_join_what_has_been_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = nodes()
    controller.apply(ALONE.replace("alone", "first"))
    connect = controller.connect

    @asynccontextmanager
    async def deleting(name: str) -> AsyncIterator[Controller]:
        async with connect(name) as client:
            state = await client.state()
            await client.request(DeleteQuery("first"))

            async def before() -> Any:
                return state

            monkeypatch.setattr(client, "state", before)
            yield client

    monkeypatch.setattr(controller, "connect", deleting)
    with pytest.raises(UsageError, match="cannot read the children of query first: no query runs"):
        controller.apply(ALONE)


def test_twenty_panels_that_are_applied_one_by_one_have_two_orderers() -> None:
    controller = nodes()
    for minutes in range(1, 21):
        controller.apply(ALONE.replace("alone", f"panel-{minutes}").replace("1s", f"{minutes}s"))
    specs = fragment_specs(controller.object.state)
    assert [s.fragment for s in specs if s.query == CHILDREN] == ["panel-1.0.a", "panel-1.0.b"]
    assert sum(s.fragment == "root.0" for s in specs) == 20
