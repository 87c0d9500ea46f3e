"""A stack on an event loop in a thread of its own, for programs without an event loop.

``stop`` also interrupts a start that waits for a broker, so that the program can always end soon.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from slackwater.machine.kept_process import ProcessEvent
from slackwater.model.kinds import BROKER, GATEWAY, NOTIFIER
from slackwater.runtime.service.clock import SystemClock
from slackwater.stack.stack import Stack, StackOptions

_P = ParamSpec("_P")
_T = TypeVar("_T")


class StackThread:
    """The stack and its thread. The methods may be called from any thread; they block."""

    def __init__(self, options: StackOptions, *, clock: SystemClock | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(_Threads())
        self._thread = threading.Thread(target=self._loop.run_forever, name="stack", daemon=True)
        self._thread.start()
        self._stopped = False
        self._work: list[Future[Any]] = []
        self._work_lock = threading.Lock()
        self.stack = Stack(options, clock=clock)

    def open(self) -> str:
        """See ``Stack.open``."""
        return self._wait(self.stack.open())

    def start_up(self) -> None:
        """See ``Stack.start_up``."""
        self._wait(self.stack.start_up())

    def start_rehearsal(self, start_time_us: int, speed: float) -> None:
        """See ``Stack.start_rehearsal``."""
        self._wait(self.stack.start_rehearsal(start_time_us, speed))

    def begin(self, start_time_us: int, speed: float, end_us: int | None = None) -> int:
        """See ``Stack.begin``."""
        return self._wait(self.stack.begin(start_time_us, speed, end_us))

    def kill(self, target: str) -> list[str]:
        """See ``Supervisor.kill``."""
        return self.call(lambda: self.stack.supervisor.kill(target))

    def restart(self, target: str) -> list[str]:
        """See ``Supervisor.restart``."""
        return self.call(lambda: self.stack.supervisor.restart(target))

    def pause(self, target: str, seconds: float | None = None) -> list[str]:
        """See ``Supervisor.pause``."""
        return self.call(lambda: self.stack.supervisor.pause(target, seconds))

    def resume(self, target: str) -> list[str]:
        """See ``Supervisor.resume``."""
        return self.call(lambda: self.stack.supervisor.resume(target))

    def pids(self) -> dict[str, int]:
        """See ``Supervisor.pids``."""
        return self.call(self.stack.supervisor.pids)

    def events(self) -> list[ProcessEvent]:
        """Return all events so far, in order."""
        return self.call(lambda: list(self.stack.supervisor.events))

    def ready(self) -> dict[str, bool]:
        """Whether each process and part is ready, by its name; not the broker."""
        names = [name for name in self.stack.process_names if name != BROKER]
        options = self.stack.options
        page = [] if options.web is None else [GATEWAY]
        notifier = [NOTIFIER] if options.notify else []
        return {name: self.stack.is_ready(name) for name in (*names, *page, *notifier)}

    def check(self) -> None:
        """See ``Stack.raise_what_gave_up``."""
        self.call(self.stack.raise_what_gave_up)

    def stop(self) -> None:
        """Stop everything and end the thread; allowed at any time, and repeatedly."""
        if self._stopped:
            return
        self._stopped = True
        with self._work_lock:
            begun = [work for work in self._work if not work.done()]
        try:
            self._wait(self.stack.stop())
            # Ctrl-C may interrupt a start. The supervisor refuses further starts. The start is
            # cancelled here, and the processes that it has started meanwhile are stopped.
            if begun:
                self._wait(_cancel_all())
                self._wait(self.stack.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        with self._work_lock:  # so that ``stop`` finds all work that has begun
            doing = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._work = [*(each for each in self._work if not each.done()), doing]
        return doing.result()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the event loop of the stack, and wait for its result."""
        return self._wait(work)

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function in the event loop of the stack, and return its result."""

        async def call() -> _T:
            return function()

        return self._wait(call())


class _Threads(ThreadPoolExecutor):
    """Runs each call in a daemon thread, which does not delay the end of the program.

    A start may wait a minute for the broker's response while a stop ends the broker. Threads of a
    pool would keep the program alive until their timeouts.
    """

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """See ``Executor.submit``."""
        future: Future[_T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 -- raised in the caller
                future.set_exception(error)

        threading.Thread(target=run, name="stack-work", daemon=True).start()
        return future


async def _cancel_all() -> None:
    """Cancel all tasks of this loop, and wait for their end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
