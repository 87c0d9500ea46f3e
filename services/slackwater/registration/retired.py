"""Deletes the internal topics of deleted queries, and of generations that have been replaced.

Their panes, ordered logs and deltas are needed by no fragment any more. They are deleted after a
grace period, in which a fragment that ends late still finds them. They are not deleted while an
aggregator reads them, since a Spark query that also serves other fragments would fail. Results and
state records stay: the results are the user's, and a query of the same name that is applied later
continues them where the state records end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from slackwater.model.deployment import QuerySpec
from slackwater.model.errors import SlackwaterError, UsageError
from slackwater.model.names import Names, OrdererName
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import delete_topics
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.parts import READS
from slackwater.runtime.service.registry import QueryDefinition

_log = logging.getLogger(__name__)

GRACE_S: Final = 60.0
"""Time from the deletion of a query to that of its topics; also between two attempts."""


def retired_topics(
    queries: Mapping[str, QueryDefinition], names: Names, recorded: Iterable[QuerySpec] = ()
) -> dict[str, frozenset[str]]:
    """The topics that only deleted queries have used, by query.

    Args:
        queries: all registered queries, deleted ones too: other queries may read their children.
        names: the deployment's names.
        recorded: queries that are to run; some may not be registered yet.
    """
    needed = {query.spec.child_query for query in queries.values() if query.state != "deleted"}
    needed |= {query.child_query for query in recorded}
    found = {}
    for name, query in queries.items():
        of = query.spec
        if query.state != "deleted" or (of.has_children and name in needed):
            continue
        unused = set() if of.window is None else {names.panes(name)}
        if of.mergers:
            unused |= {names.merged(name, part) for part in range(of.parts)}
        if of.has_children:
            unused |= {names.ordered(name, child) for child in range(of.children)}
            unused |= {names.deltas(name, part) for part in range(of.parts)}
        if unused:
            found[name] = frozenset(unused)
    return found


def queries_read(heartbeats: Iterable[Heartbeat]) -> set[str]:
    """The queries whose logs aggregators still read although the fragments have been removed."""
    found = set()
    for beat in heartbeats:
        for key in beat.detail:
            if key.startswith(READS):
                with suppress(UsageError):
                    found.add(OrdererName.parse(key.removeprefix(READS)).query)
    return found


class RetiredTopics:
    """Deletes retired topics, each once; for one event loop."""

    def __init__(
        self, transport: KafkaTransport, listener: HeartbeatListener, grace_s: float = GRACE_S
    ) -> None:
        self._transport, self._listener, self._grace_s = transport, listener, grace_s
        self._topics: dict[str, frozenset[str]] = {}
        self._due: dict[str, float] = {}
        self._deleted: set[str] = set()
        self._changed = asyncio.Event()

    def read(
        self, queries: Mapping[str, QueryDefinition], recorded: Iterable[QuerySpec] = ()
    ) -> None:
        """Set all registered queries, deleted ones too, and those that are to run."""
        now = asyncio.get_running_loop().time()
        self._topics = retired_topics(queries, self._transport.names, recorded)
        waiting = self._topics.keys() - self._deleted
        self._due = {name: self._due.get(name, now + self._grace_s) for name in waiting}
        self._changed.set()

    async def run(self) -> None:
        """Delete topics when they are due, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            due = sorted(name for name, at in self._due.items() if at <= loop.time())
            if due:
                await self._delete(due)
            next_at = min(self._due.values(), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_at):
                    await self._changed.wait()

    async def _delete(self, queries: list[str]) -> None:
        again = asyncio.get_running_loop().time() + self._grace_s
        self._due |= dict.fromkeys(queries, again)
        read = queries_read(self._listener.all().values())
        free = [name for name in queries if name not in read]
        topics = sorted({topic for name in free for topic in self._topics[name]})
        try:
            gone = await asyncio.to_thread(delete_topics, self._transport.cluster, topics)
        except SlackwaterError as error:
            _log.info("cannot delete topics of deleted queries, will retry: %s", error)
            return
        if gone:
            _log.info("deleted topics of deleted queries: %s", ", ".join(gone))
        self._deleted.update(free)
        for name in free:
            self._due.pop(name, None)
