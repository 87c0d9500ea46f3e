"""Determines the start E0 of a query that is registered in a running deployment (trace-24).

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

With ``clock: data`` the width of the query's buckets follows from the first readings, too. A bucket
of 250 ms is right for readings that arrive now. In a history of a reading an hour it holds one
reading, and each bucket costs as much in every stage as one of 1,000 readings.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from slackwater.codec.source_records import decode_source
from slackwater.model.deployment import BUCKET_OF_WINDOWS_US
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import Kind, SourceRecord, type_i64
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Log, Transport, read_to_end

_log = logging.getLogger(__name__)
FIRST_READINGS_S_MAX: Final = 10.0
ANSWER_S_MAX: Final = 30.0
SAMPLE_READINGS: Final = 20_000
"""Readings of each source log that are looked at: two records of a file."""
BUCKET_READINGS_MAX: Final = 10_000
"""Most readings of a bucket, or pairs of a join, at the density of the first readings."""
SPEEDS: Final = (14_400, 3_600, 1_200, 240, 60, 20, 4)
"""Buckets of windows are 1 h, 15 min, 5 min, 1 min, 15 s, 5 s or 1 s wide. None is wider, because a
history may become denser: at 3,000 readings/s an hour is 260 MB."""
_LOOK_S: Final = 0.1
_NEVER_MAX_US = -(2**61)
"""Smaller boundaries are placeholders that a writer sends before its first watermark."""


def first_event_time(transport: Transport, source: str) -> int | None:
    """Return the smallest event time or boundary in a source log, us; None while it has neither."""
    smallest: int | None = None
    for record in _records(transport, source):
        times = [record.stime_min] if record.kind == Kind.INSERTION and record.readings else []
        watermark_made = record.boundary > _NEVER_MAX_US
        if watermark_made:
            times.append(record.boundary)
        smallest = min([*times, *([] if smallest is None else [smallest])], default=None)
        if watermark_made:
            return smallest
    return smallest


def _records(transport: Transport, source: str) -> Iterator[SourceRecord]:
    """Yield the records of a source log to its present end."""
    topic = transport.names.source(source)
    for raw in read_to_end(transport, (topic, 0), timeout_s=10.0):
        try:
            yield decode_source(raw.value, f"{topic}:0:{raw.offset}", raw.offset)
        except MalformedRecordError as error:
            # A gap (rule-28), which readers of the log report.
            SKIPPED.note(*raw.log, raw.offset, "no record of the source log", error.reason)


def history_speed(transport: Transport, sources: Iterable[str], within_us: int = 0) -> int:
    """Return how many times as wide as live ones the buckets of a history should be.

    It is the largest of ``SPEEDS`` at which no bucket of windows has more than
    ``BUCKET_READINGS_MAX`` readings, at the density of the first readings in the source logs; 1 if
    none is, or if no log has two readings.

    Args:
        transport: of the source logs.
        sources: the source logs of the query.
        within_us: of a join, how far apart its pairs may be (event time). Pairs count then.
    """
    samples = [times for source in sources if len(times := _first_times(transport, source)) > 1]
    if not samples:
        return 1
    pairs = 1 + sum(_densest(times, within_us) for times in samples) if within_us else 1
    for speed in SPEEDS:
        width_us = speed * BUCKET_OF_WINDOWS_US
        if pairs * sum(_densest(times, width_us) for times in samples) <= BUCKET_READINGS_MAX:
            return speed
    return 1


def _first_times(transport: Transport, source: str) -> type_i64:
    """Return the times of a log's first readings (us), ascending, as far as they decode."""
    found: list[type_i64] = []
    left = SAMPLE_READINGS
    for record in _records(transport, source):
        if record.columns is not None and record.readings:
            with contextlib.suppress(MalformedRecordError):
                found.append(record.columns.load().stimes[:left])
                left -= len(found[-1])
        if left <= 0:
            break
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _densest(times: type_i64, width_us: int) -> float:
    """Return the most readings in an interval of this width, if later ones are as dense."""
    span_us = max(int(times[-1] - times[0]), 1)
    if span_us < width_us:
        return len(times) * width_us / span_us
    counts = np.searchsorted(times, times + width_us) - np.arange(len(times))
    return int(counts.max())


def await_first_readings(
    transport: Transport, inputs: Mapping[str, Log], within_s: float = FIRST_READINGS_S_MAX
) -> None:
    """Wait until the source logs of all partitions that hold messages have begun.

    Args:
        transport: of the source logs and of the topics that are read.
        inputs: the partition that each source log is made from.
        within_s: the longest wait for readings, once the broker has told what there is.
    """
    # A broker that has just started on a busy machine answers late; that is no failure of a start.
    logs = inputs.values()
    begins = transport.beginning_offsets(logs, timeout_s=ANSWER_S_MAX)
    ends = transport.end_offsets(logs, isolation="read_committed", timeout_s=ANSWER_S_MAX)
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
    transport: Transport,
    sources: Iterable[str],
    clock_event_us: int | None,
    lateness_us: int,
    await_all: bool = False,
) -> int | None:
    """Return E0 (us) of a query over these source logs; None while it cannot be determined.

    ``clock_event_us`` is the event clock's present time; None if it follows the data. With
    ``await_all`` no log may be without a time: of several files that are read together, any may
    have the oldest reading.
    """
    found = [first_event_time(transport, source) for source in sources]
    known = [time for time in found if time is not None]
    if await_all and len(known) < len(found):
        return None
    if known:
        return min(known)
    return None if clock_event_us is None else clock_event_us - lateness_us
