"""The last readings of streams whose proxies report none: they stand in the source logs.

The heartbeats of a proxy have the time of its last reading, and end with it. A record of a source
log has the largest time of its readings in its header, so the end of each log is enough. Behind the
last reading there may be any number of watermarks, which a proxy writes while its source is silent;
of these only the last ``RECORDS_MAX`` are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import KafkaException

from slackwater.codec import decode_source
from slackwater.model.errors import MalformedRecordError, SlackwaterError
from slackwater.model.names import Names
from slackwater.model.records import Kind
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.transport import Log, LogError, Transport, read_range
from slackwater.runtime.service.clock import SystemClock
from slackwater.status.processes import Picture
from slackwater.status.queries import StreamRow

RECORDS_MAX: Final = 20_000
"""Records of a log that are read at most, the last ones."""
FIRST_RECORDS: Final = 100
"""Records that are read first; ten times as many each time until one has a reading."""
ASK_S_MAX: Final = 5.0
KEPT_US: Final = 10_000_000
"""How long an answer is used again: whoever watches asks every second or two."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """What the source logs of a stream have at their ends."""

    last_reading: int | None
    """The largest time of a reading (event time, us); None if none was found."""
    is_complete: bool
    """Whether they were read from their first records: without a reading there was none."""


class LastReadings:
    """Adds last readings to a picture. Without an answer of Kafka it adds nothing.

    Args:
        transport: of the source logs.
        topics: returns the names of all topics.
        now_us: a clock that does not go back, in microseconds.
    """

    def __init__(
        self,
        transport: Transport,
        topics: Callable[[], Collection[str]],
        now_us: Callable[[], int],
    ) -> None:
        self._transport, self._topics, self._now_us = transport, topics, now_us
        self._found: dict[str, LogEnd] = {}
        self._asked: frozenset[str] = frozenset()
        self._until_us = 0

    def complete(self, picture: Picture) -> Picture:
        """Return the picture with the last readings of streams that have none in it."""
        unknown = frozenset(
            row.name for row in picture.streams if row.last_reading is None and not row.site
        )
        if unknown and (unknown != self._asked or self._now_us() >= self._until_us):
            try:
                topics = self._topics()
                self._found = {each: self._of(each, topics) for each in sorted(unknown)}
            except (KafkaException, LogError, SlackwaterError):
                self._found = {}
            self._asked, self._until_us = unknown, self._now_us() + KEPT_US
        return replace(picture, streams=tuple(map(self._completed, picture.streams)))

    def _completed(self, row: StreamRow) -> StreamRow:
        if row.last_reading is not None or (end := self._found.get(row.name)) is None:
            return row
        return replace(row, last_reading=end.last_reading, had_none=end.is_complete)

    def _of(self, stream: str, topics: Collection[str]) -> LogEnd:
        ends = [
            self._log_end((topic, 0))
            for topic in topics
            if is_source_log(topic, stream, self._transport.names)
        ]
        times = (end.last_reading for end in ends if end.last_reading is not None)
        return LogEnd(max(times, default=None), all(end.is_complete for end in ends))

    def _log_end(self, log: Log) -> LogEnd:
        beginning = self._transport.beginning_offsets([log], timeout_s=ASK_S_MAX)[log]
        end = self._transport.end_offsets([log], timeout_s=ASK_S_MAX)[log]
        least, records = max(beginning, end - RECORDS_MAX), FIRST_RECORDS
        start = end
        while start > least:
            before, start = start, max(least, end - records)
            found = self._largest(log, start, before)
            if found is not None:
                return LogEnd(found, is_complete=False)
            records *= 10
        return LogEnd(None, is_complete=start == 0)

    def _largest(self, log: Log, start: int, end: int) -> int | None:
        times = []
        for raw in read_range(self._transport, log, start, end, idle_s_max=ASK_S_MAX):
            try:
                record = decode_source(raw.value, f"{log[0]}:0:{raw.offset}", raw.offset)
            except MalformedRecordError:
                continue  # a gap, which the readers of the log report
            if record.kind == Kind.INSERTION and record.readings:
                times.append(record.stime_max)
        return max(times, default=None)


def of_cluster(cluster: Cluster, transport: Transport) -> LastReadings:
    """Return what reads the source logs of a deployment."""
    return LastReadings(
        transport, lambda: Admin(cluster).list_topics(ASK_S_MAX).keys(), SystemClock().monotonic_us
    )


def is_source_log(topic: str, stream: str, names: Names) -> bool:
    """Whether a topic is a source log of a stream; one of a topic has a log for each partition."""
    log, partition = names.source(stream), topic.rpartition(".")[2]
    return topic == log or (topic == f"{log}.{partition}" and partition.isdigit())
