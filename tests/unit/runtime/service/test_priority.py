"""A process that serves readers lowers its priority, and that of its scheduling group."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slackwater.runtime.service.priority import NICENESS

SHOWN = (
    "import os; from pathlib import Path; from slackwater.runtime.service import priority;"
    " {before} priority.work_behind_others(); group = Path('/proc/self/autogroup');"
    " print(os.nice(0), group.read_text().split()[-1] if group.exists() else {niceness},"
    " os.sched_getscheduler(0))"
)


@pytest.mark.parametrize(("before", "niceness"), [("", NICENESS), ("os.nice(19);", 19)])
def test_it_is_behind_the_others(before: str, niceness: int) -> None:
    code = SHOWN.format(before=before, niceness=NICENESS)
    shown = subprocess.check_output([sys.executable, "-c", code], text=True, start_new_session=True)
    own, group, policy = map(int, shown.split())
    assert own == max(niceness, os.nice(0)), "tests may have a low priority themselves"
    assert group == NICENESS
    assert policy == os.SCHED_BATCH, "it preempts nobody when it wakes up"
