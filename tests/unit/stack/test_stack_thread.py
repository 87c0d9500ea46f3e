"""A stack's thread that is stopped during a start (Ctrl-C)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any, cast

import pytest
from tests.support.waiting import WAIT_S_MAX

from slackwater.stack import stack_thread as stack
from slackwater.stack.stack_thread import StackThread


class SlowStack:
    """Opening it waits for a broker for ever."""

    def __init__(self, options: object, *, clock: object = None) -> None:
        self.opening = threading.Event()
        self.emitted: list[str] = []

    async def open(self) -> str:
        self.opening.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.emitted.append("open ended")
        return ""

    async def stop(self) -> None:
        self.emitted.append("stopped")


def test_a_stop_in_the_middle_of_a_start_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "Stack", SlowStack)
    thread = StackThread(cast(Any, None))
    slow = cast(SlowStack, thread.stack)

    def start() -> None:
        with pytest.raises(BaseException):  # noqa: B017, PT011  # cancelled, or its loop has ended
            thread.open()

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    assert slow.opening.wait(WAIT_S_MAX)
    thread.stop()
    assert slow.emitted == ["stopped", "open ended", "stopped"]
    starting.join(WAIT_S_MAX)
    assert not starting.is_alive()


WAITS_FOR_THE_BROKER = """
import asyncio, threading
from slackwater.stack import stack_thread as stack

asking, answer = threading.Event(), threading.Event()

class Asks:
    def __init__(self, options, *, clock=None):
        pass

    async def open(self):
        await asyncio.to_thread(lambda: asking.set() or answer.wait())

    async def stop(self):
        pass

stack.Stack = Asks
thread = stack.StackThread(None)
threading.Thread(target=thread.open, daemon=True).start()
asking.wait()
thread.stop()
print("stopped", flush=True)
"""


def test_the_program_does_not_wait_for_an_answer_of_the_broker_that_it_has_stopped() -> None:
    """Otherwise it would take a minute until an append is abandoned."""
    command = [sys.executable, "-c", WAITS_FOR_THE_BROKER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert done.stdout == "stopped\n", done.stderr
    assert done.returncode == 0, done.stderr
