"""trace-62: deltas are deleted that only a head replaces, and the heads are damaged."""

from __future__ import annotations

from tests.scenarios.test_r11_a_damaged_delta import a_delta_is_damaged, starts
from tests.scenarios.test_r61_state_is_moved import ROOT, head_of, root, story_of_heads
from tests.simulator.story import Story

from slackwater.model.names import ONLY
from slackwater.model.records import OrderedRecord, RootState


def truncated(story: Story) -> None:
    """Truncate as the supervisor does: each round deletes what the one before has found."""
    for _ in range(2):
        story.world.truncate()


def state_of(story: Story) -> RootState:
    """Return the newest state record of the part."""
    state = story.world.q.root_state(0)
    assert state is not None
    return state


def lacks_s(story: Story) -> bool:
    """Return whether deltas at S have been deleted."""
    inputs = (at for at, form in root(story, ONLY).session.inputs.items() if form == "deltas")
    return any(
        story.world.log_at(at).beginning > log.stable.offset
        for at, log in zip(inputs, state_of(story).logs, strict=True)
        if not log.line
    )


def beginnings(story: Story) -> list[int]:
    """Return the first offset of each log of deltas."""
    inputs = root(story, ONLY).session.inputs
    return [story.world.log_at(at).beginning for at in inputs]


def firsts_of_heads(story: Story) -> list[int]:
    """Return the first offset of each log that one of the two newest heads needs."""
    heads = sorted(story.world.q.stored(0).heads, key=lambda head: head.order)[-2:]
    assert len(heads) == 2
    return [min(log.first for log in each) for each in zip(*(h.logs for h in heads), strict=True)]


def test_what_two_heads_need_is_kept_and_no_more() -> None:
    story = story_of_heads()
    story.time_passes(6)
    truncated(story)
    assert lacks_s(story)
    for first, beginning in zip(firsts_of_heads(story), beginnings(story), strict=True):
        assert first >= beginning
    state = state_of(story)
    assert max(state.moved_to) - state.stable_from > 1_500_000
    story.kill(ROOT)
    story.time_passes(4)
    assert head_of(root(story)) is not None
    assert story.tentative == []
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_without_a_head_the_orderers_send_again_from_s() -> None:
    story = story_of_heads()
    story.time_passes(6)
    truncated(story)
    story.world.spoil_panes("sw.panes.q:0", 1_000)
    story.kill(ROOT)
    story.time_passes(1)
    assert head_of(root(story)) is None
    assert state_of(story).kept_from == (), "nobody needs less than S"
    story.time_passes(6)
    assert state_of(story).kept_from != (), "there are two heads again"
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_damaged_delta_is_sent_again_from_the_older_head() -> None:
    story = story_of_heads(replicas=1, bound_us=1_000_000)
    story.time_passes(6)
    before = state_of(story)
    a_delta_is_damaged(story)
    story.time_passes(6)
    assert starts(story) == 2, "the orderer has begun again"
    frontiers = [
        record.frontier.bucket_start
        for _, record in story.world.q.ordered_log(0, 0, 0).values()
        if isinstance(record, OrderedRecord) and record.frontier is not None
    ]
    assert frontiers[-1] >= before.moved_to[0] > before.stable_from
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_follower_that_is_far_behind_starts_from_a_head() -> None:
    story = story_of_heads(copies=2)
    story.time_passes(4)
    story.pause(f"{ROOT}.b", for_s=4)
    story.time_passes(3.5)
    truncated(story)
    story.time_passes(3)
    assert root(story, 1).session.is_ready
    story.all_is_well_again()
    story.every_guarantee_holds()
