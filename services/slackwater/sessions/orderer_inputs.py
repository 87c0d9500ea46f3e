"""What an orderer takes from the records of a log: each record, or the rows of a window at once."""

from __future__ import annotations

from typing import Any, TypeAlias

from slackwater.codec.result_batches import Assembler
from slackwater.model.records import SourceRecord


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

    def restart(self, offset: int) -> None:
        """Do nothing: no record waits for others."""


LogReading: TypeAlias = SourceReading | Assembler
"""One reader's progress in a source log, or in a result topic of another query."""
