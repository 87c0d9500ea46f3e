"""One order over the parts of a query: whatever the pace, what is given is the same."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.client import window_order
from slackwater.client.window_order import HELD_ANSWERED_RECORDS_MAX, WindowOrder
from slackwater.codec.results import format_time
from slackwater.delivery.merge import Cut

S = 1_000_000
Item = dict[str, Any] | Cut
Log = list[Item]


class Part:
    """What a part writes; a window is named by its end, in seconds."""

    def __init__(self, number: int) -> None:
        self.number, self.log, self.seq = number, Log(), 0
        self.tentative: list[int] = []
        self.answered_to = 0

    def put(self, kind: str, **fields: Any) -> None:
        self.log.append({"part": self.number, "seq": self.seq, "kind": kind, **fields})
        self.seq += 1

    def window(self, end: int, label: str = "stable", rows: int = 1) -> None:
        """The answer of a window, or of a run of empty ones up to it."""
        for key in range(rows):
            self.put(label, window_end=format_time(end * S), key=f"k{key}")
        self.put("boundary", label=label, window_end=format_time(end * S))
        self.answered_to = max(self.answered_to, end)

    def fork(self, end: int) -> None:
        self.window(end, "tentative")
        self.tentative.append(end)

    def correct(self) -> None:
        """UNDO, the stable answers and REC_DONE, in one transaction."""
        if self.tentative:
            self.put("undo")
            for end in self.tentative:
                self.window(end)
            self.put("rec_done")
            self.tentative.clear()

    def cut(self) -> None:
        self.log.append(Cut(self.number, self.seq, self.seq))
        self.seq += 1


def offer(order: WindowOrder[Item], part: int, item: Item) -> None:
    order.offer(part, item, None if isinstance(item, Cut) else item)


def merged(logs: Sequence[Log], turns: Iterable[int]) -> Log:
    """Offer one record of a part at each turn, then all others, and end."""
    order, left, out = WindowOrder[Item](range(len(logs))), [list(log) for log in logs], Log()
    for part in [*turns, *(part for part, log in enumerate(logs) for _ in log)]:
        if left[part]:
            offer(order, part, left[part].pop(0))
            out += order.take()
    for part in range(len(logs)):
        order.end(part)
        out += order.take()
    assert order.held == 0
    return out


def place(item: Item) -> tuple[int, int]:
    """Part and seq."""
    return (item.part, item.first) if isinstance(item, Cut) else (item["part"], item["seq"])


@st.composite
def logs(draw: st.DrawFn) -> list[Log]:
    """Parts that answer the same windows, some in runs, with failures of their own."""
    windows = draw(st.integers(1, 6))
    return [_log(draw, part, windows) for part in range(draw(st.integers(1, 4)))]


def _log(draw: st.DrawFn, number: int, windows: int) -> Log:
    part, end = Part(number), 0
    while end < windows:
        match draw(
            st.sampled_from(("stable", "stable", "fork", "run", "correct", "gap", "again", "cut"))
        ):
            case "stable":
                end += 1
                part.window(end, rows=draw(st.integers(0, 3)))
            case "fork":
                end += 1
                part.fork(end)
            case "run":
                end = min(end + draw(st.integers(1, 3)), windows)
                part.window(end, rows=0)
            case "correct":
                part.correct()
            case "gap":
                part.put("gap")
            case "again" if end and not part.tentative:
                part.window(end, rows=0)  # a defect, which is not to be hidden
            case _:
                part.cut()
    part.correct()
    return part.log


@given(logs(), st.lists(st.integers(0, 3)), st.randoms(use_true_random=False))
def test_any_interleaving_of_the_parts_gives_the_same(
    of: list[Log], turns: list[int], rng: random.Random
) -> None:
    once = merged(of, [part for part in turns if part < len(of)])
    every = [part for part, log in enumerate(of) for _ in log]
    rng.shuffle(every)
    assert merged(of, every) == once


@given(logs(), st.randoms(use_true_random=False))
def test_nothing_is_lost_or_doubled_and_each_part_stays_in_its_order(
    of: list[Log], rng: random.Random
) -> None:
    every = [part for part, log in enumerate(of) for _ in log]
    rng.shuffle(every)
    out = merged(of, every)
    for part, log in enumerate(of):
        assert [item for item in out if place(item)[0] == part] == log


@given(logs(), st.randoms(use_true_random=False))
def test_first_answers_are_in_the_order_of_window_part_and_seq(
    of: list[Log], rng: random.Random
) -> None:
    every = [part for part, log in enumerate(of) for _ in log]
    rng.shuffle(every)
    first, answered = list[tuple[str, int, int]](), dict[int, str]()
    for item in merged(of, every):
        part, seq = place(item)
        if isinstance(item, dict) and item.get("window_end", "") > answered.get(part, ""):
            first.append((item["window_end"], part, seq))
            if item["kind"] == "boundary":
                answered[part] = item["window_end"]
    assert first == sorted(first)


@given(logs(), st.randoms(use_true_random=False))
def test_an_undo_is_behind_what_it_revokes_and_before_what_replaces_it(
    of: list[Log], rng: random.Random
) -> None:
    every = [part for part, log in enumerate(of) for _ in log]
    rng.shuffle(every)
    in_force: dict[int, set[str]] = {part: set() for part in range(len(of))}
    for item in merged(of, every):
        part = place(item)[0]
        if isinstance(item, Cut):
            continue
        if item["kind"] == "undo":
            assert in_force[part], "something is revoked"
            in_force[part].clear()
        elif item["kind"] == "boundary" and item["label"] == "tentative":
            in_force[part].add(item["window_end"])
        elif item["kind"] == "boundary":
            assert item["window_end"] not in in_force[part], "it was revoked before"
        elif item["kind"] == "rec_done":
            assert not in_force[part]


@given(logs(), st.randoms(use_true_random=False))
def test_a_window_is_given_when_every_part_has_answered_it(
    of: list[Log], rng: random.Random
) -> None:
    order, left, answered = WindowOrder[Item](range(len(of))), [list(log) for log in of], [""] * 9
    given_to = ""
    while any(left):
        part = rng.choice([number for number, log in enumerate(left) if log])
        item = left[part].pop(0)
        offer(order, part, item)
        if isinstance(item, dict) and item["kind"] == "boundary":
            answered[part] = max(answered[part], item["window_end"])
        for out in order.take():
            if isinstance(out, dict):
                given_to = max(given_to, out.get("window_end", ""))
        by_all = min(answered[: len(of)])
        assert given_to <= by_all
        ends = {item.get("window_end", "") for log in of for item in log if isinstance(item, dict)}
        due = {end for end in ends if end <= by_all}
        assert given_to == max(due, default="")


def run(*parts: Part) -> list[tuple[int, str, str]]:
    out = merged([part.log for part in parts], ())
    return [
        (item["part"], item["kind"], item.get("window_end", "")[17:19])
        for item in out
        if isinstance(item, dict) and item["kind"] in {"boundary", "undo", "rec_done", "gap"}
    ]


def test_corrections_follow_the_last_window_that_their_part_had_answered() -> None:
    first, second = Part(0), Part(1)
    for part in (first, second):
        part.fork(1)
        part.fork(2)
    second.correct()
    for part in (first, second):
        part.window(3)
    first.correct()
    assert run(first, second) == [
        (0, "boundary", "01"), (1, "boundary", "01"),
        (0, "boundary", "02"), (1, "boundary", "02"),
        (1, "undo", ""), (1, "boundary", "01"), (1, "boundary", "02"), (1, "rec_done", ""),
        (0, "boundary", "03"), (1, "boundary", "03"),
        (0, "undo", ""), (0, "boundary", "01"), (0, "boundary", "02"), (0, "rec_done", ""),
    ]  # fmt: skip


def test_a_run_of_empty_windows_is_at_its_last_one() -> None:
    first, second = Part(0), Part(1)
    first.window(3, rows=0)
    for end in (1, 2, 3):
        second.window(end)
    assert [row[::2] for row in run(first, second)] == [(1, "01"), (1, "02"), (0, "03"), (1, "03")]


def test_corrections_of_the_first_part_wait_for_nobody_and_those_of_others_for_those_before() -> (
    None
):
    order, parts = WindowOrder[Item](range(2)), [Part(0), Part(1)]
    for part in parts:
        part.fork(1)
        part.correct()
        part.window(2)
    for item in parts[1].log[:6]:
        offer(order, 1, item)
    assert order.take() == []
    for item in parts[0].log[:6]:
        offer(order, 0, item)
    tentative = [*parts[0].log[:2], *parts[1].log[:2]]
    assert order.take() == [*tentative, *parts[0].log[2:6]]
    assert order.take() == [], "the first part may write more before its next window"
    for item in parts[0].log[6:]:
        offer(order, 0, item)
    assert order.take() == parts[1].log[2:6]


def test_rows_without_a_boundary_are_not_lost() -> None:
    """Retention deleted the boundary: the cut tells the reader that they are incomplete."""
    part = Part(0)
    part.window(1)
    part.put("stable", key="k", window_end=format_time(2 * S))
    part.cut()
    part.window(3)
    assert merged([part.log], ()) == part.log
    alone = part.log[:3]
    assert merged([alone], ()) == alone


def test_a_part_that_is_ahead_is_full_and_one_for_which_others_wait_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_order, "HELD_ANSWERED_RECORDS_MAX", 10)
    order, ahead, behind = WindowOrder[Item](range(2)), Part(0), Part(1)
    for end in range(1, 6):
        ahead.window(end)
    behind.window(1, rows=100)
    for item in ahead.log:
        assert not order.full(0)
        offer(order, 0, item)
        assert order.take() == []
    assert order.full(0)
    for item in behind.log[:-1]:
        offer(order, 1, item)
        assert not order.full(1), "its boundary must be read"
    assert order.take() == []
    offer(order, 1, behind.log[-1])
    assert order.take() == [*ahead.log[:2], *behind.log]
    assert not order.full(0)
    assert order.held == 8
    assert HELD_ANSWERED_RECORDS_MAX == 10_000


@given(logs(), st.randoms(use_true_random=False))
def test_reading_never_stops_for_ever_although_full_parts_are_not_read(
    of: list[Log], rng: random.Random
) -> None:
    """A part is read while it is not full, and all windows that all have answered are given."""
    order, left, held = WindowOrder[Item](range(len(of))), [list(log) for log in of], 3
    out = Log()

    def full(part: int) -> bool:
        return len(order._parts[part].answered) >= held

    while any(left):
        open_parts = [part for part, log in enumerate(left) if log and not full(part)]
        if not open_parts:
            ended = [part for part in range(len(of)) if not (left[part] or order.has_ended(part))]
            assert ended, "only a part that has nothing more may be waited for"
            for part in ended:
                order.end(part)
        else:
            part = rng.choice(open_parts)
            offer(order, part, left[part].pop(0))
        out += order.take()
    for part in range(len(of)):
        order.end(part)
    out += order.take()
    assert out == merged(of, ())
