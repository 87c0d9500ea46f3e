"""Reads ranges of result topics for a table of answers: all of them, or the end by event time.

The shell around ``answer_table.py``. Ends are asked for once, at the beginning, and all is read up
to them, so a query that goes on answering does not prolong the reading.

In a part's stable topic, and in its tentative topic, windows rise (rule-20). So the last hour of
event time is at the end of each, and the place where it begins is found by looking further and
further back: at most twice as much is read as is needed. Rejected: Kafka's index of times. It is
of the time of writing, and event time of a history, or of a replay, is another one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from slackwater.client.answer_table import AnsweredTo, AnswerTable, Kinds, PartLines, answer_table
from slackwater.codec.result_columns import Table, joined, result_columns
from slackwater.codec.results import check_result, parse_result, parse_time
from slackwater.model.errors import MalformedRecordError
from slackwater.model.names import ResultKind
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import (
    Log,
    NoAnswerError,
    PositionGoneError,
    RawRecord,
    Reader,
    Transport,
)

_log = logging.getLogger(__name__)

TOPICS: Final[tuple[ResultKind, ...]] = ("stable", "tentative")
"""The topics with rows. Their ends are asked for in this order (see ``PartLines``)."""
CHUNK_BYTES: Final = 16 << 20
"""Text of one log that is decoded together; until then it is held."""
LOOK_BACK_RECORDS: Final = 256
"""From how far before the end of a log its windows are looked for first; then four times that."""
_LOOK_RECORDS: Final = 64
_POLL_RECORDS: Final = 10_000
_POLL_S: Final = 0.1
_IDLE_S_MAX: Final = 30.0
_FETCH_WAIT_MS_MAX: Final = 50
_Range = tuple[int, int]


def read_answers(
    transport: Transport,
    query: str,
    parts: int,
    kinds: Kinds,
    last_us: int | None,
    *,
    complete: bool,
) -> tuple[AnswerTable, AnsweredTo]:
    """Read a query's results into a table of answers.

    Args:
        transport: the logs.
        query: the query's name.
        parts: its number of parts.
        kinds: see ``Client.table``.
        last_us: only windows that end less than this before the last one; None: all windows.
        complete: without windows that not all parts have answered.

    Raises:
        NoAnswerError: the broker does not answer.
    """
    reader = transport.reader(isolation="read_committed", fetch_wait_ms_max=_FETCH_WAIT_MS_MAX)
    try:
        return _ResultLogs(transport, reader, query, parts).read(kinds, last_us, complete=complete)
    finally:
        reader.close()


class _ResultLogs:
    """The stable and tentative logs of a query, up to their present ends."""

    def __init__(self, transport: Transport, reader: Reader, query: str, parts: int) -> None:
        self._transport, self._reader, self._query = transport, reader, query
        self._topics = {transport.names.results(query, kind): kind for kind in TOPICS}
        self._parts = range(parts)
        self._ranges: dict[Log, _Range] = {}
        for topic in self._topics:
            logs = [(topic, part) for part in self._parts]
            ends = transport.end_offsets(logs, isolation="read_committed")
            begins = transport.beginning_offsets(logs)
            self._ranges |= {log: (begins[log], ends[log]) for log in logs}

    def read(
        self, kinds: Kinds, last_us: int | None, *, complete: bool
    ) -> tuple[AnswerTable, AnsweredTo]:
        ends = self._ends()
        answered = AnsweredTo.of([_latest(ends, part) for part in self._parts])
        until_us = answered.complete if complete else answered.any
        if until_us is None:
            return answer_table({}, kinds, None, None), answered
        after_us = None if last_us is None else until_us - last_us
        lines = self._lines(self._ranges if after_us is None else self._after(after_us))
        stable, tentative = self._topics
        of = {part: PartLines(lines[stable, part], lines[tentative, part]) for part in self._parts}
        return answer_table(of, kinds, after_us, until_us), answered

    def _ends(self) -> dict[Log, int]:
        """Return the end of the last window in each log, us; none for one without a window."""
        found: dict[Log, int] = {}
        back, looking = LOOK_BACK_RECORDS, dict(self._ranges)
        while looking:
            looks = {log: (max(begin, end - back), end) for log, (begin, end) in looking.items()}
            for log, records in self._records(looks):
                ends = self._window_ends(records)
                if ends:
                    found[log] = max(found.get(log, ends[0]), *ends)
            looking = {
                log: (begin, end)
                for log, (begin, end) in looking.items()
                if log not in found and end - back > begin
            }
            back *= 4
        return found

    def _after(self, after_us: int) -> dict[Log, _Range]:
        """Return ranges that hold all windows that end after ``after_us``."""
        found: dict[Log, _Range] = {}
        back, looking = LOOK_BACK_RECORDS, dict(self._ranges)
        while looking:
            starts = {log: max(begin, end - back) for log, (begin, end) in looking.items()}
            looks = {
                log: (start, min(start + _LOOK_RECORDS, looking[log][1]))
                for log, start in starts.items()
                if start > looking[log][0]
            }
            first: dict[Log, int] = {}
            for log, records in self._records(looks):
                ends = self._window_ends(records)
                if ends:
                    first.setdefault(log, ends[0])
            for log, (begin, end) in list(looking.items()):
                if starts[log] == begin or first.get(log, after_us + 1) <= after_us:
                    found[log] = (starts[log], end)
                    del looking[log]
            back *= 2
        return found

    def _window_ends(self, records: Iterable[RawRecord]) -> list[int]:
        """Return the ends of the windows of rows and boundaries, us."""
        found: list[int] = []
        for record in records:
            try:
                result = parse_result(record.value)
                check_result(result, self._query, record.partition)
                found.append(parse_time(result["window_end"]))
            except (MalformedRecordError, KeyError, ValueError):
                pass  # reported when the lines are decoded
        return found

    def _lines(self, ranges: Mapping[Log, _Range]) -> dict[Log, Table]:
        chunks: dict[Log, list[Table]] = {log: [] for log in ranges}
        held: dict[Log, list[RawRecord]] = {log: [] for log in ranges}
        held_bytes = dict.fromkeys(ranges, 0)
        for log, records in self._records(ranges):
            held[log] += records
            held_bytes[log] += sum(len(record.value) for record in records)
            if held_bytes[log] >= CHUNK_BYTES:
                chunks[log].append(self._decoded(held[log]))
                held[log], held_bytes[log] = [], 0
        for log, records in held.items():
            if records:
                chunks[log].append(self._decoded(records))
        return {log: joined(tables) for log, tables in chunks.items()}

    def _decoded(self, records: Sequence[RawRecord]) -> Table:
        topic, part = records[0].log

        def skipped(index: int, reason: str) -> None:
            SKIPPED.note(topic, part, records[index].offset, "not a result of its part", reason)

        lines = [record.value for record in records]
        return result_columns(lines, self._query, part, skipped, f"{topic}:{part}")

    def _records(self, ranges: Mapping[Log, _Range]) -> Iterator[tuple[Log, list[RawRecord]]]:
        """Yield the visible records of these ranges of offsets, each log in order.

        Records that retention deletes meanwhile are passed over.
        """
        reader = self._reader
        left = {log: end for log, (start, end) in ranges.items() if start < end}
        reader.assign({log: ranges[log][0] for log in left})
        idle_s = 0.0
        try:
            while left:
                before = {log: reader.position(log) for log in left}
                try:
                    polled = reader.poll(_POLL_RECORDS, _POLL_S)
                except PositionGoneError as gone:
                    reader.assign(self._transport.beginning_offsets([gone.log]))
                    continue
                for log, records in groupby(polled, itemgetter(0, 1)):
                    if log in left:
                        yield log, [record for record in records if record.offset < left[log]]
                after = {log: reader.position(log) for log in left}
                idle_s = 0.0 if after != before else idle_s + _POLL_S
                if idle_s >= _IDLE_S_MAX:
                    raise NoAnswerError(
                        f"results of {self._query}: no answer from the broker for {idle_s:g} s"
                    )
                for log in [log for log, end in left.items() if after[log] >= end]:
                    del left[log]
                    reader.unassign([log])
        finally:
            reader.unassign(left)


def _latest(ends: Mapping[Log, int], part: int) -> int | None:
    return max((end for log, end in ends.items() if log[1] == part), default=None)
