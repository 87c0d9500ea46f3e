"""Tests whether a log has been read to an end offset that was fetched after a deadline.

A missed deadline does not prove that the writer failed: the reader itself may have been delayed.
Before the writer counts as failed, the end offset of its log is fetched and the log is read to it.
The wait ends when the end offset is reached, when the broker gives no answer, or when the broker
reports more records but none arrive for ``STALLED_US_MAX``. Without the last limit a stuck
consumer would block its process forever (trace-34).

At most ``STEP_US_MAX`` is counted between two checks, so that after a pause of the process its
consumer has time to resume too (rule-14, trace-11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STALLED_US_MAX: Final = 250_000
STEP_US_MAX: Final = 50_000


@dataclass(slots=True)
class EndOffsetProbe:
    """A pending request for the end offset of one log.

    ``offset`` is the reader's position at the last check. Times are us of wall time.
    """

    offset: int
    answered: bool = False
    end: int | None = None
    fetched_at: int = 0
    stalled_us: int = 0

    def answer(self, end: int | None, fetched_at: int) -> None:
        """Record the broker's answer to a request sent at ``fetched_at``; None means no answer."""
        self.answered, self.end, self.fetched_at = True, end, fetched_at

    def is_read(self, offset: int, passed_us: int = 0) -> bool:
        """True if a reader at ``offset`` may stop waiting.

        ``passed_us`` is the wall time since the last check.
        """
        if not self.answered:
            return False
        if self.end is None or offset >= self.end:
            return True
        if offset != self.offset:
            self.offset, self.stalled_us = offset, 0
        else:
            self.stalled_us += min(passed_us, STEP_US_MAX)
        return self.stalled_us >= STALLED_US_MAX
