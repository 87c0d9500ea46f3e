"""Mutants of mergers (rule-36), each detected by a scenario or a unit test."""

from __future__ import annotations

from typing import Final

from tests.simulator.mutation import Edit, Mutant

_merger = "slackwater.protocols.fargo.merger:Merger"
_parent = "slackwater.protocols.fargo.parent:MergedPanes"
_resting = "slackwater.protocols.dpc.soutput.resting"
_input = "slackwater.sessions.merged_input:MergedInput"
_of_merger = "tests.unit.protocols.fargo.test_merger"
_of_parent = "tests.unit.protocols.fargo.test_parent"
_of_resting = "tests.unit.protocols.dpc.test_resting"
_scenario = "tests.scenarios.test_r65_merged_panes"

MERGING_MUTANTS: Final = (
    Mutant(
        "a merged pane used inside a begun one",
        "trace-65",
        (Edit(f"{_parent}.take", " or not self.is_edge(frontier)", ""),),
        f"{_of_parent}:test_a_pane_does_not_count_within_a_bucket",
    ),
    Mutant(
        "the second record of a pane counts",
        "trace-65",
        (Edit(f"{_parent}.take", "or record.end <= e", ""),),
        f"{_of_parent}:test_the_second_record_of_a_pane_is_dropped",
    ),
    Mutant(
        "pieces of two contents are mixed",
        "trace-65",
        (Edit(f"{_parent}.take",
              "known is None or (known.pane.ref, known.gap) != (ref, record.gap)",
              "known is None"),),
        f"{_of_parent}:test_pieces_of_two_contents_are_not_mixed",
    ),
    Mutant(
        "an empty pane without record",
        "trace-66",
        (Edit(f"{_merger}.look", "self._complete.append(",
              "if len(value): self._complete.append("),),
        f"{_of_merger}:test_an_empty_pane_has_a_record_and_a_run_of_them_has_one",
    ),
    Mutant(
        "a pane with a hole",
        "trace-68",
        (Edit(f"{_merger}.look", "notes != NOTHING and not self._writes_losses", "False"),),
        f"{_of_merger}:test_a_pane_with_a_loss_is_not_written",
    ),
    Mutant(
        "tentative slices merged",
        "trace-68",
        (
            Edit(
                "slackwater.sessions.merger:MergerConfig.logs",
                "LineName.STABLE",
                "LineName.LIVE",
            ),
        ),
        f"{_scenario}:test_a_root_with_mergers_reads_panes_in_place_of_deltas",
    ),
    Mutant(
        "a root that never falls back",
        "trace-66",
        (Edit(f"{_parent}.look", "now >= due_at", "False"),),
        f"{_of_parent}:test_it_reads_when_a_pane_has_not_come_in_time",
    ),
    Mutant(
        "a root that waits for a later pane in place of the missing one",
        "trace-66",
        (Edit(f"{_parent}.is_ahead", "record.start > frontier.bucket_start", "False"),),
        f"{_of_parent}:test_a_later_pane_is_ahead",
    ),
    Mutant(
        "a merger that is always late is waited for",
        "trace-66",
        (Edit(f"{_parent}._note_time", "now <= normal + self._wait_us", "True"),),
        f"{_of_parent}:test_it_does_not_rest_for_a_merger_that_is_late",
    ),
    Mutant(
        "behind a backlog each pane is missing",
        "trace-66",
        (Edit(f"{_parent}._due_at", "max(normal, self._came_at)", "normal"),),
        f"{_of_parent}:test_behind_a_backlog_it_waits_after_the_last_pane",
    ),
    Mutant(
        "the live line rests behind a failure",
        "trace-67",
        (Edit(f"{_resting}:Resting.rest", "end >= self._grid.window_end(live_next)", "True"),),
        f"{_of_resting}:test_the_live_line_reads_on_if_its_next_window_needs_more",
    ),
    Mutant(
        "positions stay where the root has rested",
        "trace-69",
        (Edit(f"{_resting}:Resting.use", "of.stable.move_to(end, behind, needed_to)",
              "of.stable.move_to(end, [c.position() for c in of.stable.cursors], needed_to)"),),
        f"{_of_resting}:test_a_merged_pane_moves_the_cursors_and_what_has_been_read",
    ),
    Mutant(
        "what has been read stays where the root has rested",
        "trace-69",
        (Edit(f"{_resting}:Resting.use", "max(self._contiguous_seq[log], position.next_seq)",
              "self._contiguous_seq[log]"),),
        f"{_of_resting}:test_a_merged_pane_moves_the_cursors_and_what_has_been_read",
    ),
    Mutant(
        "truncation before the reader has it",
        "trace-69",
        (Edit(f"{_resting}:MergedOffsets.at", "self._read[0].offset if self._read else ", ""),),
        f"{_of_resting}:test_panes_from_s_on_are_read_again",
    ),
    Mutant(
        "the position of a merged pane lies behind a run that passes its end",
        "trace-69",
        (Edit("slackwater.protocols.dpc.soutput.heads:position_in", "if passes or (", "if ("),),
        f"{_scenario}:test_a_run_of_empty_buckets_that_passes_a_pane_s_end_is_read_again",
    ),
    Mutant(
        "the log of merged panes is truncated for the copy that answers",
        "trace-69",
        (Edit("slackwater.registration.truncation:_merged", "min(offsets)", "max(offsets)"),),
        "tests.unit.registration.test_truncation"
        ":test_merged_panes_are_needed_from_where_the_slowest_copy_reads_them_again",
    ),
    Mutant(
        "a pane with a changed bit is used",
        "trace-65",
        (Edit(f"{_input}._use", "recorded(contents.digest(value))", "usable.digest"),),
        "tests.unit.sessions.test_merged_input:test_a_pane_with_another_digest_is_not_used",
    ),
)  # fmt: skip
