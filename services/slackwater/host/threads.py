"""Calls that may wait for long, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T], give_back: Callable[[T], None]) -> T:
    """Call a function in a new thread, wait for its end without a limit, and return its result.

    A thread pool could be exhausted by calls that wait for queries that are not registered yet. If
    the caller has been cancelled, the result is passed to ``give_back``.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def call() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 -- raised in the caller
            reported = error
            notify(lambda: done.set_exception(reported), lambda: None)
        else:
            notify(lambda: done.set_result(result), lambda: give_back(result))

    def notify(set_it: Callable[[], None], unwanted: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: unwanted() if done.done() else set_it())

    threading.Thread(target=call, name="beginning", daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        # Cancelled between the result and the caller's next turn: the caller never sees it.
        if done.done() and not done.cancelled() and done.exception() is None:
            give_back(done.result())
        raise
