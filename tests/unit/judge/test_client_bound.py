"""Late first answers and their excuses: each excuse, and similar cases that are none.

Windows of 1 s, X = 0.5 s; normal times are wall seconds 5001, 5002, ... ; 250 ms are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.histories import batch, expectations
from tests.unit.machine.test_layout import query

from slackwater.codec.results import format_time
from slackwater.deployment.fragments import stages
from slackwater.judge.bound import Judged, judge, merged, outages
from slackwater.judge.check import Checker, Disturbance
from slackwater.judge.latency import latencies

MS = 1_000
S = 1_000_000
T = 5_000 * S
STAGES = stages(query("climate", "s"))
A, B, ROOT, BROKER = "orderer/climate.0.a", "orderer/climate.0.b", "root/climate.0", "broker"
AGGREGATORS = ("aggregator/0", "aggregator/1")


def down(process: str, start_ms: int, end_ms: int, *, silent: bool = False) -> Disturbance:
    return Disturbance(T + start_ms * MS, T + end_ms * MS, process, silent)


def judged(late_ms: Sequence[int], faults: Sequence[Disturbance] = ()) -> Judged:
    """Return the verdict on windows with these delays after their normal times."""
    agreed = expectations(end=(1_000 + len(late_ms)) * S)
    checker = Checker(agreed, batch({}))
    for seq, late in enumerate(late_ms):
        start = (1_000 + seq) * S
        due = int(agreed.due(start + S))
        first, end = format_time(start), format_time(start + S)
        checker.feed(
            {
                "query": "climate", "part": 0, "seq": seq, "kind": "boundary", "label": "stable",
                "epoch": 0, "window_start": first, "window_end": end, "windows": 1,
                "keys": 0, "missing": [], "due_at": format_time(due),
                "emitted_at": format_time(due), "seen_at": format_time(due + late * MS),
            }
        )  # fmt: skip
    assert checker.finish().ok
    return judge(checker, latencies(checker, faults), outages(faults, STAGES))


def test_the_bound_and_250_ms_are_allowed_and_no_more() -> None:
    found = judged([500, 749, 751, 0, 3_000])
    assert found.late == 2
    assert [each.window_start for each in found.worst] == [1_004 * S, 1_002 * S], "the worst first"
    assert [each.late for each in found.worst] == [3_000 * MS, 751 * MS]
    assert {each.allowed for each in found.worst} == {750 * MS}
    assert found.excused == 0
    assert found.overdue == ((T + 3_000 * MS, T + 3_751 * MS), (T + 5_000 * MS, T + 8_000 * MS))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param([down(BROKER, 2_900, 4_000)], id="the broker"),
        pytest.param([down(ROOT, 2_900, 4_000)], id="the only root"),
        pytest.param([down(A, 2_000, 4_000), down(B, 2_900, 4_100)], id="all replicas"),
        pytest.param([down(each, 2_900, 4_000) for each in AGGREGATORS], id="all aggregators"),
    ],
)
def test_an_outage_of_a_stage_excuses_until_x_after_its_end(fault: list[Disturbance]) -> None:
    """The window due at 5003 may be answered until 5004 + X + 250 ms, the next one as usual."""
    end_ms = min(each.end for each in fault) // MS - T // MS  # when the first copy has returned
    on_time = end_ms + 750 - 3_000
    found = judged([0, 0, on_time, 700], fault)
    assert (found.late, found.excused) == (0, 1)
    found = judged([0, 0, on_time + 1, 751], fault)
    assert found.late == 2
    assert found.worst[0].allowed == on_time * MS or found.worst[1].allowed == on_time * MS


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param([down(A, 0, 60_000)], id="one replica of two"),
        pytest.param([down(AGGREGATORS[1], 0, 60_000)], id="one aggregator of two"),
        pytest.param([down(A, 0, 3_000), down(B, 3_000, 9_000)], id="one after the other"),
        pytest.param([down("proxy/s", 0, 60_000, silent=True)], id="a silent source"),
        pytest.param([down("proxy/s", 0, 60_000)], id="a dead proxy"),
        pytest.param([down("root/other.0", 0, 60_000)], id="another query's root"),
        pytest.param([down(ROOT, 5_000, 9_000)], id="an outage after the bound was over"),
        pytest.param([down(BROKER, 1_000, 3_000)], id="an outage that ended before it was due"),
    ],
)
def test_nothing_else_excuses(fault: list[Disturbance]) -> None:
    found = judged([0, 0, 751], fault)
    assert (found.late, found.excused) == (1, 0)
    assert found.worst[0].allowed == 750 * MS


def test_an_outage_in_the_time_that_another_one_gave_gives_more() -> None:
    faults = [down(ROOT, 2_900, 3_500), down(BROKER, 4_200, 5_000)]
    assert judged([0, 0, 2_750], faults).late == 0
    assert judged([0, 0, 2_751], faults).late == 1


def test_of_a_query_with_one_replica_that_replica_is_the_stage() -> None:
    alone = stages(query("q", "s", replicas=1))
    assert ("orderer/q.0.a",) in alone
    assert ("aggregator/0",) in alone
    fault = down("orderer/q.0.a", 1, 2)
    assert outages([fault], alone) == [(fault.start, fault.end)]


def test_each_child_is_a_stage_of_its_own() -> None:
    both = stages(query("q", "s", "t", children=2))
    assert ("orderer/q.0.a", "orderer/q.0.b") in both
    assert ("orderer/q.1.a", "orderer/q.1.b") in both
    across = [down("orderer/q.0.a", 1, 5), down("orderer/q.1.b", 1, 5)]
    assert outages(across, both) == []


def test_without_a_window_no_aggregator_is_waited_for() -> None:
    names = {name for copies in stages(replace(query("q", "s"), window=None)) for name in copies}
    assert names == {"broker", "orderer/q.0.a", "orderer/q.0.b", "root/q.0"}


def test_merged_spans_neither_touch_nor_overlap() -> None:
    assert merged([(5, 6), (1, 3), (2, 4), (4, 5), (8, 9)]) == [(1, 6), (8, 9)]
