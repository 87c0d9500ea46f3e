"""trace-29: aborted answers stay in the log, their seqs are reused; committed readers skip them."""

from __future__ import annotations

from tests.simulator.story import Story

from slackwater.protocols.dpc.soutput.answers import Transaction


def test_only_a_reader_of_uncommitted_records_sees_a_seq_twice() -> None:
    story = Story(bound_us=1_000_000, window_us=100_000, slide_us=100_000)
    log = story.world.q.results_log(0)
    for _ in range(4):
        story.time_passes(1.5)
        while log.stable_end == log.end:
            story.time_passes(0.0005)
        story.kill("root/q.0")
    story.all_is_well_again(5)
    while log.stable_end != log.end:
        story.time_passes(0.0005)

    def first_seqs(values: list[object]) -> list[int]:
        return [v.before.next_seq for v in values if isinstance(v, Transaction)]

    everything = first_seqs([value for _, value in log.values()])
    committed, position = log.read_committed()
    assert len(set(first_seqs(committed))) == len(committed)
    assert len(everything) > len(committed), "it was killed in the middle of transactions"
    assert len(set(everything)) < len(everything), "and their seqs were used again"
    assert position == log.end, "the position passes the commit markers"
    story.every_guarantee_holds()
