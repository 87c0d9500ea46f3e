"""A generation that has ended runs on until its successor answers (rule-29)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.control.test_admission import ONE, parsed

from slackwater.model.deployment import Deployment
from slackwater.model.names import copy_names
from slackwater.model.records import Heartbeat
from slackwater.node.hand_over import hand_overs
from slackwater.protocols.flux.pair import ANSWERS

EARLIER = parsed(ONE.replace("bound: ", "copies: 2, parts: 2, bound: "))


def with_later(deployment: Deployment, name: str = "one.g1") -> Deployment:
    later = replace(deployment.queries["one"], name=name)
    return replace(deployment, queries={**deployment.queries, name: later})


BOTH = with_later(EARLIER)
ALONE = replace(BOTH, queries={"one.g1": BOTH.queries["one.g1"]})
RUNNING = {
    "orderer/one.0.a": 3, "root/one.0.a": 4, "root/one.1.b": 5, "orderer/one.g1.0.a": 6,
}  # fmt: skip


def test_what_runs_here_of_the_ended_generation_is_kept() -> None:
    all_ = hand_overs(BOTH, ALONE, RUNNING)
    assert [*all_] == ["one"]
    found = all_["one"]
    assert found.fragments == {"orderer/one.0.a": 3, "root/one.0.a": 4, "root/one.1.b": 5}
    assert (found.ended.name, found.later.name) == ("one", "one.g1")


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (BOTH, BOTH),
        (EARLIER, replace(EARLIER, queries={})),
        (BOTH, EARLIER),
        (EARLIER, ALONE),
    ],
    ids=["nothing ends", "deleted", "cancelled", "its successor runs nowhere yet"],
)
def test_nothing_else_is_kept(before: Deployment, now: Deployment) -> None:
    assert hand_overs(before, now, RUNNING) == {}


def test_a_node_that_runs_nothing_of_it_keeps_nothing() -> None:
    assert hand_overs(BOTH, ALONE, {"orderer/one.g1.0.a": 6}) == {}


def test_its_delivery_ends_at_once() -> None:
    """That of the later generation starts, and there is one fence for alerts."""
    found = hand_overs(BOTH, ALONE, {**RUNNING, "delivery/one": 9})["one"]
    assert "delivery/one" not in found.fragments


def test_it_is_over_when_a_root_of_each_part_answers() -> None:
    ended = hand_overs(BOTH, ALONE, RUNNING)["one"]
    beats: dict[str, Heartbeat] = {}

    def beat(part: int, copy: int, *, answers: int, ready: bool = True) -> None:
        name = copy_names("one.g1", part, 2)[copy].process
        detail = {ANSWERS: answers}
        beats[name] = Heartbeat(name, 1, 1, 1, -1, ready=ready, states={}, detail=detail)

    assert not ended.is_over(beats.get)
    beat(0, 0, answers=1)
    beat(1, 0, answers=0)
    beat(1, 1, answers=1, ready=False)
    assert not ended.is_over(beats.get)
    beat(1, 1, answers=1)
    assert ended.is_over(beats.get)
