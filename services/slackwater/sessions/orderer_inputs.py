"""What an orderer takes from the records of a log: each record, or the rows of a window at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from slackwater.codec.result_batches import Assembler, ResultStream
from slackwater.model.records import SourceRecord
from slackwater.protocols.common.inputs import InputCursor
from slackwater.protocols.common.line import LINES, LineName


class SourceReading:
    """One reader's progress in a source log: it takes each record, and each offset has one."""

    is_between = False

    def __init__(self, log: str) -> None:
        self._log = log

    def take(self, _offset: int, record: Any) -> SourceRecord:
        """Return the record; VOID for one that cannot be decoded (trace-15)."""
        assert record is None or isinstance(record, SourceRecord)
        return record or SourceRecord.void(self._log)

    def resume(self, wanted: int) -> int:
        """Return the offset to read from for a cursor at ``wanted``."""
        return wanted

    def seek(self, wanted: int) -> None:
        """Do nothing: no record waits for others."""

    def restart(self, offset: int) -> None:
        """Do nothing: no record waits for others."""


LogReading: TypeAlias = SourceReading | Assembler
"""One reader's progress in a source log, or in a result topic of another query."""


class LogReadings:
    """The progress of all readers in the logs of an orderer.

    Args:
        logs: the logs, as in ``OrdererConfig.logs``.
        results: by index, the logs that are result topics of another query.
        skipped: called for each record that is ignored, with the index of its log, its offset and
            the reason.
    """

    def __init__(
        self,
        logs: Sequence[str],
        results: Mapping[int, ResultStream],
        skipped: Callable[[int, int, str], None],
    ) -> None:
        def reading(log: int) -> LogReading:
            of = results.get(log)
            if of is None:
                return SourceReading(logs[log])
            return Assembler(of, of.name, partial(skipped, log))

        self.arriving = [reading(log) for log in range(len(logs))]
        """The live consumer's, by log."""
        self.replaying = {(line, log): reading(log) for line in LINES for log in range(len(logs))}
        """The catch-up readers', by line and log."""

    def at(self, cursor: InputCursor, line: LineName, log: int) -> LogReading:
        """Return a catch-up reader's progress; it restarts at a cursor that has been moved."""
        reading = self.replaying[line, log]
        if not cursor.attached:
            reading.seek(cursor.offset)
        return reading
