"""Mutants of the code that runs sessions: the host, its driver, its logs, its parts' heartbeats.

The simulator's processes run each session separately, so no seed executes this code. Each mutant is
detected by a test without a broker, and by an assertion: a time-out is not a proof.
"""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant, call

from slackwater.runtime.logs.cluster import cluster_of

_host = "slackwater.host.host"
_runtime_host = "slackwater.host"
_logs = "slackwater.runtime.logs"
_service = "slackwater.runtime.service"
_of_host = "tests.unit.host.test_host"
_of_driver = "tests.unit.host.test_driver"
_of_logs = "tests.unit.host.test_shared_logs"
_of_ends = "tests.unit.host.test_shared_ends"
_of_parts = "tests.unit.runtime.service.test_parts"

HOSTING_MUTANTS: Final = (
    Mutant(
        "a record is handed to one fragment only", "guarantee-1",
        (Edit(f"{_runtime_host}.sharedlogs:SharedLogs._receive",
              "for driven in wanting:", "for driven in wanting[:1]:"),),
        f"{_of_logs}:test_each_record_reaches_all_who_read_its_log",
    ),
    Mutant(
        "an error of a fragment at a record keeps it from the others", "guarantee-1",
        (Edit(f"{_runtime_host}.driver:Driven.take", "self.fail(error)", "raise"),),
        f"{_of_driver}:test_what_a_session_raises_at_a_record_takes_the_record_from_nobody",
        ("receive",),
    ),
    Mutant(
        "an error in a fragment's check of a record ends the others", "guarantee-1",
        (Edit(f"{_runtime_host}.driver:Driven.needs", "self.fail(error)", "raise"),),
        f"{_of_driver}:test_what_a_session_raises_at_a_record_takes_the_record_from_nobody",
        ("needs",),
    ),
    Mutant(
        "a turn that fails ends the loop", "guarantee-2",
        (Edit(f"{_runtime_host}.driver:Driver._turn", "if self._on_failure is None:", "if True:"),),
        f"{_of_driver}:test_one_that_fails_in_its_turn_leaves_the_loop_to_the_others",
    ),
    Mutant(
        "an added fragment does not receive its host's positions", "trace-8",
        (Edit(f"{_runtime_host}.sharedlogs:SharedLogs.join",
              "if not is_new or offset != shared.next:", "if False:"),),
        f"{_of_logs}:test_a_position_is_known_when_all_that_was_read_is_handed_over",
    ),
    Mutant(
        "a log is read from the position of the last fragment that joins", "trace-8",
        (Edit(f"{_runtime_host}.sharedlogs:SharedLogs.join",
              "min(joining.values())", "max(joining.values())"),),
        f"{_of_logs}:test_a_fragment_ahead_of_those_it_joins_with_receives_the_consumer_s_position",
    ),
    Mutant(
        "fragments that begin together begin one after the other", "trace-14",
        (Edit(f"{_host}:Host.join", "await self._none_starting.wait()", "pass"),),
        f"{_of_host}:test_those_who_begin_together_have_nothing_to_catch_up",
    ),
    Mutant(
        "a removed fragment removes its logs from the others", "guarantee-1",
        (Edit(f"{_runtime_host}.sharedlogs:SharedLogs.leave",
              "if not shared.readers:", "if True:"),),
        f"{_of_logs}:test_a_log_is_read_until_the_last_who_reads_it_leaves",
    ),
    Mutant(
        "a log without readers is still read", "trace-5",
        (Edit(f"{_runtime_host}.sharedlogs:SharedLogs._settle", "if left:", "if False:"),),
        f"{_of_logs}:test_a_log_is_read_until_the_last_who_reads_it_leaves",
    ),
    Mutant(
        "a removal that failed is not retried", "trace-5",
        (Edit(f"{_runtime_host}.sharedlogs:SharedLogs._settle",
              "self._read = left | self._logs", "self._read = dict(self._logs)"),),
        f"{_of_logs}:test_a_removal_that_failed_harms_nobody_and_is_done_again",
    ),
    Mutant(
        "an unreadable log is not reported to its fragment", "guarantee-4",
        (Edit(f"{_runtime_host}.sharedlogs:SharedLogs._give_up", "driven.fail(error)", "pass"),),
        f"{_of_logs}:test_a_consumer_that_cannot_read_fails_those_who_wait_for_it_and_is_asked_again",
    ),
    Mutant(
        "results are read before they are committed", "trace-29",
        (Edit(f"{_runtime_host}.sharedlogs:SharedLogs._settle",
              "isolation=isolation", 'isolation="read_uncommitted"'),),
        f"{_of_logs}:test_results_are_read_committed_and_nothing_else_is",
    ),
    Mutant(
        "records in flight count as passed on", "trace-11",
        (Edit(f"{_runtime_host}.sharedlogs:SharedLogs.positions",
              "and shared.handed >= found[log][1]", ""),),
        f"{_of_logs}:test_a_position_is_known_when_all_that_was_read_is_handed_over",
    ),
    Mutant(
        "records passed on before a log began again still count", "trace-11",
        (Edit(f"{_logs}.assigned:AssignedConsumer.change",
              "for log in [*leave, *begin]:", "for log in leave:"),),
        "tests.unit.host.test_live_consumer:test_a_log_that_begins_anew_has_handed_out_nothing_yet",
    ),
    Mutant(
        "records fetched before a log began again are passed on", "guarantee-1",
        (Edit(f"{_runtime_host}.faust_worker:LiveConsumer.hand_over",
              "reader is None or reader.since != since", "reader is None"),),
        "tests.simulator.hosting_mutants:a_log_begins_anew",
    ),
    Mutant(
        "a response is given to a later request", "trace-11",
        (Edit(f"{_runtime_host}.sharedends:SharedEnds._send",
              "del self._unsent[request]\n", "\n"),),
        f"{_of_ends}:test_what_is_asked_behind_a_question_is_asked_again",
    ),
    Mutant(
        "ends count for the time of the response", "trace-11",
        (Edit(f"{_runtime_host}.driver:Driven._fetch_ends",
              "EndsFetched(found, asked_at)", "EndsFetched(found, self._clock.now_us())"),),
        f"{_of_driver}:test_ends_count_for_the_moment_at_which_they_were_asked",
    ),
    Mutant(
        "a session receives the positions of others", "trace-11",
        (Edit(f"{_runtime_host}.driver:Driven._fetch_positions", " if log in logs", ""),),
        f"{_of_driver}:test_a_session_receives_the_positions_that_it_requested",
    ),
    Mutant(
        "a host does not report a record that no cursor needs", "trace-8",
        (Edit(f"{_runtime_host}.driver:Driven.needs",
              "self.session.take(PassedBy(log, offset))", "pass"),),
        f"{_of_driver}:test_a_session_learns_of_a_record_that_it_does_not_need",
    ),
    Mutant(
        "a boundary is forgotten when the reader asks where to read on", "trace-9",
        (Edit("slackwater.codec.result_batches:Assembler.seek",
              "if not self._continues(wanted):", "if self._first is None:"),),
        "tests.unit.codec.test_result_batches:test_a_boundary_that_is_there_twice_is_one_window",
        (True,),
    ),
    Mutant(
        "a question moves the live consumer's position", "trace-8",
        (Edit("slackwater.protocols.common.inputs:Inputs.needs", "at = self._logs[log]",
              "at = self._logs[log]; at.position = offset + 1"),),
        "tests.unit.sessions.test_orderer_session:"
        "test_a_parked_cursor_is_attached_behind_the_records_that_were_passed_by",
    ),
    Mutant(
        "a paused fragment receives records", "trace-5",
        (Edit(f"{_runtime_host}.driver:Driven.needs", "self._is_held or ", ""),),
        f"{_of_driver}:test_what_stands_still_takes_nothing_in_and_no_turn",
    ),
    Mutant(
        "a fragment paused while it waits joins with the others", "trace-8",
        (Edit(f"{_host}:Host.join", "each for each in joining if not each.is_held", "joining"),),
        f"{_of_host}:test_one_that_is_paused_while_it_waits_for_others_is_handed_nothing",
    ),
    Mutant(
        "a paused fragment continues in its heartbeats", "trace-34",
        (Edit(f"{_host}:Hosted.hold", "self._beat.hold()", "pass"),),
        f"{_of_host}:test_a_fragment_that_stands_still_keeps_nobody_waiting_and_goes_on",
    ),
    Mutant(
        "a fragment dropped during a pause sends heartbeats again", "trace-34",
        (Edit(f"{_service}.parts:PartBeat.begin_again",
              "self._beat.is_silent = self._is_silent", "pass"),),
        f"{_of_parts}:test_a_part_that_stands_still_is_silent_over_its_lives",
    ),
    Mutant(
        "kept bytes of a fragment are not reported", "trace-5",
        (Edit(f"{_host}:Hosted._count_failure", "if isinstance(error, HeldTooMuchError):",
              "if False:"),),
        f"{_of_host}:test_one_that_keeps_too_much_is_built_anew_alone_and_tells_how_much_it_was",
    ),
    Mutant(
        "a part that has failed is still ready", "trace-34",
        (Edit(f"{_service}.parts:PartBeat.begin_again",
              "self._beat = self._sender.add_part(self._name, owner_updates=self._owner_updates)",
              "pass"),),
        f"{_of_parts}:test_a_part_that_begins_again_is_not_what_it_was",
    ),
    Mutant(
        "a part that has failed once counts as ready when it hangs", "trace-34",
        (Edit(f"{_service}.parts:PartBeat.begin_again",
              ", owner_updates=self._owner_updates", ""),),
        f"{_of_parts}:test_a_part_that_begins_again_is_not_what_it_was",
    ),
    Mutant(
        "a hung part counts as ready permanently", "trace-34",
        (Edit(f"{_service}.beat:believable", "age_s <= STATES_S_MAX", "True"),),
        "tests.unit.runtime.service.test_heartbeats:"
        "test_a_hung_owner_reports_no_outputs_though_its_heartbeats_continue",
    ),
    Mutant(
        "a dropped fragment continues to write from another thread", "trace-2",
        (Edit(f"{_runtime_host}.driver:Driven._writer", "if self._is_over:", "if False:"),),
        f"{_of_driver}:test_what_is_dropped_writes_no_more",
    ),
    Mutant(
        "a dropped fragment flushes its unsent records", "trace-2",
        (Edit(f"{_runtime_host}.driver:Driven.drop", ".close(0.0)", ".close(5.0)"),),
        f"{_of_driver}:test_what_is_dropped_writes_no_more",
    ),
    Mutant(
        "a dropped fragment takes turns", "trace-2",
        (Edit(f"{_host}:Host.detach", "self.driver.remove(driven)", "pass"),),
        f"{_of_host}:test_each_life_has_a_session_and_an_incarnation_of_its_own",
    ),
    Mutant(
        "a rebuilt fragment is the old one", "trace-2",
        (Edit(f"{_host}:Hosted._begin", "fragment = await in_thread(",
              "make = host.shared.make\n"
              "        kept = vars(self).setdefault('kept', [])\n"
              "        fragment = kept[0] if kept else await in_thread("),
         Edit(f"{_host}:Hosted._drive", "host, shared = self._host, self._host.shared",
              "host, shared = self._host, self._host.shared\n"
              "    vars(self)['kept'] = [fragment]")),
        f"{_of_host}:test_each_life_has_a_session_and_an_incarnation_of_its_own",
    ),
    Mutant(
        "resources of an ended life remain open", "trace-5",
        (Edit("slackwater.host.threads:in_thread", "unwanted() if done.done() else set_it()",
              "None if done.done() else set_it()"),),
        f"{_of_host}:test_what_was_made_for_nobody_is_given_back",
    ),
    Mutant(
        "the bound of bytes in flight is not divided", "trace-5",
        (Edit(f"{_host}:Host.in_flight_bytes_max",
              " // max(len(self._hosted), 1)", ""),),
        f"{_of_host}:test_fragments_share_the_memory_of_their_host",
    ),
    Mutant(
        "the bound of bytes read ahead is not divided", "trace-5",
        (Edit(f"{_host}:Host.prefetch_kib_max",
              " // (2 * max(len(self._hosted), 1))", ""),),
        f"{_of_host}:test_fragments_share_the_memory_of_their_host",
    ),
    Mutant(
        "back-off is not kept", "guarantee-2",
        (Edit(f"{_host}:Hosted._live_on", "back_off.after_death(", "BackOff().after_death("),),
        f"{_of_host}:test_repeated_failures_wait_longer_each_time",
    ),
    Mutant(
        "input of a session waits for its next turn", "guarantee-2",
        (Edit(f"{_runtime_host}.driver:Driven.take", "self._make_due()", "pass"),),
        f"{_of_driver}:test_input_makes_a_session_due_and_only_the_one_that_it_is_for",
    ),
)  # fmt: skip


# Tests that need more fixtures of pytest than ``monkeypatch``.


def a_log_begins_anew() -> None:
    """Start a log again while records fetched before are in flight."""
    from tests.unit.host.test_live_consumer import (
        Live,
        test_what_was_fetched_before_a_log_begins_anew_is_handed_to_nobody,
    )

    live = Live("host/1", cluster_of("127.0.0.1:1"), lambda error: None)
    call(test_what_was_fetched_before_a_log_begins_anew_is_handed_to_nobody, live)
