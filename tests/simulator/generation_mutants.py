"""Mutants of a change of a query's definition (rule-29).

Each is detected by a scenario or a unit test. In one of four simulated runs with a single query or
a chain a new generation takes over; the first 600 seeds detect each mutant of trace-40, too.
"""

from __future__ import annotations

from typing import Final

from tests.paper.stage import Settings
from tests.simulator.mutation import Edit, Mutant
from tests.unit.control.test_readers import SOME

_progress = "slackwater.sessions.progress"
_config = "slackwater.protocols.dpc.soutput.config"
_scenario = "tests.scenarios.test_r40_a_changed_query"
_continues = f"{_scenario}:test_a_new_generation_continues_the_results"
_root_session = "tests.unit.sessions.test_root_session"
_read = "tests.scenarios.test_r43_a_changed_query_that_is_read"
_readers = "slackwater.control.readers"
_unit = "tests.unit.control.test_readers"
_parts = "tests.scenarios.test_r56_a_key_changes_its_part"

GENERATION_MUTANTS: Final = (
    Mutant(
        "a new generation divides its keys by another hash", "trace-56",
        (Edit("slackwater.registration.key_hashes:key_hash_of",
              "return registered[earlier].divided_by", "return XXHASH64"),),
        f"{_parts}:test_each_reading_is_answered_once_across_a_change",
    ),
    Mutant(
        "a new generation begins a sequence of its own", "trace-40",
        (Edit(f"{_progress}:PartProgress.state", "if self.others:", "if False:"),), _continues,
    ),
    Mutant(
        "a new generation continues behind the tentative answers", "trace-40",
        (Edit(f"{_config}:continued_state", "stable_from=earlier.stable_from,",
              "stable_from=earlier.answered_to,"),), _continues,
    ),
    Mutant(
        "a new generation does not undo what the earlier one has answered", "trace-40",
        (Edit(f"{_config}:continued_state", "answered_to=earlier.answered_to,",
              "answered_to=earlier.stable_from,"),), _continues,
    ),
    Mutant(
        "a new generation counts its results from the beginning", "trace-40",
        (Edit(f"{_config}:continued_state", "next_seq=earlier.next_seq,", ""),), _continues,
    ),
    Mutant(
        "a new generation answers windows that the earlier one has answered", "trace-40",
        (Edit(f"{_config}:continued_state", "stable_from=earlier.stable_from,", ""),),
        f"{_scenario}:test_nothing_is_answered_twice_or_left_out_while_nothing_is_missing",
        (Settings(),),
    ),
    Mutant(
        "a new generation's first windows lack the pairs with earlier readings", "trace-40",
        (Edit(f"{_config}:start_of_generation", "answered_us - looks_back_us", "answered_us"),),
        f"{_scenario}:test_a_join_has_its_pairs_across_the_cut",
    ),
    Mutant(
        "a new generation takes readings from before the query's start", "trace-40",
        (Edit(f"{_config}:start_of_generation",
              "max(answered_us - looks_back_us, earlier_start_us)",
              "answered_us - looks_back_us"),),
        f"{_scenario}:test_nothing_before_the_query_s_start_is_answered",
    ),
    Mutant(
        "an earlier generation answers again when it is restarted", "trace-40",
        (Edit(f"{_progress}:PartProgress.check", "if latest > generation_of(config.query):",
              "if False:"),),
        f"{_scenario}:test_the_earlier_generation_stays_down_when_the_later_one_has_answered",
    ),
    Mutant(
        "a new generation that restarts continues the earlier one again", "trace-40",
        (Edit(f"{_progress}:PartProgress.state", "if self.own is not None:", "if False:"),),
        f"{_scenario}:test_the_later_generation_restarts_from_its_own_state",
    ),
    Mutant(
        "an earlier generation's last transaction is missed", "trace-40",
        (Edit("slackwater.sessions.copy:CopyOfPart.take_over",
              "core.follow(state)", "found.own and core.follow(state)"),),
        f"{_root_session}:test_a_new_generation_continues_behind_the_earlier_one_s_fence",
    ),
    Mutant(
        "a new generation has no readers, and the deadlines of a query without any", "trace-43",
        (Edit("slackwater.model.deployment:Deployment._readers", "name = base_of(query.name)",
              "name = query.name"),),
        f"{_read}:test_a_reader_is_given_its_time_across_a_change",
    ),
    Mutant(
        "rows of before a column was added are damaged", "trace-43",
        (Edit("slackwater.codec.result_batches:LazyRows._fields_of",
              "if not stream.generation or", "if stream.generation or"),),
        f"{_read}:test_columns_that_earlier_rows_lack_are_missing_values",
    ),
    Mutant(
        "a reader that restarts reads the columns of the generation that runs then", "trace-43",
        (Edit("slackwater.host.orderer:inputs",
              "(read := registered.query_read(source))", "(read := deployment.query_read(source))"),
         Edit("slackwater.host.orderer:result_logs", "deployment.output_fields(spec)",
              "('a',)")),
        "tests.unit.host.test_orderer_inputs:"
        "test_a_reader_keeps_the_columns_that_it_was_registered_with",
    ),
    Mutant(
        "a reader looks for the results of a new generation under its name", "trace-43",
        (Edit("slackwater.host.orderer:result_logs", "base_of(spec.name)", "spec.name"),),
        "tests.unit.host.test_orderer_inputs:"
        "test_a_reader_that_is_applied_later_reads_the_columns_of_the_later_generation",
    ),
    Mutant(
        "a change takes columns from its readers", "trace-43",
        (Edit(f"{_readers}:_columns", "if field not in has]", "if False]"),),
        f"{_unit}:test_what_the_readers_need_is_named",
        ((SOME,), "[avg]", "[max]", "which needs x_avg"),
    ),
    Mutant(
        "a change moves the normal times of its readers", "trace-43",
        (Edit(f"{_readers}:_times", "if was_us != is_us:", "if False:"),),
        f"{_unit}:test_lateness_is_that_of_all_readers_also_through_others",
    ),
    Mutant(
        "a change moves what is learned about the normal times of its readers", "trace-43",
        (Edit(f"{_readers}:_times", "_learning(reader, before) ^ _learning(reader, after)",
              "set()"),),
        f"{_unit}:test_a_learning_stream_is_neither_added_nor_removed",
    ),
    Mutant(
        "a reader goes on with a query that no longer has what it needs", "trace-43",
        (Edit(f"{_readers}:serves", "return is_continued and", "return is_continued or"),),
        f"{_unit}:test_a_reader_waits_if_a_split_has_left_it_without_what_it_needs",
    ),
)  # fmt: skip
