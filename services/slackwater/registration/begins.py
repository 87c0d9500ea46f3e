"""Records when a query begins: from then on its answers are due (rule-15, trace-49).

A query is registered before its processes run, so that no reading is lost, and Spark needs ten
seconds to start. Counted from their ends, its first windows would be overdue when the pipeline is
ready: the root would answer them tentatively and late, and undo them at once. Nothing is due before
the begin, and the windows that end before it are due at it. Stable answers are not held back.

The process that registers the query records its begin, once: when its proxies and all copies of its
stages are ready and have read what their logs hold, and the queries that it reads have begun. After
``WAIT_US_MAX`` one copy of each stage suffices. Without one the bound does not hold anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from slackwater.model.names import AGGREGATOR, OrdererName, ProxyName, base_of, copy_names, kind_of
from slackwater.model.records import Heartbeat
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, Registry

_log = logging.getLogger(__name__)

AHEAD_US: Final = 1_000_000
"""The begin lies this far ahead when it is recorded: all processes have read it by then."""
WAIT_US_MAX: Final = 60_000_000
"""How long the second copies and the proxies of a query are waited for, us."""
LOOK_S: Final = 0.1


class Beats(Protocol):
    """The latest heartbeats of all processes."""

    def all(self) -> Mapping[str, Heartbeat]:
        """The latest heartbeats, by process."""
        ...

    def ready(self, process: str) -> bool:
        """Whether the process reports ready, and has done so recently."""
        ...


class Begins:
    """Records the begins of the queries that are registered here; ``run`` runs beside it."""

    def __init__(self, registry: Registry, beats: Beats, clock: SystemClock | None = None) -> None:
        self._registry, self._beats = registry, beats
        self._clock = clock or SystemClock()
        self._seen: set[str] = set()
        self._awaited: dict[str, int] = {}
        """By query, until when all of its processes are waited for, us of monotonic time."""
        self._definitions: Mapping[str, QueryDefinition] = {}
        self._has_more = asyncio.Event()

    def register(self, queries: Iterable[str]) -> None:
        """Take in queries that are registered in Kafka; those that have begun may be among them."""
        new = {*queries} - self._seen
        if new:
            self._seen |= new
            until_us = self._clock.monotonic_us() + WAIT_US_MAX
            self._awaited |= dict.fromkeys(sorted(new), until_us)
            self._has_more.set()

    async def run(self) -> None:
        """Record begins as processes get ready; without end."""
        while True:
            await self._has_more.wait()
            self._has_more.clear()
            await self.read()
            while self._awaited and not self._has_more.is_set():
                if begun := self.look():
                    await self._record(begun)
                else:
                    await asyncio.sleep(LOOK_S)

    async def read(self) -> None:
        """Read the definitions, and drop what does not wait for its begin."""
        names = [*self._awaited]
        found = self._definitions = await asyncio.to_thread(self._registry.all_queries)
        begun = await asyncio.to_thread(self._registry.begins)
        for name in names:
            if name not in found:  # it is registered later, and then comes again
                del self._awaited[name]
                self._seen.discard(name)
                continue
            # The orderers of its children follow the begin of the query that the children are of.
            # Who registers that one records it, unless it has been deleted.
            until_us, of = self._awaited.pop(name), found[name].spec.child_query
            is_left = of != name and of in found and found[of].state == "deleted"
            for each in {name, *([of] if is_left else [])} - begun.keys():
                if found[each].awaits_begin:
                    self._awaited[each] = until_us

    async def _record(self, names: Iterable[str]) -> None:
        begin_us = self._clock.now_us() + AHEAD_US
        begins_us = dict.fromkeys(names, begin_us)
        await asyncio.to_thread(self._registry.publish_begins, begins_us)
        for name in names:
            del self._awaited[name]
        _log.info("%s: answers are due from now on", ", ".join(begins_us))

    def look(self) -> list[str]:
        """Return the names of the queries that can begin now, those that others read first."""
        begun: list[str] = []
        now_us = self._clock.monotonic_us()
        while True:
            waiting = self._awaited.keys() - begun
            new = [
                name
                for name in sorted(waiting)
                if not self._reads(name) & waiting
                and self._is_ready(self._definitions[name], now_us >= self._awaited[name])
            ]
            if not new:
                return begun
            begun += new

    def _reads(self, name: str) -> set[str]:
        """The other queries whose results or children a query reads."""
        spec = self._definitions[name].spec
        read = {*spec.sources, spec.child_query}
        return {n for n in self._definitions if n in read or base_of(n) in read} - {name}

    def _is_ready(self, query: QueryDefinition, one_copy_suffices: bool) -> bool:
        """Whether all proxies and copies of a query's stages are ready, or one copy of each.

        A deleted query whose children others read has no roots.
        """
        spec, roots = query.spec, range(0 if query.state == "deleted" else query.spec.parts)
        beats = self._beats.all()

        def is_at_work(process: str) -> bool:
            beat = beats.get(process)
            # Neither an orderer nor a root is suppressed any more (rule-25, rule-27).
            return (
                beat is not None and not beat.detail.get("mute", 1) and self._beats.ready(process)
            )

        running = {
            fragment
            for process, beat in beats.items()
            if kind_of(process) == AGGREGATOR and self._beats.ready(process)
            for fragment, state in beat.states.items()
            if state == "STABLE"
        }
        queries = {base_of(each) for each in self._definitions}
        streams = [s for s in spec.sources if s not in queries and s not in spec.remote_sources]
        if not one_copy_suffices and not all(
            self._beats.ready(ProxyName(stream).process) for stream in streams
        ):
            return False
        enough = any if one_copy_suffices else all
        replicas = range(spec.replicas)
        copies = [copy_names(spec.name, part, spec.copies) for part in roots]
        return all(enough(is_at_work(of.process) for of in part) for part in copies) and all(
            enough(
                is_at_work(of.process) and (spec.window is None or str(of) in running)
                for of in (OrdererName(spec.child_query, child, r) for r in replicas)
            )
            for child in range(spec.children)
            if not spec.is_remote(child)
        )
