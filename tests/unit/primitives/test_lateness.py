"""Learned gaps between readings, and their effect on the normal time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.deployment import (
    Deployment,
    FieldSpec,
    KeySpec,
    QuerySpec,
    StreamSpec,
    TimeSpec,
    WindowSpec,
)
from slackwater.primitives.lateness import LEARNING, Gaps, Lateness, Step, lateness_of

S = 1_000_000


def learned_s(*gaps_s: float, times: int = 1) -> float:
    gaps = Gaps()
    gaps.add(np.repeat(np.array(gaps_s) * S, times).astype(np.int64))
    return gaps.expect_every_us / S


def test_before_a_hundred_gaps_it_is_five_seconds() -> None:
    assert learned_s() == 5
    assert learned_s(30, times=99) == 5
    assert learned_s(30, times=100) == 30


def test_it_is_never_less_than_five_seconds_nor_more_than_sixty() -> None:
    assert learned_s(0.01, times=1000) == 5
    assert learned_s(86_400, times=1000) == 60


def test_a_gap_is_rounded_up_to_whole_seconds() -> None:
    assert learned_s(29.000_001, times=100) == 30
    assert learned_s(29, times=100) == 29
    assert learned_s(59.5, times=100) == 60


@pytest.mark.parametrize(("rare", "expected"), [(0, 5), (1, 5), (2, 40)])
def test_one_gap_in_ten_thousand_is_not_usual(rare: int, expected: float) -> None:
    gaps = Gaps()
    gaps.add(np.full(10_000 - rare, S))
    gaps.add(np.full(rare, 40 * S))
    assert gaps.expect_every_us == expected * S


def test_readings_that_are_not_the_newest_make_no_gap() -> None:
    assert learned_s(*[-30.0] * 50, *[0.0] * 49, 20) == 5
    assert learned_s(*[-30.0] * 50, *[1.0] * 99, 20) == 20


def test_the_logs_of_a_stream_are_counted_together() -> None:
    one, other = Gaps(), Gaps()
    one.add(np.full(60, 20 * S))
    other.add(np.full(40, 30 * S))
    assert (one.expect_every_us, other.expect_every_us) == (5 * S, 5 * S)
    assert (one + other).expect_every_us == 30 * S


@given(st.lists(st.integers(1, 200 * S), min_size=100, max_size=400))
def test_it_is_the_quantile_of_the_gaps(gaps: list[int]) -> None:
    counted = Gaps()
    for gap in gaps:
        counted.add(np.array([gap]))
    expected = min(max(-(-max(gaps) // S), 5), 60) * S
    assert counted.expect_every_us == expected, "below 10,000 gaps every one counts"


STEPS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60)), max_size=12)


@given(STEPS, st.randoms(use_true_random=False))
def test_lateness_does_not_depend_on_the_order_and_never_falls(
    steps: list[tuple[int, int]], rng: st.DataObject
) -> None:
    lateness = Lateness(5, steps)
    for e in range(-1, 52):
        held = [us for from_us, us in steps if from_us <= e]
        assert lateness.at(e) == max([5, *held])
        assert lateness.at(e) >= lateness.at(e - 1)
    assert Lateness(5, reversed(steps)).steps == lateness.steps


@given(STEPS, STEPS)
def test_more_steps_never_lower_it(
    some: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    before, after = Lateness(5, some), Lateness(5, [*more, *some])
    assert all(after.at(e) >= before.at(e) for e in range(52))


def test_the_lateness_of_a_chain_counts_the_steps_of_all_its_streams() -> None:
    def stream(name: str, disorder_s: int, *, learns: bool) -> StreamSpec:
        return StreamSpec(
            name, KeySpec(value="k"), TimeSpec(("t",), unit="s"), (FieldSpec("x", "x"),),
            disorder_us=disorder_s * S, expect_every_us=5 * S, learns_gaps=learns,
        )  # fmt: skip

    def query(name: str, *sources: str) -> QuerySpec:
        return QuerySpec(name, sources, None, None, WindowSpec(S, S), ("count",), 2 * S)

    deployment = Deployment(
        "wall",
        {"s": stream("s", 1, learns=True), "t": stream("t", 3, learns=False)},
        {"a": query("a", "s"), "b": query("b", "a", "t")},
    )
    learned = {"s": (Step(100 * S, 9 * S), Step(200 * S, 6 * S)), "t": (Step(0, 60 * S),)}
    assert lateness_of(deployment, "a", learned).steps == ((100 * S, 10 * S),)
    chained = lateness_of(deployment, "b", learned)
    assert [chained.at(e * S) // S for e in (99, 100, 300)] == [8, 10, 10]
    assert lateness_of(deployment, "b", {}).at(300 * S) == 8 * S
    assert LEARNING.values_max == 56
