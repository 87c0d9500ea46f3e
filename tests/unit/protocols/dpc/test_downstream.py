"""Lines stay separate while the roots read corrections, and never permanently (trace-33)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.protocols.dpc.reconcile.downstream import Downstream

NEAR = 5
LEASE = 100


def awaited(downstream: Downstream, now: int, stable_next: int, *places: int) -> bool:
    """The parts' current read positions."""
    for part, place in enumerate(places):
        downstream.update(part, place, now)
    return downstream.is_awaited(now, stable_next)


def test_roots_without_reports_are_not_waited_for() -> None:
    assert not Downstream(NEAR, LEASE).is_awaited(0, 1_000)


def test_roots_that_are_near_are_not_waited_for() -> None:
    downstream = Downstream(NEAR, LEASE)
    assert awaited(downstream, 0, 1_000, 994)
    assert not awaited(downstream, 1, 1_000, 995)


def test_the_last_part_counts() -> None:
    assert awaited(Downstream(NEAR, LEASE), 0, 1_000, 1_000, 400)


def test_a_word_counts_for_a_lease() -> None:
    downstream = Downstream(NEAR, LEASE)
    downstream.update(0, 400, received_at=0)
    downstream.update(1, 1_000, received_at=LEASE)
    assert downstream.is_awaited(LEASE - 1, 1_000)
    assert not downstream.is_awaited(LEASE, 1_000), "the part that is behind has ended"


def test_a_round_that_gains_nothing_is_the_last() -> None:
    downstream = Downstream(NEAR, LEASE)
    assert awaited(downstream, 0, 1_000, 400)
    assert awaited(downstream, 1, 1_100, 999), "the corrections have not been read"
    assert awaited(downstream, 2, 1_300, 1_000), "300 are an improvement over 600"
    assert awaited(downstream, 3, 1_400, 1_299)
    assert not awaited(downstream, 4, 1_500, 1_300), "200 do not justify the time of 300"
    assert not awaited(downstream, 5, 1_501, 1_301), "and this is permanent"


def test_a_new_failure_is_waited_for_again() -> None:
    downstream = Downstream(NEAR, LEASE)
    assert awaited(downstream, 0, 1_000, 980)
    assert not awaited(downstream, 1, 1_020, 1_000)
    downstream.forget()
    assert awaited(downstream, 2, 2_000, 1_100)


@given(behind=st.integers(0, 100), way=st.integers(0, 30), speed=st.integers(3, 40))
@settings(deadline=None)
def test_roots_with_progress_are_not_waited_for_for_ever(behind: int, way: int, speed: int) -> None:
    """For any delay of the roots, and also if they fall further behind."""
    downstream = Downstream(NEAR, LEASE)
    ends = [0]  # where the stable log ended, by time
    done = -behind * 10  # in tenths: ``speed`` of them for each unit that the stable line emits
    longest = 3 * (10 * behind // speed + way + 1)
    for now in range(1, longest + 1):
        done = min(done + speed, ends[-1] * 10)
        ends.append(now)
        if not awaited(downstream, now, now, min(done // 10, ends[max(now - way, 0)])):
            return
    raise AssertionError("the lines stayed apart")
