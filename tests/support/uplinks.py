"""A site, a centre and a link between them, without Kafka: what an uplink does in any order.

Both ends are lists of records. The mergers of the site write each pane once each, the link is cut
and heals, uplinks send, die and start again at the beginning of what the site's log still holds,
and truncation deletes there what an uplink says that the centre has. The centre is a parent of one
child, as a root is, which begins again at times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from slackwater.model.deployment import WindowSpec
from slackwater.model.heads import PaneColumns, PaneRecord, PaneRef
from slackwater.model.limits import NEVER
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Gap, LogPosition, Position
from slackwater.primitives.windows import Grid
from slackwater.protocols.fargo.parent import MergedPanes
from slackwater.protocols.fargo.uplink import Uplink
from slackwater.sessions.uplink import complete_to_of

PANE = 100
GRID = Grid(10, WindowSpec(PANE, PANE))
AT_SITE = LogPosition(7, 7, 0, Position(0))
CHILD = 3


def pieces_of(
    start: int, end: int, rows: int, pieces: int = 1, *, gap: tuple[Gap, ...] = (), version: int = 0
) -> list[MergedRecord]:
    """Return the records of a pane at the site; its digest names its start and its version."""
    ref = PaneRef(0, start, rows, pieces if rows else 0, start * 10 + version)
    columns = PaneColumns([str(start)] if rows else [], np.full((1, 1, min(rows, 1)), 1.0), {})
    return [
        MergedRecord(PaneRecord(ref, piece, columns), end, (AT_SITE,), gap)
        for piece in range(pieces if rows else 1)
    ]


@dataclass
class Sender:
    """One life of an uplink: what it has read of the site's log, and what is on its way."""

    panes: Uplink
    next: int
    on_its_way: deque[MergedRecord] = field(default_factory=deque)


class Site:
    """The site, the link and the centre; ``make`` makes an uplink that begins at an offset."""

    def __init__(self, random: Random, make: Callable[[int], Uplink] | None = None) -> None:
        self.random = random
        self._make = make or (lambda offset: Uplink(CHILD, 1, offset))
        self.panes: list[list[MergedRecord]] = []
        """What the mergers write, pane by pane."""
        self._merged = [0, 0]
        """How far each merger has written them."""
        self.log: list[MergedRecord] = []
        self.beginning = 0
        self.centre: list[MergedRecord] = []
        self.is_cut = False
        self.senders: list[Sender | None] = [None, None]

    # The site.

    def complete_pane(self) -> None:
        """A pane is complete: with rows, empty, or a run of empty ones behind it."""
        random = self.random
        start = self.panes[-1][0].end if self.panes else 0
        rows = random.choice([0, 5, 5])
        end = start + PANE * random.choice([1, 1, 1, 4])
        self.panes.append(pieces_of(start, end, rows, random.choice([1, 1, 3])))

    def merge(self, merger: int) -> None:
        """A merger writes its next pane: it continues behind whatever is in the log."""
        if self._merged[merger] < len(self.panes):
            self.log += self.panes[self._merged[merger]]
            self._merged[merger] += 1

    def restart_merger(self, merger: int) -> None:
        """It continues behind the last pane in the log."""
        self._merged[merger] = max(self._merged)

    def truncate(self) -> None:
        """Delete what an uplink says that the centre has."""
        known = [of.panes.kept_from for of in self.senders if of is not None]
        self.beginning = max([self.beginning, *known])

    # The link.

    def start(self, copy: int) -> None:
        """An uplink starts: it asks the centre what it has, and reads from the log's beginning."""
        if self.is_cut:
            self.senders[copy] = None
            return
        sender = Sender(self._make(self.beginning), self.beginning)
        last = self.centre[-1:]
        sender.panes.centre_has(max(map(complete_to_of, last), default=NEVER))
        self.senders[copy] = sender

    def read(self, copy: int) -> None:
        """An uplink reads the next record of the site's log, if it has room."""
        sender = self.senders[copy]
        if sender is None or not sender.panes.has_room or sender.next >= len(self.log):
            return
        sender.next = max(sender.next, self.beginning)
        if sender.next < len(self.log):
            sender.panes.take(sender.next, self.log[sender.next])
            sender.next += 1

    def send(self, copy: int) -> None:
        """An uplink sends what it may; nothing arrives while the link is cut."""
        sender = self.senders[copy]
        if sender is not None:
            sender.on_its_way += sender.panes.write(self.random.choice([0, 1, 64]))

    def arrive(self, copy: int) -> None:
        """The next record arrives, and is acknowledged: or the link is cut in between."""
        sender = self.senders[copy]
        if sender is None or self.is_cut or not sender.on_its_way:
            return
        self.centre.append(sender.on_its_way.popleft())
        if self.random.random() < 0.1:
            self.senders[copy] = None  # it dies before the acknowledgement
        else:
            sender.panes.acknowledged()

    def report(self, copy: int) -> None:
        """The other copy reads what this one reports."""
        one, other = self.senders[copy], self.senders[1 - copy]
        if one is not None and other is not None:
            other.panes.centre_has(one.panes.has_to)

    # Runs.

    def step(self) -> None:
        """Do anything."""
        random, copy = self.random, self.random.randrange(2)
        acts: list[tuple[int, Callable[[], None]]] = [
            (2, self.complete_pane),
            (6, lambda: self.merge(copy)),
            (1, lambda: self.restart_merger(copy)),
            (2, self.truncate),
            (1, lambda: self.start(copy)),
            (9, lambda: self.read(copy)),
            (6, lambda: self.send(copy)),
            (9, lambda: self.arrive(copy)),
            (3, lambda: self.report(copy)),
            (1, self._cut_or_heal),
        ]
        (act,) = random.choices([act for _, act in acts], [weight for weight, _ in acts])
        act()

    def _cut_or_heal(self) -> None:
        self.is_cut = not self.is_cut

    def run(self, steps: int) -> None:
        """Do anything, then let all faults end: everything arrives."""
        for _ in range(steps):
            self.step()
        self.is_cut = False
        self.restart_merger(0)
        for _ in self.panes:
            self.merge(0)
        self.senders = [None, None]
        self.start(0)
        sender = self.senders[0]
        assert sender is not None
        while sender.next < len(self.log) and sender.panes.has_room:
            self.read(0)
            sent = sender.panes.write()
            self.centre += sent
            for _ in sent:
                sender.panes.acknowledged()

    def used(self) -> list[tuple[int, int]]:
        """Return the panes that a parent uses that reads the centre's log from its beginning."""
        parent = MergedPanes(GRID, lambda e: e, PANE, 1, is_remote=True)
        frontier, found, waiting = 0, [], deque(self.centre)
        while waiting:
            record = waiting.popleft()
            assert record.pane.ref.child == CHILD
            assert record.positions[0].offset == 0, "positions of logs that the centre lacks"
            if parent.is_ahead(record, Position(frontier)):
                break  # it waits for a pane that does not come
            if (usable := parent.take(record, Position(frontier), 0)) is not None:
                found.append((frontier, usable.rows))
                frontier = usable.end
        return found

    def expected(self) -> list[tuple[int, int]]:
        """Return the panes of the site that have rows."""
        return [(of[0].start, of[0].pane.ref.rows) for of in self.panes if of[0].pane.ref.rows]

    def check(self) -> None:
        """Check that the centre uses each pane once, in order, and lacks none."""
        used = self.used()
        assert [each for each in used if each[1]] == self.expected()
        end = self.panes[-1][0].end if self.panes else 0
        reached = max((each.end for each in self.centre), default=0)
        assert reached == end, "the centre lacks the last panes"
