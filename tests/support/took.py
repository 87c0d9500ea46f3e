"""What tests cost, which failed, and which ran at the end: for a run that is ended by a time-out.

pytest names none of these if it is ended from outside. With ``SLACKWATER_TEST_TIMES`` naming a
folder, each worker appends a line to a file there when a test begins, fails and ends.
``python -m tests.support.took FOLDER`` prints what is found. The CPU seconds are those of the
worker and of its child processes that have ended: on a busy machine they tell what a test costs,
and its time does not.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

VARIABLE: Final = "SLACKWATER_TEST_TIMES"
SHOWN_MAX: Final = 12


def note(what: str, test: str) -> None:
    """Record that a test begins, fails or ends, if the variable names a folder."""
    folder = os.environ.get(VARIABLE)
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with (Path(folder) / str(os.getpid())).open("a", encoding="utf-8") as file:
            file.write(f"{time.time():.1f} {_cpu_s():.1f} {what} {test}\n")


def _cpu_s() -> float:
    """The CPU time of this process and of its ended children, in s."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def summary(files: Iterable[str], now_s: float) -> list[str]:
    """Return the tests of all files that failed, those that ran, and the longest, one a line.

    ``files``: the text of each worker's file. ``now_s``: the wall time, in s.
    """
    running: list[tuple[float, str]] = []
    ended: list[tuple[float, float, str]] = []
    failed: list[str] = []
    for text in files:
        began: dict[str, tuple[float, float]] = {}
        for line in text.splitlines():
            at, cpu, what, test = line.split(" ", 3)
            if what == "begins":
                began[test] = float(at), float(cpu)
            elif what == "fails":
                failed.append(f"failed: {test}")
            elif test in began:
                begun_at, begun_cpu = began.pop(test)
                ended.append((float(at) - begun_at, float(cpu) - begun_cpu, test))
        running += [(now_s - at, test) for test, (at, _) in began.items()]
    found = [f"ran at the end, for {s:.0f} s: {test}" for s, test in sorted(running, reverse=True)]
    longest = sorted(ended, reverse=True)[:SHOWN_MAX]
    took = [f"took {s:.0f} s, {cpu_s:.0f} s of CPU: {test}" for s, cpu_s, test in longest]
    return [*failed, *found, *took]


def main(folder: str) -> None:
    """Print the summary of a folder."""
    texts = [path.read_text("utf-8") for path in sorted(Path(folder).iterdir())]
    sys.stdout.writelines(f"{line}\n" for line in summary(texts, time.time()))


if __name__ == "__main__":
    main(sys.argv[1])
