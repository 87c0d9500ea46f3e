"""A source log behind a spool: a reading is durable on disk, with its id, before it is sent.

All inputs with a spool use it. ``flush`` writes the waiting readings to the spool and only then to
the log. A proxy killed between any two steps therefore neither loses nor duplicates a reading:
spooled readings are sent from the spool, all others are read again from the sensor. A watermark is
spooled before it is sent (rule-9).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slackwater.model.errors import SlackwaterError
from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.protocols.dpc.source.core import SourceCore, SourceRules
from slackwater.proxy.quarantine import QuarantineEntry
from slackwater.proxy.shell import InputContext
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.spool import Also, PushBackError

_log = logging.getLogger(__name__)


class SpooledLog:
    """The source log of a stream with a spool. ``begin`` takes it over."""

    def __init__(self, context: InputContext, rules: SourceRules) -> None:
        self._context = context
        self._rules = rules
        self.log = SourceLog(context.transport, context.writer, rules, context.spool.identity)
        self._sent_to = 0
        self._acknowledged = self._noted = -1

    @property
    def core(self) -> SourceCore:
        """The core of the log."""
        return self.log.core

    def begin(self) -> None:
        """Take over the log, compare it with the spool, and send unsent records."""
        spool, log = self._context.spool, self.log
        spooled, waiting = spool.spooled(), list(spool.unsent())
        given_up = replace(spooled, next_id=waiting[0].first_id) if waiting else spooled
        log.begin(spool.hints().get(log.name), given_up)
        core = log.core
        accepted = [r for r in waiting if log.scan.has(log.identity, r.last_id)]
        if accepted:
            self._acknowledged = accepted[-1].last_id
            self.acknowledge()
        left = waiting[len(accepted) :]
        if left and left[0].first_id != core.next_id:
            left = self._renumber(left)
        core.next_id = left[-1].last_id + 1 if left else core.next_id
        core.watermark = max([core.watermark, *(r.boundary for r in left)])
        core.largest = max(core.largest, spooled.largest)
        self._sent_to = left[0].first_id if left else core.next_id
        self.send()

    def _renumber(self, left: list[SourceRecord]) -> list[SourceRecord]:
        """Renumber or supersede readings whose ids another spool has used (trace-2)."""
        context = self._context
        again = SourceCore(self._rules, self.log.scan.resume(self.log.identity))
        entries: list[QuarantineEntry] = []
        records: list[SourceRecord] = []
        for record in left:
            assert record.columns is not None
            columns = record.columns.load()
            kept = columns.stimes >= again.watermark
            entries += _superseded(record, columns, kept)
            if kept.any():
                records.append(_renumbered(record, columns, kept, again))
                again.next_id = records[-1].last_id + 1
                again.watermark = max(again.watermark, record.boundary)
        _log.warning(
            "another spool has written %s: %d readings get new ids, %d are superseded",
            self.log.topic,
            sum(r.readings for r in records),
            len(entries),
        )
        context.quarantine.put(entries, context.clock.now_us())
        if not context.quarantine.settle(60.0):
            raise SlackwaterError(
                f"{self.log.topic}: Kafka does not accept the quarantine entries of readings that"
                " another proxy has replaced; the stream restarts"
            )
        context.spool.replace_unsent(records, again.next_id, again.watermark)
        return records

    def flush(
        self,
        clock_us: int | None,
        positions: Mapping[str, int] | None = None,
        also: Also | None = None,
    ) -> bool:
        """Write waiting readings to the spool, then to the log; return whether there were any.

        ``positions`` and ``also`` are stored with readings only. ``PushBackError`` changes nothing.
        """
        core, spool = self.core, self._context.spool
        before = core.saved()
        records = core.flush(self.log.inc, clock_us)
        try:
            if not records:
                return False
            if records[0].kind is Kind.BOUNDARY:
                spool.keep_watermark(records[0].boundary)
                if self._sent_to == records[0].first_id:
                    self.log.append(records)
                return False
            spool.append(records, core.largest, positions, also)
        except PushBackError:
            core.restore(before)
            raise
        self.send()
        return True

    def send(self) -> bool:
        """Send spooled records while there is room; return whether all are sent."""
        log = self.log
        if self._sent_to == log.core.next_id:
            return True
        unsent = self._context.spool.unsent(self._sent_to)
        while log.has_room:
            record = next(unsent, None)
            if record is None:
                return True
            log.append((replace(record, inc=log.inc),), self._delivered)
            self._sent_to = record.last_id + 1
        return False

    def _delivered(self, record: SourceRecord) -> None:
        self._acknowledged = record.last_id  # runs in the writer's thread: only stored

    def acknowledge(self) -> None:
        """Delete from the spool what the log has.

        SQLite needs space to delete. On a full disk the records remain, and the next call retries.
        A start compares the spool with the log, so remaining records are not sent twice.
        """
        acknowledged = self._acknowledged  # may grow concurrently
        if acknowledged > self._noted:
            try:
                self._context.spool.acknowledge(acknowledged)
            except PushBackError:
                return
            self._noted = acknowledged


def _superseded(record: SourceRecord, columns: SourceColumns, kept: Any) -> list[QuarantineEntry]:
    entries = []
    for i in (~kept).nonzero()[0].tolist():
        values = {n: float(v[i]) for n, v in zip(columns.fields, columns.values, strict=True)}
        payload = {"key": columns.keys[int(columns.key_index[i])], **values}
        stime = int(columns.stimes[i])
        entries.append(
            QuarantineEntry(
                f"id:{record.first_id + i}", "superseded", stime, "", json.dumps(payload)
            )
        )
    return entries


def _renumbered(
    record: SourceRecord, columns: SourceColumns, kept: Any, core: SourceCore
) -> SourceRecord:
    stimes = columns.stimes[kept]
    chosen = SourceColumns(
        stimes,
        columns.key_index[kept],
        columns.keys,
        columns.fields,
        tuple(column[kept] for column in columns.values),
    )
    return replace(
        record,
        first_id=core.next_id,
        last_id=core.next_id + len(stimes) - 1,
        boundary=max(core.watermark, record.boundary),
        stime_min=int(stimes.min()),
        stime_max=int(stimes.max()),
        columns=chosen,
    )
