"""What a controller concludes from heartbeats: who is steady, what is overdue, what was fenced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.control.node_watch import (
    SETTLE_US,
    SETTLE_US_MAX,
    START_US_MAX,
    NodeWatch,
)
from slackwater.control.placement import Standing

NONE: frozenset[int] = frozenset()


def standing(watch: NodeWatch, now: int, node: str = "n") -> Standing:
    return watch.reports(now).standings[node]


def test_a_node_that_appears_for_the_first_time_is_steady_at_once() -> None:
    watch = NodeWatch(1)
    watch.heartbeat("n", NONE, NONE, 5)
    assert standing(watch, 5) is Standing.STEADY
    assert watch.next_deadline(5) is None


def test_a_node_that_comes_back_settles_for_twice_as_long_each_time() -> None:
    watch, now = NodeWatch(1), 0
    waited = []
    for _ in range(7):
        watch.suspect("n", now)
        assert standing(watch, now) is Standing.SUSPECTED
        watch.heartbeat("n", NONE, NONE, now)
        assert standing(watch, now) is Standing.SETTLING
        steady_at = watch.next_deadline(now)
        assert steady_at is not None
        assert standing(watch, steady_at - 1) is Standing.SETTLING
        assert standing(watch, steady_at) is Standing.STEADY
        waited.append(steady_at - now)
        now = steady_at
    assert waited == [*(SETTLE_US << n for n in range(5)), SETTLE_US_MAX, SETTLE_US_MAX]


def test_after_a_long_steady_time_the_first_suspicion_is_the_first_again() -> None:
    watch = NodeWatch(1)
    for at in (0, SETTLE_US):
        watch.suspect("n", at)
        watch.heartbeat("n", NONE, NONE, at)
    steady_at = SETTLE_US + 2 * SETTLE_US
    long_after = steady_at + SETTLE_US_MAX
    watch.suspect("n", long_after)
    watch.heartbeat("n", NONE, NONE, long_after)
    assert watch.next_deadline(long_after) == long_after + SETTLE_US


def test_a_heartbeat_does_not_prolong_the_settling() -> None:
    watch = NodeWatch(1)
    watch.suspect("n", 0)
    for at in range(0, SETTLE_US, SETTLE_US // 10):
        watch.heartbeat("n", NONE, NONE, at)
    assert standing(watch, SETTLE_US) is Standing.STEADY


def test_what_a_suspected_node_had_ready_is_not_ready() -> None:
    watch = NodeWatch(1)
    watch.heartbeat("n", frozenset({7}), NONE, 0)
    assert watch.reports(0).ready == {7}
    watch.suspect("n", 1)
    assert watch.reports(1).ready == NONE


def test_what_a_node_has_ended_is_what_it_said_last_also_when_it_is_suspected() -> None:
    watch = NodeWatch(1)
    watch.heartbeat("n", NONE, NONE, 0, frozenset({7, 8}))
    watch.heartbeat("m", NONE, NONE, 0, frozenset({9}))
    assert watch.ended() == watch.reports(0).ended == {7, 8, 9}
    watch.heartbeat("n", NONE, NONE, 1, frozenset({8}))
    watch.suspect("n", 2)
    assert watch.ended() == {8, 9}
    watch.keep({"m"}, {8, 9}, 3)
    assert watch.ended() == {9}


def test_a_placement_is_overdue_after_its_time() -> None:
    watch = NodeWatch(1)
    watch.keep({"n"}, {7}, 100)
    watch.keep({"n"}, {7, 8}, 200)
    assert watch.next_deadline(200) == 100 + START_US_MAX
    assert watch.reports(100 + START_US_MAX - 1).overdue == NONE
    assert watch.reports(100 + START_US_MAX).overdue == {7}
    watch.keep({"n"}, {8}, 300)
    assert watch.reports(200 + START_US_MAX).overdue == {8}


def test_a_fenced_placement_stays_down_in_its_view_and_is_down_in_the_next() -> None:
    watch = NodeWatch(1)
    watch.heartbeat("n", frozenset({7, 8}), frozenset({7}), 0)
    assert (watch.reports(0).fenced, watch.reports(0).down) == (frozenset({7}), NONE)
    assert watch.reports(0).ready == {8}
    watch.view(2)
    watch.heartbeat("n", NONE, frozenset({7}), 1)
    assert (watch.reports(1).fenced, watch.reports(1).down) == (NONE, frozenset({7}))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(1, 9)), max_size=20))
def test_what_is_not_in_the_record_is_forgotten(
    events: list[tuple[str, bool, int]],
) -> None:
    watch = NodeWatch(1)
    for at, (node, silent, number) in enumerate(events):
        if silent:
            watch.suspect(node, at)
        else:
            watch.heartbeat(node, frozenset({number}), frozenset({number + 1}), at)
    watch.keep(set("a"), {3}, len(events))
    reports = watch.reports(len(events))
    assert reports.standings.keys() <= {"a"}
    assert reports.ready | reports.fenced | reports.down <= {3}
