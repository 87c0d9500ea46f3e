"""The logs of a host: each is read once, and each record decoded once, for all who read the log.

A host's fragments read the same logs: two queries over one stream, a root's live and stable line.
The live consumer's records are handed to every session that needs them. An exception ends only
the session that raised it (``Driven.take``).

Who joins while a log is read already is told where the consumer is, in the step of the event loop
from which on it is handed records; what lies before it reads by itself (rule-12, decision 57). Who
joins together begins together: at the smallest of their positions, so that nobody is parked.

What was read last stays in memory (``recent``) for cursors that are parked meanwhile. Results do
not: how far they are read is told by the client's position, which passes markers (trace-11).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from slackwater.model.errors import SlackwaterError
from slackwater.runtime.host.decoding import Decode, decode
from slackwater.runtime.host.driver import Driven
from slackwater.runtime.host.faust_worker import Receive
from slackwater.runtime.logs.recent import RecentRecords
from slackwater.runtime.logs.transport import Isolation, Log, PositionGoneError
from slackwater.sessions.session import Form

ISOLATION: Final[Mapping[bool, Isolation]] = {True: "read_committed", False: "read_uncommitted"}
"""Of results, which are written in transactions; no other log has any."""

_log = logging.getLogger(__name__)


class Consumer(Protocol):
    """Interface of the live consumer; see ``faust_worker.LiveConsumer``."""

    async def add(
        self, offsets: Mapping[Log, int], receive: Receive, *, isolation: Isolation = ...
    ) -> None:
        """Read these logs too, from these offsets; one that is read already begins anew."""
        ...

    async def remove(self, logs: Iterable[Log]) -> None:
        """Read these logs no more; one whose removal failed may be removed again."""
        ...

    async def positions(self) -> dict[Log, tuple[int, int]]:
        """Per log its position, and the last record below it that was handed over (-1: none)."""
        ...


@dataclass(eq=False)
class _Shared:
    """A log that is read: where its next record may be, and the last one that was handed over."""

    form: Form
    next: int
    handed: int = -1
    is_read: bool = False
    """The consumer has begun it: its positions are of this reading, and of no older one."""
    readers: list[Driven] = field(default_factory=list)


class SharedLogs:
    """Subscriptions of sessions to logs. For the event loop's thread."""

    def __init__(self, consumer: Consumer, decode: Decode = decode) -> None:
        self._consumer = consumer
        self._decode = decode
        self.recent = RecentRecords()
        self._logs: dict[Log, _Shared] = {}
        self._read: dict[Log, _Shared] = {}
        """What the consumer has been told to read; ``settle`` makes it ``_logs``."""
        self._settling = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()

    def join(self, newcomers: Iterable[Driven]) -> None:
        """From now on they are handed what is read; call ``settle`` behind it."""
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
                if form != "results":
                    self.recent.begin(log, shared.next)
            for driven, offset in joining.items():
                # Who is where the consumer begins to read is attached already.
                if not is_new or offset != shared.next:
                    driven.session.live_at(log, shared.next)
            shared.readers += joining

    def reads(self, driven: Driven) -> bool:
        """Whether the session receives the records that are read."""
        return any(driven in shared.readers for shared in self._logs.values())

    def leave(self, driven: Driven) -> None:
        """Stop handing records to a session; call ``settle`` later."""
        for log, shared in list(self._logs.items()):
            if driven in shared.readers:
                shared.readers.remove(driven)
            if not shared.readers:
                del self._logs[log]
                self.recent.forget(log)

    def gone(self, error: PositionGoneError) -> None:
        """Retention was quicker than the consumer: who reads the log begins anew (rule-28)."""
        self._give_up(error.log, error)

    def _give_up(self, log: Log, error: SlackwaterError) -> None:
        shared = self._logs.pop(log, None)
        self.recent.forget(log)
        for driven in [] if shared is None else shared.readers:
            driven.fail(error)

    async def settle(self) -> None:
        """Let the consumer read what is wanted, and nothing else.

        A change runs to its end even if its caller is cancelled: half a change would leave a
        log that is taken to be read and is not.
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
                for of_results, isolation in ISOLATION.items():
                    offsets = {
                        log: shared.next
                        for log, shared in begun.items()
                        if (shared.form == "results") == of_results
                    }
                    if offsets:
                        receive = partial(self._receive, begun)
                        await self._consumer.add(offsets, receive, isolation=isolation)
                        for log in offsets:
                            begun[log].is_read = True
            except SlackwaterError as error:
                # Nobody knows which of them are read: all who wait for them begin anew.
                for log, shared in begun.items():
                    if self._logs.get(log) is shared:
                        self._give_up(log, error)
                raise

    async def _remove(self, left: Mapping[Log, _Shared]) -> None:
        """Nobody waits for it: if it fails, the next ``settle`` tries again."""
        try:
            await self._consumer.remove(left)
        except SlackwaterError as error:
            _log.warning("logs that nobody wants may still be read: %s", error)
        else:
            self._read = {log: at for log, at in self._read.items() if log not in left}

    async def positions(self, driven: Driven) -> dict[Log, int]:
        """The consumer's positions in logs of which the session was handed all records read.

        A session that leaves a log while the positions are fetched misses records, so it must have
        been a reader of the same reading all the time.
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
        """A record, for those that have begun the log with ``begun``.

        Others may have begun it anew meanwhile, elsewhere: what still comes of the old reading
        would take their cursors past what they have not read.
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
