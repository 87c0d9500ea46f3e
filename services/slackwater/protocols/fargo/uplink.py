"""An uplink: sends the merged panes of a site's child to the centre, over a link that may be cut.

In the thesis a child sends its states to its parent and re-sends from the offset that the parent
has (3.4.5). Here both ends are logs: the child's merged panes at the site, and the same log at the
centre, which only uplinks write. What the centre has is in its log: the end of the last pane there.
So an uplink keeps no state, nothing is written with anything else, and two uplinks, or one that
starts again, do no harm. A pane that is sent twice is dropped by its start (``parent``).

* An uplink sends panes in order, each after the one before it. Where the site's log lacks a pane it
  stops: a root at the centre would wait for that pane in any case, and the stop is reported.
* Of two versions of a pane, which may exist if readings are lost in it, it sends the one that is
  complete first.
* Fargo's removal of redundant state (RR): what the centre has, from whichever uplink, is not sent
  again. Copies report up to where the centre has all. One sends, the first that works (``Duty``);
  another one sends a pane if nothing has arrived for a while. Nor are keys (``key_lists``).

What is kept in memory is bounded: a cut link is buffered in the site's Kafka (guarantee-5).

Pure: times are arguments, in us.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from slackwater.model.heads import PaneRef
from slackwater.model.limits import NEVER
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Gap, LogPosition, Position
from slackwater.protocols.fargo.key_lists import SentLists

QUEUED_CELLS_MAX: Final = 1 << 18
"""Numbers that are read and not sent, 2 MiB; one pane may be larger."""
IN_FLIGHT_CELLS_MAX: Final = 1 << 15
"""Numbers that are sent and not acknowledged: 8 s of a link of 256 kbit/s."""
IN_FLIGHT_PANES_MAX: Final = 64
"""The same in panes, which may be small."""
FRESH_US: Final = 1_000_000
"""How long a copy counts as working after its last heartbeat."""
STALLED_US: Final = 5_000_000
"""How long nothing may arrive at the centre before another copy tries, too."""

_Version: TypeAlias = tuple[PaneRef, int, tuple[Gap, ...]]


def cells_of(record: MergedRecord) -> int:
    """Return the size of a record, in numbers."""
    columns = record.pane.columns
    return int(columns.figures.size) + len(columns.keys) + 8


@dataclass(slots=True)
class _Pane:
    """A pane to be sent, and where its records begin in the site's log."""

    end: int
    pieces: deque[MergedRecord]
    cells: int


class Uplink:
    """The merged panes of one part on their way to the centre.

    Args:
        child: the number of the child at the centre.
        replicas: the number of its replicas.
        offset: where the site's log begins.
        lists_us: for how long a list of keys is named; 0: each record has its keys.
    """

    def __init__(self, child: int, replicas: int, offset: int, lists_us: int = 0) -> None:
        self._child, self._replicas = child, replicas
        self._lists = SentLists(lists_us)
        self.has_to = NEVER
        """The event time up to which the centre has all panes, as far as it is known here."""
        self._read_to = NEVER
        """The end of the last pane that is queued or sent."""
        self._versions: dict[_Version, dict[int, MergedRecord]] = {}
        self._queue: deque[_Pane] = deque()
        self._queued_cells = 0
        self._in_flight: deque[tuple[int | None, int]] = deque()
        """Of each record in flight the end of its pane, if it is the last piece, and its size."""
        self._in_flight_cells = 0
        self._begun_at: deque[tuple[int, int]] = deque()
        """Of panes that the centre may lack, the end and the offset of the first record, ascending
        in both: what ends later is not before this offset."""
        self._next = offset
        self._is_first = offset > 0
        """Whether the next pane is the first one that the site's log still has: what was before it
        has been deleted since the centre has it, although its last record may be an old one."""
        self.hole: int | None = None
        """The event time from which on the site's log lacks a pane."""
        self.sent = 0
        """Number of panes that were sent."""

    @property
    def kept_from(self) -> int:
        """The offset in the site's log below which the centre has everything."""
        while self._begun_at and self._begun_at[0][0] <= self.has_to:
            self._begun_at.popleft()
        return self._begun_at[0][1] if self._begun_at else self._next

    @property
    def unsent(self) -> int:
        """Number of panes that are read, and not known to be at the centre."""
        return sum(end is not None for end, _ in self._in_flight) + len(self._queue)

    @property
    def has_room(self) -> bool:
        """Whether the next record of the site's log may be taken."""
        return self.hole is None and self._queued_cells < QUEUED_CELLS_MAX

    def centre_has(self, end: int) -> None:
        """Record that the centre has all panes before ``end``; queued ones are dropped."""
        self.has_to = max(self.has_to, end)
        self._read_to = max(self._read_to, end)
        while self._queue and self._queue[0].end <= self.has_to and not self._has_begun:
            self._queued_cells -= self._queue.popleft().cells
        self._forget_versions()

    @property
    def _has_begun(self) -> bool:
        """Whether some pieces of the first pane of the queue are in flight, or at the centre."""
        return bool(self._queue) and len(self._queue[0].pieces) < self._of_first

    @property
    def _of_first(self) -> int:
        return max(self._queue[0].pieces[0].pane.ref.pieces, 1)

    def take(self, offset: int, record: MergedRecord | None) -> None:
        """Take the next record of the site's log; None: one that does not decode."""
        self._next = offset + 1
        if record is None or record.end <= self._read_to:
            return
        if not self._begun_at or record.end > self._begun_at[-1][0]:
            self._begun_at.append((record.end, offset))
        ref = record.pane.ref
        pieces = self._versions.setdefault((ref, record.end, record.gap), {})
        pieces[record.pane.piece] = record
        if len(pieces) < max(ref.pieces, 1):
            return
        is_next = record.start <= self._read_to or self._read_to == NEVER
        if not (is_next or self._is_first):
            self.hole = self._read_to
            return
        self._is_first = False
        ordered = deque(self._addressed(pieces[piece]) for piece in sorted(pieces))
        pane = _Pane(record.end, ordered, sum(map(cells_of, ordered)))
        self._queue.append(pane)
        self._queued_cells += pane.cells
        self._read_to = record.end
        self._forget_versions()

    def _addressed(self, record: MergedRecord) -> MergedRecord:
        """Return the record as the centre has it: with its child, and without positions.

        The positions are those in deltas that the centre does not have: its logs are empty.
        """
        pane = replace(record.pane, ref=record.pane.ref._replace(child=self._child))
        none = LogPosition(0, 0, -1, Position(record.end))
        return replace(record, pane=pane, positions=(none,) * self._replicas)

    def _forget_versions(self) -> None:
        for version in [each for each in self._versions if each[1] <= self._read_to]:
            del self._versions[version]

    def write(self, panes_max: int = IN_FLIGHT_PANES_MAX) -> list[MergedRecord]:
        """Return the records that are to be sent now, in order.

        A pane that has begun is sent to its end, so that the centre has no piece without the
        others. ``panes_max``: how many panes may be in flight; 0 if another copy sends.
        """
        found: list[MergedRecord] = []
        while self._queue and (self._has_begun or self._may_begin(panes_max)):
            pane = self._queue[0]
            record = pane.pieces.popleft()
            cells, is_last = cells_of(record), not pane.pieces
            self._in_flight.append((pane.end if is_last else None, cells))
            self._in_flight_cells += cells
            found.append(self._lists.sent(record))
            if is_last:
                self._queue.popleft()
                self._queued_cells -= pane.cells
                self.sent += 1
            elif self._in_flight_cells >= IN_FLIGHT_CELLS_MAX:
                break
        return found

    def _may_begin(self, panes_max: int) -> bool:
        panes = sum(end is not None for end, _ in self._in_flight)
        is_small = not self._in_flight or self._in_flight_cells < IN_FLIGHT_CELLS_MAX
        return panes < panes_max and is_small

    def acknowledged(self) -> None:
        """Record that the next of the sent records is in the centre's log."""
        end, cells = self._in_flight.popleft()
        self._in_flight_cells -= cells
        if end is not None:
            self.centre_has(end)


@dataclass(frozen=True, slots=True)
class OtherCopy:
    """Another copy, as its last heartbeat tells: when that came, and whether it is linked."""

    at: int
    linked: bool


class Duty:
    """Which of the copies sends: the first that works, or any if nothing arrives.

    A copy that is not the first sends one pane at a time while the first one says that its link is
    cut, and one if nothing has arrived for a while. Behind a cut of all links the centre therefore
    gets one pane twice for each copy.
    """

    def __init__(self, copy: int) -> None:
        self._copy = copy
        self._arrived = NEVER
        self._moved_at: int | None = None

    def panes_max(
        self, others: Mapping[int, OtherCopy], arrived: int, now: int, *, has_unsent: bool
    ) -> int:
        """Return how many panes this copy may have in flight.

        ``arrived``: the event time up to which the centre has panes, of all parts, as a sum or as
        any other number that grows.
        """
        if not has_unsent or arrived != self._arrived or self._moved_at is None:
            self._arrived, self._moved_at = arrived, now
        earlier = [
            of for copy, of in others.items() if copy < self._copy and now - of.at <= FRESH_US
        ]
        if not earlier:
            return IN_FLIGHT_PANES_MAX
        has_stalled = now - self._moved_at >= STALLED_US
        return 1 if has_stalled or not any(of.linked for of in earlier) else 0
