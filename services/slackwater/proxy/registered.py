"""Reads the registry once for all streams of a process.

A stream needs the event clock, the queries that read it (their grids are its cut points) and, with
learned gaps, the recorded steps. A separate thread reads the registry and notifies the streams,
because reading blocks on the broker and a stream must not block. The thread ends when all streams
have the entries that they need, and is started again for a restarted stream.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from slackwater.model.errors import SlackwaterError
from slackwater.model.names import ProxyName
from slackwater.primitives.eventclock import EventClock
from slackwater.proxy.shell import InputContext
from slackwater.runtime.logs.transport import LogError
from slackwater.runtime.service.registry import Registry

QUERIES_EVERY_S: Final = 2.0


@dataclass(frozen=True, eq=False, slots=True)
class _Waiting:
    """A stream that waits for registry entries; compared by identity."""

    context: InputContext


class RegistryWatch:
    """Notifies streams of the registry entries they need, as soon as these exist."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._clock: EventClock | None = None
        self._waiting: dict[ProxyName, _Waiting] = {}
        self._changed = threading.Condition()
        self._runs = False

    def notify(self, context: InputContext) -> None:
        """Register a stream for notification; a restarted stream replaces its earlier entry."""
        with self._changed:
            if self._clock is not None and context.event_clock is None:
                context.start_clock(self._clock)
            self._waiting[context.name] = _Waiting(context)
            self._changed.notify()
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="registry", daemon=True).start()

    def _run(self) -> None:
        try:
            clock = self._clock or self._registry.wait_for_clock()
        except (SlackwaterError, ValueError) as error:
            with self._changed:
                for waiting in self._waiting.values():
                    waiting.context.failures.append(str(error))
                self._waiting.clear()
                self._runs = False
            return
        with self._changed:
            self._clock = clock
            for waiting in self._waiting.values():
                if waiting.context.event_clock is None:
                    waiting.context.start_clock(clock)
        while self._look():
            pass

    def _look(self) -> bool:
        """Read the registry once, and wait until the next read is due; False if none is needed."""
        with self._changed:
            asked = [*self._waiting.values()]
        reported = self._notify(asked)
        with self._changed:
            for waiting in reported:
                # A stream that has registered again meanwhile needs another read.
                if self._waiting.get(waiting.context.name) is waiting:
                    del self._waiting[waiting.context.name]
            if not self._waiting:
                self._runs = False
                return False
            if all(waiting in asked for waiting in self._waiting.values()):
                self._changed.wait(QUERIES_EVERY_S)
            return True

    def _notify(self, asked: Collection[_Waiting]) -> list[_Waiting]:
        """Notify the streams; return those that need no more entries or have ended."""
        try:
            queries = self._registry.all_queries()
            learns = any(waiting.context.learning is not None for waiting in asked)
            learned = self._registry.expected() if learns else {}
        except LogError:
            queries, learned = {}, None
        return [
            waiting
            for waiting in asked
            if waiting.context.stop.is_set() or waiting.context.registered(queries, learned)
        ]
