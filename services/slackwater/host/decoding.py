"""Decodes the records of logs, each once for all sessions of a host that read the log.

A record that cannot be decoded is None for every session, and is counted here once.

When a stream returns after a failure, each fragment that reads it replays the records that its
stable line lacks. They are the same records for all fragments, and often those that the host has
just read live. ``Decoded`` therefore keeps the source records that were decoded last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from slackwater.codec.delta_records import decode_delta
from slackwater.codec.ordered_records import decode_ordered
from slackwater.codec.pane_records import decode_merged
from slackwater.codec.results import parse_result, parse_time
from slackwater.codec.source_records import decode_source
from slackwater.codec.state_records import decode_state
from slackwater.model.errors import MalformedRecordError
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Kind, OrderedRecord, OrdererState, RootState, SourceRecord
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Log, RawRecord
from slackwater.sessions.events import Record
from slackwater.sessions.session import Form

_DECODE: Final[Mapping[Form, tuple[Callable[[bytes, str, int], Record], str]]] = {
    "source": (decode_source, "no record of the source log"),
    "ordered": (lambda value, where, _: decode_ordered(value, where), "not an orderer's record"),
    "deltas": (lambda value, where, _: decode_delta(value, where), "not a delta"),
    "merged": (lambda value, where, _: decode_merged(value, where), "not a merged pane"),
    "results": (lambda value, _where, _offset: value, ""),
    "states": (lambda value, where, _: decode_state(value, where), "not a state record"),
}


def decode(form: Form, log: Log, offset: int, value: bytes) -> Record:
    """Decode a record of this form; None if the bytes are not one."""
    read, reason = _DECODE[form]
    try:
        return read(value, f"{log[0]}:{log[1]}:{offset}", offset)
    except MalformedRecordError as error:
        SKIPPED.note(*log, offset, reason, error.reason)
        return None


_BOUNDARY: Final = b'"kind":"boundary"'
Decode: TypeAlias = Callable[[Form, Log, int, bytes], Record]

REMEMBERED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bound on the encoded size. Columns, decoded at their first use, take about as much again."""
REMEMBERED_RECORDS_MAX: Final = 4_096


class Decoded:
    """``decode`` with a cache of the last source records of all logs. For one thread.

    The bytes are part of the cache key, because a log may be truncated and written again.
    """

    def __init__(
        self,
        bytes_max: int = REMEMBERED_BYTES_MAX,
        records_max: int = REMEMBERED_RECORDS_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._bytes = 0
        self._known: OrderedDict[tuple[Log, int], tuple[bytes, Record]] = OrderedDict()

    def __call__(self, form: Form, log: Log, offset: int, value: bytes) -> Record:
        """Decode a record of this form; None if the bytes are not one."""
        if form != "source":
            return decode(form, log, offset, value)
        known = self._known.get((log, offset))
        if known is not None and known[0] == value:
            return known[1]
        record = decode(form, log, offset, value)
        self._remember((log, offset), value, record)
        return record

    def _remember(self, at: tuple[Log, int], value: bytes, record: Record) -> None:
        self._forget(at)
        self._known[at] = value, record
        self._bytes += len(value)
        while self._bytes > self._bytes_max or len(self._known) > self._records_max:
            self._forget(next(iter(self._known)))

    def _forget(self, at: tuple[Log, int]) -> None:
        if (known := self._known.pop(at, None)) is not None:
            self._bytes -= len(known[0])


def decode_ordered_record(raw: RawRecord) -> OrderedRecord | None:
    """Decode a record of an ordered log; None if the bytes are not one."""
    record = decode("ordered", raw.log, raw.offset, raw.value)
    assert record is None or isinstance(record, OrderedRecord)
    return record


def watermark_of(record: Record) -> int | None:
    """Return the event time (us) that has been reached by this record; None without one.

    It advances the event clock of a deployment with ``clock: data`` (trace-12). Of another query's
    results it is the end of the answered windows: their watermark is a window further (trace-20).
    """
    if record is None:
        return None
    if isinstance(record, bytes):
        return _answered_to(record)
    if isinstance(record, SourceRecord):
        return None if record.kind is Kind.VOID else record.boundary
    if isinstance(record, MergedRecord | OrdererState | RootState):
        return None
    return None if record.kind is Kind.START else record.bucket_end


def _answered_to(line: bytes) -> int | None:
    """Return the end of the windows that a boundary of results answers; None for other records."""
    if _BOUNDARY not in line:
        return None
    try:
        found = parse_result(line)
        return parse_time(found["window_end"]) if found["kind"] == "boundary" else None
    except (MalformedRecordError, ValueError, KeyError, TypeError):
        return None  # the session that reads the record counts it
