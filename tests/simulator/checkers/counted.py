"""guarantee-6, counted: each reading that a sensor has sent is in the source log or in quarantine.

It is there once, in one of the two. The newest readings may still be in flight.
"""

from __future__ import annotations

from collections import Counter

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts
from tests.simulator.readings import SensorReading

Known = tuple[int, str, str]


def check(facts: Facts) -> None:
    """Check every reading of every stream."""
    history = facts.history
    for stream, readings in history.sent.items():
        sent = _count(readings, facts.settled_to)
        kept = _count(facts.accepted[stream], facts.settled_to)
        refused = [reading for _, reading in history.refused.get(stream, [])]
        kept += _count(refused, facts.settled_to)
        for (stime, key, value), n in (sent - kept).items():
            at = (stime - facts.config.start_time_us) / 1e6
            text = f"{stream}: {n} readings of {at:g} s, {key} = {value}, are nowhere"
            raise Violation("counted", history.ended_at, text)
        for (stime, key, value), n in (kept - sent).items():
            at = (stime - facts.config.start_time_us) / 1e6
            text = f"{stream}: {n} readings too many of {at:g} s, {key} = {value}"
            raise Violation("counted", history.ended_at, text)


def _count(readings: list[SensorReading], before: int) -> Counter[Known]:
    return Counter((r.stime, r.key, repr(r.value)) for r in readings if r.stime < before)
