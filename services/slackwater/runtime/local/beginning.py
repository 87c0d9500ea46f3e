"""The start E0 of a query in event time, when it is registered in a running deployment (trace-24).

E0 is part of a query's definition and the same in every process. It must not lie above the first
reading (which would belong to no window) nor far below it (a year would cost a year of empty
windows). E0 is therefore the smallest event time or boundary in the source logs. Each log is read
to its first record with a boundary: no later reading lies below it, and boundaries never decrease.
While no log has a record, E0 is the event clock less the query's lateness: no later reading is
older.
"""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.codec.source_records import decode_source
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import Kind
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Transport, read_to_end

_NEVER_MAX_US = -(2**61)
"""Boundaries below it are none: what a writer says before its first promise."""


def first_event_time(transport: Transport, source: str) -> int | None:
    """The smallest event time or boundary in one source log; None while it has neither."""
    smallest: int | None = None
    topic = transport.names.source(source)
    records = read_to_end(transport, (topic, 0), timeout_s=10.0)
    for raw in records:
        try:
            record = decode_source(raw.value, f"{topic}:0:{raw.offset}", raw.offset)
        except MalformedRecordError as error:
            SKIPPED.note(*raw.log, raw.offset, "no record of the source log", error.reason)
            continue  # a gap (rule-28): who reads the log says so
        times = [record.stime_min] if record.kind == Kind.INSERTION and record.readings else []
        watermark_made = record.boundary > _NEVER_MAX_US
        if watermark_made:
            times.append(record.boundary)
        smallest = min([*times, *([] if smallest is None else [smallest])], default=None)
        if watermark_made:
            return smallest
    return smallest


def beginning(
    transport: Transport, sources: Iterable[str], clock_event_us: int | None, lateness_us: int
) -> int | None:
    """E0 over these source logs; None where neither they nor the clock know yet."""
    found = [first_event_time(transport, source) for source in sources]
    known = [time for time in found if time is not None]
    if known:
        return min(known)
    return None if clock_event_us is None else clock_event_us - lateness_us
