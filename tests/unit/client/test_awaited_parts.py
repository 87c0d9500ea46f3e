"""Whoever reads in the order of windows is told which part the others wait for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from slackwater.client.awaited_parts import AWAITED_US, AwaitedParts
from slackwater.client.window_order import Awaited, WindowOrder
from slackwater.codec.results import format_time

S = 1_000_000


def answer(order: WindowOrder[str], part: int, end_s: int) -> None:
    record: dict[str, Any] = {"kind": "boundary", "window_end": format_time(end_s * S)}
    order.offer(part, f"{part}:{end_s}", record)


def undo(order: WindowOrder[str], part: int) -> None:
    order.offer(part, f"{part}:undo", {"kind": "undo"})


def test_a_part_is_awaited_from_the_first_answer_of_its_window_to_its_own() -> None:
    order = WindowOrder[str](range(3))
    answer(order, 1, 10)
    assert order.awaited == Awaited(10 * S, (0, 2))
    answer(order, 2, 10)
    assert order.awaited == Awaited(10 * S, (0,))
    answer(order, 0, 10)
    assert order.take() == ["0:10", "1:10", "2:10"]
    assert order.awaited is None


def test_what_follows_a_window_is_not_late_while_the_next_window_lasts() -> None:
    order = WindowOrder[str](range(2))
    for part in range(2):
        answer(order, part, 10)
    undo(order, 1)
    assert order.take() == ["0:10", "1:10"]
    assert order.held == 1
    assert order.awaited is None


def test_the_part_is_logged_once_and_that_all_go_on(caplog: pytest.LogCaptureFixture) -> None:
    now, order = 0, WindowOrder[str](range(2))
    watch = AwaitedParts("climate", lambda: order.awaited, lambda: now)

    def logged_at(us: int) -> list[str]:
        nonlocal now
        now = us
        caplog.clear()
        watch.polled()
        return caplog.messages

    with caplog.at_level(logging.WARNING):
        assert logged_at(0) == []
        answer(order, 0, 10)
        assert logged_at(S) == []
        assert logged_at(S + AWAITED_US - 1) == []
        (line,) = logged_at(S + AWAITED_US)
        assert "until part 1 has answered the window that ends at 1970-01-01T00:00:10" in line
        assert logged_at(9 * AWAITED_US) == []
        answer(order, 1, 10)
        order.take()
        assert logged_at(9 * AWAITED_US + 1) == ["results of climate: every part answers again"]


def test_windows_that_each_come_a_little_late_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, order = 0, WindowOrder[str](range(2))
    watch = AwaitedParts("climate", lambda: order.awaited, lambda: now)
    for end_s in range(1, 100):
        answer(order, 0, end_s)
        now += AWAITED_US - 1
        watch.polled()
        answer(order, 1, end_s)
        order.take()
        now += 1
        if end_s % 2:
            watch.polled()
    assert caplog.messages == []
