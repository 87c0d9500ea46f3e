"""Mutants of two copies of a part (rule-27), each detected by a scenario or a unit test."""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant

_pair = "slackwater.protocols.flux.pair:Pair"
_copy = "slackwater.sessions.copy:CopyOfPart"
_root = "slackwater.sessions.root:RootSession"
_silence = "tests.scenarios.test_r51_silence_while_kafka_is_away"
_turns = "tests.scenarios.test_r52_two_copies_take_over_in_turn"
_unit = "tests.unit.sessions.test_root_copies"

COPY_MUTANTS: Final = (
    Mutant(
        "silence counts while Kafka is away",
        "trace-51",
        (
            Edit(
                f"{_root}.step",
                "self.core.attend(now)",
                "(self.core.attend(now), self.pair.returned(now))",
            ),
        ),
        f"{_silence}:test_the_broker_is_away_and_nobody_takes_over",
    ),
    Mutant(
        "a start fences a copy that answers",
        "trace-52",
        (Edit(f"{_pair}.begin", "self._is_alone or is_first", "True"),),
        f"{_turns}:test_a_copy_that_starts_follows_the_one_that_answers",
    ),
    Mutant(
        "a fenced copy tries at once",
        "trace-52",
        (
            Edit(f"{_pair}.read", "self._is_first = self._is_alone", "pass"),
            Edit(f"{_pair}.begin", "tenure.copy == self.copy or", "tenure.copy >= 0 or"),
        ),
        f"{_turns}:test_a_copy_that_was_fenced_follows",
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
        (Edit(f"{_copy}.take_over", "core.follow(state)", "pass"),),
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
                "slackwater.sessions.orderer:OrdererSession.on_heartbeat",
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
                f"{_root}.position_gone",
                "if not self._copy.answers and not self._copy.is_alone:",
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
)
