"""Mutants of histories and starts.

Runs of empty buckets (trace-24), look-ahead by buckets (rule-12), the begin of a query (trace-49).
"""

from __future__ import annotations

from typing import Final

from tests.simulator.clock import MS, SECOND
from tests.simulator.config import WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.mutation import Edit, Mutant
from tests.simulator.plans import Plan
from tests.simulator.readings import Habits
from tests.simulator.run import check_plan

_chunk = "slackwater.protocols.dpc.sunion.chunks:SourceChunk"
_stable = "slackwater.protocols.dpc.soutput.stable_input:StableInput"
_clock = "slackwater.primitives.eventclock"
_start = "tests.scenarios.test_r49_a_first_start"
_sparse = "tests.scenarios.test_r24_sparse_history"

_simulated = "tests.simulator.history_mutants:in_a_history"


def plan_of_a_history(*faults: str) -> Plan:
    """Return a plan in which event time follows the readings, which are out of order and rare."""
    config = WorldConfig(
        window_us=300 * MS, slide_us=300 * MS, bound_us=400 * MS, margin_us=20 * MS, pace=0.3,
        history_speed=10, ahead_buckets_max=6_000, disorder_us=900 * MS,
        habits=Habits(every_us=40 * MS, jitter_us=900 * MS),
    )  # fmt: skip
    return Plan(5, config, 3 * SECOND, tuple(map(Fault.parse, faults)))


def in_a_history(*faults: str) -> None:
    """Run such a plan, and check every guarantee."""
    check_plan(plan_of_a_history(*faults))


HISTORY_MUTANTS: Final = (
    Mutant(
        "simulated: a run of empty buckets swallows a reading", "trace-24",
        (Edit(f"{_chunk}.first_from",
              "return int(self._times[at]) if at < len(self._times) else None", "return None"),),
        _simulated,
    ),
    Mutant(
        "simulated: readings of a record count as ordered by time", "trace-24",
        (Edit(f"{_chunk}.first_from", "stimes if is_ascending else np.sort(stimes)", "stimes"),),
        _simulated,
    ),
    Mutant(
        "simulated: a tentative run of a history goes past a reading", "trace-24",
        (Edit("slackwater.protocols.dpc.sunion.core:OrdererCore._run_end",
              "limit = min([nearest,", f"limit = min([start + {10**9},"),),
        _simulated, ("at=1s silence s2 for 0.9s",),
    ),
    Mutant(
        "what ended before the begin of a query is due at its end", "trace-49",
        (Edit(f"{_clock}:normal_time_us", "max(normal, begin_us)", "normal"),),
        f"{_start}:test_the_windows_of_a_first_start_are_answered_once_and_exactly",
        (3.8,),
    ),
    Mutant(
        "a run of empty buckets swallows the readings within a record", "trace-24",
        (Edit(f"{_chunk}.first_from",
              "return int(self._times[at]) if at < len(self._times) else None", "return None"),),
        f"{_sparse}:test_readings_out_of_order_in_a_record_are_in_their_buckets",
    ),
    Mutant(
        "readings of a record count as ordered by time", "trace-24",
        (Edit(f"{_chunk}.first_from", "stimes if is_ascending else np.sort(stimes)", "stimes"),),
        f"{_sparse}:test_readings_out_of_order_in_a_record_are_in_their_buckets",
    ),
    Mutant(
        "empty event time counts for a root's look-ahead", "trace-24",
        (Edit(f"{_stable}.has_room", "or len(self._ahead) < self.ahead_records_max", ""),),
        f"{_sparse}:test_rows_of_a_history_take_few_transactions", (500,),
    ),
    Mutant(
        "buckets that a root has taken ahead are not counted", "trace-5",
        (Edit(f"{_stable}.take", "if record.piece == 0 and record.bucket_start > low:",
              "if False:"),),
        f"{_sparse}:test_no_more_than_h_is_read_ahead_of_a_child_that_waits",
    ),
)  # fmt: skip
