"""The lines of a start: each stage with its seconds as soon as it is ready, else what is awaited.

A start takes 10 to 30 s, most of it for Spark. It prints a line at least every ``SILENT_S_MAX``,
and every ``SILENT_LONG_S_MAX`` once it takes unusually long.

The lines are pure: times are arguments, in seconds of any clock. ``repeatedly`` is the thread that
prints them while its caller waits for the start.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from slackwater.model.kinds import GATEWAY, KINDS, NOTIFIER, PROCESSES
from slackwater.model.names import kind_of

LOOK_S: Final = 0.2
SILENT_S_MAX: Final = 2.5
"""Longest time without a line; it is looked at several times a second."""
IMPORTS_S: Final = 1.5
"""How long a command is silent before its start: for its imports and the checks of its files."""
READY: Final = "ready after"
STEADY_S: Final = 1.0
"""How long all must be ready before everything runs; as long as a heartbeat counts."""
LONG_S: Final = 60.0
"""A start that has lasted longer prints what it waits for less often."""
SILENT_LONG_S_MAX: Final = 10.0
STAGES: Final = {
    **{each.name: each.task for each in PROCESSES.values()},
    **{each.name: each.task for each in KINDS.values()},
    GATEWAY: "the gateway, which serves the page",
    NOTIFIER: "the notifier, which sends alerts",
    "batch": "the batch computation, with which results are compared",
}


class StartLines:
    """What a start has printed; ``began_s`` is its begin."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self.last_s = began_s - IMPORTS_S
        """When a line was last printed."""
        self._ready: set[str] = set()
        self.awaited = ""
        """The stages that are not ready, as last looked at."""

    def printed(self, now_s: float) -> None:
        """Record that something else was printed."""
        self.last_s = now_s

    def reached(self, stage: str, now_s: float) -> str:
        """Return the line of a stage that is ready now."""
        self.last_s = now_s
        return f"{READY} {now_s - self._began_s:4.1f} s: {stage}"

    def waiting(self, what: str, now_s: float) -> list[str]:
        """Return a line with what is awaited, if none was printed for a while."""
        is_long = now_s - self._began_s > LONG_S
        if now_s - self.last_s < (SILENT_LONG_S_MAX if is_long else SILENT_S_MAX):
            return []
        self.last_s = now_s
        return [f"  {now_s - self._began_s:.0f} s: waiting for {what}"]

    def new(self, ready: Mapping[str, bool], now_s: float) -> list[str]:
        """Return the lines of the stages whose processes are all ready since the last look.

        ``ready``: by the name of the process, whether it is ready. ``awaited`` has the others.
        """
        kinds = dict.fromkeys(map(kind_of, ready))
        left = {kind_of(process) for process, is_ready in ready.items() if not is_ready}
        new = [kind for kind in kinds if kind not in left and kind not in self._ready]
        self._ready.update(new)
        awaited = [STAGES.get(kind, kind).partition(",")[0] for kind in kinds if kind in left]
        self.awaited = ", ".join(awaited)
        return [self.reached(STAGES.get(kind, kind), now_s) for kind in new]

    def look(self, ready: Mapping[str, bool], now_s: float, *, first: str = "") -> list[str]:
        """Return the lines of ``new``, or a line with what is awaited if it is time for one.

        ``first``: what the processes that are left wait for; empty if only they are awaited.
        """
        lines = self.new(ready, now_s)
        if lines or not self.awaited:
            return lines
        return self.waiting(first or self.awaited, now_s)


class Everything:
    """Whether everything runs: all processes are ready, no query is awaited, and it stays so.

    A process that has just become ready may fall back: its first turn is too long under load, or it
    ends. So all must have been ready for longer than an old heartbeat counts.
    """

    def __init__(self) -> None:
        self._since_s: float | None = None

    def runs(self, ready: Mapping[str, bool], waiting: Collection[str], now_s: float) -> bool:
        """Take what is ready now.

        Args:
            ready: by the name of the process, whether it is ready.
            waiting: the queries that are not registered yet.
            now_s: the time, in seconds of any clock.
        """
        if waiting or not ready or not all(ready.values()):
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= STEADY_S


@contextlib.contextmanager
def repeatedly(look: Callable[[], None], every_s: float = LOOK_S) -> Iterator[None]:
    """Call ``look`` in a thread of its own until the block ends, and once more then.

    An error of ``look``, such as a closed pipe, is raised at the end of the block.
    """
    is_over, errors = threading.Event(), list[Exception]()

    def run() -> None:
        try:
            while not is_over.wait(every_s):
                look()
        except Exception as error:  # noqa: BLE001 -- raised in the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="shown", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if errors:
        raise errors[0]
    look()
