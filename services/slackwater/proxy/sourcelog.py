"""Takes over a source log and appends the core's records to it as its only writer.

Taking over follows rule-6: read the log with the acceptance rule of its readers, append START, and
read on up to it. The log alone determines the past, so a proxy continues without gaps or duplicates
and without state of its own. Reading a week of records at each start would take a minute, so a
*hint* of an earlier incarnation's progress (offset, next id, watermark) is stored with the spool. A
hint is used only if the record before its offset is consistent with it.

Readers may drop a delivered record, namely if it follows another writer's START (rule-10), and the
heartbeat that reports the other writer may be late. The offsets of a log with one writer are
contiguous. Where they are not, the records in between are read before a delivery is acknowledged. A
START among them ends this writer, and unacknowledged records stay in its spool. Other records are
those of an earlier writer (a zombie) and are ignored.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from slackwater.codec import decode_source, encode_source
from slackwater.model.errors import MalformedRecordError
from slackwater.model.limits import NEVER
from slackwater.model.records import NO_EPOCH, Kind, SourceRecord
from slackwater.primitives.ids import ANY, Contiguous
from slackwater.protocols.dpc.source.core import SourceCore, SourceRules
from slackwater.protocols.dpc.source.scan import InputPosition, LogScan
from slackwater.proxy.spool import Spooled
from slackwater.runtime.logs.incarnation import has_begun, start_incarnation
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import (
    NoAnswerError,
    RawRecord,
    Transport,
    Writer,
    read_range,
)

_log = logging.getLogger(__name__)
ROOM_SHARE: Final = 3 / 8
"""Share of the writer's bytes in flight; the rest is for the quarantine and the current flush."""
Hint = Mapping[str, Any]


class SourceLog:
    """Writer of ``sw.source.<log>``; ``begin`` takes the log over."""

    def __init__(
        self, transport: Transport, writer: Writer, rules: SourceRules, identity: str
    ) -> None:
        self.name = rules.log
        self.topic = transport.names.source(rules.log)
        self.rules = rules
        self.identity = identity
        """Identity of the spool, or of the input where that can be read again."""
        self.inc = -1
        self.core = SourceCore(rules)
        self.scan = LogScan()
        self.hint: dict[str, Any] | None = None
        """Hint as of the last record delivered."""
        self._largest = self.core.largest
        self._transport = transport
        self._writer = writer
        self._given_up: Spooled | None = None
        self._added_at: int | None = None
        self.was_added = False
        """Whether the log was added to a stream that had begun, and has no record of its input yet.

        Its START has the largest watermark of the others. If they have none, it is found by the
        number of partitions; see ``source_logs.take_over``.
        """
        self._next_offset = 0
        self._lock = threading.Lock()
        self._foreign: list[tuple[int, int]] = []
        """Offsets written by others, not yet checked."""
        self._unconfirmed: list[_Delivery] = []
        """Deliveries after these offsets, not yet acknowledged."""

    # Taking over.

    def begin(
        self,
        hint: Hint | None = None,
        given_up: Spooled | None = None,
        *,
        added_at: int | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """Take over the log (rule-6); afterwards ``core`` continues at its end.

        ``given_up``: progress up to which the spool has deleted its readings. Only the log has
        them. ``added_at``: the first watermark (us) of a log that is added to a running stream
        (rule-30).
        """
        self._given_up, self._added_at = given_up, added_at
        read_from = self._read_from(hint)
        self.inc = start_incarnation(
            self._transport,
            self._writer,
            (self.topic, 0),
            self._start,
            read_from=read_from,
            visit=self._visit,
            timeout_s=timeout_s,
        )
        self._next_offset = self.inc + 1
        self.core = self._resumed()
        is_running = added_at is not None or self.scan.watermark > NEVER
        self.was_added = is_running and not self.scan.positions
        self._largest = self.core.largest
        # Once retention has deleted START, a hint of an earlier writer names neither the input nor
        # the ids of this one's records. Before the first record of an input there is no hint: the
        # gap that its beginning reports is found only from what precedes START.
        at = self.scan.positions.get(self.identity)
        if at is not None:
            core = self.core
            self.hint = self._hint_behind(self.inc, core.next_id, core.watermark, core.largest, at)

    def _hint_behind(
        self, offset: int, next_id: int, watermark: int, largest: int, at: InputPosition
    ) -> dict[str, Any]:
        """The hint after this incarnation's record at ``offset``."""
        return {
            "offset": offset + 1,
            "next_id": next_id,
            "inc": self.inc,
            "promise": watermark,
            "largest": largest,
            "spool": self.identity,
            "position": at.position,
            "epoch": at.epoch,
        }

    def _start(self) -> bytes:
        anew = self.scan.ids.next_id == ANY
        if anew:
            _log.warning(
                "retention has deleted all records of %s: ids start again at 0", self.topic
            )
            self.scan.ids = Contiguous(0)
        core = self._resumed()
        return encode_source(core.start(self.identity, self.scan.affected_until, anew=anew))

    def _resumed(self) -> SourceCore:
        if self._given_up is not None:
            self.scan.give_up(self.identity, self._given_up.next_id, self._given_up.watermark)
        core = SourceCore(self.rules, self.scan.resume(self.identity))
        if self._added_at is not None:
            core.begin_at(self._added_at)
        return core

    def _visit(self, raw: RawRecord) -> None:
        try:
            record = decode_source(raw.value, "", raw.offset)
        except MalformedRecordError as error:
            SKIPPED.note(*raw.log, raw.offset, "no record of the source log", error.reason)
            record = SourceRecord.void(self.topic)
        self.scan.see(raw.offset, record)

    def _read_from(self, hint: Hint | None) -> int | None:
        """Return the offset to read from: the hint's if the log agrees, else the beginning."""
        log = (self.topic, 0)
        if hint is None or not self._agrees(hint):
            if self._transport.beginning_offsets([log])[log] > 0:
                self.scan.ids = Contiguous(ANY)  # the first record left determines the id
            return None
        beginning = self._transport.beginning_offsets([log])[log]
        was_cut = beginning > int(hint["offset"])
        # Earlier versions wrote no epoch.
        at = InputPosition(hint["position"] or 0, hint.get("epoch", NO_EPOCH))
        self.scan = LogScan(
            # If nothing is left behind the hint, no reader is known to have no more ids than it.
            ids=Contiguous(ANY if was_cut else hint["next_id"]),
            was_cut=was_cut,
            inc=hint["inc"],
            watermark=hint["promise"],
            largest=hint["largest"],
            spool=hint["spool"],
            # Records were sent in order, so all ids below are accepted.
            accepted={hint["spool"]: [(0, hint["next_id"] - 1)]},
            positions={} if hint["position"] is None else {hint["spool"]: at},
            started={hint["spool"]: None},
        )
        return max(beginning, int(hint["offset"]))

    def _agrees(self, hint: Hint) -> bool:
        log, last = (self.topic, 0), int(hint["offset"]) - 1
        beginning = self._transport.beginning_offsets([log])[log]
        end = self._transport.end_offsets([log])[log]
        if last >= end:
            return False
        if last < beginning:
            # Retention has deleted the record, so the hint cannot be checked. It is used unless the
            # log begins at 0, which shows that the topic was created again.
            return beginning > 0
        for raw in read_range(self._transport, log, last, last + 1, idle_s_max=10.0):
            try:
                record = decode_source(raw.value, "", raw.offset)
            except MalformedRecordError:
                # The record was damaged later. A spool that may still have it sends it again.
                return self._given_up is None
            inc = last if record.kind is Kind.START else record.inc
            return bool(inc == hint["inc"] and record.last_id + 1 == hint["next_id"])
        return False

    # Appending.

    @property
    def has_room(self) -> bool:
        """Whether more may be appended; False if Kafka is unavailable or behind."""
        return self._writer.in_flight_bytes < ROOM_SHARE * self._writer.in_flight_bytes_max

    def append(
        self,
        records: Iterable[SourceRecord],
        delivered: Callable[[SourceRecord], None] | None = None,
    ) -> None:
        """Append records of this incarnation in order."""
        for record in records:
            assert record.inc == self.inc, "a record of another incarnation"
            if record.readings:
                self._largest = max(self._largest, record.stime_max)
            note = partial(self._delivered, _Delivery(record, self._largest, delivered))
            self._writer.append(self.topic, 0, encode_source(record), on_delivery=note)

    def _delivered(self, delivery: _Delivery, offset: int) -> None:
        """Handle a delivery report, in the writer's thread."""
        assert delivery.record.kind is not Kind.START
        delivery.offset = offset
        with self._lock:
            if offset != self._next_offset:
                self._foreign.append((self._next_offset, offset))
            self._next_offset = offset + 1
            if self._foreign:
                self._unconfirmed.append(delivery)
            else:
                self._confirm(delivery)

    def _confirm(self, delivery: _Delivery) -> None:
        record = delivery.record
        self.hint = self._hint_behind(
            delivery.offset,
            record.last_id + 1,
            record.boundary,
            delivery.largest,
            InputPosition(record.input_position, record.input_epoch),
        )
        if delivery.also is not None:
            delivery.also(record)

    def is_superseded(self) -> bool:
        """Whether another writer has begun; deliveries after its START do not count."""
        foreign = list(self._foreign)
        if not foreign:
            return False
        try:
            if any(self._holds_start(*between) for between in foreign):
                return True
        except NoAnswerError:
            return False  # Kafka is unavailable: nothing is acknowledged until this is known
        with self._lock:
            del self._foreign[: len(foreign)]
            if not self._foreign:
                for delivery in self._unconfirmed:
                    self._confirm(delivery)
                self._unconfirmed.clear()
        return False

    def has_begun(self, inc: int) -> bool:
        """Whether a writer of this incarnation has begun."""
        return has_begun(self._transport, (self.topic, 0), inc, _is_start)

    def _holds_start(self, first: int, end: int) -> bool:
        records = read_range(self._transport, (self.topic, 0), first, end, idle_s_max=1.0)
        return any(map(_is_start, records))


def _is_start(raw: RawRecord) -> bool:
    try:
        return decode_source(raw.value, "", raw.offset).kind is Kind.START
    except MalformedRecordError:
        return False


@dataclass(slots=True)
class _Delivery:
    """A record in flight and the callback for its delivery."""

    record: SourceRecord
    largest: int
    also: Callable[[SourceRecord], None] | None
    offset: int = -1
