"""All that the gateway knows, for its readers: a feed for each query, the status, the alerts.

For one event loop; what follows Kafka in other threads calls it through the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from slackwater.gateway.changes import Change
from slackwater.gateway.feed import Feed
from slackwater.gateway.outbox import Outbox
from slackwater.gateway.positions import parse_id
from slackwater.gateway.ring import Ring

STATUS_WAITS_S_MAX: Final = 0.8
"""How long a status waits for a change; there is one a second."""
ENDED = b"event: ended\ndata: {}\n\n"
"""The query of the stream was deleted."""


class Hub:
    """Feeds by query, and all readers.

    Args:
        on_readers: called with the number of readers whenever it changes.
    """

    def __init__(self, on_readers: Callable[[int], None] = lambda _: None) -> None:
        self._feeds: dict[str, Feed] = {}
        self._readers: set[Outbox] = set()
        self._on_readers = on_readers
        self._states: dict[str, bytes] = {}
        """The latest of each, as an event."""
        self._latest: Mapping[str, Any] | None = None
        self._renewed: asyncio.Future[Mapping[str, Any]] | None = None
        self._knows_queries = False
        self._changed: asyncio.Future[None] | None = None

    @property
    def readers(self) -> int:
        """Number of open streams."""
        return len(self._readers)

    def feed(self, query: str) -> Feed | None:
        """Return a query's feed; None if there is no such query."""
        return self._feeds.get(query)

    def open(self, query: str) -> None:
        """A query is read, from now on or again: all before is forgotten.

        Streams of before end. Their readers come back, and go on where they were.
        """
        old = self._feeds.get(query)
        self._feeds[query] = Feed(Ring(query))
        for outbox in () if old is None else old.outboxes:
            outbox.close()

    def know(self) -> None:
        """All queries that there are have been opened."""
        self._knows_queries = True
        self._news()

    def reach(self, query: str) -> None:
        """A query has been read to where its results ended when it was opened."""
        if (feed := self._feeds.get(query)) is not None and not feed.is_current:
            feed.is_current = True
            self._news()

    async def settled(self, query: str, within_s: float) -> bool:
        """Wait until a query's changes are known to the end, or that there is no such query.

        Before, a reader that comes back would be told that its query is gone, or that its position
        is beyond the end. False if Kafka does not tell within this time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not self._is_settled(query):
                    if self._changed is None or self._changed.done():
                        self._changed = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._changed)
        return self._is_settled(query)

    def _is_settled(self, query: str) -> bool:
        feed = self._feeds.get(query)
        return self._knows_queries if feed is None else feed.is_current

    def _news(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def publish(self, query: str, changes: Iterable[Change], begins: Mapping[int, int]) -> None:
        """Take changes of a query that is read."""
        if (feed := self._feeds.get(query)) is not None:
            feed.publish(changes, begins)

    def end(self, query: str) -> None:
        """A query was deleted."""
        if (feed := self._feeds.pop(query, None)) is not None:
            feed.end(ENDED)

    def set_status(self, status: Mapping[str, Any]) -> None:
        """Tell all readers the latest status; it is encoded once.

        It waits for a change to be sent with, unless Kafka went or came: for most readers each
        would otherwise be a write of its own.
        """
        may_wait = self._latest is not None and self._latest.get("kafka") == status.get("kafka")
        self._latest = status
        if self._renewed is not None and not self._renewed.done():
            self._renewed.set_result(status)
        frame = b"event: status\ndata: %b\n\n" % orjson.dumps(status)
        self._set_state("status", frame, may_wait=may_wait)
        if may_wait and self._readers:
            asyncio.get_running_loop().call_later(STATUS_WAITS_S_MAX, self._nudge)

    def set_alerts(self, frame: bytes) -> None:
        """Tell all readers the latest alerts; the frame is that of ``alerts_frame``."""
        self._set_state("alerts", frame)

    def _set_state(self, name: str, frame: bytes, *, may_wait: bool = False) -> None:
        self._states[name] = frame
        for outbox in self._readers:
            outbox.offer_state(name, frame, may_wait=may_wait)

    def _nudge(self) -> None:
        for outbox in self._readers:
            outbox.nudge()

    async def fresh_status(self, look: Callable[[], None]) -> Mapping[str, Any]:
        """Return the status as it is now; ``look`` has it made, ``set_status`` brings it."""
        if self._readers and self._latest is not None:
            return self._latest  # it is made every second
        if self._renewed is None or self._renewed.done():
            self._renewed = asyncio.get_running_loop().create_future()
        look()
        return await asyncio.shield(self._renewed)

    def join(self, outbox: Outbox, query: str | None, last_id: str | None) -> list[bytes]:
        """Return the first frames of a stream; what follows is offered to its outbox.

        Without a query the stream has the states only. ``KeyError``: there is no such query.
        """
        first = [*self._states.values()]
        if query is not None:
            first += self._feeds[query].join(outbox, parse_id(last_id, query))
        self._readers.add(outbox)
        self._on_readers(len(self._readers))
        return first

    def leave(self, outbox: Outbox) -> None:
        """A stream has ended."""
        for feed in self._feeds.values():
            feed.leave(outbox)
        self._readers.discard(outbox)
        self._on_readers(len(self._readers))

    def close(self) -> None:
        """End all streams."""
        for outbox in self._readers:
            outbox.close()
