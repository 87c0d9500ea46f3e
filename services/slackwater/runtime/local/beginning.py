"""Determines the start time E0 of a query that is registered in a running deployment (trace-24).

E0 is an event time, belongs to the query's definition, and is the same in every process. It must
not be above the time of the first reading, which would then be in no window. It must not be far
below it, since every window in between would be answered as empty. E0 is therefore the smallest
event time or boundary in the source logs. Each log is read up to its first record with a boundary:
no later reading lies below that boundary, and boundaries never decrease. While no log has a record,
E0 is the present time of the event clock less the query's lateness: no later reading is older.

A proxy reads the partitions of a topic one after another. A partition that holds messages may have
no reading in its source log yet, and its first reading may be the oldest one. E0 is therefore not
determined before each of these logs has a reading or a boundary, or a limit has passed: messages
of a partition may all be malformed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Final

from slackwater.codec.source_records import decode_source
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import Kind
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Log, Transport, read_to_end

_log = logging.getLogger(__name__)
FIRST_READINGS_S_MAX: Final = 10.0
_LOOK_S: Final = 0.1
_NEVER_MAX_US = -(2**61)
"""Smaller boundaries are placeholders that a writer sends before its first watermark."""


def first_event_time(transport: Transport, source: str) -> int | None:
    """Return the smallest event time or boundary in a source log, us; None while it has neither."""
    smallest: int | None = None
    topic = transport.names.source(source)
    records = read_to_end(transport, (topic, 0), timeout_s=10.0)
    for raw in records:
        try:
            record = decode_source(raw.value, f"{topic}:0:{raw.offset}", raw.offset)
        except MalformedRecordError as error:
            SKIPPED.note(*raw.log, raw.offset, "no record of the source log", error.reason)
            continue  # a gap (rule-28), which readers of the log report
        times = [record.stime_min] if record.kind == Kind.INSERTION and record.readings else []
        watermark_made = record.boundary > _NEVER_MAX_US
        if watermark_made:
            times.append(record.boundary)
        smallest = min([*times, *([] if smallest is None else [smallest])], default=None)
        if watermark_made:
            return smallest
    return smallest


def await_first_readings(
    transport: Transport, inputs: Mapping[str, Log], within_s: float = FIRST_READINGS_S_MAX
) -> None:
    """Wait until the source logs of all partitions that hold messages have begun.

    Args:
        transport: of the source logs and of the topics that are read.
        inputs: the partition that each source log is made from.
        within_s: the longest wait.
    """
    begins = transport.beginning_offsets(inputs.values())
    ends = transport.end_offsets(inputs.values(), isolation="read_committed")
    waiting = [source for source, log in inputs.items() if begins[log] < ends[log]]
    give_up = time.monotonic() + within_s
    while waiting := [each for each in waiting if first_event_time(transport, each) is None]:
        if time.monotonic() > give_up:
            _log.warning(
                "no reading of %s after %g s: queries start without", ", ".join(waiting), within_s
            )
            return
        time.sleep(_LOOK_S)


def beginning(
    transport: Transport, sources: Iterable[str], clock_event_us: int | None, lateness_us: int
) -> int | None:
    """Return E0 (us) of a query over these source logs; None while it cannot be determined.

    ``clock_event_us`` is the event clock's present time; None if it follows the data.
    """
    found = [first_event_time(transport, source) for source in sources]
    known = [time for time in found if time is not None]
    if known:
        return min(known)
    return None if clock_event_us is None else clock_event_us - lateness_us
