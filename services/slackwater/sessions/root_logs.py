"""The logs that a root reads: the deltas of its part or, without a window, the orderers' logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slackwater.model.errors import SlackwaterError
from slackwater.model.names import OrdererName
from slackwater.model.records import BucketRecord, DeltaRecord, Heartbeat, Kind, OrderedRecord
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.config import DeltaLog, RootConfig
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.soutput.delta_cursor import damaged_delta
from slackwater.sessions.effects import Skipped
from slackwater.sessions.events import Record
from slackwater.sessions.requests import PROBE_TIMEOUT_US, Beginnings, Ends, Log, Procedure
from slackwater.sessions.session import Form


class RootLogs:
    """Where the logs of a root are, and which of their records their writers can have written."""

    def __init__(self, config: RootConfig, *, windowed: bool) -> None:
        self.form: Form = "deltas" if windowed else "ordered"
        self._skipped: list[Skipped] = []
        ordered = config.topics.ordered
        self._ordered_at: dict[DeltaLog, Log] = {
            log: (ordered(config.child_query, log.child), 2 * log.replica + log.line)
            for log in config.logs
        }
        deltas = config.topics.deltas(config.child_query, config.part)
        self.places: dict[DeltaLog, Log] = (
            {log: (deltas, log.partition(config.replicas)) for log in config.logs}
            if windowed
            else self._ordered_at
        )
        self.at = {place: log for log, place in self.places.items()}
        self.orderers = {
            OrdererName(config.child_query, child, replica).process: (child, replica)
            for child in range(len(config.children))
            for replica in range(config.replicas)
        }
        """The names of all replicas of all children: (child, replica)."""
        self._topics = [ordered(config.child_query, child) for child in range(len(config.children))]

    def state_in(self, beat: Heartbeat) -> tuple[int, int, LineState | None] | None:
        """Return child, replica and the state of its output, if a heartbeat has it (trace-34).

        The state is None if the process has ended.
        """
        child, replica = self.orderers.get(beat.process, (-1, -1))
        state = None if child < 0 else LineState.of(beat.states.get(self._topics[child]))
        has_none = child < 0 or (state is None and not beat.is_dead)
        return None if has_none else (child, replica, state)

    def checked(self, log: Log, offset: int, record: Record) -> BucketRecord:
        """Return the record with its seq; see ``checked_record``."""
        checked, skipped = checked_record(self.form, self.at[log], log, offset, record)
        self._skipped += skipped
        return checked

    def skipped(self) -> list[Skipped]:
        """Return the records that were rejected, once."""
        found, self._skipped = self._skipped, []
        return found

    def look_at_ordered(self, core: RootCore, logs: Sequence[DeltaLog]) -> Procedure[None]:
        """Fetch the extents of these ordered logs for the core."""
        core.ordered((yield from self.spans(logs)))

    def spans(self, logs: Sequence[DeltaLog]) -> Procedure[dict[DeltaLog, tuple[int, int]]]:
        """Fetch the first and the end offsets of ordered logs; empty if there is no answer."""
        places = tuple(self._ordered_at[log] for log in logs)
        try:
            begin = yield Beginnings(places, PROBE_TIMEOUT_US)
            end = yield Ends(places, timeout_us=PROBE_TIMEOUT_US)
        except SlackwaterError:
            return {}  # the core repeats the request
        return {log: (begin[at], end[at]) for log, at in zip(logs, places, strict=True)}


def checked_record(
    form: Form, of: DeltaLog, log: Log, offset: int, record: Record
) -> tuple[BucketRecord, tuple[Skipped, ...]]:
    """Return a record with its seq; VOID for one that its orderer cannot have written.

    The seq of an orderer's record is its offset; that of a delta is the offset of the record from
    which it was made. An incarnation is the offset of an earlier START in the stable log (rule-6).
    A record with a greater incarnation must be rejected: it would make the reader drop all records
    that follow.
    """
    if record is None:
        if form == "deltas":
            return damaged_delta(of.child, of.replica), ()
        return OrderedRecord(Kind.VOID, of.child, of.replica, 0, 0, 0, seq=offset), ()
    assert isinstance(record, DeltaRecord | OrderedRecord)
    if isinstance(record, OrderedRecord):
        record = replace(record, seq=offset)
    has_begun = of.line is LineName.LIVE or record.inc <= record.seq
    if (record.child, record.replica) == (of.child, of.replica) and has_begun:
        return record, ()
    found = f"child {record.child}, replica {record.replica}, incarnation {record.inc}"
    why = "record that its orderer cannot have written"
    return replace(record, kind=Kind.VOID), (Skipped(log, offset, why, found),)
