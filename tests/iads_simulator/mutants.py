"""Deliberate faults in the cores of the control plane, each detected by a test or a seed.

``python -m tests.iads_simulator.mutants`` prints what detects each; ``--find N`` prints the first
of N seeds that finds each mutant. The form is that of ``tests.simulator.mutants``.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter
from typing import Final

from tests.iads_simulator.__main__ import violation
from tests.iads_simulator.world import draw
from tests.simulator.mutation import NOTICED, Edit, Mutant, applied

_iads = "slackwater.protocols.iads"
_endpoint = f"{_iads}.endpoint:Endpoint"
_group = f"{_iads}.group:Group"
_paper = "tests.paper.test_iads"
_seed = "tests.iads_simulator.mutants:seed_finds_nothing"
_control_seed = "tests.iads_simulator.mutants:control_seed_finds_nothing"
_join_maps = "slackwater.control.control_state:_join_maps"
_control = "slackwater.control.control_object:ControlObject"


def seed_finds_nothing(seed: int) -> None:
    """The test that fails with the mutant."""
    found = violation(draw(seed))
    assert not found, found


def control_seed_finds_nothing(seed: int) -> None:
    """The same with the control object."""
    found = violation(draw(seed, control=True))
    assert not found, found


def _mutant(
    name: str, section: str, edit: tuple[str, str, str], by: str, *arguments: object
) -> Mutant:
    return Mutant(name, section, (Edit(*edit),), by, arguments)


MUTANTS: Final = (
    _mutant(
        "clients are not told what a merge has overridden", "iads-2",
        (f"{_control}.merge", "(old.stamps() - self.state.stamps())", "set()"), _control_seed, 15,
    ),
    _mutant(
        "a merge keeps the entry that arrived last", "iads-2",
        (_join_maps, "max(mine, entry)", "entry"), _control_seed, 5,
    ),
    _mutant(
        "a deletion leaves nothing that a merge could compare", "iads-2",
        (f"{_control}._set_query", "name: entry}",
         "name: entry}; queries = {n: q for n, q in queries.items() if q[3]}"),
        _control_seed, 1,
    ),
    _mutant(
        "a transfer that was interrupted counts as complete", "iads-3",
        (f"{_endpoint}.view", "T if self.mode is Mode.NORMAL else self.SS & T", "T"),
        f"{_paper}:test_iii_ss_is_an_intersection_over_interrupted_transfers",
    ),
    _mutant(
        "condition (b) asks the member itself", "iads-3",
        (f"{_endpoint}._do_next", " if t != self.p", ""),
        f"{_paper}:test_iii_condition_b_asks_the_others_only",
    ),
    _mutant(
        "condition (b) is not asked", "iads-3",
        (f"{_endpoint}._do_next", "if any(time <= ts", "if False and any(time <= ts"),
        f"{_paper}:test_iii_an_operation_waits_for_later_logical_times_of_all_others",
    ),
    _mutant(
        "a logical time that is equal is late enough", "iads-3",
        (f"{_endpoint}._do_next", "time <= ts", "time < ts"),
        f"{_paper}:test_iii_an_operation_waits_for_later_logical_times_of_all_others",
    ),
    _mutant(
        "operations are ordered by member alone", "iads-3",
        (f"{_endpoint}._first", "(self.ops[q][0].ts, q)", "q"),
        _seed, 1,
    ),
    _mutant(
        "a logical time does not pass those that are received", "iads-3",
        (f"{_endpoint}._observe", "max(self.lt[self.p], ts) + 1", "self.lt[self.p] + 1"),
        f"{_paper}:test_iii_a_logical_time_is_sent_at_once_on_an_operation",
    ),
    _mutant(
        "no logical time is sent", "iads-3",
        (f"{_endpoint}._send_lt", "if self._latest_ts >= self._sent_lt:", "if False:"),
        f"{_paper}:test_iii_a_logical_time_is_sent_at_once_on_an_operation",
    ),
    _mutant(
        "operations of the old view are dropped", "iads-3",
        (f"{_endpoint}.view", "while (q := self._first()) is not None:", "while (q := None):"),
        f"{_paper}:test_iii_a_view_processes_all_operations",
    ),
    _mutant(
        "operations run during a state transfer", "iads-3",
        (f"{_endpoint}._do_next", "self.mode is not Mode.NORMAL or q is None", "q is None"),
        f"{_paper}:test_iii_operations_wait_for_the_end_of_a_state_transfer",
    ),
    _mutant(
        "an operation is sent while blocked", "iads-4",
        (f"{_endpoint}._send_op", "self.block_status is BlockStatus.BLOCKED", "False"),
        f"{_paper}:test_figure_4_nothing_is_sent_while_blocked",
    ),
    _mutant(
        "the state is sent while blocked", "iads-4",
        (f"{_endpoint}._run", " and self.block_status is BlockStatus.UNBLOCKED", ""),
        f"{_paper}:test_figure_4_no_state_is_sent_while_blocked",
    ),
    _mutant(
        "a synchronised view leaves the transfer open", "iads-4",
        (f"{_endpoint}.view",
         "self.States_Await, self.StatesV, self.send_state = set(), {}, False", "pass"),
        f"{_paper}:test_the_normal_branch_resets_the_transfer",
    ),
    _mutant(
        "the state is awaited from a member that did not know it", "iads-3",
        (f"{_endpoint}.view", "self.p == min(self.SS)", "self.p == min(v.names)"),
        _seed, 0,
    ),
    _mutant(
        "the own state is merged twice", "iads-3",
        (f"{_endpoint}._collect", "self.obj.merge(self.StatesV)",
         "self.obj.merge(self.StatesV | {'own': self.obj.snapshot()})"),
        _seed, 0,
    ),
    _mutant(
        "one state of a synchronised set is left out", "iads-3",
        (f"{_endpoint}._collect", "for t in members:", "for t in sorted(members)[1:]:"),
        _seed, 0,
    ),
    _mutant(
        "the refresh after a merge is forgotten", "iads-2",
        (f"{_endpoint}._collect", "self._refresh(merged=True)", "pass"),
        _seed, 0,
    ),
    _mutant(
        "a merge names no operation that it may override", "iads-2",
        (f"{_endpoint}._refresh", "overridable, truncated = tuple(self._overridable)",
         "overridable, truncated = ()"),
        f"{_paper}:test_a_refresh_after_a_merge_names_what_was_answered_before",
    ),
    _mutant(
        "a response comes before its state is on disk", "iads-2",
        (f"{_endpoint}._run", "effects.insert(0, PersistState(self.obj.snapshot()))",
         "effects.append(PersistState(self.obj.snapshot()))"),
        _seed, 51,
    ),
    _mutant(
        "a message is delivered in a later view", "iads-2",
        (f"{_group}._on_data", "data.view == self.view and ", ""),
        _seed, 2,
    ),
    _mutant(
        "a view is proposed without block_ok", "iads-2",
        (f"{_group}._change_view", "self._effects.append(BlockSending())",
         "self._effects.append(BlockSending())\n            self._propose()"),
        _seed, 0,
    ),
    _mutant(
        "messages are delivered after the proposal", "iads-2",
        (f"{_group}._on_data", "if self._mine is None:", "if True:"),
        _seed, 145,
    ),
    _mutant(
        "the cut is not awaited", "iads-2",
        (f"{_group}._try_install",
         "if any(self._messages.received[q] < n for q, n in cut.items()):", "if False:"),
        _seed, 5,
    ),
    _mutant(
        "the transitional set is the whole view", "iads-2",
        (f"{_group}._try_install", "frozenset(q.name for q in transitional)",
         "frozenset(q.name for q in agreed)"),
        _seed, 0,
    ),
    _mutant(
        "a proposal of another round is taken", "iads-2",
        (f"{_group}._agreed", "(proposal.round, proposal.group) != (mine.round, mine.group)",
         "proposal.group != mine.group"),
        _seed, 7,
    ),
    _mutant(
        "members number a view by themselves", "iads-2",
        (f"{_group}._try_install", "max(p.number for p in agreed.values()) + 1",
         "self._number + 1"),
        _seed, 0,
    ),
    _mutant(
        "a restarted member uses view numbers again", "iads-2",
        (f"{_group}.__init__", "self._number = saved.view_number", "self._number = 0"),
        _seed, 0,
    ),
    _mutant(
        "a restarted member has its old incarnation", "iads-2",
        (f"{_group}.__init__", "saved.incarnation + 1", "1"),
        _seed, 4,
    ),
    _mutant(
        "messages of an older incarnation are taken", "iads-2",
        (f"{_group}.receive", " or sender.incarnation < known", ""),
        "tests.unit.protocols.iads.test_group:test_a_message_of_an_older_incarnation_is_dropped",
    ),
    _mutant(
        "a gap between messages is accepted", "iads-2",
        (f"{_iads}.group:_Messages.add",
         "while count + 1 in self.held[origin]:\n        count += 1",
         "count = max(self.held[origin])"),
        _seed, 2,
    ),
    _mutant(
        "messages are discarded before all have them", "iads-2",
        (f"{_group}._compare_counts", "min([count, self._delivered.get(origin, 0), *counts])",
         "self._delivered.get(origin, 0)"),
        _seed, 2,
    ),
    _mutant(
        "lost messages are not sent again", "iads-2",
        (f"{_group}._on_heartbeat", "self._compare_counts(sender, beat)", "pass"),
        _seed, 2,
    ),
    _mutant(
        "a lost proposal is not sent again", "iads-2",
        (f"{_group}._send_again", "self._transmit(process, proposal)", "pass"),
        _seed, 2,
    ),
    _mutant(
        "a link counts if one end reports it", "iads-2",
        (f"{_iads}.topology:_linked", "and one in reports[other].reaches", ""),
        f"{_paper}:test_groups_are_a_partition_into_cliques",
    ),
    _mutant(
        "a peer is suspected after a fixed time", "iads-2",
        (f"{_iads}.detector:PhiAccrual.suspect_at",
         "math.ceil(mean + self._deviations * deviation)", "150_000"),
        f"{_paper}:test_the_detector_suspects_at_its_deadline",
    ),
)  # fmt: skip


def first_seed(mutant: Mutant, seeds: int) -> int | None:
    """Return the first seed that finds the mutant, and passes with the correct cores."""
    for seed in range(seeds):
        with applied(mutant):
            found = violation(draw(seed))
        if found and not violation(draw(seed)):
            return seed
    return None


def main() -> int:
    """Print the table; return 1 if a mutant was not detected."""
    parser = argparse.ArgumentParser(prog="python -m tests.iads_simulator.mutants")
    parser.add_argument("--find", type=int, default=0, metavar="SEEDS", help="look for seeds")
    options = parser.parse_args()
    failed = 0
    for mutant in MUTANTS:
        began = perf_counter()
        caught = "NOBODY"
        try:
            with applied(mutant):
                mutant.run()
        except NOTICED:
            caught = f"{mutant.caught_by} {' '.join(map(str, mutant.arguments))}"
        failed += caught == "NOBODY"
        seconds = perf_counter() - began
        seed = f"  seed {first_seed(mutant, options.find)}" if options.find else ""
        print(f"{mutant!s:75} {seconds:5.1f} s  {caught}{seed}", flush=True)  # noqa: T201
    print(f"{len(MUTANTS) - failed} of {len(MUTANTS)} mutants are caught")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
