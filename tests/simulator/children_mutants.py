"""Mutants of children that are groups of logs (rule-33), with partitions that are added."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.scenarios import test_r59_children_are_groups_of_logs as groups
from tests.simulator.mutation import Edit, Mutant
from tests.simulator.plans import by_log
from tests.simulator.run import check_plan
from tests.simulator.topic_mutants import plan_with_topic
from tests.unit.proxy.topic import test_shared_topic as shared

_model = "slackwater.model.child_logs"
_of = f"{_model}:ChildLogs"
_logs = "slackwater.proxy.topic.source_logs"
_groups = "tests.scenarios.test_r59_children_are_groups_of_logs"
_later = "later[(log - len(there)) % len(later)]"


def on_a_topic(test: Callable[[Path, pytest.MonkeyPatch], None]) -> None:
    """Run a test that makes its own proxies."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        test(Path(folder), patch)


def in_children(children: int, partitions: int, *faults: str) -> None:
    """Run a plan in which the logs of a topic are dealt out to children; check every guarantee."""
    plan = plan_with_topic(*faults, partitions=partitions)
    config = by_log(replace(plan.config, replicas=2), children)
    check_plan(replace(plan, config=config))


_simulated = "tests.simulator.children_mutants:in_children"
_states = "tests.unit.primitives.test_states"
GROWS: Final = ("at=1.5s grow s1 by 2", "at=2.4s kill orderer/q.1.b")
"""A replica starts again after partitions were added."""

CHILDREN_MUTANTS: Final = (
    Mutant(
        "simulated: one log is in two children", "trace-60",
        (Edit(f"{_of}.of_child", "self.child_of(source, log) == child",
              "child in {self.child_of(source, log), log % 2}"),),
        _simulated, (2, 4),
    ),
    Mutant(
        "simulated: an orderer divides the logs that there are when it starts", "trace-60",
        (Edit(f"{_of}.of_child", "self.child_of(source, log) == child",
              "log * (1 + max(self.there(source))) // logs == child"),),
        _simulated, (2, 4, *GROWS),
    ),
    Mutant(
        "an orderer divides the logs that there are when it starts", "trace-60",
        (Edit(f"{_of}.of_child", "self.child_of(source, log) == child",
              "log * (1 + max(self.there(source))) // logs == child"),),
        f"{_groups}:test_replicas_that_start_before_and_after_it_divide_the_logs_alike", (4, 0),
    ),
    Mutant(
        "simulated: no child reads a partition that is added", "trace-60",
        (Edit(f"{_of}.child_of", _later, "-1"),),
        _simulated, (8, 8, *GROWS),
    ),
    Mutant(
        "rows of an added partition are in the next child in turn", "trace-60",
        (Edit(f"{_model}:dealt", "of[-1:] if in_order else tuple(dict.fromkeys(of))",
              "tuple(dict.fromkeys(of))"),),
        "tests.unit.model.test_child_logs:"
        "test_where_order_counts_the_child_of_the_last_log_takes_the_added_ones",
    ),
    Mutant(
        "a child is built again for the logs of others", "trace-60",
        (Edit(f"{_of}.next_of", "self.child_of(source, log) == child", "True"),),
        f"{_groups}:test_only_the_child_that_has_another_log_is_built_again",
    ),
    Mutant(
        "an added log begins with the smallest watermark", "trace-59",
        (Edit(f"{_logs}:take_over", "added_at = max(", "added_at = min("),),
        "tests.simulator.children_mutants:on_a_topic",
        (groups.test_an_added_log_begins_with_the_largest_watermark_of_the_others,),
    ),
    Mutant(
        "an added log does not wait for the logs of other proxies", "trace-59",
        (Edit(f"{_logs}:take_over", "(why := before.why_not_yet()) is not None",
              "(why := None) is not None"),),
        "tests.simulator.children_mutants:on_a_topic",
        (shared.test_a_proxy_that_begins_after_the_first_one_begins_where_the_topic_ends,),
    ),
    Mutant(
        "queries with other groups of logs share children", "trace-39",
        (Edit("slackwater.deployment.sharing:_key", "query.child_groups, ", ""),),
        "tests.unit.deployment.test_sharing:test_queries_with_other_groups_of_logs_do_not_share",
    ),
    Mutant(
        "the sums of children are added in the order of their arrival in memory", "trace-28",
        (Edit("slackwater.primitives.panes:window_of", "share.slice for share in shares",
              "share.slice for share in sorted(shares, key=lambda each: id(each.slice))"),),
        "tests.scenarios.test_r28_bit_for_bit:test_a_copy_that_restarted_gives_the_same",
    ),
    Mutant(
        "a bucket counts once for each replica that made it", "trace-8",
        (Edit("slackwater.protocols.dpc.soutput.stable_input:StableInput.take",
              "if end <= here:", "if end <= cursor.frontier:"),),
        _simulated, (8, 8),
    ),
    Mutant(
        "a register is merged by sum", "trace-28",
        (Edit("slackwater.primitives.states:merged",
              "weights = np.maximum.reduceat(weights, starts)",
              "weights = np.add.reduceat(weights, starts)"),),
        f"{_states}:test_the_number_of_different_values_is_estimated", (5_000,),
    ),
    Mutant(
        "the bins of a quantile are shifted by one", "trace-28",
        (Edit("slackwater.primitives.sketches:quantile",
              "low = ((bins + (_FIRST - 1)) << _SHIFT).view(np.float64)\n"
              "    high = ((bins + _FIRST) << _SHIFT).view(np.float64)",
              "low = ((bins + _FIRST) << _SHIFT).view(np.float64)\n"
              "    high = ((bins + _FIRST + 1) << _SHIFT).view(np.float64)"),),
        f"{_states}:test_a_quantile_is_within_one_percent", ("room",),
    ),
)  # fmt: skip
