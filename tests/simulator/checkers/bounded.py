"""Guarantee 2, bounded: a first answer within X of the normal time, and none before it.

Not while some stage had no copy that could work, nor until such a copy has read what it missed:
``grace_us`` after that.
"""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation, answers, name
from tests.simulator.world import History


def check(history: History, *, settled_to: int, slack_us: int, grace_us: int) -> None:
    """First answers by normal time + X + ``slack_us``; tentative ones not before normal time."""
    config = history.config
    skew = slack_us
    for part in range(config.parts):
        answered_to = config.first_window
        for said in answers(history):
            if said.part != part:
                continue
            normal = config.normal_time(config.grid.window_end(said.window))
            if not said.stable and said.at < normal - skew:
                text = f"{name(history, said.window)} is tentative {normal - said.at} us early"
                raise Violation("bounded", said.at, text)
            if said.window < answered_to:
                continue
            answered_to = said.window + config.slide_us
            deadline = normal + config.bound_us + slack_us
            if config.policy.stabilization == "suspend":
                continue  # gives up the bound for fewer corrections (DPC, section 6.1)
            if said.at > deadline and not excused(history, normal, said.at, grace_us):
                late = (said.at - normal) / 1e6
                text = f"part {part}: {name(history, said.window)} answered after {late:.3f} s"
                raise Violation("bounded", said.at, text)
        normal = config.normal_time(config.grid.window_end(answered_to))
        if normal + config.bound_us + slack_us < settled_to:
            raise Violation("bounded", settled_to, f"{name(history, answered_to)} has no answer")


def excused(history: History, normal: int, at: int, grace_us: int) -> bool:
    """Was some stage without a copy at a time that can have delayed the answer?"""
    return any(low <= at and high + grace_us >= normal for low, high in history.unavailable)
