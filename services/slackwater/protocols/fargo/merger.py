"""A merger: the intermediate node between a child and its parents (Fargo, 3.4.6 and 3.4.8).

It merges what a child's replicas send for one part, and passes it on once per pane. In the thesis a
group of intermediate nodes replicates every state, elects a node, and elects another one when that
fails. Here a pane is a pure function of the child's logs (rule-21), so the copies of a merger agree
without messages: each writes every pane, and a reader drops the second record by its seq, the
pane's start. While one of n copies works nothing changes (``parent``).

A pane is written when it is complete, also if it is empty; a run of empty panes is one record. Each
record names, of each replica, the position in its log behind the pane. So the log of merged panes
is the merger's state, too: a merger that starts continues behind the last record, and no state
record can be older or newer than what was written.

A pane in which readings are lost is not written: two versions of it may exist (rule-28), and its
parents decide by themselves which one they use. At a site it is, with the loss: the centre has no
deltas to decide by, and uses the version that comes first (rule-37). Live logs pass a merger by: a
tentative answer must not wait for another process.

Rejected: one writer for a group, chosen by a lease or a transactional fence. It halves what is
written, a few records for each pane, and costs an answer for each time a writer is replaced.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from slackwater.model.heads import PaneRecord, PaneRef
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Gap, LogPosition
from slackwater.primitives.contents import Content, Contents
from slackwater.primitives.panes import NOTHING, PaneStore
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.pane_writing import Extracted, TurnWriter, WriteStep, named

V = TypeVar("V", bound=Content)
NO_DIGEST: Final = 0
"""The digest of a pane without rows."""


class Mergeable(Contents[V], Extracted[V], Protocol[V]):
    """Contents that are folded and written (``primitives.deltas.Aggregates``)."""


@dataclass(frozen=True, slots=True)
class _Complete(Generic[V]):
    """Panes that are to be written: of those in [start, end) only the first one has rows."""

    start: int
    end: int
    value: V
    positions: tuple[LogPosition, ...]
    gap: tuple[Gap, ...]


class Merger(Generic[V]):
    """Merges the buckets of one child for one part, from a pane's start on.

    Args:
        child: the child's number.
        grid: the query's windows.
        contents: makes and folds its slices.
        start: where its first pane begins.
        writes_losses: whether panes in which readings are lost are written, too.
    """

    def __init__(
        self,
        child: int,
        grid: Grid,
        contents: Mergeable[V],
        start: int,
        *,
        writes_losses: bool = False,
    ) -> None:
        assert grid.pane_start(start) == start, "a merger begins at a pane's start"
        self._child = child
        self._contents = contents
        self._writes_losses = writes_losses
        self.panes: PaneStore[V] = PaneStore(grid, contents, start)
        """The pane that has begun; add the child's buckets to it, in order."""
        self._merged_to = start
        self._complete: deque[_Complete[V]] = deque()
        self._turns: TurnWriter[MergedRecord] = TurnWriter()
        self._writing_from: int | None = None
        self.written = 0
        """Number of panes, or runs of empty ones, that have been written."""
        self.withheld = 0
        """Number of those that were not, since readings are lost in them."""

    @property
    def merged_to(self) -> int:
        """The event time up to which panes are complete."""
        return self._merged_to

    @property
    def unwritten_from(self) -> int:
        """The start of the first pane that is not acknowledged: the frontier if all are.

        What lies more than H after it is not read yet (rule-12).
        """
        if self._writing_from is not None:
            return self._writing_from
        return self._complete[0].start if self._complete else self.panes.frontier.bucket_start

    @property
    def needed_from(self) -> int:
        """The event time before which no key is needed (rule-35).

        Panes that are not acknowledged need their keys, and so does the one that has begun.
        """
        return min(self.unwritten_from, self._merged_to)

    def look(self, positions: Callable[[int], Sequence[LogPosition]]) -> None:
        """Note the panes that the last record has completed; call it after each.

        ``positions`` returns, of each replica, the position from which reading continues at an
        event time: before a run of empty buckets that passes it.
        """
        start, end = self._merged_to, self.panes.complete_to
        if end == start:
            return
        self._merged_to = end
        notes = self.panes.notes(start, end)
        if notes != NOTHING and not self._writes_losses:
            self.withheld += 1
        else:
            rows = self.panes.panes(start, end)
            assert len(rows) <= 1, "a record ends at most one pane that has rows"
            value = rows[0] if rows else self._contents.empty
            self._complete.append(_Complete(start, end, value, tuple(positions(end)), notes.lost))
        self.panes.drop_before(end)

    def write(self) -> list[MergedRecord]:
        """Return what is to be written in this turn, in order."""
        self._begin()
        return self._turns.write()

    def acknowledged(self) -> None:
        """Record that the next of the written records is in the log."""
        self._turns.acknowledged()
        self._begin()

    @property
    def is_busy(self) -> bool:
        """Whether ``write`` has more to do at once."""
        return self._turns.is_busy or (not self._turns.has_work and bool(self._complete))

    def _begin(self) -> None:
        if self._turns.has_work:
            return
        if self._turns.is_acknowledged:
            self._writing_from = None
        if self._complete:
            panes = self._complete.popleft()
            if self._writing_from is None:
                self._writing_from = panes.start
            self._turns.begin(self._write(panes))

    def _write(self, panes: _Complete[V]) -> Iterator[WriteStep[MergedRecord]]:
        """Yield the steps of writing a pane."""
        contents, value = self._contents, panes.value
        ref = PaneRef(self._child, panes.start, 0, 0, NO_DIGEST)
        if len(value):
            ref = yield from named(contents, self._child, panes.start, value)
        for piece in range(max(ref.pieces, 1)):
            record = PaneRecord(ref, piece, contents.extract(value, piece))
            cells = contents.cells(value) // max(ref.pieces, 1)
            yield WriteStep(cells, MergedRecord(record, panes.end, panes.positions, panes.gap))
        self.written += 1
