"""guarantee-1, no stable future: no window is stable before its end, by the clock of the proxies.

A clock of a device that is ahead must not move a watermark (trace-45). A stream's ``disorder`` is
tolerated, and the lead of the fastest clock of a machine: a watermark may follow that one. A query
that reads another one's windows is ahead by up to one of their slides: no row lies between the end
of one window and the end of the next, so windows of the reader that end between are complete.
With ``clock: data`` the present has no event time.
"""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts


def check(facts: Facts) -> None:
    """Check that each stable answer was given after its window's end."""
    config = facts.config
    if config.history_speed:
        return
    disorder_us = max(config.disorder_of(stream) for stream in config.all_streams)
    early_us = disorder_us + facts.history.fastest_us + facts.slack_us
    early_us += 0 if config.reads is None else config.reads.slide_us
    for answers in facts.answers:
        for answer in answers:
            ahead_us = answer.window + config.window_us - answer.at
            if answer.stable and ahead_us > early_us:
                text = f"stable {facts.name(answer.window)} ends {ahead_us / 1e6:g} s later"
                raise Violation("future", answer.at, text)
