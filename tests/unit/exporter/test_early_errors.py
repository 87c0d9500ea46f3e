"""How wrong tentative answers were: by row, by figure, and of long failures."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.codec.results import format_time
from slackwater.exporter.early_errors import EarlyErrors, JudgedRow

S = 1_000_000
Rows = dict[str, float | None]


def answer(label: str, second: int, rows: Rows, part: int = 0, **more: object) -> list[Any]:
    """The records of an answer: a row with its average for each key, then the boundary."""
    times = {"window_start": format_time(second * S), "window_end": format_time((second + 1) * S)}
    head = {"part": part, **times}
    found: list[Any] = [
        {"kind": label, "key": key, "fields": {"t": {"avg": value, "count": 2}}, **head}
        for key, value in rows.items()
    ]
    return [*found, {"kind": "boundary", "label": label, "keys": len(rows), **head, **more}]


def take(errors: EarlyErrors, *answers: list[Any]) -> list[JudgedRow]:
    return [row for records in answers for record in records for row in errors.take(record)]


def test_a_tentative_row_is_compared_when_its_window_is_exact() -> None:
    errors = EarlyErrors()
    assert not take(errors, answer("tentative", 1, {"a": 20.0, "b": 21.0, "c": 22.0}))
    found = take(errors, answer("stable", 1, {"a": 20.0, "b": 21.5}))
    assert found == [
        JudgedRow("right", {"t_avg": 0.0, "t_count": 0}),
        JudgedRow("off", {"t_avg": 0.5, "t_count": 0}),
        JudgedRow("gone"),
    ]
    assert errors.kept == 0
    assert not take(errors, answer("stable", 2, {"a": 1.0})), "it had no tentative answer"


def test_a_missing_value_is_off_by_no_number() -> None:
    errors = EarlyErrors()
    take(errors, answer("tentative", 1, {"a": None}))
    assert take(errors, answer("stable", 1, {"a": 3.0})) == [JudgedRow("off", {"t_count": 0})]


def test_the_last_tentative_answer_of_a_window_counts() -> None:
    errors = EarlyErrors()
    take(errors, answer("tentative", 1, {"a": 1.0, "b": 1.0}), answer("tentative", 1, {"a": 2.0}))
    assert errors.kept == 1
    assert take(errors, answer("stable", 1, {"a": 2.0}))[0].verdict == "right"


def test_a_run_without_rows_ends_the_windows_in_it() -> None:
    errors = EarlyErrors()
    take(errors, answer("tentative", 1, {"a": 1.0}), answer("tentative", 2, {"a": 1.0}))
    run = answer("stable", 1, {}, window_end=format_time(3 * S))
    assert take(errors, run) == [JudgedRow("gone"), JudgedRow("gone")]


def test_parts_are_apart_and_what_retention_deleted_is_not_judged() -> None:
    errors = EarlyErrors()
    take(errors, answer("tentative", 1, {"a": 1.0}), answer("tentative", 1, {"b": 1.0}, 1))
    assert not take(errors, answer("stable", 1, {}, 1, keys=5)), "its rows have been deleted"
    assert errors.kept == 1
    assert take(errors, answer("stable", 1, {"a": 1.0}))[0].verdict == "right"


def test_of_a_long_failure_a_uniform_sample_is_kept() -> None:
    """The error grows with the failure; neither its begin nor its end is left out."""
    errors, windows = EarlyErrors(rows_max=1_000), 400
    keys = [f"k{n}" for n in range(50)]
    for second in range(windows):
        take(errors, answer("tentative", second, dict.fromkeys(keys, 0.0)))
        assert errors.kept <= 1_000
    found = take(
        errors, *(answer("stable", n, dict.fromkeys(keys, float(n))) for n in range(windows))
    )
    assert 250 <= len(found) <= 1_000
    mean = sum(row.errors["t_avg"] for row in found) / len(found)
    assert mean == pytest.approx((windows - 1) / 2, rel=0.1)
    take(errors, answer("tentative", windows, dict.fromkeys(keys, 0.0)))
    assert errors.kept == len(keys), "after the failure all rows are kept again"


@given(st.dictionaries(st.sampled_from("abcd"), st.floats(-9, 9)), st.data())
def test_each_tentative_row_is_judged_once(early: Rows, data: Any) -> None:
    exact = data.draw(st.dictionaries(st.sampled_from("abcd"), st.floats(-9, 9)))
    errors = EarlyErrors()
    take(errors, answer("tentative", 1, early))
    found = take(errors, answer("stable", 1, exact))
    assert len(found) == len(early)
    assert sum(row.verdict == "gone" for row in found) == len(early.keys() - exact.keys())
    assert errors.kept == 0
