"""Mutants of two copies of a part (rule-27), each detected by a scenario or a unit test."""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant

_pair = "slackwater.protocols.flux.pair:Pair"
_copy = "slackwater.sessions.copy:CopyOfPart"
_following = "slackwater.sessions.following:Following"
_config = "slackwater.protocols.dpc.soutput.config:RootConfig"
_holding = "slackwater.protocols.dpc.soutput.holding:Holding"
_held = "tests.scenarios.test_r74_what_a_follower_holds"
_of_holding = "tests.unit.sessions.test_following"
_root = "slackwater.sessions.root:RootSession"
_silence = "tests.scenarios.test_r51_silence_while_kafka_is_away"
_turns = "tests.scenarios.test_r52_two_copies_take_over_in_turn"
_unit = "tests.unit.sessions.test_root_copies"
_view = "slackwater.runtime.service.heartbeat_view:HeartbeatView"
_beats = "tests.unit.runtime.service.test_heartbeats"

COPY_MUTANTS: Final = (
    Mutant(
        "silence counts while Kafka is away",
        "trace-51",
        (
            Edit(
                f"{_root}.step",
                "self._copy.following.attend(self.core, now)",
                "(self._copy.following.attend(self.core, now), self.pair.returned(now))",
            ),
        ),
        f"{_silence}:test_the_broker_is_away_and_nobody_takes_over",
    ),
    Mutant(
        "a start fences a copy that answers",
        "trace-52",
        (Edit(f"{_pair}.begin", "tenure.first(self.copy)", "Cause.FIRST"),),
        f"{_turns}:test_a_copy_that_starts_follows_the_one_that_answers",
    ),
    Mutant(
        "the end is asked for before the fence",
        "trace-18",
        (
            Edit(
                f"{_copy}.take_over",
                "yield OpenTransactions()\n    found = yield from self._read_to_end()",
                "found = yield from self._read_to_end()\n    yield OpenTransactions()",
            ),
        ),
        f"{_unit}:test_a_take_over_adopts_what_was_answered_last",
    ),
    Mutant(
        "copies resign to and fro",
        "trace-54",
        (
            Edit(
                "slackwater.control.evening:next_resignation",
                "gain(best) <= 0",
                "gain(best) < -1",
            ),
        ),
        "tests.unit.control.test_evening:test_nobody_resigns_where_it_would_not_help",
        arguments=([("n1", "n2")],),
    ),
    Mutant(
        "a copy is asked to resign while others start",
        "trace-54",
        (
            Edit(
                "slackwater.control.evening:next_resignation",
                "entry.number not in reports.ready | reports.overdue",
                "False",
            ),
        ),
        "tests.unit.control.test_evening:test_never_while_a_follower_is_not_ready",
    ),
    Mutant(
        "copies are asked to resign without a pause",
        "trace-54",
        (Edit("slackwater.control.placing:Placing.resignation", " or now < self._resign_at", ""),),
        "tests.unit.control.test_evening:test_one_copy_at_a_time_at_a_bounded_rate",
    ),
    Mutant(
        "a node that settles is given answers",
        "trace-54",
        (
            Edit(
                "slackwater.control.evening:_is_able",
                "is Standing.STEADY",
                "is not Standing.SUSPECTED",
            ),
        ),
        "tests.unit.control.test_evening"
        ":test_a_node_that_is_back_is_given_answers_once_it_has_settled",
    ),
    Mutant(
        "a later generation acts on silence",
        "trace-63",
        (Edit(f"{_copy}.cause", "if self.earlier.is_followed:", "if False:"),),
        "tests.scenarios.test_r63_a_generation_that_is_silent"
        ":test_a_generation_that_is_silent_has_not_ended",
        arguments=(1,),
    ),
    Mutant(
        "a later generation does not follow",
        "trace-63",
        (
            Edit(
                "slackwater.sessions.earlier:EarlierGeneration.began",
                "found.own is not None",
                "True",
            ),
        ),
        "tests.unit.sessions.test_earlier_generation"
        ":test_it_takes_over_when_that_has_ended_behind_its_last_answers",
        arguments=(0,),
    ),
    Mutant(
        "a later generation claims nothing before its first answer",
        "trace-63",
        (Edit(f"{_copy}.take_over", " or continues", ""),),
        "tests.unit.sessions.test_earlier_generation"
        ":test_without_its_predecessor_it_takes_over_at_once",
    ),
    Mutant(
        "a generation ends before its successor answers",
        "trace-63",
        (
            Edit(
                "slackwater.node.hand_over:hand_overs",
                "if later.name in before.queries and fragments:",
                "if False:",
            ),
        ),
        "tests.unit.node.test_hand_over:test_what_runs_here_of_the_ended_generation_is_kept",
    ),
    Mutant(
        "a fenced copy tries at once",
        "trace-52",
        (
            Edit(f"{_pair}.read", "Cause.FIRST if self._is_alone else None", "self._at_once"),
            Edit(
                f"{_pair}.begin",
                "tenure.first(self.copy)",
                "Cause.FIRST if tenure.copy >= 0 else tenure.first(self.copy)",
            ),
        ),
        f"{_turns}:test_a_copy_that_was_fenced_follows",
    ),
    Mutant(
        "a digest has the numbers of keys",
        "trace-57",
        (
            Edit(
                "slackwater.primitives.deltas:Aggregates.digest",
                "hashes(value.index)",
                "value.index.view(np.uint64)",
            ),
        ),
        "tests.unit.primitives.test_digests:test_it_does_not_depend_on_the_numbers_of_keys",
    ),
    Mutant(
        "a follower compares nothing",
        "trace-57",
        (Edit(f"{_following}.compare", "NO_DIGEST in {digest, state.digest}", "True"),),
        "tests.scenarios.test_r57_two_copies_disagree:test_a_bit_that_differs_is_told",
    ),
    Mutant(
        "a follower compares what it has dropped already",
        "trace-57",
        (
            Edit(
                "slackwater.protocols.dpc.soutput.core:RootCore.follow",
                "digest = self._digest_to(answered.stable_from)",
                "[forget_answered(child, answered) for child in self._children]; "
                "digest = self._digest_to(answered.stable_from)",
            ),
        ),
        "tests.scenarios.test_r57_two_copies_disagree:test_copies_that_hold_the_same_say_nothing",
        arguments=((("s1", "s2"),),),
    ),
    Mutant(
        "panes with a loss have a digest",
        "trace-57",
        (
            Edit(
                "slackwater.primitives.panes:PaneStore.digest",
                "self.notes(start, end) != NOTHING",
                "False",
            ),
        ),
        "tests.unit.primitives.test_digests:test_of_panes_with_a_loss_there_is_none",
    ),
    Mutant(
        "take-overs in vain are not counted",
        "trace-52",
        (Edit("slackwater.protocols.flux.pair:Tenure.taken_by", "self.vain + 1", "1"),),
        f"{_turns}:test_two_copies_that_are_stopped_in_turn_before_an_answer_wait_for_longer"
        "_each_time",
    ),
    Mutant(
        "a follower continues from what it has adopted before its fence",
        "trace-18",
        (Edit(f"{_copy}._read_to_end", "yield AwaitRead(self.states, end)", "pass"),),
        f"{_unit}:test_a_take_over_adopts_what_was_answered_last",
    ),
    Mutant(
        "a hole of a follower restarts a writer",
        "trace-53",
        (Edit(f"{_root}.report", "core.holes if self._copy.answers else ()", "core.holes"),),
        f"{_unit}:test_a_follower_reports_no_hole",
    ),
    Mutant(
        "lines wait for a follower",
        "trace-53",
        (
            Edit(
                "slackwater.sessions.orderer:OrdererSession._observe",
                "beat.process in self._roots and beat.detail.get(ANSWERS, 1)",
                "beat.process in self._roots",
            ),
        ),
        "tests.unit.sessions.test_orderer_session"
        ":test_of_two_copies_of_a_part_the_one_that_answers_is_waited_for",
    ),
    Mutant(
        "truncation ignores the follower",
        "trace-53",
        (Edit("slackwater.registration.truncation:_copies", "if query.copies == 1:", "if True:"),),
        "tests.unit.registration.test_truncation:test_a_follower_keeps_what_it_has_not_read",
    ),
    Mutant(
        "a dead copy holds truncation",
        "trace-53",
        (
            Edit(
                "slackwater.registration.truncation:_copies",
                "state.stable_from >= fresh_from",
                "True",
            ),
        ),
        "tests.unit.registration.test_truncation:test_a_copy_that_is_dead_keeps_nothing",
    ),
    Mutant(
        "a follower that retention has overtaken reports a loss",
        "trace-53",
        (
            Edit(
                f"{_root}._position_gone",
                "if not self._copy.answers and self._copy.reads_states:",
                "if False:",
            ),
        ),
        f"{_unit}:test_a_follower_that_retention_has_overtaken_starts_again",
    ),
    Mutant(
        "a replaced copy of one name runs on",
        "trace-17",
        (Edit(f"{_copy}._of_part", "if record.placement > config.placement:", "if False:"),),
        f"{_unit}:test_a_greater_number_of_its_own_name_ends_a_copy",
    ),
    Mutant(
        "a copy starts although its name has a greater number",
        "trace-17",
        (Edit(f"{_copy}.check_number", "if self.is_alone:", "if True:"),),
        f"{_unit}:test_a_copy_stays_down_if_its_name_has_a_greater_number",
    ),
    Mutant(
        "a copy resigns with no copy ready",
        "trace-54",
        (
            Edit(
                f"{_pair}.may_resign",
                " and at is not None and now - at < fresh_us",
                "",
            ),
        ),
        "tests.scenarios.test_r54_a_copy_resigns"
        ":test_nobody_resigns_in_favour_of_a_copy_that_is_dead",
    ),
    Mutant(
        "a copy resigns before its last transaction is committed",
        "trace-54",
        (
            Edit(
                f"{_copy}.last_effects",
                "if not (self._is_to_resign and is_idle):",
                "if not self._is_to_resign:",
            ),
        ),
        f"{_unit}:test_the_last_transaction_is_waited_for",
    ),
    Mutant(
        "a resignation is not read",
        "trace-54",
        (Edit(f"{_pair}.read", "if tenure.resigned and not self._is_alone:", "if False:"),),
        f"{_unit}:test_a_copy_takes_over_at_once_from_one_that_has_resigned",
    ),
    Mutant(
        "a copy that has resigned answers again when it starts",
        "trace-54",
        (Edit("slackwater.protocols.flux.pair:Tenure.first", "if self.resigned:", "if False:"),),
        "tests.paper.test_flux"
        ":test_of_two_copies_that_start_after_a_resignation_the_other_one_answers",
    ),
    Mutant(
        "a report of death concerns whoever has the name",
        "trace-55",
        (Edit(f"{_view}._supersedes", "if beat.is_dead and not is_same:", "if False:"),),
        f"{_beats}:test_a_report_of_death_does_not_concern_the_process_that_was_started_since",
    ),
    Mutant(
        "a false report of death is believed for ever",
        "trace-55",
        (
            Edit(
                f"{_view}._supersedes",
                "if now_s - known.received_s > STALE_S:",
                "if now_s - known.received_s > STALE_S and not known.beat.is_dead:",
            ),
        ),
        f"{_beats}:test_a_false_report_of_death_is_forgotten",
    ),
    Mutant(
        "a report of death about an earlier term counts",
        "trace-55",
        (Edit(f"{_pair}.died", " and term >= self.tenure.term", ""),),
        "tests.paper.test_flux:test_3_2_a_report_about_a_secondary_or_a_zombie_tells_nothing",
    ),
    Mutant(
        "a copy that is not ready believes a report of death",
        "trace-55",
        (
            Edit(
                f"{_pair}.cause",
                "if self._is_reported_dead and is_ready:",
                "if self._is_reported_dead:",
            ),
        ),
        f"{_unit}:test_a_copy_that_is_not_ready_waits_although_the_other_one_is_reported_dead",
    ),
    Mutant(
        "what was held is not read at the take-over",
        "trace-74",
        (Edit(f"{_holding}.end", "self.read()", "pass"),),
        f"{_held}:test_a_follower_that_takes_over_reads_what_it_holds",
        arguments=((("s1", "s2"),), 3.0),
    ),
    Mutant(
        "a state record drops all that is held",
        "trace-74",
        (
            Edit(
                f"{_holding}.skip_to",
                "[log.stable for log in of_child]",
                "[type(log.stable)(self._inputs.position(at_of(log)), log.stable.next_seq,"
                " log.stable.inc, log.stable.frontier) for log in of_child]",
            ),
        ),
        f"{_held}:test_a_follower_that_takes_over_reads_what_it_holds",
        arguments=((("s1",), ("s2",)), 3.0),
    ),
    Mutant(
        "a follower holds what tentative answers are to be replaced with",
        "trace-74",
        (
            Edit(
                "slackwater.protocols.flux.holding:may_begin",
                "state.stable_from == state.answered_to and",
                "",
            ),
        ),
        f"{_held}:test_in_a_failure_it_reads_what_both_lines_need",
    ),
    Mutant(
        "a follower holds whatever comes",
        "trace-74",
        (
            Edit(
                "slackwater.sessions.following:Following.attend",
                "read_us > self._config.held_read_us_max",
                "False",
            ),
        ),
        f"{_of_holding}:test_it_reads_what_would_take_too_long_at_a_take_over",
    ),
    Mutant(
        "a follower is not suppressed by what it holds",
        "trace-74",
        (Edit(f"{_holding}.end", "self._inputs.suppress_to_positions()", "pass"),),
        f"{_of_holding}:test_it_answers_nothing_tentatively_before_it_has_read_what_it_holds",
    ),
    Mutant(
        "a follower that holds compares nothing",
        "trace-75",
        (Edit(f"{_config}.is_compared", "period != last", "False"),),
        f"{_held}:test_of_so_many_state_records_it_compares_the_panes_of_one",
    ),
    Mutant(
        "a resignation waits for the next turn",
        "trace-74",
        (
            Edit(
                "slackwater.sessions.copy:CopyOfPart.may_wait",
                " and self.pair.may_wait",
                "",
            ),
        ),
        f"{_of_holding}:test_a_resignation_needs_a_turn",
    ),
)
