"""What the answers of several controllers mean: views, nodes, clocks, and where fragments run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.core import Metric
from tests.support.definitions import apply
from tests.unit.control.test_recorded import recorded

from slackwater.control.control_object import (
    DeleteQuery,
    DrainNode,
    JoinNode,
    MoveFragment,
    Operation,
    PauseQuery,
)
from slackwater.control.control_state import STREAMS, ControlState
from slackwater.control.placement import Standing
from slackwater.control.recorded import REGISTRATION, fragment_specs
from slackwater.controller.links import NodeReport, StateFrame
from slackwater.exporter.controllers import NODES_MAX, controller_metrics
from slackwater.model.names import NAMED_MAX
from slackwater.status.overview import Answers, Overview, overview_of

JOINED = (apply("q"), JoinNode("n1", 5, (("site", "hall"),)), JoinNode("n2", 7))
ROOT = ("q", "root.0")
STEADY = (("n1", "steady"), ("n2", "steady"))
A, B = "h:1", "h:2"


def placed(node: str = "n1", *more: Operation, member: str = "a") -> ControlState:
    """Everything is placed on this node."""
    keys = [(spec.query, spec.fragment) for spec in fragment_specs(recorded(*JOINED))]
    moves = [MoveFragment(*key, node) for key in keys]
    return recorded(*JOINED, *moves, *more, member=member)


def numbers(state: ControlState, *without: tuple[str, str]) -> tuple[int, ...]:
    return tuple(entry.number for key, entry in state.placement.items() if key not in without)


def frame(
    state: ControlState,
    *,
    controller: str = "a",
    members: tuple[str, ...] = ("a", "b"),
    view: int = 4,
    standings: tuple[tuple[str, str], ...] = STEADY,
    without: Iterable[tuple[str, str]] = (),
    fenced: tuple[int, ...] = (),
    unplaced: tuple[tuple[str, str, str], ...] = (),
    problems: tuple[tuple[str, str], ...] = (),
    clocks: tuple[tuple[str, int, int], ...] = (),
) -> StateFrame:
    """The answer of a controller to which all that is placed is ready, but for ``without``."""
    ready = numbers(state, *without)
    report = NodeReport(standings, ready, fenced, unplaced, problems, "", clocks)
    return StateFrame(1, controller, view, members, state, report)


def lines(answers: Answers) -> list[str]:
    return [" ".join(line.split()) for line in overview_of(answers).lines()]


def states(overview: Overview) -> dict[str, tuple[str, str]]:
    return {row.name: (row.node, row.state) for row in overview.fragments}


def test_controllers_nodes_and_fragments_are_shown_where_they_run() -> None:
    state = placed("n1", DrainNode("n2"))
    answers = {
        A: frame(state, clocks=(("n1", 400, 90),)),
        B: frame(state, controller="b", clocks=(("n1", -30_000, 1_000),)),
    }
    assert lines(answers) == [
        "controllers a, b (view 4)",
        "node n1 steady, room for 5 site=hall, clock -30.0 ms (± 1.0 ms)",
        *("orderer/q.0.a", "orderer/q.0.b", "proxy/lab", "registration/q", "root/q.0"),
        "node n2 steady, drains, room for 7",
    ]
    overview = overview_of(answers)
    assert overview.wrong == []
    assert states(overview)["root/q.0"] == ("n1", "ready")
    shown = overview.to_json()
    assert [row["name"] for row in shown["controllers"]] == ["a", "b"]
    assert shown["nodes"][0]["clock_offset_ms"][B] == {"offset": -30.0, "error": 1.0}
    assert {"fragment": "root/q.0", "node": "n1", "state": "ready"} in shown["fragments"]


def test_a_deletion_is_shown_until_it_has_been_carried_out() -> None:
    state = placed("n1", DeleteQuery("q"))
    done = overview_of({A: frame(state)})
    assert (states(done), done.wrong) == ({}, [])
    waits = overview_of({A: frame(state, without=[("q", REGISTRATION)])})
    assert states(waits) == {"registration/q": ("n1", "not ready")}
    assert waits.wrong == ["not ready on n1: registration/q"]


def test_a_controller_that_does_not_answer_is_named_and_is_no_failure() -> None:
    state = placed()
    overview = overview_of({A: "connection refused", B: frame(state, members=("b",))})
    shown = [" ".join(line.split()) for line in overview.lines()]
    assert shown[:2] == [
        "controllers b (view 4)",
        "controller h:1 does not answer: connection refused",
    ]
    assert overview.wrong == []


def test_without_any_answer_one_line_has_the_reasons() -> None:
    overview = overview_of({A: "connection refused", B: "the shared secret differs"})
    (line,) = overview.lines()
    assert "none answers: h:1: connection refused; h:2: the shared secret differs" in line
    assert overview.wrong == []
    assert overview.to_json()["fragments"] == []


def test_a_fragment_that_is_placed_and_not_ready_is_a_failure() -> None:
    overview = overview_of({A: frame(placed(), without=[ROOT])})
    assert overview.wrong == ["not ready on n1: root/q.0"]
    assert "root/q.0 (not ready)" in lines({A: frame(placed(), without=[ROOT])})


def test_a_fragment_that_is_placed_nowhere_or_stays_down_is_a_failure_with_the_reason() -> None:
    nowhere = frame(recorded(*JOINED), unplaced=((*ROOT, "no node has room"),))
    assert "placed nowhere (no node has room): root/q.0" in overview_of({A: nowhere}).wrong
    assert "root/q.0 placed nowhere (no node has room)" in lines({A: nowhere})
    state = placed()
    down = frame(state, without=[ROOT], fenced=(state.placement[ROOT].number,))
    assert overview_of({A: down}).wrong == [
        "down on n1, since another copy has a greater placement number: root/q.0"
    ]


def test_many_fragments_with_one_reason_are_counted() -> None:
    operations = [apply(f"q{i}") for i in range(4)]
    (reason,) = overview_of({A: frame(recorded(*operations))}).wrong
    named = reason.partition(": ")[2]
    count = len(fragment_specs(recorded(*operations)))
    assert named.endswith(f" and {count - NAMED_MAX} more")
    assert named.count(",") == NAMED_MAX - 1


def test_what_a_node_reports_is_a_failure_named_once() -> None:
    clock = "the clock of this machine is 200ms ahead of that of controller a"
    state = placed()
    answers = {
        A: frame(state, problems=(("n1", clock),)),
        B: frame(state, controller="b", problems=(("n1", clock),)),
    }
    assert overview_of(answers).wrong == [f"node n1: {clock}"]
    assert f"problem: {clock}" in lines(answers)


def test_what_a_node_reports_before_it_has_joined_is_a_failure_too() -> None:
    answers = {A: frame(recorded(), problems=(("n9", "no disk"),))}
    assert overview_of(answers).wrong == ["node n9: no disk"]
    assert "node n9: no disk" in lines(answers)


def test_in_a_split_network_a_fragment_runs_if_a_half_has_a_copy_that_is_ready() -> None:
    here, there = placed("n1"), placed("n2", member="b")
    answers = {
        A: frame(here, members=("a",), view=5, without=[ROOT], standings=(("n1", "steady"),)),
        B: frame(
            there, controller="b", members=("b",), view=6, standings=(("n2", "steady"),),
            without=[("q", "orderer.0.a")],
        ),
    }  # fmt: skip
    overview = overview_of(answers)
    assert overview.wrong == []
    assert states(overview)["root/q.0"] == ("n2", "ready")
    assert states(overview)["orderer/q.0.a"] == ("n1", "ready")
    shown = lines(answers)
    assert shown[:3] == [
        "controllers b (view 6)",
        "controllers a (view 5)",
        "more than one view: they are separated, or it changes now",
    ]
    assert "node n1 steady, suspected by b, room for 5 site=hall" in shown


def test_a_fragment_is_shown_also_on_a_node_that_the_first_record_lacks() -> None:
    there = frame(placed("n2"), controller="b", members=("b",), view=5)
    answers = {A: frame(recorded(apply("q")), members=("a",), view=6), B: there}
    assert overview_of(answers).wrong == []
    assert "root/q.0 ready on n2" in lines(answers)


def test_a_node_that_no_controller_hears_is_suspected() -> None:
    overview = overview_of({A: frame(placed("n2"), standings=(("n2", "steady"),))})
    by_name = {node.name: node for node in overview.nodes}
    assert (by_name["n1"].is_up, by_name["n2"].is_up) == (False, True)
    assert by_name["n1"].text().startswith("suspected, room")
    assert by_name["n1"].standing == Standing.SUSPECTED.value


def test_of_the_controller_of_up_only_view_and_paused_queries_are_shown() -> None:
    answers = {A: frame(recorded(apply("q"), PauseQuery("q")), members=("up",))}
    overview = overview_of(answers, has_nodes=False)
    assert [" ".join(line.split()) for line in overview.lines()] == [
        "controller that of `slackwater up` (view 4)",
        "query q is paused",
    ]
    assert overview.wrong == []


def test_a_problem_of_the_node_of_up_is_shown_too() -> None:
    problem = "topic in does not exist on b:1: create what is missing, for query q"
    answers = {A: frame(recorded(apply("q")), members=("up",), problems=(("up", problem),))}
    overview = overview_of(answers, has_nodes=False)
    assert overview.lines()[1:] == [problem]
    assert overview.wrong == [problem]


def values(metrics: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("slackwater_"), *sample.labels.values()): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def test_the_metrics_of_what_controllers_say() -> None:
    state = placed("n2")
    overview = overview_of(
        {
            A: frame(state, standings=(("n2", "steady"),), without=[ROOT, ("q", REGISTRATION)],
                     clocks=(("n2", -30_000, 1_000),)),
            B: "connection refused",
        }
    )  # fmt: skip
    assert values(controller_metrics(overview)) == {
        ("controller_up", A): 1,
        ("controller_up", B): 0,
        ("view_number", A): 4,
        ("node_up", "n1"): 0,
        ("node_up", "n2"): 1,
        ("node_clock_offset_seconds", "n2", A): pytest.approx(-0.03),
        ("node_clock_error_seconds", "n2", A): pytest.approx(0.001),
        ("clock_offset_max_seconds",): pytest.approx(0.025),
        ("fragments_not_running",): 2,
    }


def test_without_an_answer_only_the_controllers_have_a_metric() -> None:
    assert values(controller_metrics(overview_of({A: "no answer"}))) == {("controller_up", A): 0}
    assert values(controller_metrics(None)) == {}


def test_the_number_of_nodes_with_metrics_is_bounded() -> None:
    joins = [JoinNode(f"n{i:04}", 1) for i in range(NODES_MAX + 10)]
    overview = overview_of({A: frame(recorded(*joins), standings=())})
    found = values(controller_metrics(overview))
    assert sum(name[0] == "node_up" for name in found) == NODES_MAX


def test_proxies_are_placed_under_the_streams() -> None:
    overview = overview_of({A: frame(placed(), without=[(STREAMS, "lab")])})
    assert overview.wrong == ["not ready on n1: proxy/lab"]
