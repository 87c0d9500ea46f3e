"""Tracks which appended records are delivered, and so when a state record may be written (rule-5).

A state record holds the positions of its writer. If it were written before the records that it
counts are in the logs, a successor could continue after records that were never written: a hole. So
a snapshot waits until every record appended before it is delivered.

A delivery may reveal somebody else's record before it (``SoleWriter``). From there on nothing
counts as delivered until it is known what that record is: behind another writer's START no reader
counts what this incarnation writes.
"""

from __future__ import annotations

from slackwater.model.records import OrdererState
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.sunion.recovery import SoleWriter


class Deliveries:
    """Delivery progress of one incarnation of an orderer.

    Args:
        inc: the offset of its START in the stable log.
        live_from: a place in the live log at or before all that is its own.
    """

    def __init__(self, inc: int, live_from: int) -> None:
        self._sole = SoleWriter(inc + 1)
        self._ends = {LineName.STABLE: inc + 1, LineName.LIVE: live_from}
        self._appended = self._counted = 0
        self._uncounted = 0
        """Records of the stable log that were delivered behind somebody else's."""
        self._others: list[tuple[int, int]] = []
        self._waiting: tuple[OrdererState, int] | None = None

    def appended(self) -> None:
        """Count one more record in flight."""
        self._appended += 1

    def delivered(self, line: LineName, offset: int) -> None:
        """The next record of an own log is in it."""
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
        """How far the stable and the live log are known to reach."""
        return self._ends[LineName.STABLE], self._ends[LineName.LIVE]

    @property
    def others(self) -> tuple[tuple[int, int], ...]:
        """Stretches [from, to) of the stable log that somebody else has written, not yet judged."""
        return tuple(self._others)

    def acquit(self, stretches: int) -> None:
        """The first of ``others`` are no writer's."""
        del self._others[:stretches]
        if not self._others:
            self._counted += self._uncounted
            self._uncounted = 0

    # The state record.

    @property
    def is_waiting(self) -> bool:
        """Whether a state record waits for deliveries."""
        return self._waiting is not None

    def keep(self, state: OrdererState) -> None:
        """Write this one when all that was appended so far is delivered."""
        self._waiting = state, self._appended

    def take(self) -> OrdererState | None:
        """The state record that may be written now."""
        if self._waiting is None or self._counted < self._waiting[1]:
            return None
        state, self._waiting = self._waiting[0], None
        return state
