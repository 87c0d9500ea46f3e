"""Processes out of CPU while an answer was overdue, and the kernel's figures for this process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial

import pytest
from tests.support.waiting import eventually

from slackwater.rehearsal.load import out_of_cpu
from slackwater.runtime.service.cpu import CpuLoad, CpuShare, LoadMeter, OwnCpu, tree_usage, usage

S = 1_000_000
IDLE = CpuShare(0.05, 0.01)
BUSY = CpuShare(0.98, 0.0)
WAITS = CpuShare(0.02, 4.0)


def one_second(
    at: int, busy: float = 0.5, stolen: float = 0.0, others: float = 0.0, **processes: CpuShare
) -> CpuLoad:
    named = {name.replace("_", "/"): share for name, share in processes.items()}
    return CpuLoad(at * S, 1.0, busy, stolen, named, others)


def test_only_the_time_in_which_an_answer_was_overdue_is_looked_at() -> None:
    loads = [one_second(at, busy=1.0, root_q=BUSY) for at in range(1, 10)]
    assert out_of_cpu(loads, []) is None
    found = out_of_cpu(loads, [(4 * S + 1, 5 * S), (8 * S + 1, 8 * S + 2)])
    assert found is not None
    assert found.seconds == 2.0
    assert found.sentence() == (
        "overloaded: root/q used 98% of a core, for 2 s; the machine was 100% busy for 2 s"
    )


def test_a_process_that_waited_for_a_core_is_named_with_its_share() -> None:
    loads = [one_second(at, busy=1.0, stolen=0.2, aggregator_0=WAITS, root_q=IDLE) for at in (1, 2)]
    found = out_of_cpu(loads, [(0, 2 * S)])
    assert found is not None
    assert [each.process for each in found.starved] == ["aggregator/0"]
    assert found.sentence() == (
        "overloaded: aggregator/0 used 2% of a core and waited for one 4.0 s a second, for 2 s;"
        " the machine was 100% busy for 2 s, 20% taken by its host"
    )


def test_those_out_of_cpu_for_longest_come_first_and_three_are_named() -> None:
    loads = [one_second(1, a=WAITS, b=CpuShare(0.1, 1.0), c=WAITS, d=IDLE, e=WAITS)]
    loads += [one_second(2, a=IDLE, b=CpuShare(0.1, 1.0), c=CpuShare(0.1, 9.0), d=IDLE, e=IDLE)]
    found = out_of_cpu(loads, [(0, 2 * S)])
    assert found is not None
    assert [each.process for each in found.starved] == ["c", "b", "a", "e"]
    assert "; e used" not in found.sentence()
    assert [each["process"] for each in found.to_json()["processes"]] == ["c", "b", "a", "e"]


@pytest.mark.parametrize("process", ["aggregator/0", "broker"])
def test_a_jvm_with_a_whole_core_may_take_another(process: str) -> None:
    assert out_of_cpu([CpuLoad(S, 1.0, 0.6, 0.0, {process: BUSY})], [(0, S)]) is None


def test_a_machine_that_other_programs_fill_is_reported_without_a_name() -> None:
    found = out_of_cpu([one_second(1, busy=0.99, others=0.72, root_q=IDLE)], [(0, S)])
    assert found is not None
    reported = "overloaded: the machine was 99% busy for 1 s, 72% by other programs"
    assert found.sentence() == reported
    assert found.to_json()["machine_others"] == 0.72
    assert out_of_cpu([one_second(1, busy=0.9, root_q=IDLE)], [(0, S)]) is None


def test_a_process_that_computes_has_a_whole_core_less_what_it_waited() -> None:
    """Measured in an undisturbed half second: the figures are read one after the other."""
    child = _spinning()
    try:
        eventually(partial(_is_measured, child.pid), "a quiet half second")
        used_s = usage(child.pid).used_s
        assert tree_usage(os.getpid()).used_s >= used_s > 0.0
    finally:
        child.kill()
        child.communicate()
    assert usage(child.pid).used_s == 0.0, "ended processes do not count"


def _is_measured(spinning: int) -> bool:
    meter, pids = LoadMeter(), {"spinning": spinning, "me": os.getpid()}
    meter.look(pids, 0)
    while meter.age_s < 0.5:
        time.sleep(0.05)
    load = meter.look(pids, 5)
    assert load.at_us == 5
    assert 0.0 < load.busy <= 1.0
    spent = load.processes["spinning"]
    own_share = spent.used / (os.cpu_count() or 1)
    it_runs_or_waits = 0.5 < spent.used + spent.waited < 1.5
    a_named_one_is_no_other = load.others <= load.busy - load.stolen - own_share + 0.05
    return it_runs_or_waits and a_named_one_is_no_other


def test_a_process_that_sleeps_has_not_used_a_core() -> None:
    own = OwnCpu(period_s=0.3)
    assert OwnCpu(period_s=1e6).share() is None, "no period has ended"
    time.sleep(0.5)
    share = own.share()
    assert share is not None
    assert share.used < 0.9, "it slept"


def _spinning() -> subprocess.Popen[bytes]:
    """Start a process that computes without end."""
    code = "print(flush=True)\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child
