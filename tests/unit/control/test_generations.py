"""Changes of a query: names of generations, what is refused, and what runs meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.control.test_admission import ONE, THREE, TWO, parsed
from tests.unit.control.test_recorded import names, recorded

from slackwater.control.admission import RunningQueries, why_refused, why_refused_on_nodes
from slackwater.control.applied import AppliedQuery, to_text
from slackwater.control.control_object import ApplyQuery, DeleteQuery, PauseQuery
from slackwater.control.control_state import ControlState, drop_tombstones
from slackwater.control.generations import as_generation, replacements
from slackwater.deployment.sharing import is_same
from slackwater.model.deployment import Deployment

CHANGED = ONE.replace("2s", "3s").replace("[a, b]", "[a]")


def change(state: ControlState, *queries: str, query: str = "one") -> ApplyQuery:
    """The operation of a client that changes a query, with this record."""
    deployment, name = as_generation(parsed(*queries), query, state)
    return ApplyQuery(name, to_text(AppliedQuery(name, deployment)))


def applied(query: str, *queries: str) -> ApplyQuery:
    return ApplyQuery(query, to_text(AppliedQuery(query, parsed(*queries))))


FIRST = recorded(applied("one", ONE))


def test_generations_are_counted_from_the_latest_also_of_deleted_ones() -> None:
    assert change(FIRST, CHANGED).query == "one.g1"
    second = recorded(applied("one", ONE), change(FIRST, CHANGED))
    assert change(second, CHANGED).query == "one.g2"
    cancelled = recorded(applied("one", ONE), change(FIRST, CHANGED), DeleteQuery("one.g1"))
    assert change(cancelled, CHANGED).query == "one.g2"
    forgotten = replace(FIRST, generation_unused=5)
    assert change(forgotten, CHANGED).query == "one.g5", "a dropped tombstone may have had 4"
    dropped = drop_tombstones(cancelled, 2)
    assert dropped.live_queries() == ("one",)
    assert "one.g1" not in dropped.queries
    assert change(dropped, CHANGED).query == "one.g2"


def test_of_the_later_generation_all_but_its_delivery_runs_beside_the_earlier_one() -> None:
    """Its roots follow the earlier one's answers; there is one fence for alerts."""
    changed = CHANGED + "\nalerts: {hot: {query: one, when: x_avg > 1}}"
    both = recorded(applied("one", ONE), change(FIRST, changed))
    before = names(FIRST)
    added = names(both) - before
    assert before <= names(both)
    orderers = {"orderer/one.g1.0.a", "orderer/one.g1.0.b"}
    assert added == orderers | {"registration/one.g1", "root/one.g1.0"}
    after = recorded(applied("one", ONE), change(FIRST, changed), DeleteQuery("one"))
    assert names(after) >= added | {"delivery/one.g1.alerts"}
    assert "root/one.0" not in names(after)


def test_a_generation_without_rules_ends_the_alerts_of_the_earlier_one() -> None:
    """Its delivery knows that there were some, also if a change before it was cancelled."""
    rules = "\nalerts: {hot: {query: one, when: x_avg > 1}}"
    first = recorded(applied("one", ONE + rules))
    ends = change(first, ONE)
    after = recorded(applied("one", ONE + rules), ends, DeleteQuery("one"))
    assert "delivery/one.g1.alerts" in names(after)
    deployment, name = as_generation(parsed(ONE), "one", after)
    assert deployment.queries[name].delivers, "the next one, too: that one may not have run yet"
    assert is_same(deployment.queries[name], parsed(ONE).queries["one"]), "it is as declared"
    cancelled = recorded(applied("one", ONE + rules), ends, DeleteQuery("one.g1"))
    assert as_generation(parsed(ONE), "one", cancelled)[0].queries["one.g2"].delivers
    deleted = recorded(applied("one", ONE + rules), DeleteQuery("one"))
    assert not as_generation(parsed(ONE), "one", deleted)[0].queries["one.g1"].delivers
    assert not as_generation(parsed(ONE), "one", FIRST)[0].queries["one.g1"].delivers


def test_changes_in_progress_are_found_by_name() -> None:
    assert replacements(["one", "two"]) == []
    assert replacements(["one.g10", "one", "two.g1", "one.g9"]) == [
        ("one", "one.g10"), ("one.g9", "one.g10"), ("one", "one.g9")
    ]  # fmt: skip


def test_only_the_name_differs_between_equal_generations() -> None:
    deployment, name = as_generation(parsed(ONE), "one", FIRST)
    assert is_same(deployment.queries[name], parsed(ONE).queries["one"])
    assert not is_same(deployment.queries[name], parsed(CHANGED).queries["one"])
    assert deployment.queries[name].child_query == "one.g1", "its children are its own"


@pytest.mark.parametrize(
    ("state", "operation", "reason"),
    [
        (FIRST, change(FIRST, CHANGED), ""),
        (
            FIRST,
            change(FIRST, ONE.replace("1s}", "4s}")),
            "query one: the window of a query cannot be changed, since its results continue",
        ),
        (
            FIRST,
            change(FIRST, ONE.replace("bound", "parts: 2, bound")),
            "query one: the number of parts of a query cannot be changed",
        ),
        (
            recorded(applied("one", ONE), PauseQuery("one")),
            change(FIRST, CHANGED),
            "query one is paused: resume it before it is changed (`slackwater query resume one`)",
        ),
        (
            recorded(applied("one", ONE), change(FIRST, CHANGED)),
            change(recorded(applied("one", ONE), change(FIRST, CHANGED)), ONE),
            "query one is being changed: wait until generation 1 answers",
        ),
        (
            recorded(applied("three", THREE)),
            change(FIRST, CHANGED),
            "there is no query one that generation 1 could continue",
        ),
        (
            recorded(applied("one", ONE), change(FIRST, CHANGED), DeleteQuery("one")),
            applied("two", ONE, TWO),
            "reads query one, which runs with another definition",
        ),
        (
            recorded(applied("one", ONE), change(FIRST, CHANGED)),
            change(FIRST, ONE.replace("2s", "9s")),
            "query one.g1 runs with another definition; another client may have changed it",
        ),
    ],
)
def test_what_is_refused(state: ControlState, operation: ApplyQuery, reason: str) -> None:
    found = why_refused_on_nodes(operation, state)
    assert reason in found
    assert bool(reason) == bool(found)


def test_a_change_of_a_paused_query_is_refused_on_one_machine_too() -> None:
    running: Deployment = parsed(ONE)
    known = RunningQueries(running, {"one": running.deadline_us("one")}, {}, paused={"one"})
    assert "is paused" in why_refused(change(FIRST, CHANGED), known)
