"""Detection of fragments with long turns, by numbers."""

from __future__ import annotations

import pytest

from slackwater.host.longturns import (
    COUNTED_US_MAX,
    ENDLESS_LOOKS,
    FULL_US,
    LONG_US,
    EndlessTurn,
    LongTurns,
)

MS = 1_000
S = 1_000 * MS


def found_after_us(lasted_us: int, every_us: int, within_us: int = 600 * S) -> int | None:
    """Return the time until a fragment with such turns, one per ``every_us``, is found too slow."""
    turns, begins = LongTurns(), 0
    while begins + lasted_us <= within_us:
        if turns.note(lasted_us, 1_000 * S + begins + lasted_us):
            return begins + lasted_us
        begins += max(every_us, lasted_us)
    return None


@pytest.mark.parametrize("every_ms", [200, 250, 300, 500])
def test_turns_of_200_ms_are_found_well_within_two_seconds(every_ms: int) -> None:
    found = found_after_us(200 * MS, every_ms * MS)
    assert found is not None
    assert found <= 1_300 * MS


def test_the_third_of_three_in_a_row_is_too_much() -> None:
    assert found_after_us(200 * MS, 200 * MS) == 600 * MS


def test_long_turns_may_take_a_tenth_of_the_time_for_ever() -> None:
    assert found_after_us(200 * MS, 2_000 * MS) is None
    assert found_after_us(100 * MS, 1_000 * MS) is None
    assert found_after_us(200 * MS, 1_900 * MS) is not None, "more than a tenth"


def test_a_single_turn_is_never_too_slow_however_long() -> None:
    """The machine was halted for a minute; and again ten minutes later."""
    assert COUNTED_US_MAX < FULL_US
    assert found_after_us(60 * S, 600 * S, within_us=7_200 * S) is None


def test_turns_that_are_not_long_do_not_count_however_many() -> None:
    assert found_after_us(LONG_US - 1, LONG_US - 1) is None


def test_it_is_found_once_and_the_longest_turn_is_kept() -> None:
    turns = LongTurns()
    found = [turns.note(lasted, at * 200 * MS) for at, lasted in enumerate((200_000, 240_000) * 4)]
    assert found.count(True) == 1
    assert turns.is_too_slow
    assert turns.longest_us == 240 * MS


def test_a_turn_is_endless_when_it_was_observed_often_in_a_row_and_is_reported_once() -> None:
    seen = EndlessTurn()
    found = [seen.look(7) for _ in range(3 * ENDLESS_LOOKS)]
    assert found.index(True) == ENDLESS_LOOKS
    assert found.count(True) == 1


def test_a_loop_that_goes_on_is_in_another_turn_or_in_none() -> None:
    for others in ((8,), (0,)):
        seen = EndlessTurn()
        for _ in range(3):
            assert not any(seen.look(7) for _ in range(ENDLESS_LOOKS))
            assert not any(map(seen.look, others))
    seen = EndlessTurn()
    assert not any(seen.look(0) for _ in range(3 * ENDLESS_LOOKS)), "it waits"
