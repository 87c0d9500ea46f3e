"""Passes records to a session as a live consumer does, without a consumer."""

from __future__ import annotations

from slackwater.host.decoding import decode
from slackwater.host.driven import Driven
from slackwater.runtime.logs.transport import Log


def hand_over(driven: Driven, log: Log, offset: int, value: bytes) -> None:
    if driven.needs(log, offset):
        driven.take(log, offset, decode(driven.forms[log], log, offset, value))
