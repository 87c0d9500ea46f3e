"""Bytes of a log to what a session is handed: once a record, for all who read the log.

What cannot be decoded is None for every session, and counted here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from slackwater.codec.records import decode_delta, decode_ordered, decode_source
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import Kind, OrderedRecord, SourceRecord
from slackwater.runtime.skipped import SKIPPED
from slackwater.runtime.transport import Log, RawRecord
from slackwater.sessions.session import Form, Record

_DECODE: Final[Mapping[Form, tuple[Callable[[bytes, str, int], Record], str]]] = {
    "source": (decode_source, "no record of the source log"),
    "ordered": (lambda value, where, _: decode_ordered(value, where), "no record of an orderer"),
    "deltas": (lambda value, where, _: decode_delta(value, where), "no delta"),
    "results": (lambda value, _where, _offset: value, ""),
}


def decode(form: Form, log: Log, offset: int, value: bytes) -> Record:
    """The record; None if it is none of this form."""
    read, reason = _DECODE[form]
    try:
        return read(value, f"{log[0]}:{log[1]}:{offset}", offset)
    except MalformedRecordError as error:
        SKIPPED.note(*log, offset, reason, error.reason)
        return None


def decode_ordered_record(raw: RawRecord) -> OrderedRecord | None:
    """A record of an ordered log; None if it is none."""
    record = decode("ordered", raw.log, raw.offset, raw.value)
    assert record is None or isinstance(record, OrderedRecord)
    return record


def promise_of(record: Record) -> int | None:
    """How far event time has come by this record, for a clock that follows the data (R12)."""
    if record is None or isinstance(record, bytes):
        return None
    if isinstance(record, SourceRecord):
        return None if record.kind is Kind.VOID else record.boundary
    return None if record.kind is Kind.START else record.bucket_end
