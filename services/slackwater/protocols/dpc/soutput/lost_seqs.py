"""Seqs that a delta log seems to lack: can their writer still send them?

The delta log of a replica has a record for each record of the replica's ordered log, with the same
seq. Where a seq is missing, the ordered log's extent tells what to do: a seq below its beginning is
sent by nobody any more, one that is still there can be sent again (rule-11 and rule-28).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from slackwater.model.limits import NEVER
from slackwater.protocols.common.inputs import Inputs
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog, Effect, FetchOrdered
from slackwater.protocols.dpc.soutput.decision import Child
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor

ORDERED_PERIOD_US: Final = 200_000
"""How often the extent of ordered logs is asked for."""


class LostSeqs:
    """Finds stable delta logs that lack something, and asks for what the ordered logs have.

    Args:
        children: whose stable cursors are looked at.
        inputs: how far the logs have been read.
        whole: per log, how far each of its seqs has been read; what is lost for good is passed.
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

    def ordered(self, spans: Mapping[DeltaLog, tuple[int, int]]) -> None:
        """Take account of where some ordered logs begin and end.

        A seq below the beginning is sent by nobody any more: whoever waits for it at the end of
        its deltas goes on at the beginning (rule-28). One that is still there can be sent again:
        retention of the deltas was quicker than this root, and their writer goes on as if nothing
        were missing until a heartbeat says so (rule-11). And a log of which every seq has been read
        has nothing to offer in the place of a record with a gap (trace-15). Logs may be lacking:
        the broker gave no answer.
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
        """Ask for the extent of ordered logs that a delta log seems to lack something of.

        If it is too soon to ask again, when it will not be.
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
        """Logs that have a later seq than the next, or are waited for in the place of a gap."""
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
        """Logs that still lack a seq that their writer can send again, with the incarnation."""
        for log, seq in self._unsent.items():
            cursor = self._inputs.stable(log)
            if cursor.pending_gap is not None and cursor.next_seq == seq:
                yield log, cursor.inc
