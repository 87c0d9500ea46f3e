"""A property that is expected to fail is not shrunk; any other is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.expected_failures import expected_to_fail


def failures_of(block: Callable[[Callable[..., None]], object]) -> list[int]:
    """Return the values at which a property fails that is run in the block, in order."""
    failed: list[int] = []

    @settings(derandomize=True, database=None)
    @given(st.integers(0, 1 << 60))
    def is_small(value: int) -> None:
        if value >= 1_000:
            failed.append(value)
            raise AssertionError(value)

    block(is_small)
    return failed


def test_a_property_fails_with_the_first_example_in_the_block_and_with_the_least_outside() -> None:
    def outside(test: Callable[..., None]) -> None:
        with pytest.raises(AssertionError):
            test()

    def inside(test: Callable[..., None]) -> None:
        with expected_to_fail(test), pytest.raises(AssertionError):
            test()

    def after(test: Callable[..., None]) -> None:
        with expected_to_fail(test):
            pass
        outside(test)

    assert failures_of(outside)[-1] == 1_000
    assert len(set(failures_of(inside))) == 1
    assert failures_of(after)[-1] == 1_000


def test_a_mutant_of_a_property_that_is_not_noticed_runs_all_examples() -> None:
    ran: list[int] = []

    @settings(derandomize=True, database=None, max_examples=30)
    @given(st.integers(0, 1 << 60))
    def holds(value: int) -> None:
        ran.append(value)

    with expected_to_fail(holds):
        holds()
    assert len(ran) == 30
