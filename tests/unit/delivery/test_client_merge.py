"""Merging three topics by seq (dpc-17, trace-22): order, gaps, retention, repeats."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from slackwater.delivery.merge import HELD_RECORDS_MAX, Cut, Delivered, PartMerge

TOPICS = ("stable", "tentative", "corrections")


def seqs(items: list[Delivered[str] | Cut]) -> list[int]:
    return [item.seq for item in items if isinstance(item, Delivered)]


@given(
    homes=st.lists(st.sampled_from(TOPICS), max_size=60),
    pace=st.randoms(use_true_random=False),
)
def test_whatever_the_pace_of_the_topics_the_order_is_that_of_seq(
    homes: list[str], pace: random.Random
) -> None:
    logs = {t: [seq for seq, home in enumerate(homes) if home == t] for t in TOPICS}
    merge: PartMerge[str] = PartMerge(0, TOPICS)
    out: list[Delivered[str] | Cut] = []
    while any(logs.values()):
        topic = pace.choice([t for t in TOPICS if logs[t]])
        for _ in range(pace.randint(1, 5)):
            if logs[topic]:
                seq = logs[topic].pop(0)
                merge.offer(topic, seq, str(seq))
        out += merge.take()
    assert seqs(out) == list(range(len(homes)))
    assert len(out) == len(homes)
    assert merge.repeats == merge.cut == merge.held == 0


def test_a_gap_waits_until_the_ends_observed_after_it_are_reached() -> None:
    merge: PartMerge[str] = PartMerge(0, TOPICS)
    merge.offer("stable", 1, "b")
    assert merge.take() == []
    assert merge.wants_ends
    merge.ends({"stable": 1, "tentative": 0, "corrections": 7})
    merge.reached("stable", 1)
    merge.reached("corrections", 6)
    assert merge.take() == []
    merge.offer("corrections", 0, "a")
    assert merge.take() == [Delivered(0, 0, "a"), Delivered(0, 1, "b")]


def test_what_is_in_no_topic_at_its_end_was_cut_and_is_reported() -> None:
    merge: PartMerge[str] = PartMerge(2, TOPICS)
    merge.offer("stable", 5, "x")
    merge.take()
    merge.ends({"stable": 9, "tentative": 4, "corrections": 4})
    merge.reached("tentative", 4)
    assert merge.take() == []
    merge.reached("corrections", 4)
    assert merge.take() == [Cut(2, 0, 4), Delivered(2, 5, "x")]
    assert merge.cut == 5


def test_ends_fetched_before_the_gap_prove_nothing() -> None:
    merge: PartMerge[str] = PartMerge(0, TOPICS)
    for topic in TOPICS:
        merge.reached(topic, 100)
    merge.ends(dict.fromkeys(TOPICS, 100))
    merge.offer("stable", 3, "x")
    assert merge.take() == []
    assert merge.wants_ends


def test_topics_that_all_hold_something_later_prove_the_gap_themselves() -> None:
    merge: PartMerge[str] = PartMerge(0, TOPICS)
    for seq, topic in enumerate(TOPICS, start=4):
        merge.offer(topic, seq, topic)
    assert merge.take()[0] == Cut(0, 0, 3)


def test_a_repeat_is_delivered_counted_and_marked() -> None:
    merge: PartMerge[str] = PartMerge(0, TOPICS)
    merge.offer("stable", 0, "first")
    merge.offer("stable", 0, "second")
    merge.offer("stable", 1, "next")
    merge.offer("tentative", 0, "third")
    out = merge.take()
    assert sorted(item.record for item in out if isinstance(item, Delivered) and item.repeat) == [
        "second",
        "third",
    ]
    assert [i.seq for i in out if isinstance(i, Delivered) and not i.repeat] == [0, 1]
    assert merge.repeats == 2


@given(
    homes=st.lists(st.sampled_from(TOPICS), min_size=41, max_size=60),
    starts=st.tuples(*[st.integers(0, 40)] * 3),
)
def test_joined_in_the_middle_nothing_is_missing_behind_the_first(
    homes: list[str], starts: tuple[int, int, int]
) -> None:
    """The starting offsets of the topics were fetched one after the other."""
    begin = dict(zip(TOPICS, starts, strict=True))
    skipped = [seq for seq, topic in enumerate(homes) if seq < begin[topic]]
    behind = max(skipped, default=-1) + 1
    merge: PartMerge[str] = PartMerge(0, TOPICS, next_seq=behind)
    for seq, topic in enumerate(homes):
        if seq >= begin[topic]:
            merge.offer(topic, seq, topic)
    assert seqs(merge.take()) == list(range(behind, len(homes)))
    assert (merge.repeats, merge.cut, merge.held) == (0, 0, 0)


def test_joined_where_nothing_is_held_the_first_is_the_smallest_seen_by_a_common_instant() -> None:
    """Records after the requested ends are neither holes nor repeats."""
    merge: PartMerge[str] = PartMerge(0, TOPICS, next_seq=None)
    merge.offer("stable", 5, "a")
    assert merge.take() == []
    assert merge.wants_ends
    merge.ends({"stable": 1, "tentative": 0, "corrections": 0})
    for seq in (6, 8, 9):
        merge.offer("stable", seq, "b")
    merge.reached("stable", 4)
    assert seqs(merge.take()) == [5, 6]
    merge.offer("tentative", 7, "c")
    assert seqs(merge.take()) == [7, 8, 9]
    assert (merge.repeats, merge.cut) == (0, 0)


def test_a_topic_far_ahead_is_full_and_the_one_waited_for_never_is() -> None:
    merge: PartMerge[str] = PartMerge(0, TOPICS)
    for seq in range(1, HELD_RECORDS_MAX + 1):
        merge.offer("stable", seq, "x")
    merge.take()
    assert merge.full("stable")
    assert not merge.full("tentative")
    assert not merge.full("corrections")
    merge.offer("corrections", 0, "y")
    assert len(merge.take()) == HELD_RECORDS_MAX + 1
    assert not merge.full("stable")
