"""Guarantee 1, exact: stable results equal the batch computation, for every window, once each.

Where retention outran a reader the answer says so (``lost``), and has no reading too many. What it
says covers the time that was promised with the lost records: readings among them that were stamped
ahead of their proxy's clock nobody can know of.
"""

from __future__ import annotations

from math import isnan

from tests.simulator.checkers.answers import Said, Violation
from tests.simulator.checkers.batch import Rows, no_more, same
from tests.simulator.checkers.facts import Facts


def check(facts: Facts) -> None:
    """Every settled window has exactly one stable answer, the right one."""
    config = facts.config
    for part, answers in enumerate(facts.answers):
        next_window = config.first_window
        for said in answers:
            if not said.stable:
                continue
            if said.window != next_window:
                text = f"part {part}: {facts.name(said.window)} is answered for good, "
                raise Violation("exact", said.at, text + f"{facts.name(next_window)} is next")
            next_window += config.slide_us
            _equal(facts, said, facts.expected[part].get(said.window, {}))
        if config.grid.window_end(next_window) <= facts.settled_to:
            text = f"part {part}: {facts.name(next_window)} has no stable answer at the end"
            raise Violation("exact", facts.history.ended_at, text)


def _equal(facts: Facts, said: Said, wanted: Rows) -> None:
    rows = dict(said.rows)
    keys = [key for key, _ in said.rows]
    if keys != sorted(set(keys)):
        raise Violation("exact", said.at, f"rows of {facts.name(said.window)}: {keys}")
    if said.lost and not set(said.lost) <= facts.may_lose:
        text = f"{facts.name(said.window)} lost readings of {said.lost}, of which nothing was cut"
        raise Violation("exact", said.at, text)
    lost = said.lost or said.window in facts.lost_ahead
    if facts.config.rows and not lost:
        told, listed = said.listed, facts.listed[said.part].get(said.window, [])
        if len(told) != len(listed) or not all(map(_is_row, told, listed)):
            text = f"rows of {facts.name(said.window)}: {told}, the batch has {listed}"
            raise Violation("exact", said.at, text)
    for key in sorted(rows.keys() | wanted.keys()):
        have, want = rows.get(key), wanted.get(key)
        if lost and want is not None and (have is None or no_more(have, want)):
            continue
        if have is None or want is None or not same(have, want):
            text = f"{facts.name(said.window)} {key}: {have}, the batch has {want}"
            raise Violation("exact", said.at, text)


def _is_row(told: tuple[str, tuple[float, ...]], listed: tuple[str, tuple[float, ...]]) -> bool:
    """The same key, time and values; NaN is a value that is missing."""
    pairs = zip(told[1], listed[1], strict=True)
    return told[0] == listed[0] and all(a == b or (isnan(a) and isnan(b)) for a, b in pairs)
