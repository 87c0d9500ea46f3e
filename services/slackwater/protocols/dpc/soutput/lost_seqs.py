"""Detects seqs missing from delta logs, and whether their writer can still send them.

The delta log of a replica has a record for each record of the replica's ordered log, with the same
seq. Where a seq is missing, the ordered log's extent decides: a seq below its beginning is lost, a
seq still in it can be sent again (rule-11 and rule-28).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from slackwater.model.limits import NEVER
from slackwater.model.records import BucketRecord
from slackwater.protocols.common.inputs import Inputs
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog, Effect, FetchOrdered
from slackwater.protocols.dpc.soutput.decision import Child
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor

ORDERED_PERIOD_US: Final = 200_000
"""Minimum time between requests for the extent of ordered logs."""


class LostSeqs:
    """Finds stable delta logs with missing seqs, and requests the extent of the ordered logs.

    Args:
        children: the children whose stable cursors are checked.
        inputs: the stage's inputs: how far the logs have been read.
        contiguous_seq: by log, the seq below which all are read or lost. This class raises it.
    """

    def __init__(
        self,
        children: Sequence[Child],
        inputs: Inputs[DeltaLog, DeltaCursor],
        contiguous_seq: dict[DeltaLog, int],
    ) -> None:
        self._children = children
        self._inputs = inputs
        self._contiguous_seq = contiguous_seq
        self._asked_at = NEVER
        self._is_awaited = False
        self._unsent: dict[DeltaLog, int] = {}

    def count(self, log: DeltaLog, offset: int, record: BucketRecord) -> None:
        """Count a record that has been read, if it is the next one or follows damaged ones."""
        contiguous_seq = self._contiguous_seq[log]
        if record.seq == contiguous_seq or (
            record.seq > contiguous_seq
            and any(
                c.reaches(offset, contiguous_seq, record.seq) for _, c in self._inputs.readers(log)
            )
        ):
            self._contiguous_seq[log] = record.seq + 1

    def ordered(self, spans: Mapping[DeltaLog, tuple[int, int]]) -> None:
        """Process the beginnings and ends of some ordered logs.

        ``spans`` has (beginning, end) by log; logs without an answer from the broker are absent.
        There are three cases for a cursor that lacks a seq and has read its deltas to the end. A
        seq below the beginning is lost: the cursor continues at the beginning (rule-28). A seq
        still in the ordered log can be sent again: retention deleted its delta before this root
        read it, and a heartbeat reports the hole to the writer (rule-11). If all of the ordered log
        has been read, the replica cannot supply a version of the bucket without the gap (trace-15).
        """
        self._is_awaited = False
        for log, (beginning, end) in spans.items():
            cursor, stable = self._inputs.stable(log), self._children[log.child].stable
            at_end = self._inputs.has_reached_consumer(LineName.STABLE, log)
            if cursor.pending_gap is not None and at_end and cursor.next_seq < beginning:
                cursor.jump_to_seq(beginning)
                self._contiguous_seq[log] = max(self._contiguous_seq[log], beginning)
            elif cursor.pending_gap is not None and at_end and cursor.next_seq < end:
                self._unsent[log] = cursor.next_seq
            elif cursor.next_seq + cursor.undecoded >= end or beginning == end:
                stable.exhausted[log.replica] = stable.frontier

    def look(self, now: int, effects: list[Effect]) -> int | None:
        """Request the extent of ordered logs whose delta logs may lack seqs.

        Return the time at which the next request is allowed if it is too soon for it, else None.
        """
        logs = () if self._is_awaited else self._doubtful
        if not logs:
            return None
        if now - self._asked_at < ORDERED_PERIOD_US:
            return self._asked_at + ORDERED_PERIOD_US
        self._asked_at, self._is_awaited = now, True
        effects.append(FetchOrdered(logs))
        return None

    @property
    def _doubtful(self) -> tuple[DeltaLog, ...]:
        """Stable delta logs with a hole, or of replicas that may have a bucket without a gap."""
        found = []
        for child, of in enumerate(self._children):
            awaited = of.stable.awaited
            found += [
                DeltaLog(child, replica, LineName.STABLE)
                for replica, cursor in enumerate(of.stable.cursors)
                if cursor.pending_gap is not None or replica in awaited
            ]
        return tuple(found)

    @property
    def unsent(self) -> Iterator[tuple[DeltaLog, int]]:
        """Logs that lack a seq which their writer can send again, with its incarnation."""
        for log, seq in self._unsent.items():
            cursor = self._inputs.stable(log)
            if cursor.pending_gap is not None and cursor.next_seq == seq:
                yield log, cursor.inc
