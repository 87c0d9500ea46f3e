"""Has a log been read to an end that was observed after a deadline (rule-14, trace-11)?

A deadline alone blames nobody: the silence may be the reader's own. So the end of the log is asked
for, and what lies before it is read, before its writer counts as failed. Three things end the
wait: the end is reached; the broker gave no answer; or, though the broker says that there is more,
nothing of it has come for ``STALLED_US_MAX``: a consumer that is stuck (trace-34) would else keep
its process waiting for ever, which is no better than the failure it is to be judged by.

Time in which the process itself did not run counts little: at most ``STEP_US_MAX`` between two
looks, so that a process which has slept gives its consumer time to wake up too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STALLED_US_MAX: Final = 250_000
STEP_US_MAX: Final = 50_000


@dataclass(slots=True)
class EndOffsetProbe:
    """One question for the end of one log. ``offset`` is where its reader was last seen."""

    offset: int
    answered: bool = False
    end: int | None = None
    fetched_at: int = 0
    stalled_us: int = 0

    def answer(self, end: int | None, fetched_at: int) -> None:
        """The broker's answer, asked for at ``fetched_at``; None: it gave none."""
        self.answered, self.end, self.fetched_at = True, end, fetched_at

    def is_read(self, offset: int, passed_us: int = 0) -> bool:
        """The reader is at ``offset``, and ``passed_us`` went by since the last look."""
        if not self.answered:
            return False
        if self.end is None or offset >= self.end:
            return True
        if offset != self.offset:
            self.offset, self.stalled_us = offset, 0
        else:
            self.stalled_us += min(passed_us, STEP_US_MAX)
        return self.stalled_us >= STALLED_US_MAX
