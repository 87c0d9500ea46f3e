"""Fragments that move to another host while the others continue, over real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from bench.spoilt_host import python_for
from tests.support.waiting import eventually

from slackwater.codec.results import parse_result
from slackwater.deployment.parse import load_deployment
from slackwater.machine.draining import FRAGMENT_MIB_MAX, HOST_MIB_MAX, Draining, mib_of
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.parts import (
    FAILURES,
    HELD_BYTES,
    HELD_BYTES_MAX,
    LONG_TURN_MS,
    OWN_HOST,
)
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

READINGS = 60
LEAK_READINGS = 600
"""A minute: the leak needs about 20 s to be detected, and half a minute on a busy machine."""
START_TIME_US = 1_600_000_000_000_000
END_US = START_TIME_US + READINGS * 100_000
LEAK_END_US = START_TIME_US + LEAK_READINGS * 100_000
LEAK_MIB = 8
"""Per step. A step that takes much more memory is a long turn, for which the fragment would get its
own host, and the host would be drained without it."""
DEPLOYMENT = """\
apiVersion: slackwater/v1
clock: wall
streams:
  s1: {key: {value: a}, time: {column: t, unit: us}, fields: [x]}
queries:
  well: {from: [s1], bound: 2s, replicas: 1, copies: 1}
  slow: {from: [s1], bound: 2s, replicas: 1, copies: 1}
"""
SLOW, ITS_ROOT = "orderer/slow.0.a", "root/slow.0"


@pytest.fixture
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StackThread]:
    """Run two queries in one host; the file ``spoilt`` changes the steps of fragments."""
    readings = getattr(request, "param", READINGS)
    end_us = START_TIME_US + readings * 100_000
    file, data = tmp_path / "deployment.yaml", tmp_path / "s1.csv"
    file.write_text(DEPLOYMENT)
    rows = (f"{START_TIME_US + 50_000 + i * 100_000},{i}" for i in range(readings))
    data.write_text("\n".join(["t,x", *rows, ""]))
    spoilt = tmp_path / "spoilt"
    running = StackThread(
        StackOptions(
            file,
            load_deployment(file),
            tmp_path / "data",
            proxy_options=("--end-boundary", str(end_us), "--input", f"s1={data}"),
            python=python_for(spoilt),
        )
    )
    yield running
    running.stop()


@pytest.mark.drill
def test_one_that_sleeps_at_each_step_goes_on_in_a_host_of_its_own_and_loses_nothing(
    stack: StackThread, tmp_path: Path
) -> None:
    (tmp_path / "spoilt").write_text(f"{SLOW} sleep 0.2")
    stack.open()
    stack.start_rehearsal(START_TIME_US, 1.0)
    stack.begin(START_TIME_US, 1.0, END_US)
    listener = stack.stack.listener

    def is_moved() -> bool:
        beat = listener.latest(SLOW)
        return beat is not None and beat.detail.get(OWN_HOST) == 1 and beat.ready

    eventually(is_moved, f"{SLOW} has a host of its own")
    eventually(lambda: LONG_TURN_MS in listener.all()[SLOW].detail, "it is as slow as before")
    pids, latest = stack.pids(), listener.all()
    assert latest[SLOW].pid == pids["host/own-0"]
    others = {latest[name].pid for name in (ITS_ROOT, "orderer/well.0.a", "root/well.0")}
    assert others == {pids["host/0"]}
    assert [name for name in pids if name.startswith("host/")] == ["host/0", "host/own-0"]

    all_are_answered(stack)
    reported = [event.event for event in stack.events() if event.process == SLOW]
    assert reported[-1] == "moved from host/0 to host/own-0"
    assert not [e for e in stack.events() if e.process == "host/0" and e.event.startswith("ended")]


@pytest.mark.slow
def test_a_host_is_drained_into_a_new_one_while_readings_come_and_nothing_is_lost(
    stack: StackThread,
) -> None:
    stack.open()
    stack.start_rehearsal(START_TIME_US, 1.0)
    before = stack.pids()
    stack.begin(START_TIME_US, 1.0, END_US)
    eventually(lambda: len(answered(stack, "well")) > 5, "it is under way")
    kept = stack.stack
    draining = Draining(kept.supervisor, kept.listener, kept.processes.launch)
    stack.run(draining.drain("host/0"))
    after = stack.pids()
    assert {name for name in after if name.startswith("host/")} == {"host/new-1"}
    assert not psutil.pid_exists(before["host/0"])
    all_are_answered(stack)
    latest = kept.listener.all()
    assert {latest[name].pid for name in (SLOW, ITS_ROOT)} == {after["host/new-1"]}
    stack.kill("host/new-1")
    eventually(lambda: stack.pids().get("host/new-1", after["host/new-1"]) != after["host/new-1"])
    eventually(lambda: kept.listener.ready(SLOW) and kept.listener.ready("root/well.0"))


@pytest.mark.drill
def test_one_that_keeps_all_it_reads_is_built_anew_beside_the_others_and_loses_nothing(
    stack: StackThread, tmp_path: Path
) -> None:
    spoilt = tmp_path / "spoilt"
    spoilt.write_text(f"{SLOW} leak 500")
    stack.open()
    stack.start_rehearsal(START_TIME_US, 1.0)
    stack.begin(START_TIME_US, 1.0, END_US)
    listener = stack.stack.listener

    def has_ended_by_it() -> bool:
        return HELD_BYTES in listener.all()[SLOW].detail

    eventually(has_ended_by_it, f"{SLOW} has kept too much")
    reported = listener.all()[SLOW].detail
    assert reported[HELD_BYTES] > reported[HELD_BYTES_MAX] == 500
    assert reported[FAILURES] >= 1
    spoilt.unlink()
    all_are_answered(stack)
    latest = listener.all()
    assert {latest[name].pid for name in (SLOW, "orderer/well.0.a")} == {stack.pids()["host/0"]}
    assert FAILURES not in latest["orderer/well.0.a"].detail
    assert FAILURES not in latest["root/well.0"].detail


# Its short form: tests/unit/machine/test_draining.py decides by the same figures.
@pytest.mark.drill
@pytest.mark.parametrize("stack", [LEAK_READINGS], indirect=True)
def test_a_leak_that_only_the_memory_of_the_process_shows_drains_the_host(
    stack: StackThread, tmp_path: Path
) -> None:
    """A real one: the host grows to its allowance of 2 GiB, and its supervisor detects it."""
    stack.open()
    stack.start_rehearsal(START_TIME_US, 1.0)
    before, fragments = stack.pids()["host/0"], stack.stack.supervisor.parts("host/0")
    allowed_mib = HOST_MIB_MAX + FRAGMENT_MIB_MAX * len(fragments)
    stack.begin(START_TIME_US, 1.0, LEAK_END_US)
    (tmp_path / "spoilt").write_text(f"{SLOW} swell {LEAK_MIB}")
    reported = "; moving its fragments"

    def noticed() -> list[str]:
        return [e.event for e in stack.events() if e.event.endswith(reported)]

    eventually(lambda: bool(noticed()), "its memory is noticed")
    (tmp_path / "spoilt").unlink()
    used_mib = int(noticed()[0].removeprefix("uses ").split(" MiB")[0].replace(",", ""))
    assert used_mib > allowed_mib
    eventually(lambda: "host/0" not in stack.pids(), "the old host has ended")
    assert not psutil.pid_exists(before)
    after = stack.pids()["host/new-1"]
    assert mib_of(after) < HOST_MIB_MAX, "the leaked memory is free"
    listener = stack.stack.listener
    latest = listener.all()
    assert {name: latest[name].pid for name in fragments} == dict.fromkeys(fragments, after)
    for name in fragments:
        assert HELD_BYTES not in latest[name].detail, "no session has counted it"
    for query in ("well", "slow"):
        goes_on(stack, query)


def goes_on(stack: StackThread, query: str) -> None:
    """Wait for more answers; none so far is missing, or there twice."""
    before = len(answered(stack, query))
    eventually(lambda: len(answered(stack, query)) > before + 20, f"{query} goes on")
    found = answered(stack, query)
    assert found == list(range(len(found)))


def all_are_answered(stack: StackThread) -> None:
    for query in ("well", "slow"):
        eventually(lambda q=query: len(answered(stack, q)) >= READINGS, f"{query} is answered")  # type: ignore[misc]
        assert answered(stack, query) == list(range(READINGS))


def answered(stack: StackThread, query: str) -> list[float]:
    """Return the readings in the committed stable results so far, in their order."""
    log = (stack.stack.transport.names.results(query, "stable"), 0)
    records = read_to_end(stack.stack.transport, log, isolation="read_committed")
    rows = (parse_result(raw.value) for raw in records)
    return [row["fields"]["x"] for row in rows if row["kind"] == "stable"]
