"""Mutants of placement numbers in the logs (trace-41), of deletions, and of a lost record.

Deletions on nodes are those of trace-44. Each is detected by a unit test or a scenario. Most of
them are also detected by seeds of ``python -m tests.simulator --machines``.
"""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant

_start = "slackwater.sessions.orderer_start"
_progress = "slackwater.sessions.progress"
_placing = "slackwater.control.placing"
_placement = "slackwater.control.placement"
_placing_unit = "tests.unit.control.test_placing"
_deletions = "tests.simulator.test_deletions"
_orderer = "tests.unit.sessions.test_orderer_session"
_root = "tests.unit.sessions.test_root_session"
_cancelled = "tests.scenarios.test_r44_a_change_that_is_cancelled"
_scenario = "tests.scenarios.test_r41_one_replica_on_two_nodes"

_of_controller = "tests.unit.controller.test_lost_record"
_of_node = "tests.unit.node.test_lost_record"
_lacks = "slackwater.control.recorded:lacks_queries"
_lacking = "tests.unit.control.test_recorded:test_a_state_lacks_what_was_not_deleted"
_controller = "slackwater.controller.server:Controller"
_join = "slackwater.control.followed:FollowedRecord._join"

PLACEMENT_MUTANTS: Final = (
    Mutant(
        "an orderer starts although it was placed elsewhere later", "trace-41",
        (Edit(f"{_start}:check_precedence", "if 0 <= config.placement < latest:", "if False:"),),
        f"{_scenario}:test_the_replica_with_the_greater_number_runs",
    ),
    Mutant(
        "an orderer's START has no placement number", "trace-41",
        (Edit(f"{_start}:start_record", "placement=config.placement,", ""),),
        f"{_scenario}:test_the_replica_with_the_greater_number_runs",
    ),
    Mutant(
        "an orderer's state record has no placement number", "trace-41",
        (Edit("slackwater.protocols.dpc.sunion.core:OrdererCore.snapshot",
              "placement=self._config.placement,", ""),),
        f"{_scenario}:test_the_state_record_has_the_number_when_retention_has_removed_start",
    ),
    Mutant(
        "an orderer that its node starts again stays down", "trace-41",
        (Edit(f"{_start}:check_precedence", "config.placement < latest",
              "config.placement <= latest"),),
        f"{_orderer}:test_an_orderer_takes_over_from_one_that_was_not_placed_later", (7, 7),
    ),
    Mutant(
        "the state record alone decides which orderer runs", "trace-41",
        (Edit(f"{_start}:check_precedence", "max([state.placement, *starts])", "state.placement"),),
        f"{_scenario}:test_the_replica_with_the_greater_number_runs",
    ),
    Mutant(
        "a root's number counts from its first answer only", "trace-41",
        (Edit(f"{_progress}:PartProgress.needs_claim",
              "if not config.is_recorded or not self.has_begun:", "if True:"),),
        f"{_scenario}:test_in_a_split_network_no_replica_starts_over_and_over", ("a n1",),
    ),
    Mutant(
        "a root claims its part with the number of its predecessor", "trace-41",
        (Edit("slackwater.sessions.copy:CopyOfPart.take_over",
              "replace(state, placement=config.placement)", "state"),),
        f"{_scenario}:test_in_a_split_network_no_replica_starts_over_and_over", ("a n1",),
    ),
    Mutant(
        "when halves merge, what runs in the other one is moved", "trace-41",
        (Edit(f"{_placing}:Placing.view", "if self._members and members - self._members:",
              "if False:"),),
        f"{_scenario}:test_nothing_moves_when_the_halves_merge", ("a b n1",),
    ),
    Mutant(
        "the end of a change and its cancellation both count", "trace-44",
        (Edit("slackwater.control.control_object:ControlObject._next",
              "if beside and beside not in self.state.live_queries():", "if False:"),),
        f"{_cancelled}:test_both_deletions_are_requested_at_once_of_two_controllers",
    ),
    Mutant(
        "a node ends a generation whose successor is gone", "trace-44",
        (Edit("slackwater.node.app:Node._end_replaced", "DeleteQuery(earlier, beside=later)",
              "DeleteQuery(earlier)"),),
        "tests.unit.registration.test_registration:"
        "test_a_generation_is_replaced_only_while_its_successor_is_there",
    ),
    Mutant(
        "a command cancels a change that is complete", "trace-44",
        (Edit("slackwater.cli.query_changes:_request_each",
              "DeleteQuery(query, beside=earlier[0])", "DeleteQuery(query)"),),
        "tests.unit.cli.test_query_changes:"
        "test_a_cancelled_change_that_is_complete_when_the_request_arrives_is_refused",
    ),
    Mutant(
        "a tombstone is dropped before the deletion has been carried out", "deletion",
        (Edit(f"{_placing}:Placing.may_forget", "entry.number in ended", "True"),),
        f"{_deletions}:test_a_tombstone_outlives_views_until_the_deletion_has_been_carried_out",
    ),
    Mutant(
        "a tombstone stays for ever", "deletion",
        (Edit(f"{_placing}:Placing.heartbeat", "now, frozenset(ended)", "now, frozenset()"),),
        f"{_deletions}:test_a_tombstone_outlives_views_until_the_deletion_has_been_carried_out",
    ),
    Mutant(
        "the deletion of an earlier placement counts", "deletion",
        (Edit(f"{_placing}:Placing.may_forget", "entry.number in ended", "ended"),),
        f"{_placing_unit}:"
        "test_a_deletion_is_placed_again_if_its_node_is_lost_before_it_has_carried_it_out",
    ),
    Mutant(
        "a deletion is not placed again on another node", "deletion",
        (Edit(f"{_placement}:_table_of", "known, deleted = {*state.queries, *OF_NO_QUERY}",
              "known, deleted = {*state.live_queries(), *OF_NO_QUERY}"),),
        f"{_deletions}:test_a_deletion_is_carried_out_by_another_node_if_its_node_has_died",
    ),
    Mutant(
        "what was registered after its deletion stays", "deletion",
        (Edit("slackwater.control.recorded:deleted_since", "in generations.items()", "in ()"),),
        f"{_deletions}:"
        "test_what_a_node_registers_without_knowing_of_the_deletion_is_deleted", (False,),
    ),
    Mutant(
        "a tombstone that was dropped is no deletion", "deletion",
        (Edit("slackwater.control.recorded:deleted_since", "generation < state.generation_unused",
              "False"),),
        f"{_deletions}:"
        "test_what_a_node_registers_without_knowing_of_the_deletion_is_deleted", (True,),
    ),
    Mutant(
        "a deletion stays on a node that drains", "deletion",
        (Edit("slackwater.control.control_object:ControlObject._move", "and not is_planned",
              ""),),
        f"{_deletions}:test_a_deletion_is_carried_out_by_another_node_if_its_node_drains",
    ),
    Mutant(
        "a node carries out the empty record of controllers that have lost theirs", "lost record",
        (Edit(_join, "is_lost = self._new >=", "is_lost = False and self._new >="),),
        f"{_of_node}:test_it_goes_on_while_all_controllers_lack_the_record",
    ),
    Mutant(
        "a node that missed a deletion goes on with the query", "lost record",
        (Edit(_join, "self._new >= self._states.keys() and ", ""),),
        f"{_of_node}:test_it_follows_controllers_that_have_not_lost_theirs",
    ),
    Mutant(
        "a node goes on, and does not give its record to controllers", "lost record",
        (Edit("slackwater.node.app:Node._report_to", "client.offer(record)", "pass"),),
        f"{_of_node}:test_the_record_is_given_once_to_each_connection",
    ),
    Mutant(
        "a controller that took a record gives the same view numbers again", "lost record",
        (Edit(f"{_controller}._take", "self._live_again(", "str("),),
        f"{_of_controller}:test_a_new_controller_takes_a_record_and_its_next_view_is_later",
    ),
    Mutant(
        "a record is taken from a node that missed a deletion", "lost record",
        (Edit(f"{_controller}._take", "self._now() < self._new_until_us and ", ""),),
        f"{_of_controller}:test_a_controller_that_is_not_new_takes_none",
    ),
    Mutant(
        "nothing is placed on nodes with greater numbers", "lost record",
        (Edit(f"{_controller}._step", "if greatest > self._member", "if False and self._member"),),
        f"{_of_controller}:test_the_next_view_is_later_than_the_numbers_of_nodes",
    ),
    Mutant(
        "a deleted query counts as lost", "lost record",
        (Edit(_lacks, "record.live_queries()", "record.queries"),), _lacking,
    ),
    Mutant(
        "a query whose tombstone was dropped counts as lost", "lost record",
        (Edit(_lacks, "record.queries[name].generation >= state.generation_unused", "True"),),
        _lacking,
    ),
    Mutant(
        "a query that was applied again counts as the recorded one", "lost record",
        (Edit(_lacks, "state.queries[name] < record.queries[name]", "False"),), _lacking,
    ),
    Mutant(
        "a view has a smaller number than an entry of the record", "lost record",
        (Edit("slackwater.control.control_object:greatest_view",
              "[stamp.view_number for stamp in state.stamps()]", "[0]"),),
        "tests.unit.controller.test_store:test_the_view_number_is_that_of_the_newest_entry",
    ),
    Mutant(
        "a controller without its disk begins with its first incarnation", "lost record",
        (Edit("slackwater.controller.store:open_store",
              "SavedMembership(incarnation=SystemClock().now_us() // 1_000_000)",
              "SavedMembership()"),),
        "tests.unit.controller.test_store:test_a_new_file_has_a_greater_incarnation_than_a_lost_one",
    ),
    Mutant(
        "what has ended on a node that is lost is not placed again", "deletion",
        (Edit(f"{_placement}:_has_ended", "and entry.node in table.takers", ""),),
        f"{_deletions}:test_a_deletion_that_was_carried_out_is_forgotten_although_its_node_has_died",
    ),
)  # fmt: skip
