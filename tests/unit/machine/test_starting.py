"""A start prints each stage once, with its seconds, and is never silent for 3 s."""

from __future__ import annotations

import itertools
import threading

import pytest
from tests.support.waiting import WAIT_S_MAX

from slackwater.machine.starting import (
    IMPORTS_S,
    SILENT_S_MAX,
    STAGES,
    STEADY_S,
    Everything,
    StartLines,
    repeatedly,
)
from slackwater.rehearsal.plan import TARGETS

NAMES = ("proxy/a", "orderer/q.0.a", "orderer/q.0.b", "aggregator/0", "root/q.0")


def test_each_stage_is_a_line_when_all_of_it_is_ready() -> None:
    lines = StartLines(100.0)
    assert lines.reached("Kafka", 102.1) == "ready after  2.1 s: Kafka"
    ready = dict.fromkeys(NAMES, False)
    assert lines.look(ready, 103.0) == []
    ready |= {"proxy/a": True, "orderer/q.0.a": True}
    assert lines.look(ready, 104.0) == [
        "ready after  4.0 s: proxies, which write readings to Kafka"
    ]
    ready["orderer/q.0.b"] = ready["root/q.0"] = True
    assert [line.partition(": ")[2][:5] for line in lines.look(ready, 105.0)] == ["order", "roots"]
    ready["aggregator/0"] = True
    assert lines.look(ready, 112.5) == ["ready after 12.5 s: aggregators (Spark)"]
    assert lines.look(ready, 200.0) == [], "the start is over"


def test_every_kind_of_process_has_words() -> None:
    assert STAGES.keys() >= TARGETS


def test_no_three_seconds_pass_without_a_line() -> None:
    lines = StartLines(0.0)
    ready = dict.fromkeys(NAMES, False)
    printed = [-IMPORTS_S]
    for step in range(1, 100):
        now_s = step * 0.2
        found = lines.look(ready, now_s)
        if found:
            awaited = "proxies, orderers, aggregators (Spark), roots"
            assert found == [f"  {now_s:.0f} s: waiting for {awaited}"]
            printed.append(now_s)
    pairs = list(itertools.pairwise(printed))
    assert pairs
    assert max(later - before for before, later in pairs) < 3
    assert min(later - before for before, later in pairs) >= SILENT_S_MAX - 1e-9
    lines.printed(20.0)
    assert lines.waiting("topics", 22.0) == []
    assert lines.waiting("topics", 22.5) == ["  22 s: waiting for topics"]
    assert lines.waiting("topics", 60.5) != []
    assert lines.waiting("topics", 70.0) == [], "an unusually long start is no reason for a flood"
    assert lines.waiting("topics", 70.5) != []


def test_a_start_is_looked_at_until_its_end_and_once_more() -> None:
    looks: list[int] = []
    is_third = threading.Event()

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            is_third.set()

    with repeatedly(look, 0.001):
        assert is_third.wait(WAIT_S_MAX)
        seen = len(looks)
    assert len(looks) > seen


def test_an_error_of_a_look_is_raised_at_the_end() -> None:
    """Its thread would print a traceback when the reader of a pipe has gone."""
    has_failed = threading.Event()

    def look() -> None:
        has_failed.set()
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError), repeatedly(look, 0.001):
        assert has_failed.wait(WAIT_S_MAX)


def test_a_history_that_has_not_been_sent_is_named() -> None:
    lines = StartLines(0.0)
    ready = {"proxy/a": True, "root/q.0": False}
    lines.look(ready, 1.0)
    (line,) = lines.look(ready, 9.0, first="the first readings")
    assert line.endswith(": waiting for the first readings")


def test_everything_runs_once_all_has_been_ready_for_a_while() -> None:
    everything = Everything()
    ready = {"proxy/a": True, "root/q.0": True}
    assert not everything.runs(ready, (), 10.0)
    assert not everything.runs(ready, (), 10.0 + STEADY_S / 2)
    assert not everything.runs(ready | {"root/q.0": False}, (), 10.9), "a root fell back"
    assert not everything.runs(ready, (), 11.1), "it has only just returned"
    assert everything.runs(ready, (), 11.1 + STEADY_S)


def test_a_query_that_is_awaited_or_no_process_at_all_is_not_everything() -> None:
    everything = Everything()
    for waiting, ready in ((("q",), {"proxy/a": True}), ((), {})):
        for now_s in (10.0, 20.0):
            assert not everything.runs(ready, waiting, now_s)
    assert not everything.runs({"proxy/a": True}, (), 30.0)
    assert everything.runs({"proxy/a": True}, (), 30.0 + STEADY_S)
