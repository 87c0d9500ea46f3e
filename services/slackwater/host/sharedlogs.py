"""Reads each log of a host once, and decodes each record once, for all sessions that read the log.

A host's fragments read the same logs: two queries over one stream, a root's live and stable line.
The live consumer's records are passed to every session that needs them. An exception ends only
the session that raised it (``Driven.take``).

A session that joins a log that is already read receives the consumer's position in the same step of
the event loop in which it begins to receive records. It reads earlier records with its own catch-up
readers (rule-12, decision 57). A log that is not read yet is read from the smallest position of the
sessions that join together, so that none of them has to catch up.

The records read last stay in memory (``recent``) for parked cursors. Records of result topics do
not: there a reader's progress is the client's position, which also passes commit markers
(trace-11).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from slackwater.host.decoding import Decode, decode
from slackwater.host.driven import Driven
from slackwater.host.faust_worker import Receive
from slackwater.model.errors import SlackwaterError
from slackwater.runtime.logs.recent import RecentRecords
from slackwater.runtime.logs.transport import Isolation, Log, PositionGoneError
from slackwater.sessions.events import LiveAt
from slackwater.sessions.session import COMMITTED, Form

ISOLATION: Final[Mapping[bool, Isolation]] = {True: "read_committed", False: "read_uncommitted"}
"""Isolation level by whether the records of a log are written in transactions."""

_log = logging.getLogger(__name__)


class Consumer(Protocol):
    """Interface of the live consumer; see ``faust_worker.LiveConsumer``."""

    async def add(
        self, offsets: Mapping[Log, int], receive: Receive, *, isolation: Isolation = ...
    ) -> None:
        """Read these logs also, from these offsets; a log that is already read restarts there."""
        ...

    async def remove(self, logs: Iterable[Log]) -> None:
        """Stop reading these logs; may be repeated after a failure."""
        ...

    async def positions(self) -> dict[Log, tuple[int, int]]:
        """Return per log the position and the offset of the last record passed on (-1: none)."""
        ...


@dataclass(eq=False)
class _Shared:
    """One reading of a log: the next record's offset, and the last offset that was passed on."""

    form: Form
    next: int
    handed: int = -1
    is_read: bool = False
    """The consumer has started this reading, so its positions are not those of an earlier one."""
    readers: list[Driven] = field(default_factory=list)


class SharedLogs:
    """Subscriptions of sessions to logs. For the event loop's thread."""

    def __init__(self, consumer: Consumer, decode: Decode = decode) -> None:
        self._consumer = consumer
        self._decode = decode
        self.recent = RecentRecords()
        self._logs: dict[Log, _Shared] = {}
        self._read: dict[Log, _Shared] = {}
        """The logs that the consumer was requested to read; ``settle`` makes them ``_logs``."""
        self._settling = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()

    def join(self, newcomers: Iterable[Driven]) -> None:
        """Pass records to these sessions from now on; call ``settle`` afterwards."""
        newcomers = list(newcomers)
        offsets = [driven.session.live_offsets for driven in newcomers]
        for log in dict.fromkeys(log for each in offsets for log in each):
            joining = {
                driven: each[log]
                for driven, each in zip(newcomers, offsets, strict=True)
                if log in each
            }
            shared, is_new = self._logs.get(log), log not in self._logs
            if shared is None:
                form = next(iter(joining)).forms[log]
                shared = self._logs[log] = _Shared(form, min(joining.values()))
                if form not in COMMITTED:
                    self.recent.begin(log, shared.next)
            for driven, offset in joining.items():
                # A session at the position where the consumer starts is attached already.
                if not is_new or offset != shared.next:
                    driven.session.take(LiveAt(log, shared.next))
            shared.readers += joining

    def reads(self, driven: Driven) -> bool:
        """Return whether the session receives live records."""
        return any(driven in shared.readers for shared in self._logs.values())

    def leave(self, driven: Driven) -> None:
        """Stop passing records to a session; call ``settle`` later."""
        for log, shared in list(self._logs.items()):
            if driven in shared.readers:
                shared.readers.remove(driven)
            if not shared.readers:
                del self._logs[log]
                self.recent.forget(log)

    def gone(self, error: PositionGoneError) -> None:
        """End the sessions of a log whose position retention has removed (rule-28)."""
        self._give_up(error.log, error)

    def _give_up(self, log: Log, error: SlackwaterError) -> None:
        shared = self._logs.pop(log, None)
        self.recent.forget(log)
        for driven in [] if shared is None else shared.readers:
            driven.fail(error)

    async def settle(self) -> None:
        """Make the consumer read exactly the subscribed logs.

        A change is completed even if its caller is cancelled. Otherwise a log might be recorded as
        read that the consumer does not read.
        """
        doing = asyncio.get_running_loop().create_task(self._settle())
        self._changes.add(doing)
        doing.add_done_callback(self._changes.discard)
        await asyncio.shield(doing)

    @property
    def is_settled(self) -> bool:
        """Whether the consumer reads only subscribed logs."""
        return self._read.keys() <= self._logs.keys()

    async def _settle(self) -> None:
        async with self._settling:
            left = {log: at for log, at in self._read.items() if log not in self._logs}
            begun = {log: at for log, at in self._logs.items() if self._read.get(log) is not at}
            self._read = left | self._logs
            if left:
                await self._remove(left)
            try:
                for is_committed, isolation in ISOLATION.items():
                    offsets = {
                        log: shared.next
                        for log, shared in begun.items()
                        if (shared.form in COMMITTED) == is_committed
                    }
                    if offsets:
                        receive = partial(self._receive, begun)
                        await self._consumer.add(offsets, receive, isolation=isolation)
                        for log in offsets:
                            begun[log].is_read = True
            except SlackwaterError as error:
                # It is unknown which of them are read: end all sessions that wait for them.
                for log, shared in begun.items():
                    if self._logs.get(log) is shared:
                        self._give_up(log, error)
                raise

    async def _remove(self, left: Mapping[Log, _Shared]) -> None:
        """Remove logs from the consumer; after a failure the next ``settle`` tries again."""
        try:
            await self._consumer.remove(left)
        except SlackwaterError as error:
            _log.warning("cannot stop reading logs that no fragment reads; will retry: %s", error)
        else:
            self._read = {log: at for log, at in self._read.items() if log not in left}

    async def positions(self, driven: Driven) -> dict[Log, int]:
        """Return the consumer's position in each log of which the session got all records.

        A log is omitted if the session left it, or its reading was restarted, while the positions
        were fetched: the session may then have missed records.
        """
        before = {
            log: shared
            for log, shared in self._logs.items()
            if shared.is_read and driven in shared.readers
        }
        found = await self._consumer.positions()
        return {
            log: found[log][0]
            for log, shared in before.items()
            if log in found
            and self._logs.get(log) is shared
            and driven in shared.readers
            and shared.handed >= found[log][1]
        }

    def _receive(self, begun: Mapping[Log, _Shared], log: Log, offset: int, value: bytes) -> None:
        """Pass a record to the sessions of its log.

        ``begun`` identifies the reading. A record of a reading that has since been restarted is
        dropped: it would move cursors past records that their sessions have not received.
        """
        shared = begun[log]
        if self._logs.get(log) is not shared:
            return
        shared.next, shared.handed = offset + 1, offset
        self.recent.note(log, offset, value)
        wanting = [driven for driven in shared.readers if driven.needs(log, offset)]
        if not wanting:
            return
        record = self._decode(shared.form, log, offset, value)
        for driven in wanting:
            driven.take(log, offset, record)
