"""Mutants of state movement (rule-34), each detected by a scenario or a unit test."""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant

_writer = "slackwater.protocols.flux.movement:HeadWriter"
_turns = "slackwater.protocols.common.pane_writing:TurnWriter"
_heads = "slackwater.protocols.dpc.soutput.heads"
_mover = "slackwater.sessions.state_mover:StateMover"
_moved = "tests.scenarios.test_r61_state_is_moved"
_kept = "tests.scenarios.test_r62_deltas_are_kept_for_two_heads"
_unit = "tests.unit.protocols.flux.test_movement"

MOVING_MUTANTS: Final = (
    Mutant(
        "a head before its panes are acknowledged",
        "trace-61",
        (Edit(f"{_turns}.acknowledgements", "while self._in_flight:", "while False:"),),
        f"{_unit}:test_a_head_follows_the_acknowledgement_of_its_panes",
    ),
    Mutant(
        "a head between step and commit",
        "trace-61",
        (Edit(f"{_mover}._look", "elif not core.awaits_commit and ", "elif "),),
        "tests.unit.sessions.test_state_mover:test_a_head_is_cut_between_two_transactions",
    ),
    Mutant(
        "begun pieces are forgotten",
        "trace-61",
        (Edit(f"{_heads}:position_in", "return begun\n", "return cursor.position()\n"),),
        "tests.unit.protocols.dpc.test_heads"
        ":test_a_bucket_that_has_begun_is_read_again_from_its_first_piece",
    ),
    Mutant(
        "the numbers of keys are moved in place of the keys",
        "trace-61",
        (
            Edit(
                "slackwater.primitives.deltas:Aggregates.install",
                "self._table.numbers(piece.keys, needed_to) for piece",
                "np.argsort(self._table.numbers(piece.keys, needed_to)) for piece",
            ),
        ),
        "tests.unit.primitives.test_moved_panes"
        ":test_an_installed_store_equals_one_that_has_read_everything",
    ),
    Mutant(
        "what has been read is that of an older state record",
        "trace-61",
        (
            Edit(
                f"{_heads}:contiguous_seqs",
                "max(head.contiguous_seq, ",
                "min(head.contiguous_seq, ",
            ),
        ),
        "tests.unit.protocols.dpc.test_heads:test_it_equals_one_that_has_read_everything",
    ),
    Mutant(
        "a head that lacks a pane is taken",
        "trace-61",
        (
            Edit(
                "slackwater.protocols.flux.movement:complete_heads",
                "if is_complete(head)",
                "if is_complete(head) or True",
            ),
        ),
        f"{_unit}:test_a_head_that_lacks_a_pane_is_not_taken",
    ),
    Mutant(
        "the live line reads from t",
        "trace-61",
        (Edit(f"{_heads}:continued", "if answered_to > frontier:", "if True:"),),
        f"{_moved}:test_a_root_that_is_killed_reads_what_follows_the_head",
    ),
    Mutant(
        "panes of the older head are deleted",
        "trace-61",
        (
            Edit(
                f"{_writer}._deletions",
                "for head in self.heads for ref",
                "for head in self.heads[-1:] for ref",
            ),
        ),
        f"{_unit}:test_two_heads_are_kept_and_what_neither_names_is_deleted",
    ),
    Mutant(
        "truncation ignores the heads",
        "trace-62",
        (Edit(f"{_heads}:Kept.added_to", "min(self.offsets.get(at, 0), *read)", "min(read)"),),
        f"{_kept}:test_what_two_heads_need_is_kept_and_no_more",
    ),
    Mutant(
        "truncation keeps what is read from s",
        "trace-62",
        (
            Edit(
                "slackwater.registration.truncation:_firsts",
                "kept if kept is not None else min",
                "min",
            ),
        ),
        f"{_kept}:test_what_two_heads_need_is_kept_and_no_more",
    ),
    Mutant(
        "orderers send again from s",
        "trace-62",
        (
            Edit(
                "slackwater.protocols.dpc.soutput.config:needed_from",
                "if len(state.moved_to) <= child else state.moved_to[child]",
                "",
            ),
        ),
        f"{_kept}:test_a_damaged_delta_is_sent_again_from_the_older_head",
    ),
    Mutant(
        "a root without a head says nothing of it",
        "trace-62",
        (
            Edit(
                "slackwater.sessions.copy:CopyOfPart.take_over",
                "bool(state.kept_from) and core.movable.kept is None",
                "False",
            ),
        ),
        "tests.unit.sessions.test_state_mover"
        ":test_a_root_that_needs_more_than_the_heads_says_so_before_its_first_answer",
    ),
)
