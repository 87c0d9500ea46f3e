"""Mutants of a change of a query's definition (rule-29).

Each is detected by a scenario or a unit test. In one of four simulated runs with a single query a
new generation takes over; the first 600 seeds detect each of these mutants, too.
"""

from __future__ import annotations

from typing import Final

from tests.paper.stage import Settings
from tests.simulator.mutation import Edit, Mutant

_progress = "slackwater.sessions.progress"
_config = "slackwater.protocols.dpc.soutput.config"
_scenario = "tests.scenarios.test_r40_a_changed_query"
_continues = f"{_scenario}:test_a_new_generation_continues_the_results"
_root_session = "tests.unit.sessions.test_root_session"

GENERATION_MUTANTS: Final = (
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
        (Edit("slackwater.sessions.root:RootSession._open",
              "(yield from read_progress(self._config)) != self._restored:",
              "(yield from read_progress(self._config)).own != self._restored.own:"),),
        f"{_root_session}:test_a_new_generation_ends_if_the_earlier_one_has_answered_meanwhile",
    ),
)  # fmt: skip
