"""trace-22: likely mistakes of a reader that merges the three result topics."""

from __future__ import annotations

from slackwater.delivery.merge import Cut, Delivered, PartMerge

TOPICS = ("stable", "tentative", "corrections")


def test_a_correction_is_never_shown_before_the_undo_that_makes_room_for_it() -> None:
    # The root's transaction was UNDO (seq 7, corrections) and a stable row (seq 8). The consumer's
    # fetch of the stable topic completes first.
    merge: PartMerge[str] = PartMerge(0, TOPICS)
    merge.offer("tentative", 6, "tentative answer")
    for seq in range(6):
        merge.offer("stable", seq, "stable row")
    assert [item.seq for item in merge.take() if isinstance(item, Delivered)] == list(range(7))
    merge.offer("stable", 8, "exact row")
    assert merge.take() == []
    merge.offer("corrections", 7, "undo")
    assert merge.take() == [Delivered(0, 7, "undo"), Delivered(0, 8, "exact row")]


def test_a_seq_that_no_topic_holds_any_more_is_reported_and_not_waited_for() -> None:
    # Retention deleted the tentative answer with seq 0; the other two topics still have theirs.
    merge: PartMerge[str] = PartMerge(0, TOPICS)
    merge.offer("corrections", 1, "undo")
    assert merge.take() == []
    assert merge.wants_ends
    merge.ends({"stable": 0, "tentative": 5, "corrections": 1})
    merge.reached("stable", 0)
    merge.reached("corrections", 1)
    assert merge.take() == []
    merge.reached("tentative", 5)
    assert merge.take() == [Cut(0, 0, 0), Delivered(0, 1, "undo")]


def test_a_double_is_shown_as_one_and_counted_never_hidden() -> None:
    merge: PartMerge[str] = PartMerge(0, TOPICS)
    merge.offer("stable", 0, "row")
    assert merge.take() == [Delivered(0, 0, "row")]
    merge.offer("stable", 0, "row")
    assert merge.take() == [Delivered(0, 0, "row", repeat=True)]
    assert merge.repeats == 1
