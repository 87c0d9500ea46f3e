"""Lines that tell what a command waits for, while it works without a word."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from slackwater.cli.common import emit
from slackwater.machine.starting import LOOK_S, StartLines, repeatedly
from slackwater.runtime.service.clock import SystemClock


@contextlib.contextmanager
def report_meanwhile(what: str, look_s: float = LOOK_S) -> Iterator[None]:
    """Print that the command waits for ``what``, every few seconds until the block ends."""
    clock = SystemClock()
    lines = StartLines(clock.now_us() / 1e6)

    def show() -> None:
        for line in lines.waiting(what, clock.now_us() / 1e6):
            emit(f"...{line}")

    with repeatedly(show, look_s):
        yield
