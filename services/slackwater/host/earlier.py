"""Tells the roots of a later generation when the earlier ones have ended (rule-29)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial

from slackwater.model.names import earlier_generations, generation_of
from slackwater.runtime.service.registry import QueryDefinition, Registry


class EarlierGenerations:
    """Follows the registry until the earlier generations of a query have ended, or ``close``.

    For any thread.
    """

    def __init__(self, registry: Registry, query: str) -> None:
        self._registry, self._query = registry, query
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._have_ended = not generation_of(query) or self._has_all(registry.all_queries())
        if not self._have_ended:
            threading.Thread(target=self._follow, name=f"end before {query}", daemon=True).start()

    def _has_all(self, found: Mapping[str, QueryDefinition]) -> bool:
        live = (name for name, each in found.items() if each.state != "deleted")
        return not earlier_generations(self._query, live)

    def _follow(self) -> None:
        for found in self._registry.follow_queries(self._closed):
            if self._has_all(found):
                with self._lock:
                    self._have_ended = True
                for act in self._waiting:
                    act()
                return

    @property
    def have_ended(self) -> bool:
        """Whether the registry has all of them as deleted."""
        return self._have_ended

    def when_ended(self, act: Callable[[], None]) -> None:
        """Call ``act`` once they have ended, or now if they have, in the running event loop."""
        soon = partial(_soon, asyncio.get_running_loop(), act)
        with self._lock:
            if not self._have_ended:
                self._waiting.append(soon)
                return
        soon()

    def close(self) -> None:
        """Stop following the registry; the thread ends soon."""
        self._closed.set()


def _soon(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(act)
