"""Tells which parts have not answered a window, while the others wait for them in one order.

A reader in the order of windows (``window_order.py``) gives nothing of a window until every part
has answered it. To its user a part without a root then looks like a query without results. So the
parts that are waited for are logged after a while, and logged again when the order goes on.

A part may lag by the query's bound X. X is not in the results, so the time until the first line is
one for all queries; a line about a part that is within its bound is true as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from slackwater.client.window_order import Awaited
from slackwater.codec.results import format_time

_log = logging.getLogger(__name__)
AWAITED_US: Final = 10_000_000
"""Time for which the same window is waited for, until it is logged."""


class AwaitedParts:
    """Watches the order of one follower.

    Args:
        query: the followed query, for the log.
        awaited: the window that is waited for, and in which parts; None if none is.
        now_us: a monotonic clock.
    """

    def __init__(
        self, query: str, awaited: Callable[[], Awaited | None], now_us: Callable[[], int]
    ) -> None:
        self._query, self._awaited, self._now_us = query, awaited, now_us
        self._window_end: int | None = None
        self._since_us = 0
        self._is_reported = False

    def polled(self) -> None:
        """Look after a poll of the results."""
        awaited, now_us = self._awaited(), self._now_us()
        window_end = None if awaited is None else awaited.window_end
        if window_end != self._window_end:
            self._window_end, self._since_us = window_end, now_us
        if awaited is None:
            if self._is_reported:
                _log.warning("results of %s: every part answers again", self._query)
            self._is_reported = False
        elif not self._is_reported and now_us - self._since_us >= AWAITED_US:
            self._is_reported = True
            _log.warning(
                "results of %s: nothing comes in the order of windows until part %s has answered"
                " the window that ends at %s",
                self._query,
                " and ".join(map(str, awaited.parts)),
                format_time(awaited.window_end),
            )
