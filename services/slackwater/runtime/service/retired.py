"""Deletes the internal topics of deleted queries, and of generations that have been replaced.

Their ordered logs and deltas are read by no fragment any more. They are deleted after a grace
period, in which a fragment that ends late still finds them. Results and state records stay: the
results are the user's, and the state records keep a name from being used again by mistake.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from slackwater.model.errors import SlackwaterError
from slackwater.model.names import Names
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import delete_topics
from slackwater.runtime.service.registry import QueryDefinition

_log = logging.getLogger(__name__)

GRACE_S: Final = 60.0
"""Time from the deletion of a query to that of its topics."""


def retired_topics(queries: Mapping[str, QueryDefinition], names: Names) -> frozenset[str]:
    """The topics that only deleted queries have used.

    Args:
        queries: all registered queries, deleted ones too. Others may read a deleted one's children.
        names: the deployment's names.
    """
    needed = {query.spec.child_query for query in queries.values() if query.state != "deleted"}
    retired = [
        query.spec
        for name, query in queries.items()
        if query.state == "deleted" and query.spec.has_children and name not in needed
    ]
    ordered = {names.ordered(of.name, child) for of in retired for child in range(of.children)}
    return frozenset(
        ordered | {names.deltas(of.name, p) for of in retired for p in range(of.parts)}
    )


class RetiredTopics:
    """Deletes retired topics, each once; for one event loop."""

    def __init__(self, transport: KafkaTransport, grace_s: float = GRACE_S) -> None:
        self._transport, self._grace_s = transport, grace_s
        self._due: dict[str, float] = {}
        self._deleted: set[str] = set()
        self._changed = asyncio.Event()

    def read(self, queries: Mapping[str, QueryDefinition]) -> None:
        """Take over what is registered, deleted queries too."""
        now = asyncio.get_running_loop().time()
        retired = retired_topics(queries, self._transport.names) - self._deleted
        self._due = {topic: self._due.get(topic, now + self._grace_s) for topic in retired}
        self._changed.set()

    async def run(self) -> None:
        """Delete topics when they are due, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            due = sorted(topic for topic, at in self._due.items() if at <= loop.time())
            if due:
                await self._delete(due)
            next_at = min(self._due.values(), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_at):
                    await self._changed.wait()

    async def _delete(self, topics: list[str]) -> None:
        try:
            gone = await asyncio.to_thread(delete_topics, self._transport.cluster, topics)
        except SlackwaterError as error:
            _log.info("cannot delete topics of deleted queries, will retry: %s", error)
            again = asyncio.get_running_loop().time() + max(self._grace_s, 1.0)
            self._due |= dict.fromkeys(topics, again)
            return
        if gone:
            _log.info("deleted topics of deleted queries: %s", ", ".join(gone))
        self._deleted.update(topics)
        for topic in topics:
            self._due.pop(topic, None)
