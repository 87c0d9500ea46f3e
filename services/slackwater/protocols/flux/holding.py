"""When a copy that follows holds deltas undecoded, and when it reads them.

To decode and fold each delta costs a follower as much as it costs the copy that answers, and what
it has computed is dropped at the next state record if windows are short: all of them have been
answered then. A follower that holds (``dpc.soutput.holding``) computes nothing, and a take-over
waits until it has read what it holds. So it holds only what is soon read (``read_us_max``). Of a
long window it holds no more than that, and folds the rest as it comes: a pane serves many windows.

It holds only while nothing is tentative (S = T). In a failure both lines need what lies between.

A follower that computes nothing compares nothing, and a fault of memory would show after its
take-over only (trace-57). So it reads what follows some state records, and compares those panes
(``RootConfig.is_compared``). Which ones, both copies know from S alone, so the copy that answers
computes no other digests.

Pure.
"""

from __future__ import annotations

from slackwater.model.records import RootState


def may_begin(state: RootState, read_us: int, read_us_max: int) -> bool:
    """Return whether a copy may hold what follows a state record.

    ``read_us``: how long it takes to read what it would hold at once. It may be half of the limit,
    else the copy would soon read again.
    """
    return state.stable_from == state.answered_to and read_us <= read_us_max // 2
