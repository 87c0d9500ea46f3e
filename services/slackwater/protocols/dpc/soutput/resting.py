"""The deltas of a child that a root leaves unread, since complete panes come from elsewhere.

What a copy leaves unread that follows another one is in ``holding``.

To rest is to park the cursors of the child's stable deltas (rule-12), without a wish to read them.
Merged panes (rule-36) move these cursors along with the frontier. A child that is read again goes
on from there, so what it reads covers all that no merged pane has brought.

The live line rests, too, where the pane at the frontier is the last one of its next window: it
needs nothing of the deltas before the pane is complete or missing. Behind a failure it does not
rest: the stable line takes old panes then, the live line present buckets. The live logs are always
read.

``merged_from`` is where a root reads the merged panes from S on again, as ``ReplayPositions`` is
for the deltas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from slackwater.model.records import Gap, LogPosition, Position, RootState
from slackwater.primitives.panes import Notes
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.inputs import Inputs
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog
from slackwater.protocols.dpc.soutput.decision import Child
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor
from slackwater.protocols.dpc.soutput.holding import Holding


@dataclass(frozen=True, slots=True)
class ReadPane:
    """A merged record that has been read: where its panes end, and its offset."""

    end: int
    offset: int


class MergedOffsets:
    """The offset in a log of merged panes from which the panes from S on are read again."""

    def __init__(self, offset: int) -> None:
        self._next = offset
        self._read: deque[ReadPane] = deque()
        """Of each later pane that has been read, the first record."""

    def note(self, end: int | None, offset: int) -> None:
        """Record that the record at ``offset`` has been read; its panes end at ``end``."""
        self._next = offset + 1
        if end is not None and (not self._read or end > self._read[-1].end):
            self._read.append(ReadPane(end, offset))

    def at(self, start: int) -> int:
        """Return the offset from which nothing that ends after ``start`` is missed."""
        while self._read and self._read[0].end <= start:
            self._read.popleft()
        return self._read[0].offset if self._read else self._next

    def __len__(self) -> int:
        return len(self._read)


class Resting:
    """Which children of a root rest, and what merged panes do to them.

    Args:
        grid: the query's windows.
        children: the root's children.
        inputs: their logs.
        contiguous_seq: by log, the seq below which all have been read.
        merged_from: by child, where its merged panes are read from S on; empty without mergers.
    """

    def __init__(
        self,
        grid: Grid,
        children: Sequence[Child],
        inputs: Inputs[DeltaLog, DeltaCursor],
        contiguous_seq: dict[DeltaLog, int],
        merged_from: Sequence[int],
    ) -> None:
        self._grid = grid
        self._children = children
        self._inputs = inputs
        self._contiguous_seq = contiguous_seq
        self.holding = Holding(children, inputs, contiguous_seq)
        self.offsets = tuple(map(MergedOffsets, merged_from))
        """By child."""
        self._stable: set[int] = set()
        self._live: set[int] = set()
        self._rested_at: dict[int, tuple[Position, int]] = {}
        """By child, the frontier and T when the cursors were parked."""

    def frontier(self, child: int) -> Position:
        """Return the frontier of a child's stable line."""
        return self._children[child].stable.frontier

    def has_room(self, child: int, needed_to: int) -> bool:
        """Return whether the stable line may take what is at a child's frontier (rule-12)."""
        stable = self._children[child].stable
        return stable.has_room(stable.frontier.bucket_start, needed_to)

    def is_read(self, line: LineName, log: DeltaLog) -> bool:
        """Return whether a line reads a log now."""
        if log.line is LineName.LIVE:
            return True
        if self.holding.is_active:
            return False
        return log.child not in (self._stable if line is LineName.STABLE else self._live)

    def needs(self, log: DeltaLog) -> bool:
        """Return whether any line reads a log now."""
        return self.is_read(LineName.LIVE, log) or self.is_read(LineName.STABLE, log)

    def pass_by(self, log: DeltaLog, offset: int) -> None:
        """Record that the live consumer has passed a record of a log that is not read."""
        self._inputs.pass_by(log, offset)

    @property
    def children(self) -> frozenset[int]:
        """The children of which the stable line reads no deltas."""
        return frozenset(self._stable)

    def is_unread(self, child: int) -> bool:
        """Return whether no line reads the stable deltas of a child."""
        return child in self._live

    def rest(self, child: int, live_next: int) -> None:
        """Leave the stable deltas of a child unread; ``live_next`` is T.

        The lines read on that need more than the pane at the frontier.
        """
        frontier = self._children[child].stable.frontier
        if child in self._stable and self._rested_at.get(child) == (frontier, live_next):
            return
        self._rested_at[child] = frontier, live_next
        end = self._grid.pane_end(frontier.bucket_start)
        self._stable.add(child)
        if end >= self._grid.window_end(live_next):
            self._live.add(child)
        elif child in self._live:
            self._live.discard(child)
            self._attach(child, LineName.LIVE)
        for log in self._logs(child):
            self._inputs.stable(log).attached = False
            if child in self._live:
                self._inputs.live(log).attached = False

    def read(self, child: int) -> None:
        """Read the stable deltas of a child from where its cursors stand."""
        self._stable.discard(child)
        self._attach(child, LineName.STABLE)
        if child in self._live:
            self._live.discard(child)
            self._attach(child, LineName.LIVE)

    def _attach(self, child: int, line: LineName) -> None:
        """Attach the cursors that stand at the live consumer; catch-up readers feed the others."""
        for log in self._logs(child):
            self._inputs.attach(line, log)

    def use(
        self,
        child: int,
        end: int,
        value: Any,
        behind: Sequence[LogPosition],
        needed_to: int,
        gap: Sequence[Gap] = (),
    ) -> None:
        """Take the complete panes from the frontier to ``end``, of which the first is ``value``.

        ``behind`` has, of each replica, the position in its stable deltas at ``end``; ``gap`` has
        readings of the panes that are lost.
        """
        of = self._children[child]
        of.panes.add_panes(end, value, Notes.of((), gap))
        of.stable.move_to(end, behind, needed_to)
        before = [cursor.offset for cursor, _ in of.live.cursors]
        of.live.move_to(behind)
        for log, offset in zip(self._logs(child), before, strict=True):
            position = behind[log.replica]
            self._contiguous_seq[log] = max(self._contiguous_seq[log], position.next_seq)
            if child not in self._live and self._inputs.live(log).offset > offset:
                self._inputs.attach(LineName.LIVE, log)

    def _logs(self, child: int) -> list[DeltaLog]:
        """The stable deltas of a child."""
        replicas = range(len(self._children[child].live.cursors))
        return [DeltaLog(child, replica, LineName.STABLE) for replica in replicas]

    def added_to(self, state: RootState) -> RootState:
        """Return the state record with where the merged panes are read from S on."""
        if not self.offsets:
            return state
        found = tuple(offsets.at(state.stable_from) for offsets in self.offsets)
        return replace(state, merged_from=found)
