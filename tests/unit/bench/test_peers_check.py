"""The checker of bench/peers detects wrong, doubled and lost windows, and lost readings."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from bench.peers.check import PeerAnswer, Verdict, WindowFigures, judge, windows

READINGS = [
    (1_000, "a", 1.0),
    (1_999, "a", 4.0),
    (1_500, "b", 7.0),
    (2_000, "a", 3.0),
]


def right(*, without: Sequence[tuple[str, int]] = ()) -> list[PeerAnswer]:
    """Return one correct answer per window, half a second after its end."""
    return [
        PeerAnswer(place, figures, seen_s=(place[1] + 1_500) / 1e3)
        for place, figures in windows(READINGS).items()
        if place not in without
    ]


def verdict(answers: Sequence[PeerAnswer]) -> Verdict:
    return judge(windows(READINGS), answers)


def test_windows_are_half_open_and_by_sensor() -> None:
    assert windows(READINGS) == {
        ("a", 1_000): WindowFigures(2, 2.5, 1.0, 4.0),
        ("b", 1_000): WindowFigures(1, 7.0, 7.0, 7.0),
        ("a", 2_000): WindowFigures(1, 3.0, 3.0, 3.0),
    }


def test_right_answers_are_exact() -> None:
    found = verdict(right())
    assert found.exact
    assert (found.windows, found.readings_lost, found.partial) == (3, 0, 0)
    assert found.first_late_s == pytest.approx(0.5)


def test_a_lost_window_is_noticed() -> None:
    found = verdict(right(without=[("a", 1_000)]))
    assert not found.exact
    assert (found.lost, found.wrong, found.doubled, found.readings_lost) == (1, 0, 0, 2)


def test_a_doubled_window_is_noticed() -> None:
    answers = right()
    found = verdict([*answers, answers[0]])
    assert not found.exact
    assert (found.lost, found.wrong, found.doubled) == (0, 0, 1)


@pytest.mark.parametrize(
    "figures",
    [
        WindowFigures(3, 2.5, 1.0, 4.0),
        WindowFigures(2, 2.5001, 1.0, 4.0),
        WindowFigures(2, 2.5, 1.01, 4.0),
        WindowFigures(2, 2.5, 1.0, 4.01),
    ],
    ids=["count", "avg", "min", "max"],
)
def test_each_wrong_figure_is_noticed(figures: WindowFigures) -> None:
    first, *others = right()
    found = verdict([replace(first, figures=figures), *others])
    assert not found.exact
    assert (found.lost, found.wrong, found.doubled) == (0, 1, 0)


def test_an_average_may_be_rounded() -> None:
    first, *others = right()
    rounded = replace(first.figures, avg=first.figures.avg * (1 + 1e-12))
    assert verdict([replace(first, figures=rounded), *others]).exact


def test_a_window_that_should_not_exist_is_wrong() -> None:
    foreign = PeerAnswer(("c", 1_000), WindowFigures(1, 1.0, 1.0, 1.0), 2.5)
    assert verdict([*right(), foreign]).wrong == 1


PARTIAL = PeerAnswer(("a", 1_000), WindowFigures(1, 1.0, 1.0, 1.0), 2.1)


def test_a_partial_answer_that_is_corrected_leaves_the_window_right() -> None:
    found = verdict([PARTIAL, *right()])
    assert found.exact
    assert (found.partial, found.partial_marked, found.readings_lost) == (1, 0, 0)
    assert verdict([replace(PARTIAL, marked=True), *right()]).partial_marked == 1


def test_a_partial_answer_that_comes_last_is_wrong_for_ever() -> None:
    found = verdict([*right(), PARTIAL])
    assert (found.wrong, found.readings_lost) == (1, 1)


def test_a_marked_answer_alone_leaves_its_window_lost() -> None:
    alone = replace(PARTIAL, marked=True)
    found = verdict([alone, *right(without=[PARTIAL.place])])
    assert (found.lost, found.readings_lost) == (1, 2)


def test_the_latest_first_answer_counts_and_a_correction_does_not() -> None:
    late = replace(PARTIAL, seen_s=3.0)
    correction = replace(right()[0], seen_s=20.0)
    found = verdict([late, correction, *right(without=[PARTIAL.place])])
    assert found.first_late_s == pytest.approx(1.0)
