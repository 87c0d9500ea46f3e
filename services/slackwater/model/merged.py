"""Merged panes: what a merger makes of a child's buckets (Fargo, sections 3.4.6 and 3.4.8).

Of the panes in [start, end) only the first one has rows: a run of empty panes that follows is in
the same record, as a boundary of an ordered log stands for a run of empty buckets (rule-3). A
record is a piece of a pane (``model.heads``) and what a reader needs to go on behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.model.heads import PaneRecord
from slackwater.model.records import Gap, LogPosition


@dataclass(frozen=True, slots=True, eq=False)
class MergedRecord:
    """One piece of a merged pane of one part, in ``sw.merged.<query>.<part>``.

    The start of the pane is the record's seq: the record whose ``end`` it is precedes it. ``pane``
    has no rows if the first pane of [start, end) is empty, too. ``positions`` has, of each replica,
    the position in its stable deltas from which reading continues at ``end``. ``gap`` has readings
    of the panes that are lost (rule-28); only at a site does such a pane have a record. At a centre
    a record with ``keys_hash`` has keys that later records name by it, or names earlier ones and
    has none (``protocols.fargo.key_lists``).
    """

    pane: PaneRecord
    end: int
    positions: tuple[LogPosition, ...]
    gap: tuple[Gap, ...] = ()
    keys_hash: int = 0

    @property
    def start(self) -> int:
        """Where its first pane begins, us of event time."""
        return self.pane.ref.start
