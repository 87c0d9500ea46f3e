"""guarantee-1, exact: stable results equal the batch computation, once for every window.

If retention outran a reader, the answer names the loss (``lost``) and has no extra readings. The
windows with ``lost`` are those up to the watermark of the lost records. Lost readings that were
stamped ahead of their proxy's clock cannot be known to any reader.
"""

from __future__ import annotations

from math import isnan

from tests.simulator.checkers.answers import GivenAnswer, Violation
from tests.simulator.checkers.batch import Rows, no_more, same
from tests.simulator.checkers.facts import Facts


def check(facts: Facts) -> None:
    """Check that every settled window has exactly one stable answer, equal to the batch's."""
    config = facts.config
    for part, answers in enumerate(facts.answers):
        next_window = config.first_window
        for answer in answers:
            if not answer.stable:
                continue
            if answer.window != next_window:
                text = f"part {part}: {facts.name(answer.window)} is answered for good, "
                raise Violation("exact", answer.at, text + f"{facts.name(next_window)} is next")
            next_window += config.slide_us
            _equal(facts, answer, facts.expected[part].get(answer.window, {}))
        if config.grid.window_end(next_window) <= facts.settled_to:
            text = f"part {part}: {facts.name(next_window)} has no stable answer at the end"
            raise Violation("exact", facts.history.ended_at, text)


def _equal(facts: Facts, answer: GivenAnswer, wanted: Rows) -> None:
    rows = dict(answer.rows)
    keys = [key for key, _ in answer.rows]
    if keys != sorted(set(keys)):
        raise Violation("exact", answer.at, f"rows of {facts.name(answer.window)}: {keys}")
    if not set(answer.lost) <= facts.may_lose | facts.reported:
        text = (
            f"{facts.name(answer.window)} lost readings of {answer.lost}, of which nothing was cut"
        )
        raise Violation("exact", answer.at, text)
    # What a topic has lost is in no source log, so the batch lacks it as well.
    lost = facts.may_lose & {*answer.lost} or answer.window in facts.lost_ahead
    if facts.config.rows and not lost:
        reported, listed = answer.listed, facts.listed[answer.part].get(answer.window, [])
        if len(reported) != len(listed) or not all(map(_is_row, reported, listed)):
            text = f"rows of {facts.name(answer.window)}: {reported}, the batch has {listed}"
            raise Violation("exact", answer.at, text)
    for key in sorted(rows.keys() | wanted.keys()):
        have, want = rows.get(key), wanted.get(key)
        if lost and want is not None and (have is None or no_more(have, want)):
            continue
        if have is None or want is None or not same(have, want):
            text = f"{facts.name(answer.window)} {key}: {have}, the batch has {want}"
            raise Violation("exact", answer.at, text)


def _is_row(reported: tuple[str, tuple[float, ...]], listed: tuple[str, tuple[float, ...]]) -> bool:
    """Return whether key, time and values are equal; NaN equals NaN (a missing value)."""
    pairs = zip(reported[1], listed[1], strict=True)
    return reported[0] == listed[0] and all(a == b or (isnan(a) and isnan(b)) for a, b in pairs)
