"""Tells that the broker does not answer, while a follower waits for results.

A reader without a broker reads nothing, as a reader without results does. So a reader that has read
nothing for a while asks for the ends of its logs, and logs when the first question is unanswered,
and when one is answered again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from slackwater.runtime.logs.transport import NoAnswerError

_log = logging.getLogger(__name__)
ASK_EVERY_US: Final = 5_000_000
"""Time without a record after which the broker is asked, and between two questions."""
ASK_S_MAX: Final = 1.0
"""Maximum wait for an answer, in which nothing is read."""


class OutageWatch:
    """Watches the broker of one follower.

    Args:
        query: the followed query, for the log.
        ask: asks the broker within a number of seconds; ``NoAnswerError`` if it does not answer.
        now_us: a monotonic clock.
    """

    def __init__(
        self, query: str, ask: Callable[[float], object], now_us: Callable[[], int]
    ) -> None:
        self._query, self._ask, self._now_us = query, ask, now_us
        self._asked_us = now_us()
        self._is_out = False

    def polled(self, records: int) -> None:
        """Note how many records were read by a poll; may ask the broker."""
        now_us = self._now_us()
        if records:
            self._answers(now_us)
        elif now_us - self._asked_us >= ASK_EVERY_US:
            try:
                self._ask(ASK_S_MAX)
            except NoAnswerError:
                if not self._is_out:
                    _log.warning(
                        "results of %s: the broker does not answer; waiting until it does",
                        self._query,
                    )
                self._asked_us, self._is_out = self._now_us(), True
            else:
                self._answers(self._now_us())

    def _answers(self, now_us: int) -> None:
        self._asked_us = now_us
        if self._is_out:
            self._is_out = False
            _log.warning("results of %s: the broker answers again", self._query)
