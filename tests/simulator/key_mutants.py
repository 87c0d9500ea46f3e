"""Mutants of forgetting keys (rule-35), each detected by a scenario or a unit test."""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant

_table = "slackwater.primitives.key_table:KeyTable"
_movable = "slackwater.protocols.dpc.soutput.heads:MovableState.needed_from"
_forgotten = "tests.scenarios.test_r64_a_key_is_forgotten"
_unit = "tests.unit.primitives.test_key_table"
_law = f"{_unit}:test_a_number_is_that_of_its_key_as_long_as_it_is_needed"
_merger = "slackwater.protocols.fargo.merger:Merger.needed_from"
_of_merger = (
    "tests.unit.sessions.test_merger_keys"
    ":test_panes_are_the_same_and_keys_of_written_ones_are_forgotten"
)

KEY_MUTANTS: Final = (
    Mutant(
        "a key is forgotten that an open window needs",
        "trace-64",
        (
            Edit(
                _movable,
                "min(self._answers.state.stable_from, panes)",
                "min(self._answers.state.stable_from + 90, panes)",
            ),
        ),
        f"{_forgotten}:test_an_open_window_keeps_its_keys",
    ),
    Mutant(
        "a copy that lags forgets the keys of its open pane",
        "trace-64",
        (
            Edit(
                _movable,
                "min(self._answers.state.stable_from, panes)",
                "self._answers.state.stable_from",
            ),
        ),
        f"{_forgotten}:test_a_copy_that_lags_keeps_the_keys_of_its_open_pane",
    ),
    Mutant(
        "a pane is written with other keys",
        "trace-64",
        (
            Edit(
                "slackwater.sessions.state_mover:StateMover.step",
                "core.movable.writes_from = self._writer.writes_from",
                "core.movable.writes_from = None",
            ),
        ),
        f"{_forgotten}:test_a_pane_that_is_being_written_keeps_its_keys",
    ),
    Mutant(
        "a list that comes again is not needed longer",
        "trace-64",
        (Edit(f"{_table}._need", "if needed_to > known.needed_to:", "if False:"),),
        _law,
    ),
    Mutant(
        "a list is recognised whose keys have been forgotten",
        "trace-64",
        (
            Edit(
                f"{_table}.numbers",
                "known.keys is keys and known.needed_to > self._needed_from",
                "known.keys is keys",
            ),
            Edit(f"{_table}.forget_before", "if known.needed_to <= e", "if False"),
        ),
        _law,
    ),
    Mutant(
        "a key has the hash of the one before",
        "trace-64",
        (Edit(f"{_table}._add", "self._is_hashed[at_numbers] = False", "pass"),),
        _law,
    ),
    Mutant(
        "a merger forgets the keys of a pane that is not written",
        "trace-64",
        (Edit(_merger, "min(self.unwritten_from, self._merged_to)", "self._merged_to"),),
        _of_merger,
    ),
    Mutant(
        "a merger forgets the keys of the pane that has begun",
        "trace-64",
        (Edit(_merger, "min(self.unwritten_from, self._merged_to)", "self.unwritten_from"),),
        _of_merger,
    ),
)
