"""A parent's view of the merged panes of one child (Fargo, 3.4.6): one more log of the child.

In the thesis a parent that misses a state waits for it, and the others tell it when it need not
(3.4.3). Here the child's own deltas are there as well, and a merged pane is what their fold would
be, bit for bit. So a parent *rests*: it leaves the deltas unread while merged panes come, and reads
the deltas where one is missing. A dead merger costs the parent's time, and no answer.

A merged pane counts only where the parent is at the start of a pane. Inside one, which has been
begun from deltas, it does not: the parent goes on with the deltas to the end of the pane.

When a parent rests, and when it reads:

* It begins to rest when it uses a merged pane, and at the end of a pane if the merger is
  *punctual*: the pane before came within ``wait_us`` of its normal time. A merger that is always
  later would cost each answer that time, and save nothing.
* It reads when the pane at the frontier has not come within ``wait_us`` of its normal time, or of
  the last pane that has come if that is later: behind a backlog no pane is in time. It also reads
  when a later pane comes: this one is missing in the log.

Both are a matter of time only; what is read gives the same answers.

Pure: times are arguments, in us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from slackwater.model.heads import PaneColumns
from slackwater.model.limits import NEVER
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Gap, LogPosition, Position
from slackwater.primitives.windows import Grid

WAIT_US_MAX: Final = 250_000
"""How long a merged pane is waited for after its normal time."""
WAIT_SHARE: Final = 4
"""The share of the time until the deadline that a parent waits: the deltas are to be read, too."""


def wait_us(deadline_us: int) -> int:
    """Return how long a parent waits that answers at a deadline after the normal time."""
    return max(min(WAIT_US_MAX, deadline_us // WAIT_SHARE), 0)


class Usable(NamedTuple):
    """The complete panes from the frontier to ``end``: the pieces of the first, and no other rows.

    ``pieces`` is empty if none of them has rows.
    """

    end: int
    pieces: tuple[PaneColumns, ...]
    digest: int
    rows: int
    positions: tuple[LogPosition, ...]
    gap: tuple[Gap, ...] = ()


class MergedPanes:
    """One child's merged panes, and whether its deltas are read.

    Args:
        grid: the query's windows.
        normal_time: the wall time at which an event time is due; None if it is not known yet.
        wait_us: how long a pane is waited for.
        replicas: the number of the child's replicas.
        is_remote: whether a site has the child: there are no deltas of it here, so panes in which
            readings are lost are used, too (rule-37).
    """

    def __init__(
        self,
        grid: Grid,
        normal_time: Callable[[int], int | None],
        wait_us: int,
        replicas: int,
        *,
        is_remote: bool = False,
    ) -> None:
        self._grid = grid
        self._normal_time = normal_time
        self._wait_us = wait_us
        self._replicas = replicas
        self._is_remote = is_remote
        self._pieces: dict[int, MergedRecord] = {}
        """Pieces of the pane at the frontier, one digest."""
        self._punctual_to = NEVER
        """The end of the last pane that came in time."""
        self._came_at = NEVER
        """When a pane came last that was used."""
        self.rests = False
        """Whether the stable deltas of the child are left unread."""
        self.used = 0
        """Number of merged records that were used."""

    def begin(self, frontier: Position, now: int, *, has_unread: bool) -> None:
        """Begin at a frontier; ``has_unread``: whether the log has records to be read."""
        self._came_at = now
        self.rests = has_unread and self.is_edge(frontier)

    def is_edge(self, frontier: Position) -> bool:
        """Return whether a pane starts at the frontier."""
        e = frontier.bucket_start
        return not frontier.piece and self._grid.pane_start(e) == e

    def is_ahead(self, record: MergedRecord, frontier: Position) -> bool:
        """Return whether the record is held: the parent has not come to it yet (rule-12)."""
        return record.start > frontier.bucket_start

    def take(self, record: MergedRecord, frontier: Position, now: int) -> Usable | None:
        """Take a record that is not ahead; return the panes that it completes, to be used now."""
        self._note_time(record, now)
        e = frontier.bucket_start
        if len(record.positions) != self._replicas or record.end <= e or not self.is_edge(frontier):
            return None
        if any(self._grid.pane_start(edge) != edge for edge in (record.start, record.end)):
            return None  # of other windows
        if record.gap and not self._is_remote:
            return None  # the deltas say which version of the pane counts
        ref = record.pane.ref
        if record.start < e or not ref.rows:  # what follows the first pane is empty
            return self._use(record.end, (), record, now)
        known = next(iter(self._pieces.values()), None)
        if known is None or (known.pane.ref, known.gap) != (ref, record.gap):
            self._pieces = {}
        self._pieces[record.pane.piece] = record
        if len(self._pieces) < ref.pieces:
            return None
        pieces = tuple(self._pieces[piece].pane.columns for piece in sorted(self._pieces))
        return self._use(record.end, pieces, record, now)

    def _use(
        self, end: int, pieces: tuple[PaneColumns, ...], record: MergedRecord, now: int
    ) -> Usable:
        self._pieces = {}
        self._came_at, self.rests = now, True
        self.used += 1
        ref = record.pane.ref
        rows = ref.rows if pieces else 0
        return Usable(end, pieces, ref.digest, rows, record.positions, record.gap)

    def damaged(self) -> None:
        """Do not use the last panes: their contents are not those that the record names."""
        self.rests = False

    def _note_time(self, record: MergedRecord, now: int) -> None:
        normal = self._normal_time(record.end)
        if normal is None or now <= normal + self._wait_us:
            self._punctual_to = max(self._punctual_to, record.end)

    # When the deltas are read.

    def look(self, frontier: Position, now: int) -> int | None:
        """Decide whether the child rests; return when it is to be looked at again."""
        if not self.rests:
            at = frontier.bucket_start
            is_punctual = self._punctual_to >= self._grid.pane_start(at - 1)
            if not (is_punctual and self.is_edge(frontier)):
                return None
            self.rests, self._came_at = True, now
        due_at = self._due_at(frontier)
        if due_at is not None and now >= due_at:
            self.read()
            return None
        return due_at

    def read(self) -> None:
        """Read the deltas: the pane at the frontier is missing, or it is needed now."""
        self.rests = False
        self._punctual_to = NEVER

    def _due_at(self, frontier: Position) -> int | None:
        """When the pane at the frontier is missing; None if that is not known yet."""
        normal = self._normal_time(self._grid.pane_end(frontier.bucket_start))
        return None if normal is None else max(normal, self._came_at) + self._wait_us
