"""trace-25: a source lags by more than X permanently: the stable line follows, nothing stops."""

from __future__ import annotations

from tests.simulator.story import Story


def test_lines_run_side_by_side_as_long_as_one_source_is_slow() -> None:
    story = Story(bound_us=1_000_000, replicas=1)
    story.time_passes(2)
    # Short contacts, two seconds apart: readings always arrive after the bound.
    for _ in range(6):
        story.silence("s1", for_s=2.6)
        story.time_passes(2.62)
    assert story.latest_first_answer_s() < 1.05
    by_bucket: dict[int, int] = {}
    for _, record in story.world.q.ordered_log(0, 0, 1).values():
        start = record.bucket_start  # type: ignore[attr-defined]
        by_bucket[start] = by_bucket.get(start, 0) + 1
    again = [start for start, count in by_bucket.items() if count > 1]
    assert len(again) <= 1, "one tentative record per bucket (START takes a place too)"
    story.all_is_well_again()
    assert story.orderer().line.state.value == "STABLE"
    story.every_guarantee_holds()
