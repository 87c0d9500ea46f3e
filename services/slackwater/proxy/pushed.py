"""Input of requests pushed by senders: each is answered once its readings are durable.

Requests arrive in other threads and wait in a bounded ``RequestQueue``. The stream's thread takes
all waiting requests, parses them, and stores their readings, idempotency keys and refused readings
in one transaction of the spool, so one fsync serves many senders. Only then are they answered. If
the process is killed between commit and response, the key has been stored too, and the repeated
request gets the same counts.

A request without a usable reading is refused as a unit, and nothing of it is stored. In any other
request, unusable readings go to quarantine; they are kept in the spool until the quarantine topic
has them, and the response names them by index.

A body that crashes the process (a fault of a parser) is recognised when it is sent again, since its
digest serves as its position in the dead letters. It is then parsed in a child process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from slackwater.formats.carried import times_of_arrival
from slackwater.formats.isolated import CRASH, tried
from slackwater.formats.messages import Bad, Parsed
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.protocols.dpc.source.core import Reason, SourceCore
from slackwater.proxy.quarantine import NOT_FINITE, QuarantineEntry, to_json, why
from slackwater.proxy.remembered import Brought, RequestKey
from slackwater.proxy.requests import (
    BUSY_RETRY_S,
    BodyContent,
    BodyReader,
    Outcome,
    Pushed,
    RequestQueue,
    UnusableBody,
)
from slackwater.proxy.rules import live_rules
from slackwater.proxy.shell import InputContext
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.spool import PushBackError
from slackwater.proxy.spooled import SpooledLog
from slackwater.runtime.service.parts import HTTP_AT

RETRY_US: Final = 20_000
WAKE_US_MAX: Final = 500_000
ERRORS_MAX: Final = 20
"""Maximum refused readings listed in a response; all are counted."""
REFUSED_AT_ONCE_MAX: Final = 1_000
"""Maximum refused readings in flight to the quarantine topic."""
REFUSED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of the refused readings of one transaction, not counting its last request: a body
with a few bytes per reading takes a hundred times its size as quarantine entries."""
FULL_RETRY_S: Final = 5
HOLD_US: Final = 30_000_000
"""Delay of clock boundaries after a request was refused for lack of space: its sender repeats it
after ``FULL_RETRY_S``, or ten seconds later with back-off. After a longer silence, the stream
continues without it."""
REQUESTS: Final = "requests"
"""The input whose position is the number of requests accepted."""


class PushedInput:
    """Input of the requests in a queue."""

    def __init__(self, context: InputContext, queue: RequestQueue) -> None:
        self._context = context
        self._queue = queue
        self._spooled = SpooledLog(context, live_rules(context, context.spec.name))
        self._flush_at_us: int | None = None
        self._taken = context.spool.position(REQUESTS)
        self._refused_sent = self._refused_settled = self._refused_delivered = 0
        self._open: list[Pushed] = []
        """Requests taken and not yet answered."""
        self._marked_us: int | None = None
        """A time of the event clock at which ``_end`` was the number of the last request."""
        self._held_until_us = 0
        """Wall time before which no clock boundary is sent, because a request was refused."""
        self._end = 0
        self._clock_us: int | None = None
        """Event time up to which all requests that had arrived have been taken (trace-10)."""

    @property
    def logs(self) -> Sequence[SourceLog]:
        """The one source log."""
        return (self._spooled.log,)

    @property
    def _core(self) -> SourceCore:
        return self._spooled.core

    def begin(self) -> None:
        """Take over the log, send unsent records, and accept requests."""
        self._spooled.begin()
        spool, counts = self._context.spool, self._context.quarantine
        for reason in counts.all_counts():
            counts.counts[reason] += spool.position(f"{REQUESTS}/{reason}")
        self._queue.open()

    # Steps.

    def step(self, now_us: int) -> int:
        """Store and answer waiting requests; at a cut point send a boundary."""
        context, core = self._context, self._core
        self._spooled.acknowledge()
        self._send_refused()
        event_us = context.event_us(now_us)
        if not self._open:
            self._take(event_us)
        is_stored = bool(self._open) and self._store(now_us)
        is_held = now_us < self._held_until_us
        clock_us = None if self._open or is_held else self._clock_us
        if clock_us is not None and (self._flush_at_us is None or clock_us >= self._flush_at_us):
            if not is_stored:
                self._raise_watermark(clock_us)
            self._flush_at_us = core.next_flush_us(clock_us, context.default_grid)
        if self._open or self._queue.is_waiting:
            return now_us
        if not self._spooled.send() or self._refused_sent != self._refused_settled:
            return now_us + RETRY_US
        if self._flush_at_us is None or event_us is None or is_held:
            return now_us + WAKE_US_MAX
        return min(now_us + WAKE_US_MAX, context.wall_us(self._flush_at_us))

    def _take(self, event_us: int | None) -> None:
        """Take requests, and record the latest clock boundary that makes none of them late."""
        if not self._queue.holds(self._end):
            self._marked_us, self._end = event_us, self._queue.last
        self._open = self._queue.take()
        self._clock_us = None if self._queue.holds(self._end) else self._marked_us

    def _raise_watermark(self, clock_us: int) -> None:
        try:
            self._spooled.flush(clock_us)
        except PushBackError:
            return  # the disk is full: the watermark does not advance until there is room

    def _store(self, now_us: int) -> bool:
        """Process open requests: commit, then answer; return whether anything was stored."""
        core = self._core
        before, largest, position = core.saved(), core.largest, core.position
        batch = _Batch(self._context, core, now_us, self._taken)
        for request in self._open:
            batch.add(request, self._read(request))
            if batch.refused_bytes >= REFUSED_BYTES_MAX:
                break
        try:
            if batch.is_stored:
                self._commit(batch, now_us)
        except PushBackError as full:
            core.restore(before)
            core.largest, core.position = largest, position
            self._held_until_us = now_us + HOLD_US
            batch.refuse(Outcome(429, reason=str(full), retry_s=FULL_RETRY_S))
        else:
            self._taken = batch.taken
            self._context.quarantine.counts.update(batch.refused_counts)
            self._context.not_finite += batch.not_finite
        is_stored = batch.is_stored
        for request, answer in batch.answers:
            request.answer.set_result(answer)
        del self._open[: len(batch.answers)]
        return is_stored

    def _commit(self, batch: _Batch, now_us: int) -> None:
        spool, core, positions = self._context.spool, self._core, batch.positions()
        brought = batch.brought()

        def also(_db: sqlite3.Connection) -> None:
            spool.remembered.add(brought)

        if core.waiting:
            is_last = len(batch.answers) == len(self._open)
            clock_us = self._clock_us if is_last and now_us >= self._held_until_us else None
            self._spooled.flush(clock_us, positions, also)
        else:  # all readings are late
            spool.append((), core.largest, positions, also)
        spool.bytes_held += brought.bytes

    def _read(self, request: Pushed) -> BodyContent | UnusableBody:
        """Parse a body, in a child process if it has crashed this process before."""
        guard = self._context.guard(REQUESTS)
        if guard is None:
            return _content(request.reader, request.body)
        dead_letters, where = guard
        # 63 bits, like the positions of files and topics.
        place = int.from_bytes(request.digest[:8], "big") >> 1
        content = None
        if place not in dead_letters.positions(where):
            content = dead_letters.attempt(
                where, place, place, lambda: _content(request.reader, request.body)
            )
            if content is None:
                outcome = tried(_contents, request.reader, [request.body])
                for _, how in outcome.lost:
                    dead_letters.add(where, place, how)
                content = outcome.read[0][2][0] if outcome.read else None
        return content or UnusableBody(f"the body cannot be read: {CRASH}")

    # Refused readings.

    def _send_refused(self) -> None:
        """Send refused readings from the spool to the quarantine; delete the delivered ones."""
        context = self._context
        delivered = self._refused_delivered  # may grow concurrently
        if delivered > self._refused_settled:
            try:
                context.spool.acknowledge_refused(delivered)
            except PushBackError:
                return  # the disk is full: they stay, and the next step tries again
            self._refused_settled = delivered
        if self._refused_sent > self._refused_settled or not self.logs[0].has_room:
            return
        for seq, position, value in context.spool.remembered.unsent(
            self._refused_sent, REFUSED_AT_ONCE_MAX
        ):
            context.quarantine.send(position, value, partial(self._delivered, seq))
            self._refused_sent = seq

    def _delivered(self, seq: int, _offset: int) -> None:
        self._refused_delivered = seq  # runs in the writer's thread: only stored

    # The end.

    def detail(self) -> dict[str, int]:
        """Return counters for the heartbeat."""
        return {
            "readings": self._core.next_id,
            "requests": self._taken,
            "spool_bytes": self._context.spool.bytes_held,
            **({HTTP_AT + self._context.http_at: 1} if self._context.http_at else {}),
            **self._context.counts(),
        }

    def leave(self) -> None:
        """Delete from the spool what the log has, so that a restart does not send it again."""
        self._spooled.acknowledge()

    def close(self) -> None:
        """Accept no more requests; respond to pending ones with 503: their outcome is unknown."""
        self._queue.close()
        for request in self._open:
            if not request.answer.done():
                reason = "the stream failed: the request may be stored; repeat it with its key"
                request.answer.set_result(Outcome(503, reason=reason, retry_s=BUSY_RETRY_S))
        self._context.spool.close()


class _Batch:
    """The requests of one transaction."""

    def __init__(self, context: InputContext, core: SourceCore, now_us: int, taken: int) -> None:
        self._context, self._core, self._now_us = context, core, now_us
        self.taken = taken
        self.answers: list[tuple[Pushed, Outcome]] = []
        self.refused_counts: dict[str, int] = {}
        self.refused_bytes = 0
        self.not_finite = 0
        self._keys: dict[str, RequestKey] = {}
        self._before: set[str | None] = set()
        """Keys that were stored by earlier transactions."""
        self._refused: list[tuple[str, bytes]] = []

    @property
    def is_stored(self) -> bool:
        """Whether the requests have anything to store."""
        return any(answer.status == 200 and not answer.repeated for _, answer in self.answers)

    def add(self, request: Pushed, content: BodyContent | UnusableBody) -> None:
        """Process one request, or recognise it as a repetition."""
        known = self._known(request.key)
        if known is not None:
            answer = _repeated(known, request)
        elif isinstance(content, UnusableBody):
            answer = Outcome(content.status, reason=content.reason)
        elif not len(content.parsed.indices):
            answer = _nothing_usable(content)
        else:
            answer = self._take_in(request, content)
        self.answers.append((request, answer))

    def brought(self) -> Brought:
        """Return the data to store besides readings."""
        return Brought(self._now_us, list(self._keys.values()), self._refused)

    def positions(self) -> dict[str, int]:
        """Return the number of requests, and the counts of refused readings."""
        spool = self._context.spool
        counts = {
            f"{REQUESTS}/{reason}": spool.position(f"{REQUESTS}/{reason}") + n
            for reason, n in self.refused_counts.items()
        }
        return {REQUESTS: self.taken, **counts}

    def refuse(self, answer: Outcome) -> None:
        """Replace all answers that report a success of this transaction, which has failed.

        This includes a request that repeats one of the same transaction.
        """
        self.answers = [
            (request, answer if given.status == 200 and request.key not in self._before else given)
            for request, given in self.answers
        ]

    def _known(self, key: str | None) -> RequestKey | None:
        if key is None:
            return None
        found = self._context.spool.remembered.find(key)
        if found is not None:
            self._before.add(key)
        return found or self._keys.get(key)

    def _take_in(self, request: Pushed, content: BodyContent) -> Outcome:
        self.taken += 1
        parsed, now_us = self._timed(request, content.parsed), self._now_us
        entries = [self._entry(content, b.index, b.reason, b.stime, b.detail) for b in parsed.bad]
        errors = [content.error(b.index, b.reason, b.detail) for b in parsed.bad]
        arrived = _arrived(parsed, self.taken)
        # With ``ignored`` the names are those of records of SenML, not of the fields.
        message = b"" if content.ignored else request.body
        for refused in self._context.offer(self._core, arrived, now_us, lambda: message):
            for i in refused.indices.tolist():
                index, stime = int(parsed.indices[i]), int(parsed.stimes[i])
                detail, key = why(refused, stime), parsed.keys[int(parsed.key_index[i])]
                entry = self._entry(content, index, refused.reason, stime, detail)
                entries.append(replace(entry, key=key))
                errors.append(content.error(index, refused.reason, detail))
        counts: dict[str, int] = {}
        for entry in entries:
            counts[entry.reason] = counts.get(entry.reason, 0) + 1
            self.refused_counts[entry.reason] = self.refused_counts.get(entry.reason, 0) + 1
            value = to_json(self._context.spec.name, entry, now_us)
            self._refused.append((entry.position, value))
            self.refused_bytes += len(value)
        # A reading before the start of a query is stored nevertheless.
        stored = len(parsed.indices) - sum(
            n for reason, n in counts.items() if reason in ("late", "ahead")
        )
        counts = {"accepted": stored, **counts}
        if content.ignored:
            counts["ignored"] = content.ignored
        if parsed.not_finite:
            counts[NOT_FINITE] = parsed.not_finite
            self.not_finite += parsed.not_finite
        if request.key is not None:
            self._keys[request.key] = RequestKey(request.key, request.digest, counts)
        return Outcome(200, counts, tuple(errors[:ERRORS_MAX]))

    def _timed(self, request: Pushed, parsed: Parsed) -> Parsed:
        """Give all readings the time of the request's arrival, if the stream has such times.

        A repeated request is recognised before, by its key, and keeps the time of the first.
        """
        context = self._context
        if context.spec.time.from_ != "arrival":
            return parsed
        shown = np.array([context.event_us(request.arrived_us) or 0], np.int64)
        (time,) = times_of_arrival(shown, self._core).tolist()
        stimes = np.full(len(parsed.stimes), time)
        bad = tuple(replace(one, stime=time) for one in parsed.bad)
        return replace(parsed, stimes=stimes, bad=bad)

    def _entry(
        self, content: BodyContent, index: int, reason: Reason, stime: int | None, detail: str
    ) -> QuarantineEntry:
        place = f"request:{self.taken}:{content.numbers[index]}"
        return QuarantineEntry(place, reason, stime, detail, content.text(index))


def _arrived(parsed: Parsed, request: int) -> Arrived:
    return Arrived(
        parsed.stimes,
        parsed.key_index,
        parsed.keys,
        parsed.values,
        np.full(len(parsed.stimes), request, np.int64),
        request,
    )


def _repeated(known: RequestKey, request: Pushed) -> Outcome:
    if known.digest != request.digest:
        return Outcome(422, reason=f"idempotency key {known.key!r} was used with another body")
    return Outcome(200, dict(known.counts), repeated=True)


def _nothing_usable(content: BodyContent) -> Outcome:
    bad = content.parsed.bad
    if not bad:
        return Outcome(400, reason="the body contains no readings")
    errors = tuple(content.error(b.index, b.reason, b.detail) for b in bad[:ERRORS_MAX])
    reason = f"none of {len(bad)} readings can be used; nothing was stored"
    return Outcome(400, {b.reason: len(bad) for b in bad[:1]}, errors, reason)


def _content(reader: BodyReader, body: bytes) -> BodyContent | UnusableBody:
    try:
        content = reader(body)
    except UnusableBody as why:
        return why
    boundaries = content.parsed.boundaries
    if not boundaries:
        return content
    # A sender cannot give a watermark for the other senders of its stream.
    refused = [Bad(index, "boundary: messages of topics only", None) for index, _ in boundaries]
    bad = tuple(sorted((*content.parsed.bad, *refused), key=lambda one: one.index))
    return replace(content, parsed=replace(content.parsed, bad=bad, boundaries=()))


def _contents(reader: BodyReader, bodies: Sequence[bytes]) -> list[BodyContent | UnusableBody]:
    return [_content(reader, body) for body in bodies]
