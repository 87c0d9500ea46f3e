"""Finds out whether another process writes an orderer's stable log (rule-6, decision 51).

There are two signs of it: a heartbeat of the same fragment with a greater incarnation, and a
missing offset between two deliveries. Both may be false, and the log decides. The functions are
procedures; they return what the session is to do, or None without an answer, when the check is to
be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slackwater.model.errors import SlackwaterError
from slackwater.sessions.effects import Fail, Refute
from slackwater.sessions.requests import (
    PROBE_TIMEOUT_US,
    FindIncarnation,
    Log,
    Ordered,
    Procedure,
    ReadOrdered,
)

ALONE: Final = Refute(-1)
"""There is no other writer: the missing offsets hold nothing that counts."""


def look_at_claim(fragment: str, log: Log, inc: int) -> Procedure[Fail | Refute | None]:
    """Look whether a greater incarnation ``inc`` of the fragment has started in its log."""
    try:
        has_begun = yield FindIncarnation(log, inc)
    except SlackwaterError:
        return None
    if has_begun:
        return Fail(f"{fragment} runs elsewhere with incarnation {inc}; ending this one")
    return Refute(inc)


def look_between(
    fragment: str, log: Log, ranges: Sequence[tuple[int, int]]
) -> Procedure[Fail | Refute | None]:
    """Look for records in ranges [from, to) of offsets that the fragment has not written."""
    found: list[Ordered] = []
    try:
        for start, end in ranges:
            found += yield ReadOrdered(log, start, end, PROBE_TIMEOUT_US)
    except SlackwaterError:
        return None
    if found:
        return Fail(f"another writer appends to the log of {fragment}; ending this one")
    return ALONE
