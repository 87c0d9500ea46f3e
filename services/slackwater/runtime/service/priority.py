"""The priority of processes on which no answer depends.

A page is for people, who do not notice 20 ms; an answer is due. So what serves readers runs behind
what computes. It is scheduled as a batch job: then it takes no core from another process when it
wakes up, as it does with each answer, just when the next ones are computed. On Linux a process that
has a session of its own is often in a scheduling group of its own, too (``man 7 sched``,
autogroup), and its priority counts within that group only. Then the group's priority is lowered as
well.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

NICENESS: Final = 5
"""A process with it has a third of the time of one without, where both want a whole core."""
_GROUP: Final = Path("/proc/self/autogroup")


def work_behind_others() -> None:
    """Lower the priority of this process and of what it starts; without effect if it is lower."""
    if (more := NICENESS - os.nice(0)) > 0:
        os.nice(more)
    with suppress(OSError, AttributeError):  # another system, or not permitted
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with suppress(OSError):  # another system, or no such groups
        if not _is_low(_GROUP.read_text()):
            _GROUP.write_text(str(NICENESS))


def _is_low(group: str) -> bool:
    """Whether ``/autogroup-NUMBER nice PRIORITY`` has a low priority already."""
    return int(group.rsplit(" ", 1)[-1]) >= NICENESS
