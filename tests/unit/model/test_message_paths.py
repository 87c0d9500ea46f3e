"""Paths to values of a message: what they mean, and what is no path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.message_paths import NoPath, Step, name_of_column, path_text, steps_of


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("t", ("t",)),
        ("a.b.t", ("a", "b", "t")),
        ("meters[0].power", ("meters", 0, "power")),
        ("grid[2][10]", ("grid", 2, 10)),
        ('"particles_2.5um"', ("particles_2.5um",)),
        ('a."b.c"[3]."d"', ("a", "b.c", 3, "d")),
        ('"x[0]"', ("x[0]",)),
        (r'"say \"a\" \\ b"', ('say "a" \\ b',)),
        ('""', ("",)),
        ('a"b', ('a"b',)),
        ("CO(GT)", ("CO(GT)",)),
        ("a b", ("a b",)),
    ],
)
def test_a_path_has_steps(path: str, steps: tuple[Step, ...]) -> None:
    assert steps_of(path) == steps


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "an empty name at character 1"),
        ("a..b", "an empty name at character 3; a name with a dot is written in double quotes"),
        (".a", "an empty name at character 1"),
        ("a.", "an empty name at character 3"),
        ("[0].a", "an empty name at character 1"),
        ('"a', "the quote at character 1 is not closed"),
        ('a."b', "the quote at character 3 is not closed"),
        (r'"a\"', "the quote at character 1 is not closed"),
        ('"a"b', "a dot or the end is expected at character 4"),
        ("a[0]b", "a dot or the end is expected at character 5"),
        ("a[-1]", "brackets hold the index of an element, from 0, as meters[0].power"),
        ("a[x]", 'a name with a bracket is written in double quotes, "a[x]"'),
        ("a[", "brackets hold the index"),
        ("a[1234567]", "brackets hold the index"),
    ],
)
def test_what_is_no_path_has_the_place_and_the_right_form(path: str, reason: str) -> None:
    with pytest.raises(NoPath) as raised:
        steps_of(path)
    assert reason in str(raised.value)


@given(st.lists(st.one_of(st.text(max_size=5), st.integers(0, 999_999)), min_size=1, max_size=5))
def test_any_steps_can_be_written(steps: list[Step]) -> None:
    steps = ["m", *steps]
    assert steps_of(path_text(steps)) == tuple(steps)


@pytest.mark.parametrize(
    ("declared", "column"),
    [('"PM2.5"', "PM2.5"), ("PM2.5", "PM2.5"), ("a[0]", "a[0]"), ('"a"."b"', '"a"."b"')],
)
def test_a_name_in_quotes_is_a_column(declared: str, column: str) -> None:
    assert name_of_column(declared) == column
