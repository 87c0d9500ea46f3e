"""Mutants: deliberate faults that the simulator or a test without a broker must detect.

A mutant is an edit of the text of one function: the replaced text must exist, so a mutant whose
target has changed fails instead of testing nothing. Each names the trace that it reproduces, and
the test that must detect it: a readable scenario, or a plan of faults that a seed once found and
that was then shrunk (``found.json``; with the correct cores it violates nothing).

``python -m tests.simulator.mutants`` prints the test and the time that detect each mutant;
``--seeds N`` also prints after how many of N random seeds each is found, and ``--find`` searches
plans for mutants with neither a scenario nor a plan.
"""

from __future__ import annotations

import argparse
import logging
import sys
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import orjson
import pytest
from tests.simulator.alert_mutants import ALERT_MUTANTS
from tests.simulator.children_mutants import CHILDREN_MUTANTS
from tests.simulator.copy_mutants import COPY_MUTANTS
from tests.simulator.generation_mutants import GENERATION_MUTANTS
from tests.simulator.history_mutants import HISTORY_MUTANTS
from tests.simulator.hosting_mutants import HOSTING_MUTANTS
from tests.simulator.joining_mutants import JOINING_MUTANTS
from tests.simulator.key_mutants import KEY_MUTANTS
from tests.simulator.merging_mutants import MERGING_MUTANTS
from tests.simulator.moving_mutants import MOVING_MUTANTS
from tests.simulator.mutation import FOUND, NOTICED, Edit, Mutant, applied, found_plans
from tests.simulator.placement_mutants import PLACEMENT_MUTANTS
from tests.simulator.run import run, simulate
from tests.simulator.shrink import shrink
from tests.simulator.site_mutants import SITE_MUTANTS
from tests.simulator.topic_mutants import TOPIC_MUTANTS

from slackwater.model.records import SourcePosition

_sunion = "slackwater.protocols.dpc.sunion"
_soutput = "slackwater.protocols.dpc.soutput"
_common = "slackwater.protocols.common"
_reconcile = "slackwater.protocols.dpc.reconcile"
_source = "slackwater.protocols.dpc.source"
_scenarios = "tests.scenarios"
_never_reported = Edit(
    "tests.simulator.heartbeats:Heartbeats.is_hole", "return any(", "return False and any("
)
"""Otherwise a reader's report of a hole repairs it (rule-11), and the fault costs only time."""
_sessions = "slackwater.sessions"
_session = "tests.unit.sessions.test_orderer_session"
_root_session = "tests.unit.sessions.test_root_session"
_positions = f"{_scenarios}.test_r42_a_new_query_starts_where_others_are"
_newcomer = f"{_scenarios}.test_r08_a_fragment_added_to_a_host"
_chains = f"{_scenarios}.test_r20_a_query_as_a_source"
_losses = f"{_scenarios}.test_r15_answers_report_lost_readings"
_gaps = f"{_scenarios}.test_r15_retention_is_outrun"
_held = f"{_scenarios}.test_r05_records_held_without_need"
_joins = f"{_scenarios}.test_r26_stateful_operators"
_turns = f"{_scenarios}.test_r30_replicas_catch_up_one_at_a_time"
_starved = f"{_scenarios}.test_r14_corrections_are_not_starved"
_gain = "test_corrections_gain_on_live_answers_however_long_a_transaction_takes"
_overload = f"{_scenarios}.test_r38_overload"
_sharing = f"{_scenarios}.test_r39_queries_that_share_children"
_joined = f"{_scenarios}.test_r50_a_query_joins_children"
_truncation = "slackwater.registration.truncation"
_sharing_of = "slackwater.deployment.sharing"
_unit_sharing = "tests.unit.deployment.test_sharing"

MUTANTS = (
    Mutant(
        "a proxy continues after its log's last record", "trace-1",
        (Edit("slackwater.primitives.ids:Contiguous.accept", "if not self.is_next(first_id):",
              "if first_id < self.next_id:"),),
        f"{_scenarios}.test_r01_world:test_the_writer_sends_again_from_the_hole", ("proxy/s1",),
    ),
    Mutant(
        "an orderer continues after its log's last record", "trace-1",
        (Edit(f"{_sunion}.recovery:recover",
              "if Position(record.bucket_start, record.piece) != frontier:", "if False:"),
         _never_reported),
        f"{_scenarios}.test_r01_world:test_the_writer_sends_again_from_the_hole",
        ("orderer/q.0.a",),
    ),
    Mutant(
        "readers accept a zombie proxy's records", "trace-2",
        (Edit(f"{_sunion}.cursor:SourceCursor.offer",
              "record.inc < self.inc or record.kind is Kind.VOID", "record.kind is Kind.VOID"),),
        "tests.simulator.mutants:a_zombie_lies",
    ),
    Mutant(
        "an orderer continues after a zombie's records", "trace-2",
        (Edit(f"{_sunion}.recovery:recover",
              "if offset == state.stable_offset and state.last_id >= 0:", "if False:"),
         Edit(f"{_sunion}.recovery:SoleWriter.delivered", "return alone", "return True"),
         _never_reported),
        f"{_scenarios}.test_r02_world:test_a_successor_does_not_go_on_behind_what_a_zombie_wrote",
        (0,),
    ),
    Mutant(
        "a restarted root loses its tentative answers", "trace-3",
        (Edit(f"{_sessions}.progress:PartProgress.state", "return self.own",
              "from dataclasses import replace\n"
              "        return replace(self.own, answered_to=self.own.stable_from)"),),
        f"{_scenarios}.test_r03_world:test_a_root_that_dies_with_tentative_answers_leaves_none_behind",
    ),
    Mutant(
        "the UNDO is omitted", "trace-3",
        (Edit(f"{_soutput}.answers:_Draft.answer_stable", "if correcting:", "if False:"),),
        f"{_scenarios}.test_r03_world:test_a_dead_aggregator_is_undone_though_no_orderer_forked",
    ),
    Mutant(
        "one UNDO revokes all tentative answers", "trace-4",
        (Edit(f"{_soutput}.answers:_Draft.answer_stable", "min(to, before.answered_to)",
              "before.answered_to"),),
        f"{_scenarios}.test_r04_world:test_a_source_that_returns_for_a_moment_revokes_only_what_it_replaces",
    ),
    Mutant(
        "no cursor is parked", "trace-5",
        (Edit(f"{_sunion}.logs:OrdererLogs._bound", "self.park(line, stream)", "pass"),
         Edit(f"{_sunion}.logs:OrdererLogs.wanted", "if needs_input or (", "if True or (")),
        f"{_scenarios}.test_r05_memory_does_not_grow_with_the_failure:memory_stays_flat_without_a_source",
        (1_200,),
    ),
    Mutant(
        "a cursor keeps records that no operator looks back to", "trace-5",
        (Edit(f"{_sunion}.cursor:SourceCursor.pass_to",
              "while self._passed and self._is_done(self._passed[0], needed_from):",
              "while False:"),),
        f"{_held}:test_one_that_does_not_leak_goes_on", (False,),
    ),
    Mutant(
        "a cursor that runs ahead is parked too late", "trace-5",
        (Edit(f"{_sunion}.logs:OrdererLogs._bound",
              "cursor.bytes_held > self._bytes_max", "cursor.bytes_held > 9 * self._bytes_max"),),
        f"{_held}:test_one_that_does_not_leak_goes_on", (True,),
    ),
    Mutant(
        "a session that keeps too much continues", "trace-5",
        (Edit(f"{_sunion}.logs:OrdererLogs.check_excess",
              "excess > before.get((line, log), excess)", "False"),),
        f"{_held}:test_a_session_that_leaks_ends", ("it releases nothing", False),
    ),
    Mutant(
        "the root keeps every bucket it has read", "trace-5",
        (Edit(f"{_soutput}.children:settle", "child.live.forget_before(child.chosen.to)",
              "pass"),),
        f"{_scenarios}.test_r05_memory_does_not_grow_with_the_failure:test_a_long_life_without_failure_leaves_memory_flat",
    ),
    Mutant(
        "a claimed incarnation is not verified", "trace-2",
        (Edit("slackwater.runtime.logs.incarnation:has_begun", "return any(map(is_start, records))",
              "return True"),),
        f"{_scenarios}.test_r02_a_claimed_incarnation:test_an_incarnation_is_accepted_where_its_start_is",
    ),
    Mutant(
        "a restarted orderer suppresses all output until it is stable", "trace-6",
        (Edit(f"{_sunion}.core:OrdererCore.suppress_tentative",
              "return inputs.has_unread and inputs.is_unread(grid.next_cut(self.line.live_next))",
              "return self.line.forked and self.counters.forks == 0"),),
        f"{_scenarios}.test_r06_restarted_replicas_answer:test_both_replicas_at_once",
    ),
    Mutant(
        "tentative buckets of two replicas are added", "trace-7",
        (Edit(f"{_soutput}.live_input:LiveInput.ingredients",
              "for low, high in _uncovered(",
              "span = (version.start, version.end, False)\n"
              "        for i, one in enumerate(chosen):\n"
              "            if (one.start, one.end, version.stable or one.stable) == span:\n"
              "                more = (*one.pieces, *version.pieces.values())\n"
              "                chosen[i] = replace(one, pieces=more)\n"
              "        for low, high in _uncovered("),),
        f"{_scenarios}.test_r07_a_switch_between_replicas:test_a_replica_dies_while_both_speak_tentatively",
    ),
    Mutant(
        "records ahead are dropped", "trace-8",
        (Edit(f"{_soutput}.stable_input:StableInput._hold", "cursor.return_to(place)", "pass"),),
        f"{_scenarios}.test_r08_a_record_ahead_waits:test_a_new_replica_continues_when_the_other_dies_where_it_began",
    ),
    Mutant(
        "an added fragment's cursor jumps to its host's position", "trace-8",
        (Edit(f"{_common}.inputs:Inputs.live_at", "at.attach(cursor)", "cursor.attached = True"),),
        f"{_newcomer}:test_it_reads_what_the_host_has_read_and_writes_what_the_others_write",
        (False, None),
    ),
    Mutant(
        "a host does not pass on its positions", "trace-8",
        (Edit(f"{_sessions}.orderer:OrdererSession._live_at",
              "self.core.logs.inputs.live_at(stream, offset)", "pass"),),
        f"{_newcomer}"
        ":test_an_orderer_that_starts_again_in_a_host_loses_nothing_and_claims_no_loss", (1,),
    ),
    Mutant(
        "a state record is written before the records it counts", "trace-1",
        (Edit(f"{_sessions}.deliveries:Deliveries.take",
              "self._counted < self._waiting[1]", "False"),),
        f"{_session}:test_a_state_record_waits_until_what_it_counts_is_in_the_logs",
    ),
    Mutant(
        "a delivery after another writer's START counts", "trace-2",
        (Edit(f"{_sessions}.deliveries:Deliveries.delivered", "if self._others:", "if False:"),),
        f"{_session}:test_it_ends_for_another_writer_and_for_nothing_else", (True,),
    ),
    Mutant(
        "other writers are not checked for", "trace-2",
        (Edit(f"{_sessions}.other_writers:look_between", "if found:", "if False:"),),
        f"{_session}:test_it_ends_for_another_writer_and_for_nothing_else", (True,),
    ),
    Mutant(
        "an orderer continues to write after a hole", "trace-1",
        (Edit(f"{_sessions}.orderer:OrdererSession.step", "if self._is_ending:", "if False:"),),
        f"{_session}:test_behind_a_hole_it_writes_nothing_but_where_its_successor_begins",
    ),
    Mutant(
        "records sent again have ids already used", "trace-1",
        (Edit(f"{_sessions}.orderer_start:OrdererStart._after_results",
              "own_log=[record for _, record in own]", "own_log=[]"),),
        f"{_session}:test_behind_a_hole_ids_go_on_behind_those_that_lie_before_the_results_end",
    ),
    Mutant(
        "an orderer suppresses nothing after its start", "trace-6",
        (Edit(f"{_sessions}.orderer:OrdererSession.start",
              "{self._stream_of[log]: ends[log] for log in self.inputs}", "{}"),),
        f"{_session}:test_start_is_written_before_the_ends_are_asked_that_it_is_mute_until",
    ),
    Mutant(
        "a state record has a position of the other log", "trace-6",
        (Edit(f"{_sessions}.orderer:OrdererSession.start",
              "Deliveries(self.inc, begun.live_from)", "Deliveries(self.inc, self.inc)"),),
        f"{_session}:test_a_state_record_points_into_both_logs_though_nothing_is_delivered_yet",
    ),
    Mutant(
        "a root continues from a state read before it fenced", "trace-18",
        (Edit(f"{_sessions}.copy:CopyOfPart.take_over", "core.follow(state)", "pass"),),
        f"{_root_session}:test_what_it_goes_on_from_is_read_behind_the_fence",
    ),
    Mutant(
        "a root reads the part's state before it fences", "trace-18",
        (Edit(f"{_sessions}.copy:CopyOfPart.take_over",
              "yield OpenTransactions()\n    found = yield from self._read_to_end()",
              "found = yield from self._read_to_end()\n    yield OpenTransactions()"),),
        f"{_root_session}:test_what_it_goes_on_from_is_read_behind_the_fence",
    ),
    Mutant(
        "a root answers before it can commit", "trace-18",
        (Edit(f"{_sessions}.root:RootSession.step", "if not self._copy.answers:",
              "if self.pair.role is PairRole.FOLLOWING:"),),
        f"{_root_session}:test_nothing_is_answered_before_transactions_are_open",
    ),
    Mutant(
        "a root fences a root with the same placement number", "trace-17",
        (Edit(f"{_soutput}.config:stays_down", "state.placement >= placement",
              "state.placement > placement"),),
        f"{_root_session}:test_a_copy_that_was_placed_no_later_stays_down_and_fences_nobody", (5,),
    ),
    Mutant(
        "a root whose placement is recorded does not start again", "trace-17",
        (Edit(f"{_soutput}.config:stays_down", "state.placement == placement", "False"),),
        f"{_root_session}:test_a_start_with_a_recorded_number_continues_what_an_earlier_start_answered",
        (5,),
    ),
    Mutant(
        "a root whose placement is recorded starts after a later placement", "trace-17",
        (Edit(f"{_soutput}.config:stays_down", "state.placement == placement", "True"),),
        f"{_root_session}:test_a_recorded_number_that_is_smaller_stays_down",
    ),
    Mutant(
        "a second transaction begins during another", "trace-3",
        (Edit(f"{_soutput}.core:RootCore.step", "if self.awaits_commit:", "if False:"),),
        f"{_root_session}:test_a_transaction_waits_for_the_one_before",
    ),
    Mutant(
        "a failed commit counts as done", "trace-3",
        (Edit(f"{_sessions}.root:RootSession._commit_failed",
              'self._fail(f"{self.fragment}: {why}")', "self._committed(self._now)"),),
        f"{_root_session}:test_a_transaction_that_failed_ends_the_copy_and_counts_for_nothing",
    ),
    Mutant(
        "a root accepts the claim of a placement that has not answered", "trace-2",
        (Edit(f"{_sessions}.claims:Claims._look",
              "found > self._inc", "True"),),
        f"{_root_session}:test_a_claim_is_looked_up", (4, False),
    ),
    Mutant(
        "a root accepts an incarnation that has not begun", "trace-9",
        (Edit(f"{_sessions}.root_logs:checked_record",
              "(of.child, of.replica) and has_begun", "(of.child, of.replica)"),),
        f"{_root_session}:test_what_its_orderer_cannot_have_written_is_void", ({"inc": 2**62},),
    ),
    Mutant(
        "an added root's cursors jump to its host's positions", "trace-8",
        (Edit(f"{_common}.inputs:Inputs.live_at", "at.attach(cursor)", "cursor.attached = True"),),
        f"{_root_session}:test_a_newcomer_reads_what_its_host_has_read_for_others",
    ),
    Mutant(
        "any greater seq counts", "trace-9",
        (Edit(f"{_soutput}.delta_cursor:DeltaCursor.admits",
              "self._strict and 0 <= self.next_seq < record.seq", "False"),),
        f"{_scenarios}.test_r01_world:test_the_writer_sends_again_from_the_hole",
        ("aggregator/0",),
    ),
    Mutant(
        "a part without keys gets no record", "trace-9",
        (Edit("tests.simulator.aggregator:aggregate",
              "return [_of_part(record, figures, seq, part, parts) for part in range(parts)]",
              "found = [_of_part(record, figures, seq, part, parts) for part in range(parts)]\n"
              "    return [delta for delta in found if delta.keys]"),),
        f"{_scenarios}.test_r09_every_record_has_its_seq:test_every_part_gets_a_record_for_every_record",
    ),
    Mutant(
        "a deadline alone makes a stream failed", "trace-11",
        (Edit(f"{_common}.line:Line._was_read_since",
              "return through is not None and through >= deadline", "return True"),),
        "tests.simulator.mutants:timers_first",
    ),
    Mutant(
        "all stages wait until the same instant", "trace-13",
        (Edit("tests.simulator.world:WorldConfig.answer_within_us",
              "(stages - stage + 1) * self.margin_us", "self.margin_us"),),
        f"{_scenarios}.test_r13_deadlines_are_one_margin_apart:test_only_the_silent_source_is_missing_not_its_child",
    ),
    Mutant(
        "a tentative run hides the stable buckets within it", "trace-7",
        (Edit(f"{_soutput}.live_input:LiveInput.ingredients",
              "key=lambda each: (-each[1].rank, each[0], -each[1].start)",
              "key=lambda each: each[1].start"),),
        "tests.unit.protocols.dpc.test_replicated:"
        "test_what_is_later_in_the_live_log_replaces_what_a_run_has_and_the_reverse",
    ),
    Mutant(
        "a stable bucket takes the whole tentative run that begins with it", "trace-7",
        (Edit(f"{_soutput}.live_input:_ReplicaView._replace",
              "self._keep_rest(old, version.end)", "pass"),),
        "tests.unit.protocols.dpc.test_replicated:"
        "test_a_stable_run_within_a_tentative_one_replaces_its_part",
    ),
    Mutant(
        "a tentative run includes a bucket that is not due", "trace-36",
        (Edit(f"{_sunion}.core:OrdererCore._run_end",
              "return verdict == AnswerTentatively(missing)", "return True"),),
        "tests.scenarios.test_r21_queries_without_a_window:"
        "test_a_run_ends_where_the_next_bucket_is_not_due",
    ),
    Mutant(
        "a tentative run includes readings", "trace-36",
        (Edit(f"{_sunion}.core:OrdererCore._run_end",
              "limit = min([nearest, *", "limit = min([*"),),
        "tests.scenarios.test_r21_queries_without_a_window:"
        "test_a_silent_stream_widens_no_bucket_with_a_reading",
    ),
    Mutant(
        "all corrections go into one transaction", "trace-14",
        (Edit(f"{_soutput}.answers:AnswerPlanner._within_bounds",
              "if corrected == self.corrections_max:", "if False:"),
         Edit(f"{_soutput}.decision:Decider._complete_windows",
              "range(windows_max)", "range(10_000)")),
        "tests.simulator.mutants:many_corrections",
    ),
    Mutant(
        "a root does not fence before it reads", "trace-18",
        (Edit("tests.simulator.kafka:Broker._check",
              "if self._epochs.get(transactional_id) != epoch:", "if False:"),),
        f"{_scenarios}.test_r18_restart_reads_what_counts:test_a_zombie_wakes_in_the_middle_of_its_transaction",
    ),
    Mutant(
        "pieces are ignored", "trace-32",
        (Edit(f"{_soutput}.delta_cursor:next_position",
              "record.kind is not Kind.BOUNDARY and record.piece + 1 < record.pieces", "False"),),
        f"{_scenarios}.test_r32_buckets_in_pieces:test_every_piece_counts",
    ),
    Mutant(
        "replicas catch up without the lease", "trace-30",
        (Edit(f"{_reconcile}.staggering:Stagger._has_turn",
              "return waited and not self._ahead(now)", "return True"),),
        f"{_turns}:test_all_ask_and_the_lowest_id_goes_first",
    ),
    Mutant(
        "two requesting replicas grant the lease to each other", "trace-30",
        (Edit(f"{_reconcile}.staggering:Stagger._choice", "asking.append(self._me)", "pass"),),
        f"{_turns}:test_all_ask_and_the_lowest_id_goes_first",
    ),
    Mutant(
        "a holder grants the lease to a lower id", "trace-30",
        (Edit(f"{_reconcile}.staggering:Stagger.may_catch_up",
              "-1 if self._holds else self._choice(now)", "self._choice(now)"),),
        f"{_turns}:test_a_holder_of_the_lease_refuses_also_a_lower_id",
    ),
    Mutant(
        "a lease does not expire", "trace-30",
        (Edit(f"{_reconcile}.staggering:Stagger._is_active",
              "self._is_fresh(peer, now) and now - peer.moved_at < self._lease_us", "True"),),
        f"{_turns}:test_a_holder_that_ends_is_waited_for_no_longer_than_its_lease",
    ),
    Mutant(
        "a replica that waits for the lease emits nothing new", "trace-30",
        (Edit(f"{_sunion}.core:OrdererCore._answer", "if self.suppress_tentative:",
              "if self.suppress_tentative or self._held_back:"),),
        f"{_turns}:test_a_holder_that_ends_is_waited_for_no_longer_than_its_lease",
    ),
    Mutant(
        "one log for both lines", "trace-33",
        (Edit("tests.simulator.aggregator:SimAggregator.task_of", "return child, replica, line",
              "return child, replica"),),
        f"{_scenarios}.test_r33_corrections_do_not_delay_live_answers:test_a_slow_aggregator_lets_live_buckets_pass_the_corrections",
    ),
    Mutant(
        "the lines join before the corrections are read", "trace-33",
        (Edit(f"{_sunion}.core:OrdererCore._stable_may_emit",
              "not self.downstream.is_awaited(now, line.stable_next)", "True"),),
        f"{_scenarios}.test_r33_corrections_do_not_delay_live_answers:test_an_aggregator_slower_than_its_orderer_keeps_the_lines_apart",
    ),
    Mutant(
        "an ended root's report counts permanently", "trace-33",
        (Edit(f"{_reconcile}.downstream:Downstream.is_awaited",
              "if now - at < self._lease_us", ""),),
        f"{_scenarios}.test_r33_corrections_do_not_delay_live_answers:test_a_dead_root_is_not_waited_for",
    ),
    Mutant(
        "roots without progress are waited for", "trace-33",
        (Edit(f"{_reconcile}.downstream:Downstream.is_awaited",
              "lag > self._lag // 2", "False"),),
        f"{_scenarios}.test_r33_corrections_do_not_delay_live_answers:test_an_aggregator_that_is_never_near_does_not_keep_the_lines_apart",
    ),
    Mutant(
        "Table II is not applied", "trace-34",
        (Edit(f"{_soutput}.live_input:LiveInput.live_to",
              "if is_stable and view.tentative_to <= view.stable_to:", "if False:"),),
        f"{_scenarios}.test_r34_one_faulty_replica:test_the_healthy_replica_is_waited_for", (2,),
    ),
    Mutant(
        "a log parked ahead is awaited", "trace-34",
        (Edit("slackwater.protocols.common.inputs:_holds_nothing_due",
              "if cursor.attached or not probe.answered:", "if True:"),),
        f"{_scenarios}.test_r34_a_log_parked_ahead:test_the_answer_comes_within_the_bound",
    ),
    Mutant(
        "the live line's seek moves the stable line's counters", "trace-35",
        (Edit(f"{_sunion}.logs:OrdererLogs.ends", "cursor.seek(end)",
              "cursor.seek(end)\n"
              "            self.stable[stream].next_id = -1\n"
              "            self.stable[stream].offset = end"),),
        f"{_scenarios}.test_r35_after_a_seek:test_the_live_line_hears_the_stream_again",
    ),
    Mutant(
        "records skipped by a seek are not missing", "guarantee-3",
        (Edit(f"{_sunion}.cursor:SourceCursor.passed",
              "start - self._lookback_us >= self.complete_from", "True"),),
        "tests.simulator.mutants:a_seek_under_a_long_bound",
    ),
    Mutant(
        "skipped records are missing after they were read", "trace-35",
        (Edit(f"{_sunion}.logs:OrdererLogs.adopt_stable_state",
              "live.adopt_stable_state(stable)", "pass"),),
        f"{_scenarios}.test_r35_skipped_records_read_by_the_stable_line"
        ":test_a_stream_that_is_whole_again_is_not_missed_for_its_disorder",
    ),
    Mutant(
        "a window's row lies at its end, not before it", "trace-20",
        (Edit("slackwater.codec.result_batches:Assembler._batch",
              "self._rows, end - 1, where)", "self._rows, end, where)"),),
        f"{_chains}:test_a_window_s_row_falls_into_the_reader_s_window_that_ends_with_it",
    ),
    Mutant(
        "a query's watermark ends with its last window", "trace-20",
        (Edit("slackwater.codec.result_batches:Assembler._batch",
              "boundary = end - 1 + stream.slide_us", "boundary = end"),),
        f"{_chains}:test_a_reader_s_windows_are_much_shorter_and_nothing_is_tentative",
    ),
    Mutant(
        "both versions of a window count", "trace-20",
        (Edit(f"{_sunion}.chain:live_columns", "not _is_stable_in(chunk.batch, stable)", "True"),),
        f"{_chains}:test_two_versions_of_a_window_are_not_added_up",
    ),
    Mutant(
        "a position within a bucket is a stable answer to it", "trace-20",
        (Edit(f"{_sunion}.chain:_is_stable_in", ">= batch.boundary", "> batch.prev_watermark"),),
        f"{_chains}:test_a_bucket_that_began_before_the_reader_s_position_is_there_once",
    ),
    Mutant(
        "a tentative answer covers the time before it", "trace-20",
        (Edit(f"{_sunion}.chain:ResultCursor.reach", "break", "pass"),),
        f"{_chains}:test_a_tentative_answer_that_is_read_first_covers_nothing_before_it",
    ),
    Mutant(
        "losses of a source query are not passed on", "trace-20",
        (Edit(f"{_sunion}.chain:ResultCursor.offer", "if record.lost:", "if False:"),),
        f"{_losses}:test_a_reader_s_stable_answers_carry_the_loss_on", (False,),
    ),
    Mutant(
        "a row that does not decode is ignored", "trace-15",
        (Edit(f"{_sunion}.chain:ResultCursor.load",
              "if unread and not chunk.is_loaded:", "if False:"),),
        f"{_chains}:test_a_row_that_cannot_be_read_is_lost_and_its_reader_s_window_reports_it",
    ),
    Mutant(
        "a tentative answer does not report losses", "trace-15",
        (Edit(f"{_sunion}.core:OrdererCore._emit_tentative", ", gap=gap", ""),),
        f"{_losses}:test_a_tentative_answer_names_what_the_stable_one_it_is_made_of_has_lost",
    ),
    Mutant(
        "a hole in the results of a query is skipped", "trace-20",
        (Edit(f"{_sunion}.chain:ResultCursor.offer",
              "if prev_watermark > self.boundary:", "if False:"),),
    ),
    Mutant(
        "the rows of a truncated window are a complete window", "trace-20",
        (Edit("slackwater.codec.result_batches:Assembler.take",
              'is_cut = self._is_first and len(self._rows) < line["keys"]', "is_cut = False"),
         Edit("slackwater.codec.result_batches:Assembler._batch",
              'lost = line["keys"] - len(self._rows)', "lost = 0")),
    ),
    Mutant(
        "every key has a row", "trace-58",
        (Edit(f"{_soutput}.decision:Decider._answer",
              "self.contents.kept(share.slice)", "share.slice"),),
        f"{_scenarios}.test_r58_a_row_is_decided_from_merged_figures"
        ":test_children_decide_nothing_alone",
    ),
    Mutant(
        "each child decides which keys have a row", "trace-58",
        (Edit(f"{_soutput}.decision:Decider._combined",
              "shares, self.contents",
              "[replace(s, slice=self.contents.kept(s.slice)) for s in shares], self.contents"),),
        f"{_scenarios}.test_r58_a_row_is_decided_from_merged_figures"
        ":test_children_decide_nothing_alone",
    ),
    Mutant(
        "keys without a row are counted in seq", "trace-58",
        (Edit(f"{_soutput}.decision:Decider._answer",
              "kept,\n        len(kept.slice)", "kept,\n        len(share.slice)"),),
        f"{_scenarios}.test_r58_a_row_is_decided_from_merged_figures"
        ":test_a_tentative_answer_is_decided_by_what_it_has",
    ),
    Mutant(
        "the rows of the children are concatenated", "trace-21",
        (Edit("slackwater.primitives.rows:RowContents.merge",
              'return rows.take(np.argsort(rows.stimes, kind="stable"))', "return rows"),),
        f"{_scenarios}.test_r21_queries_without_a_window"
        ":test_children_are_merged_by_time_and_then_by_child",
    ),
    Mutant(
        "every part has the rows of all keys", "trace-21",
        (Edit("slackwater.primitives.rows:RowContents.of",
              "return rows if mine.all() else rows.take(mine)", "return rows"),),
        f"{_scenarios}.test_r21_without_a_window_under_faults"
        ":test_a_silence_and_a_root_that_dies_among_its_corrections",
        ("two children, two parts",),
    ),
    Mutant(
        "a chained orderer waits for its own deadline", "trace-13",
        (Edit(f"{_sunion}.core:OrdererCore._answer",
              "tentative=is_tentative", "tentative=None"),),
        "tests.paper.test_dpc_chains:test_4_2_3_tentative_boundaries_travel_downstream",
    ),
    Mutant(
        "missing streams of a source query are not named", "trace-20",
        (Edit(f"{_sunion}.live_inputs:LiveInputs.missing",
              "names.update(live_missing(*self._pair(logs), start, end))", "pass"),),
        f"{_chains}:test_what_the_source_query_lacked_is_named_by_its_source",
    ),
    Mutant(
        "a parked cursor waits for a marker's offset", "trace-20",
        (Edit(f"{_common}.inputs:Inputs.caught_up_to", "cursor.skip_to(position)", "pass"),
         Edit(f"{_common}.inputs:Inputs.read_to", "cursor.skip_to(position)", "pass")),
        f"{_chains}:test_the_reader_s_orderer_restarts_while_its_source_query_is_tentative",
    ),
    Mutant(
        "tentative answers come before their normal time", "trace-36",
        (Edit(f"{_common}.line:Line.judge", "if now < normal:", "if now < normal - 1_000_000:"),),
        f"{_scenarios}.test_r36_nothing_before_its_time:test_all_sources_silent",
    ),
    Mutant(
        "a bucket is complete one microsecond too early", "guarantee-1",
        (Edit(f"{_common}.line:Line.stable_ready", ">= self._units.end(self.stable_next)",
              ">= self._units.end(self.stable_next) - 1"),),
        "tests.simulator.mutants:boundaries_just_below_the_cuts",
    ),
    Mutant(
        "X is measured from the window's start", "guarantee-2",
        (Edit(f"{_common}.line:Line.judge", "deadline = normal + self._schedule.answer_within_us",
              "deadline = self._schedule.deadline(start) or 0"),),
        "tests.simulator.mutants:a_masked_failure",
    ),
    Mutant(
        "X counts twice", "guarantee-2",
        (Edit(f"{_common}.line:Line.judge", "deadline = normal + self._schedule.answer_within_us",
              "deadline = normal + 2 * self._schedule.answer_within_us"),),
        f"{_scenarios}.test_r12_normal_time_depends_on_nothing:test_silence_of_everything",
    ),
    Mutant(
        "the stable slice of a bucket is emitted with the next", "trace-16",
        (Edit(f"{_sunion}.core:OrdererCore._take_stable",
              "nearest = self.logs.nearest_reading(LineName.STABLE, start)",
              "further = self._config.grid.next_cut(end)\n"
              "    is_first = self._config.replica == 0\n"
              "    if self.line.forked and is_first and stable_to >= further:\n"
              "        end = further\n"
              "    nearest = self.logs.nearest_reading(LineName.STABLE, start)"),),
    ),
    Mutant(
        "an UNDO goes one window too far", "trace-4",
        (Edit(f"{_soutput}.answers:_Draft.answer_stable",
              "self._grid.later(min(to, before.answered_to), -1)",
              "min(to, before.answered_to)"),),
    ),
    Mutant(
        "REC_DONE is omitted", "trace-22",
        (Edit(f"{_soutput}.answers:_Draft.answer_stable",
              "if correcting and to == self.answered_to:",
              "if False:"),),
    ),
    Mutant(
        "every tentative answer begins an epoch", "trace-22",
        (Edit(f"{_soutput}.answers:_Draft.answer_tentative",
              "self.epoch += self.stable_from == self.answered_to", "self.epoch += 1"),),
    ),
    Mutant(
        "a reading that is far ahead moves the watermark", "trace-45",
        (Edit(f"{_source}.core:SourceCore.offer",
              "usable &= arrived.stimes <= clock_us + self._ahead_us", "pass"),
         Edit(f"{_source}.core:SourceCore._largest_before_by_clock",
              "not is_ahead.any()", "True")),
        scenario="tests.simulator.mutants:a_clock_two_hours_ahead",
    ),
    Mutant(
        "a reading that is slightly ahead moves the watermark", "trace-45",
        (Edit(f"{_source}.core:SourceCore._largest_before_by_clock",
              "not is_ahead.any()", "True"),),
        scenario="tests.simulator.mutants:a_clock_slightly_ahead",
    ),
    Mutant(
        "a future reading moves the watermark", "trace-45",
        (Edit(f"{_source}.core:SourceCore.offer",
              "usable &= arrived.stimes <= clock_us + self._ahead_us", "pass"),
         Edit(f"{_source}.core:SourceCore._largest_before_by_clock",
              "not is_ahead.any()", "True")),
        scenario="tests.scenarios.test_r45_a_clock_that_is_ahead"
        ":test_whatever_a_device_stamps_nothing_is_stable_before_its_end",
        arguments=(2 * 3_600,),
    ),
    Mutant(
        "a reading that is ahead counts as now among its neighbours", "trace-45",
        (Edit(f"{_source}.core:SourceCore._largest_before_by_clock",
              "offered_us = self._offered_us", "offered_us = now_us"),),
        scenario="tests.simulator.mutants:neighbours_of_one_that_is_ahead",
    ),
    Mutant(
        "a reading that is ahead counts as one of now", "trace-45",
        (Edit(f"{_source}.lag:Lags.us", "return max(self._largest_us, self._before_us)",
              "return 0"),),
        scenario="tests.scenarios.test_r45_a_clock_that_is_ahead"
        ":test_a_device_that_is_ahead_makes_nothing_late_that_is_on_its_way",
        arguments=(5,),
    ),
    Mutant(
        "a reading that is ahead counts for nothing", "trace-45",
        (Edit(f"{_source}.core:SourceCore._largest_before_by_clock",
              "max(self.largest, now_us if is_right else now_us - self._lags.us)",
              "max(self.largest, now_us if is_right else self.largest)"),),
        scenario="tests.scenarios.test_r45_a_clock_that_is_ahead"
        ":test_a_stream_of_devices_that_are_all_ahead_does_not_stand_still",
    ),
    Mutant(
        "a restarted proxy counts times that are ahead", "trace-45",
        (Edit(f"{_source}.core:SourceCore._resumed_largest",
              "return min(resume.largest, resume.watermark + self.rules.disorder_us)",
              "return resume.largest"),),
        scenario="tests.simulator.mutants:a_clock_slightly_ahead",
        arguments=(True,),
    ),
    Mutant(
        "late readings vanish", "guarantee-6",
        (Edit(f"{_source}.core:SourceCore.offer", '_note(refused, "late", late)', "pass"),),
    ),
    Mutant(
        "readings that were not stored keep their ids", "guarantee-6",
        (Edit(f"{_source}.core:SourceCore.restore",
              "self.next_id, self.watermark = saved.next_id, saved.watermark", "pass"),),
    ),
    Mutant(
        "readings that were not stored are dropped", "guarantee-6",
        (Edit(f"{_source}.core:SourceCore.restore",
              "self._chunks, self.waiting = list(saved.chunks), saved.waiting", "pass"),),
    ),
    Mutant(
        "the look-ahead limit does not include the lateness", "trace-12",
        (Edit(f"{_sunion}.config:OrdererConfig.max_skew_us",
              "self.lateness(e) + self.in_time_us", "self.in_time_us"),),
    ),
    Mutant(
        "learned lateness decreases", "trace-37",
        (Edit("slackwater.primitives.lateness:Lateness.__init__",
              "if lateness_us > self.at(from_us):", "if lateness_us != self.at(from_us):"),),
        f"{_scenarios}.test_r37_learned_expect_every:"
        "test_two_writers_steps_are_one_function_in_whatever_order_they_are_read",
        ((0, 1, 2),),
    ),
    Mutant(
        "a start ignores recorded steps", "trace-37",
        (Edit("slackwater.proxy.expecting:Expecting.restore",
              "max((step.expect_every_us for step in steps), default=0)", "0"),),
        "tests.simulator.mutants:a_proxy_starts_again",
    ),
    Mutant(
        "learned steps hold for the past", "trace-37",
        (Edit("slackwater.proxy.shell:InputContext.ahead_us",
              "self.event_us(now_us + AHEAD_US)", "self.event_us(now_us - 20 * AHEAD_US)"),),
        "tests.simulator.mutants:a_longer_gap",
    ),
    Mutant(
        "with auto boundaries follow the clock", "trace-10",
        (Edit("slackwater.proxy.rules:follows_clock",
              "context.spec.expect_every_us is None and",
              "(context.spec.expect_every_us is None or context.spec.learns_gaps) and"),),
        "tests.simulator.mutants:a_backlog_of_a_stream_that_learns",
    ),
    Mutant(
        "the clock jumps with the machine's", "trace-12",
        (Edit("slackwater.runtime.service.clock:SlewedClock.now_us",
              "max(-lean_us, min(lean_us, self._lag_us))", "self._lag_us"),),
        "tests.simulator.mutants:a_clock_steps",
    ),
    Mutant(
        "a gap is not reported", "trace-15",
        (Edit(f"{_sunion}.cursor:SourceCursor._is_next",
              "self.gaps.append((self._lost_from, self._affected_until(record), lost))",
              "pass"),),
        f"{_scenarios}.test_r15_world:test_what_a_first_reader_did_not_find_is_a_gap",
    ),
    Mutant(
        "pieces of another version complete the bucket", "trace-32",
        (Edit(f"{_soutput}.stable_input:StableInput.take",
              "_version(record) != self._version", "False"),),
        f"{_scenarios}.test_r32_versions_of_a_bucket_in_pieces"
        ":test_r32_a_bucket_begun_without_a_gap_is_completed_with_one", (2, 9),
    ),
    Mutant(
        "a bucket that has been begun is never abandoned", "trace-32",
        (Edit(f"{_soutput}.stable_input:StableInput.take",
              "if not self.alternatives(replica):", "if False:"),),
        f"{_scenarios}.test_r32_versions_of_a_bucket_in_pieces"
        ":test_r32_a_bucket_begun_without_a_gap_is_completed_with_one", (2, 9),
    ),
    Mutant(
        "a replica continues within a bucket", "trace-32",
        (Edit(f"{_sunion}.recovery:recover", "if frontier.piece:", "if False:"),),
        f"{_scenarios}.test_r32_versions_of_a_bucket_in_pieces"
        ":test_r32_a_replica_that_ended_between_its_pieces_sends_the_bucket_again", (2, 5),
    ),
    Mutant(
        "a gap is accepted though a replica has none", "trace-15",
        (Edit(f"{_soutput}.stable_input:StableInput._may_take",
              "return not self.alternatives(replica)", "return True"),),
        f"{_gaps}:test_the_root_takes_the_replica_that_lost_nothing",
    ),
    Mutant(
        "a replica without the bucket is waited for", "trace-15",
        (Edit(f"{_soutput}.lost_seqs:LostSeqs.ordered",
              "cursor.next_seq + cursor.undecoded >= end or beginning == end", "False"),),
        f"{_gaps}:test_a_gap_that_every_replica_has_is_named",
    ),
    Mutant(
        "a seq deleted by retention is waited for", "trace-15",
        (Edit(f"{_soutput}.lost_seqs:LostSeqs.ordered", "cursor.next_seq < beginning", "False"),),
        f"{_gaps}:test_the_ordered_log_was_cut_before_an_aggregator_read_it", (1,),
    ),
    Mutant(
        "an empty log with an end is a new one", "trace-15",
        (Edit(f"{_sunion}.recovery:first_state", "end and answered_to is not None", "False"),),
        f"{_scenarios}.test_r26_a_new_replica:test_an_empty_log_with_an_end_goes_on_where_the_results_end",
    ),
    Mutant(
        "truncation keeps what the live line needs", "trace-15",
        (Edit("slackwater.registration.truncation:_firsts",
              "min(log.stable.offset, log.live.offset)", "log.live.offset"),),
        f"{_gaps}:test_truncation_in_a_failure_keeps_what_is_to_be_corrected",
    ),
    Mutant(
        "the stable line reads on before its cursors are attached", "trace-18",
        (Edit(f"{_common}.inputs:Inputs.replaying",
              "else cursor.offset == offset", "else True"),
         Edit(f"{_common}.inputs:Inputs.receive",
              "elif cursor.offset != offset and", "elif False and")),
    ),
    Mutant(
        "a boundary counts before its readings", "guarantee-1",
        (Edit(f"{_source}.core:SourceCore.flush",
              "boundaries[i] = max(self.watermark, lowest)",
              "boundaries[i] = max(self.watermark, claim)"),),
    ),
    Mutant(
        "a watermark is lost at a restart", "trace-9",
        (Edit("tests.simulator.sources:SimProxy._begun",
              "max(spool.resume.watermark, scan.watermark)", "-(2**62)"),),
    ),
    Mutant(
        "a window is stable when one child has passed it", "guarantee-1",
        (Edit(f"{_soutput}.decision:Decider._stable_to", "min(child.", "max(child."),),
    ),
    Mutant(
        "a join continues where its output ended", "trace-26",
        (Edit(f"{_sunion}.logs:OrdererLogs.positions", "of.next, of.rebuild, live.rebuild",
              "of.next, of.next, live.next"),),
        f"{_joins}:test_r26_a_restart_at_any_time_writes_what_would_have_been_written", (600, 50),
    ),
    Mutant(
        "readings that a join looks back to are dropped", "trace-26",
        (Edit(f"{_sunion}.cursor:SourceCursor.pass_to", "start - self._lookback_us", "start"),),
        "tests.paper.test_dpc:test_3_sjoin_pairs_what_lies_within_its_window_in_the_order_of_sunion",
    ),
    Mutant(
        "records skipped by a seek are not missing in a join", "trace-26",
        (Edit(f"{_sunion}.cursor:SourceCursor.passed", "start - self._lookback_us", "start"),),
        f"{_joins}:test_r26_what_a_seek_skipped_is_missed_for_a_window_longer",
    ),
    Mutant(
        "a new replica begins at the sources' beginning", "trace-26",
        (Edit(f"{_sunion}.recovery:first_state", "if known:", "if False:"),),
        f"{_scenarios}.test_r26_a_new_replica:test_a_replica_that_never_ran_goes_on_at_its_peers_frontier_too",
    ),
    Mutant(
        "a new query continues where a line that has passed its start is", "trace-42",
        (Edit(f"{_sunion}.recovery:skip_unneeded",
              "if other.frontier <= start_time:", "if True:"),),
        f"{_positions}:test_a_line_that_has_passed_the_start_is_no_help_though_its_log_has_not",
    ),
    Mutant(
        "a new query continues where one that begins later is", "trace-42",
        (Edit(f"{_sunion}.recovery:skip_unneeded",
              "if position.boundary <= start_time", "if True"),),
        f"{_positions}:test_another_query_that_begins_later_in_the_same_bucket_is_no_help",
    ),
    Mutant(
        "a new query counts a reading below its start", "trace-42",
        (Edit(f"{_sunion}.recovery:skip_unneeded",
              "boundary=start_time", "boundary=last.boundary"),),
        f"{_positions}:test_it_continues_where_another_query_is_and_orders_the_same",
    ),
    Mutant(
        "a new query continues where nothing has been read", "trace-42",
        (Edit(f"{_sunion}.recovery:skip_unneeded",
              "and position.next_id >= 0 <= position.inc", ""),),
        f"{_positions}:test_a_position_that_cannot_be_continued_is_not_used",
        ("of a line that has read nothing", SourcePosition(50, 0, -1, 0)),
    ),
    Mutant(
        "a new query continues beyond the end of a log", "trace-42",
        (Edit(f"{_sunion}.recovery:skip_unneeded",
              "<= position.offset <= end", "<= position.offset"),),
        f"{_positions}:test_a_position_that_cannot_be_continued_is_not_used",
        ("beyond the end of the log", SourcePosition(1_000, 999, 0, 0)),
    ),
    Mutant(
        "records after a hole count as read", "trace-26",
        (Edit(f"{_soutput}.lost_seqs:LostSeqs.count", "contiguous_seq = self._contiguous_seq[log]",
              "contiguous_seq = max(record.seq, self._contiguous_seq[log])\n"
              "    self._contiguous_seq[log] = contiguous_seq"),),
        f"{_scenarios}.test_r01_world:test_an_aggregator_sends_again_what_the_root_has_read_beyond",
    ),
    Mutant(
        "a delta that does not decode takes no seq", "trace-11",
        (Edit(f"{_soutput}.delta_cursor:DeltaCursor.admits", "self.undecoded += 1", "pass"),),
        f"{_scenarios}.test_r11_a_damaged_delta:test_a_stable_delta", (1, 1),
    ),
    Mutant(
        "a hole is its predecessor's if its writer's START is gone", "trace-11",
        (Edit(f"{_soutput}.delta_cursor:DeltaCursor.admits", "self.inc = record.inc", "pass"),),
        f"{_scenarios}.test_r11_a_damaged_stable_record:test_a_hole_is_named_by_its_writer_though_its_start_is_gone",
        (1,),
    ),
    Mutant(
        "ids of damaged records at a log's end are used again", "trace-15",
        (Edit(f"{_source}.scan:LogScan.give_up", "next_id > self.ids.next_id", "False"),),
        f"{_scenarios}.test_r15_damage_at_the_end_of_a_source_log:test_in_the_simulator_two_replicas_and_one_of_them_is_down",
        (1,),
    ),
    Mutant(
        "a reader waits for the end of a window whose boundary is damaged", "trace-15",
        (Edit("slackwater.codec.result_batches:Assembler.is_between",
              "self._first is None or self._damaged", "self._first is None"),),
    ),
    Mutant(
        "an aggregator begins where the log ends", "trace-26",
        (Edit("tests.simulator.aggregator:SimAggregator._begin",
              "max(offset, log.beginning)", "max(log.end - 1, log.beginning)"),),
    ),
    Mutant(
        "overdue windows are computed in order", "trace-38",
        (Edit(f"{_soutput}.overload:Overload.passed_over",
              "work < RUN_WINDOWS_MIN else count", "True else count"),),
        f"{_overload}:test_first_answers_are_in_time_again_as_soon_as_the_load_ends", (20,),
    ),
    Mutant(
        "the oldest overdue window is computed next", "trace-38",
        (Edit(f"{_soutput}.overload:Overload.passed_over",
              "work < RUN_WINDOWS_MIN else count", "work < RUN_WINDOWS_MIN else RUN_WINDOWS_MIN"),),
        f"{_overload}:test_after_a_long_absence_the_present_comes_first",
    ),
    Mutant(
        "the size of a transaction ignores its time", "trace-38",
        (Edit(f"{_soutput}.overload:Overload._at_pace",
              "return max(int(room_us / window_us), 1)", "return windows"),),
        f"{_overload}:test_first_answers_are_in_time_again_as_soon_as_the_load_ends", (20,),
    ),
    Mutant(
        "a slow broker holds transactions at one window", "trace-38",
        (Edit(f"{_soutput}.overload:Overload.fitting_finally",
              "max(self._at_pace(windows, room_us), min(windows, grown))",
              "self._at_pace(windows, room_us)"),),
        f"{_scenarios}.test_r24_sparse_history:"
        "test_a_slow_broker_makes_transactions_larger_not_more",
    ),
    Mutant(
        "transactions grow though windows are slow", "trace-38",
        (Edit(f"{_soutput}.overload:Overload._at_costs",
              "int(room / window_us) if window_us * grown > room else grown", "grown"),),
        "tests.unit.protocols.dpc.test_overload:test_where_windows_are_slow_they_do_not_grow",
    ),
    Mutant(
        "costs of a transaction are not checked", "trace-38",
        (Edit(f"{_soutput}.costs:TransactionCosts.note",
              "if self._exceeded == EXCEEDED_MAX:", "if False:"),),
        "tests.unit.protocols.dpc.test_overload:"
        "test_where_windows_become_slow_transactions_become_small_at_once",
    ),
    Mutant(
        "the cost of a window is that of the last two transactions", "trace-38",
        (Edit(f"{_soutput}.costs:TransactionCosts.__init__",
              "deque(maxlen=SEEN_MAX)", "deque(maxlen=2)"),),
        "tests.unit.protocols.dpc.test_overload:"
        "test_on_a_busy_machine_transactions_grow_too", (3,),
    ),
    Mutant(
        "runs do not count where the size of a transaction is limited", "trace-38",
        (Edit(f"{_soutput}.core:RootCore._begin", "units_of(transaction)",
              "len(rows_of(transaction))"),),
        f"{_starved}:{_gain}", (1_000, 1, 17_000, 100),
    ),
    Mutant(
        "live answers take as much of a transaction as starving corrections", "trace-14",
        (Edit(f"{_soutput}.decision:Decider.decide",
              "windows_max = 1 if over else max(windows_max // 2, 1)", "pass"),),
        f"{_starved}:{_gain}", (100, 10, 17_000, 20),
    ),
    Mutant(
        "starving corrections come in every other transaction", "trace-14",
        (Edit(f"{_soutput}.decision:Decider.decide",
              "len(tentative) + (0 if stable else live_alone) if tentative else 0",
              "len(tentative) + live_alone if tentative and not stable else 0"),),
        f"{_starved}:{_gain}", (200, 8, 16_000, 20),
    ),
    Mutant(
        "starving corrections have no more time than others", "trace-14",
        (Edit(f"{_soutput}.decision:Decider.decide",
              "self.bound_us // STARVING_ROOM if starves else 0", "0"),),
        f"{_starved}:{_gain}", (200, 8, 16_000, 20),
    ),
    Mutant(
        "a transaction corrects fewer windows than become due meanwhile", "trace-14",
        (Edit(f"{_soutput}.core:RootCore.__init__",
              "max(CORRECTIONS_MAX, config.live_windows_max)", "CORRECTIONS_MAX"),),
        f"{_starved}:{_gain}", (2_000, 1, 22_000, 20),
    ),
    Mutant(
        "the watermark of a query advances the clock", "trace-20",
        (Edit("slackwater.host.decoding:_answered_to",
              'return parse_time(found["window_end"])',
              'return 2 * parse_time(found["window_end"]) - parse_time(found["window_start"])'),),
        f"{_scenarios}.test_r20_a_history_in_a_chain:test_no_query_is_ahead_of_all_streams",
    ),
    Mutant(
        "a reader of results runs ahead of its clock", "trace-20",
        (Edit(f"{_sunion}.core:OrdererCore._take_stable",
              "if self._config.reached is not None:", "if False:"),),
        f"{_scenarios}.test_r20_a_history_in_a_chain:"
        "test_the_roots_of_a_reader_are_not_told_of_time_that_no_stream_has_reached",
    ),
    Mutant(
        "results do not advance the clock", "trace-20",
        (Edit("slackwater.host.decoding:_answered_to",
              "if _BOUNDARY not in line:", "if True:"),),
        f"{_scenarios}.test_r20_a_history_in_a_chain:"
        "test_what_a_silent_stream_lacks_is_tentative_in_the_whole_chain_and_corrected",
    ),
    Mutant(
        "a history is overdue", "trace-38",
        (Edit(f"{_soutput}.decision:Decider._passed_over",
              "if self.is_history and", "if False and"),),
        f"{_scenarios}.test_r24_sparse_history:"
        "test_a_history_that_takes_longer_than_the_bound_is_answered_once",
    ),
    Mutant(
        "windows that can be in time are skipped", "trace-38",
        (Edit(f"{_soutput}.overload:Overload._is_overdue",
              "now > normal + self._bound_us", "now > normal"),),
        f"{_overload}:test_a_run_is_one_line_and_the_next_answer_has_figures",
    ),
    Mutant(
        "skipped windows count as final", "trace-38",
        (Edit(f"{_soutput}.answers:_Draft.answer_tentative",
              "self.answered_to = self._grid.later(start, ready.windows)",
              "self.answered_to = self._grid.later(start, ready.windows)\n"
              "    self.stable_from = self.answered_to if ready.skipped else self.stable_from"),),
        f"{_overload}:test_a_run_is_one_line_and_the_next_answer_has_figures",
    ),
    Mutant(
        "T moves past a window that is not in the run", "trace-38",
        (Edit(f"{_soutput}.decision:Decider._pass_over",
              "live_skipped(following,", "live_skipped(self.grid.later(following),"),),
        f"{_overload}:test_a_run_is_one_line_and_the_next_answer_has_figures",
    ),
    Mutant(
        "windows are skipped before the input is read", "trace-38",
        (Edit(f"{_soutput}.decision:Decider._verdict",
              "self.grid.later(live.line.live_next, max(over - 1, 0))",
              "live.line.live_next"),),
        f"{_overload}:test_after_a_long_absence_the_present_comes_first",
    ),
    Mutant(
        "windows that wait for others count as answered", "trace-21",
        (Edit(f"{_soutput}.decision:Decider._due",
              "line.copy() if self.empty_wait_us else line", "line"),),
        f"{_scenarios}.test_r21_queries_without_a_window:test_an_idle_query_in_a_failure_writes_runs_too",
    ),
    Mutant(
        "choices for waiting windows remain", "trace-21",
        (Edit(f"{_soutput}.decision:Decider._due",
              "chosen.copy() for chosen in live.chosen", "chosen for chosen in live.chosen"),),
        "tests.unit.protocols.dpc.test_root_decision:test_to_decide_changes_nothing_and_does_not_depend_on_how_often",
        ("rows, hardly any",),
    ),
    Mutant(
        "a reader takes skipped windows for empty ones", "trace-38",
        (Edit("slackwater.codec.result_batches:Assembler._batch",
              'if line.get("skipped") is True:', "if False:"),),
        f"{_overload}:test_a_query_that_reads_it_later_lacks_the_query_and_takes_nothing_for_empty",
    ),
    Mutant(
        "windows of one reader only are cut points", "trace-39",
        (Edit("slackwater.primitives.windows:Grid.__init__", " + [*self.others]", ""),),
        f"{_sharing}:test_edges_of_both_are_cut_points",
    ),
    Mutant(
        "a root reads deltas named after its query", "trace-39",
        (Edit(f"{_sessions}.root_logs:RootLogs.__init__", "deltas(config.child_query,",
              "deltas(config.query,"),),
        f"{_sharing}:test_a_source_falls_silent_and_the_root_of_one_of_two_queries_dies",
    ),
    Mutant(
        "a root receives heartbeats of orderers named after its query", "trace-39",
        (Edit(f"{_sessions}.root_logs:RootLogs.__init__", "OrdererName(config.child_query,",
              "OrdererName(config.query,"),),
        f"{_sharing}:test_one_sick_replica_makes_neither_tentative",
    ),
    Mutant(
        "a root looks for states of outputs named after its query", "trace-39",
        (Edit(f"{_sessions}.root_logs:RootLogs.__init__", "ordered(config.child_query, child)",
              "ordered(config.query, child)"),),
        f"{_sharing}:test_one_sick_replica_makes_neither_tentative",
    ),
    Mutant(
        "a root requests the extent of logs named after its query", "trace-39",
        (Edit(f"{_sessions}.root_logs:RootLogs.__init__",
              "ordered(config.child_query, log.child)", "ordered(config.query, log.child)"),),
        f"{_sharing}:test_deltas_that_one_root_lacks_are_sent_again",
    ),
    Mutant(
        "a root names holes after its query", "trace-39",
        (Edit(f"{_soutput}.children:holes_of", "config.child_query", "config.query"),),
        f"{_sharing}:test_what_one_root_lacks_is_emitted_again", ("damaged deltas",),
    ),
    Mutant(
        "an orderer sends again from where its namesake's results end", "trace-39",
        (Edit(f"{_sessions}.orderer_start:OrdererStart._answered_to", "in self.roots",
              "in self.roots[: self.parts]"),),
        f"{_sharing}:test_what_one_root_lacks_is_emitted_again", ("damaged deltas",),
    ),
    Mutant(
        "an orderer has its namesake's roots only", "trace-39",
        (Edit(f"{_sessions}.orderer_start:OrdererStart.roots", "for of in self.readers",
              "for of in (self.query,)"),),
        f"{_sharing}:test_what_one_root_lacks_is_emitted_again", ("retention",),
    ),
    Mutant(
        "an orderer reads its namesake's states only", "trace-39",
        (Edit(f"{_sessions}.orderer_start:OrdererStart._states", "(self.query, *self.readers)",
              "(self.query,)"),),
        f"{_session}:test_behind_a_hole_it_goes_on_where_the_results_of_all_readers_end",
    ),
    Mutant(
        "the roots of one part have one read position", "trace-39",
        (Edit(f"{_sessions}.orderer:OrdererSession.__init__", "name.process: number for",
              "name.process: number % parts for"),),
        f"{_session}:test_the_roots_of_all_readers_are_waited_for", ("q",),
    ),
    Mutant(
        "deltas are truncated that the namesake's roots have read", "trace-39",
        (Edit(f"{_truncation}:_deltas", "for query in readers]", "for query in readers[:1]]"),),
        f"{_sharing}:test_logs_are_kept_for_the_root_that_is_behind", ("sw.deltas.q.0:0",),
    ),
    Mutant(
        "records are truncated that the namesake's roots have read", "trace-39",
        (Edit(f"{_truncation}:_ordered", "product(readers,", "product(readers[:1],"),),
        f"{_sharing}:test_logs_are_kept_for_the_root_that_is_behind", ("sw.ordered.q.0:0",),
    ),
    Mutant(
        "an aggregator sends again from where the namesake's roots are", "trace-39",
        (Edit("tests.simulator.aggregator:SimAggregator._begin", "in query.readers",
              "in query.readers[:1]"),),
        f"{_sharing}:test_deltas_that_one_root_lacks_are_sent_again",
    ),
    Mutant(
        "an aggregator begins where the namesake's roots are", "trace-39",
        (Edit("slackwater_spark.queries:Aggregator._root_states", "(fragment.name.query):",
              "(fragment.name.query)[:1]:"),),
        "tests.simulator.mutants:an_aggregator_begins",
    ),
    Mutant(
        "a root includes what lies before its start", "trace-50",
        (Edit(f"{_soutput}.config:initial_state",
              "Position(config.grid.bucket_start(config.start_time))", "Position(first)"),),
        f"{_joined}:test_it_answers_from_its_own_start_on",
    ),
    Mutant(
        "what was truncated before a query joined is a hole", "trace-50",
        (Edit(f"{_soutput}.stable_input:StableInput.take",
              "if is_first and start < cursor.frontier:", "if False:"),),
        f"{_joined}:test_a_log_that_begins_within_a_run_of_empty_buckets_has_no_hole",
    ),
    Mutant(
        "a root that has joined counts truncated seqs as missing", "trace-50",
        (Edit(f"{_soutput}.delta_cursor:DeltaCursor.reaches",
              "if not contiguous_seq and self.next_seq < 0:", "if False:"),),
        f"{_joined}:test_its_root_dies_at_once_and_the_aggregators_too",
    ),
    Mutant(
        "truncation does not know a query that has joined", "trace-50",
        (Edit(f"{_truncation}:Truncation._readers", "known = joined | self._queries",
              "known = self._queries"),),
        "tests.unit.registration.test_truncation:test_a_query_that_another_machine_registers_is_a_reader",
    ),
    Mutant(
        "a query joins children whose cut points do not fit", "trace-50",
        (Edit(f"{_sharing_of}:_key", "Grid(query.bucket_us(), window).progressions,", ""),),
        f"{_unit_sharing}:test_a_query_whose_windows_have_other_cut_points_does_not_join",
    ),
    Mutant(
        "a query joins children whose deltas lack its figures", "trace-50",
        (Edit(f"{_sharing_of}:_fits", "<= {*figures_of(of.child_aggregates)}", "or True"),),
        f"{_unit_sharing}:test_a_query_whose_figures_the_deltas_lack_does_not_join",
    ),
    Mutant(
        "an orderer does not know a query that has joined", "trace-50",
        (Edit(f"{_sessions}.orderer_start:OrdererStart.after_results",
              "(*self.readers, *joined)", "self.readers"),),
        f"{_joined}:test_an_orderer_sends_again_what_the_joined_root_lacks",
    ),
    *GENERATION_MUTANTS,
    *COPY_MUTANTS,
    *MERGING_MUTANTS,
    *SITE_MUTANTS,
    *MOVING_MUTANTS,
    *KEY_MUTANTS,
    *ALERT_MUTANTS,
    *PLACEMENT_MUTANTS,
    *JOINING_MUTANTS,
    *HOSTING_MUTANTS,
    *TOPIC_MUTANTS,
    *CHILDREN_MUTANTS,
    *HISTORY_MUTANTS,
)  # fmt: skip


# Scenarios that only mutants need.


def a_zombie_lies() -> None:
    """A proxy resumes beside its successor, and sends a watermark that is not valid."""
    from tests.simulator.sources import SimProxy
    from tests.simulator.story import Story

    from slackwater.model.records import Kind, SourceRecord
    from slackwater.protocols.dpc.sunion.cursor import SourceCursor

    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    zombie = story.world.proxies["s1"]
    story.replace("proxy/s1", wakes_after_s=2)
    story.time_passes(1.5)
    now = story.world.scheduler.now
    assert isinstance(zombie, SimProxy)
    cursor = story.orderer().logs.stable[0]
    assert isinstance(cursor, SourceCursor)
    next_id = cursor.next_id
    lie = SourceRecord(
        Kind.BOUNDARY, "s1", zombie.inc, next_id, next_id - 1, now + 900_000, now, now
    )
    story.world.source_log("s1").append(lie)
    story.time_passes(4)
    story.all_is_well_again()
    story.every_guarantee_holds()


def timers_first() -> None:
    """An orderer resumes, and its consumer needs some milliseconds longer than its timers."""
    from tests.simulator.story import Story

    story = Story(replicas=1)
    story.time_passes(3)
    story.pause("orderer/q.0.a", for_s=3)
    story.deafen("orderer/q.0.a", "s1", for_s=3.03)
    story.time_passes(6)
    assert story.orderer().counters.forks == 0, "its input was in the log when it resumed"


def many_corrections() -> None:
    """More windows must be corrected than a transaction may contain."""
    from tests.simulator.story import Story

    story = Story(
        children=(("s1",), ("s2",)), replicas=1, window_us=100_000, slide_us=100_000,
        bound_us=500_000,
    )  # fmt: skip
    story.time_passes(2)
    story.silence("s1", for_s=1)
    story.time_passes(0.9)
    story.kill_for_good("aggregator/0")
    story.time_passes(14)
    story.start_again("aggregator/0")
    story.time_passes(6)
    story.all_is_well_again()
    story.every_guarantee_holds()


def a_seek_under_a_long_bound() -> None:
    """The live line, some seconds behind the present, skips a backlog that it still needs."""
    from tests.simulator.story import Story

    story = Story(
        replicas=1, bound_us=4_000_000, backlog_records_max=10, record_us=5_000, live_records_max=4
    )
    story.time_passes(2)
    story.silence("s1", for_s=12)  # has failed: the live line does not wait for it
    story.time_passes(9)
    story.silence("s2", for_s=3.5)  # shorter than the bound: the live line waits, and falls behind
    story.time_passes(6)
    assert story.orderer().counters.skipped > 0
    story.all_is_well_again(15)
    story.every_guarantee_holds()


def boundaries_just_below_the_cuts() -> None:
    """A watermark one microsecond before the bucket's end; a reading is exactly there."""
    from tests.simulator.readings import SensorReading
    from tests.simulator.sources import SimProxy
    from tests.simulator.story import Story
    from tests.simulator.world import START_TIME_US

    story = Story(replicas=1, bound_us=1_000_000, disorder_us=20_000)
    edge = START_TIME_US + 3_000_000
    for stream in story.config.streams:
        proxy = story.world.proxies[stream]
        assert isinstance(proxy, SimProxy)
        proxy.clock_lag_us = 1
        late = SensorReading(edge - 1, f"{stream}/0", 5.0)
        story.world.sensors[stream].extra.append((edge + 30_000, late))
    story.time_passes(6)
    story.all_is_well_again()
    story.every_guarantee_holds()


def a_masked_failure() -> None:
    """A silence that ends before X, but not before X after the window's start."""
    from tests.simulator.story import Story

    story = Story(replicas=1)
    story.time_passes(3)
    story.silence("s1", for_s=1.5)
    story.time_passes(4)
    assert not story.tentative
    story.every_guarantee_holds()


def a_clock_steps() -> None:
    """The root's clock is set three seconds ahead while it runs."""
    from tests.simulator.story import Story

    story = Story(replicas=1)
    story.time_passes(4)
    story.world.step_clock("root/q.0", 3_000_000)
    story.time_passes(6)
    story.every_guarantee_holds()


def a_proxy_starts_again() -> None:
    """A proxy restarts with a registry that already has a step."""
    from tests.scenarios.test_r37_learned_expect_every import (
        test_a_proxy_that_starts_again_takes_nothing_back as scenario,
    )

    with TemporaryDirectory() as folder:
        scenario(Path(folder))


def a_longer_gap() -> None:
    """A longer gap is recorded for a future time."""
    from tests.scenarios.test_r37_learned_expect_every import (
        test_a_longer_gap_is_recorded_for_a_time_that_has_not_come as scenario,
    )

    with TemporaryDirectory() as folder:
        scenario(Path(folder))


def a_clock_two_hours_ahead() -> None:
    """A reading two hours ahead makes nobody late."""
    from tests.scenarios.test_r45_a_clock_that_is_ahead import (
        test_one_reading_two_hours_ahead_makes_nobody_late as scenario,
    )

    with TemporaryDirectory() as folder:
        scenario(Path(folder))


def a_clock_slightly_ahead(restart: bool = False) -> None:
    """Readings that are ahead by less than ``ahead`` make nobody late."""
    from tests.scenarios.test_r45_a_clock_that_is_ahead import (
        test_readings_that_are_ahead_by_less_are_kept_and_move_nothing as scenario,
    )

    with TemporaryDirectory() as folder:
        scenario(Path(folder), restart)


def neighbours_of_one_that_is_ahead() -> None:
    """Readings that are read with one that is ahead have arrived before now."""
    from tests.unit.protocols.dpc.test_source_core import TestAhead

    TestAhead().test_readings_that_are_read_together_arrived_before_now(50_000)


def a_backlog_of_a_stream_that_learns() -> None:
    """A backlog arrives late, with its own times; none of it may be lost."""
    from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import (
        test_a_source_that_was_cut_off_sends_its_backlog as scenario,
    )

    auto = {"expect_every_us": 5_000_000, "learns_gaps": True}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        scenario(Path(folder), patch, auto, 0)


def an_aggregator_begins() -> None:
    """An aggregator starts below the records that the roots of any reader lack."""
    from tests.unit.spark.test_aggregator import (
        test_rule_26_a_beginning_is_below_what_the_roots_of_any_reader_lack as scenario,
    )

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        scenario(Path(folder), patch)


# The table.


class Row(NamedTuple):
    """Result of a mutant."""

    mutant: str
    caught_by: str
    seconds: float
    after_seeds: int | None
    guarantee: str


def examine(name: str, seeds: int) -> Row:
    """Run its test, and find the number of random seeds until it is detected."""
    mutant = next(m for m in MUTANTS if str(m) == name)
    with applied(mutant):
        began = perf_counter()
        caught = "NOBODY"
        try:
            mutant.run()
        except NOTICED:
            caught = mutant.caught_by
        seconds = perf_counter() - began
        for seed in range(seeds):
            violation = simulate(seed).violation
            if violation is not None:
                return Row(name, caught, seconds, seed + 1, violation.guarantee)
    return Row(name, caught, seconds, None, "")


def find(name: str, seeds: int) -> tuple[str, Any]:
    """Find a small plan that detects the mutant, and passes with the correct cores."""
    mutant = next(m for m in MUTANTS if str(m) == name)
    for seed in range(seeds):
        with applied(mutant):
            outcome = simulate(seed)
            if outcome.violation is None:
                continue
            plan = shrink(outcome, seconds_max=30).plan
        if run(plan).violation is None:
            return name, orjson.loads(plan.to_json())
    return name, None


def main() -> int:
    """Print the table; return 1 if a mutant was not detected."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.mutants")
    parser.add_argument("--seeds", type=int, default=0, help="random seeds to try on each")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1)
    parser.add_argument("--find", action="store_true", help="search plans for those without")
    options = parser.parse_args()
    # Errors that failing fragments log are not part of the table.
    with ProcessPoolExecutor(options.jobs, initializer=logging.disable) as pool:
        if options.find:
            plans = found_plans()
            wanted = [str(m) for m in MUTANTS if not m.scenario and str(m) not in plans]
            for name, plan in pool.map(find, wanted, [options.seeds or 200] * len(wanted)):
                _emit(f"{name}: {'found' if plan else 'NOT found'}")
                plans |= {name: plan} if plan else {}
            FOUND.write_bytes(orjson.dumps(plans, option=orjson.OPT_INDENT_2) + b"\n")
            return 0
        names = [str(m) for m in MUTANTS]
        failed = 0
        _emit(f"{'mutant':75} {'seconds':>7}  {'seeds':>14}  caught by")
        # No seed runs hosts: the simulator's processes run their sessions separately.
        seeds_of = [0 if m in HOSTING_MUTANTS else options.seeds for m in MUTANTS]
        for row in pool.map(examine, names, seeds_of):
            failed += row.caught_by == "NOBODY"
            seeds = "" if row.after_seeds is None else f"{row.guarantee} {row.after_seeds}"
            _emit(f"{row.mutant:75} {row.seconds:7.1f}  {seeds:>14}  {row.caught_by}")
    _emit(f"{len(MUTANTS) - failed} of {len(MUTANTS)} mutants are caught")
    return 1 if failed else 0


def _emit(text: str) -> None:
    print(text, flush=True)  # noqa: T201 (a command)


if __name__ == "__main__":
    sys.exit(main())
