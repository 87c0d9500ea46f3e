"""Tracks which records are delivered, to decide when a state record may be written (rule-5).

A state record holds the positions of its writer. If it were written before the records up to these
positions are in the logs, a successor might continue after records that were never written, which
would leave a hole. A snapshot is therefore kept until every record appended before it is delivered.

The offset of a delivered record may show that a foreign record precedes it (``SoleWriter``). Then
no further record of the stable log counts as delivered until the foreign record has been read: if
it is another writer's START, readers drop all that this incarnation writes after it.
"""

from __future__ import annotations

from slackwater.model.records import OrdererState
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.sunion.recovery import SoleWriter


class Deliveries:
    """Delivery progress of one incarnation of an orderer.

    Args:
        inc: offset of the incarnation's START in the stable log.
        live_from: an offset in the live log at or before its first record.
    """

    def __init__(self, inc: int, live_from: int) -> None:
        self._sole = SoleWriter(inc + 1)
        self._ends = {LineName.STABLE: inc + 1, LineName.LIVE: live_from}
        self._appended = self._counted = 0
        self._uncounted = 0
        """Records of the stable log that were delivered after a foreign record."""
        self._others: list[tuple[int, int]] = []
        self._waiting: tuple[OrdererState, int] | None = None

    def appended(self) -> None:
        """Count one more record in flight."""
        self._appended += 1

    def delivered(self, line: LineName, offset: int) -> None:
        """Record that the next record of a log was delivered at ``offset``."""
        self._ends[line] = offset + 1
        if line is LineName.STABLE:
            expected = self._sole.next_offset
            if not self._sole.delivered(offset):
                self._others.append((expected, offset))
            if self._others:
                self._uncounted += 1
                return
        self._counted += 1

    @property
    def ends(self) -> tuple[int, int]:
        """Offsets after the last delivered record of the stable log and of the live log."""
        return self._ends[LineName.STABLE], self._ends[LineName.LIVE]

    @property
    def others(self) -> tuple[tuple[int, int], ...]:
        """Ranges [from, to) of foreign records in the stable log that have not been checked yet."""
        return tuple(self._others)

    def accept_others(self, ranges: int) -> None:
        """Remove the first ranges of ``others``: they contain no record of another writer."""
        del self._others[:ranges]
        if not self._others:
            self._counted += self._uncounted
            self._uncounted = 0

    # The state record.

    @property
    def is_waiting(self) -> bool:
        """True if a state record waits for deliveries."""
        return self._waiting is not None

    def keep(self, state: OrdererState) -> None:
        """Keep a state record until all records appended so far are delivered."""
        self._waiting = state, self._appended

    def take(self) -> OrdererState | None:
        """Return the kept state record if it may be written now, else None; remove it."""
        if self._waiting is None or self._counted < self._waiting[1]:
            return None
        state, self._waiting = self._waiting[0], None
        return state
