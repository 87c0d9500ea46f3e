"""The merged panes that a root reads (rule-36): one log for each child, beside its deltas.

``protocols.fargo.parent`` decides which panes are used and when the deltas are read,
``protocols.dpc.soutput.resting`` moves the core's cursors. This module has the logs: where the live
consumer and the catch-up reader are in them, and what a record is checked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from slackwater.model.limits import NEVER
from slackwater.model.merged import MergedRecord
from slackwater.model.records import RootState
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.digests import recorded
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import RootConfig, merged_from
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.soutput.decision import earliest
from slackwater.protocols.fargo.key_lists import KnownLists, carries, lists_us
from slackwater.protocols.fargo.parent import MergedPanes, Usable
from slackwater.sessions.effects import Skipped
from slackwater.sessions.events import Record
from slackwater.sessions.requests import Log

LOOK_PERIOD_US: Final = 5_000
REMOTE_TO: Final = "remote_to."
"""Details of a root's heartbeat, by child that a site has: up to where its panes have come."""
NOT_A_PANE: Final = "merged pane that its digest does not name"
UNKNOWN_KEYS: Final = "merged pane with keys that no earlier record has"


@dataclass(slots=True)
class _Cursor:
    """Where a log is read: by the live consumer while it is attached, else by the other one."""

    offset: int
    panes: MergedPanes
    attached: bool = True
    position: int = 0
    """The next offset of the live consumer."""
    held: MergedRecord | None = None
    """The record at ``offset``, if it waits for the frontier."""
    lists: KnownLists = field(default_factory=lambda: KnownLists(0))


class MergedInput:
    """The merged panes of a root's children; without mergers there is none."""

    def __init__(self, config: RootConfig) -> None:
        self._config = config
        topic = config.topics.merged(config.query, config.part)
        wait_us = config.merged_wait_us
        children = 0 if wait_us is None else len(config.children)
        self.at: dict[Log, int] = {(topic, child): child for child in range(children)}
        """The child of each log."""
        self._logs = {child: log for log, child in self.at.items()}
        normal, replicas = config.schedule.normal_time, config.replicas
        self._cursors = [
            _Cursor(
                0,
                MergedPanes(
                    *(config.grid, normal, wait_us or 0, replicas),
                    is_remote=child in config.remote,
                ),
                lists=KnownLists(lists_us(config.grid.window) if config.grid.window else 0),
            )
            for child in range(children)
        ]
        self._ends: Mapping[Log, int] = {}
        self._has_begun = False
        self._has_news = bool(self.at)
        self._looked_at = NEVER
        self._due_at: int | None = None
        self._skipped: list[Skipped] = []

    def continue_at(
        self, state: RootState, begin: Mapping[Log, int], ends: Mapping[Log, int]
    ) -> None:
        """Begin where the state record says, but not before the logs' beginnings."""
        self._ends = ends
        for (log, child), offset in zip(
            self.at.items(), merged_from(self._config, state), strict=True
        ):
            cursor = self._cursors[child]
            cursor.offset = cursor.position = max(offset, begin[log])

    @property
    def live_offsets(self) -> dict[Log, int]:
        """Where the live consumer starts."""
        return {log: self._cursors[child].offset for log, child in self.at.items()}

    # Records.

    def live_at(self, log: Log, offset: int) -> None:
        """Set the position of a live consumer that reads the log already."""
        cursor = self._cursors[self.at[log]]
        cursor.position = offset
        cursor.attached = cursor.offset == offset

    def position_gone(self, log: Log, beginning: int) -> None:
        """Go on at the beginning: what is missing is read from the deltas."""
        cursor = self._cursors[self.at[log]]
        cursor.offset, cursor.held = max(cursor.offset, beginning), None
        cursor.attached = cursor.offset >= cursor.position

    def receive(self, core: RootCore, log: Log, offset: int, record: Record, now: int) -> None:
        """Take a record of the live consumer."""
        cursor = self._cursors[self.at[log]]
        cursor.position = offset + 1
        if cursor.attached or cursor.offset == offset:
            self._take(core, log, offset, record, now)

    def replayed(self, core: RootCore, log: Log, offset: int, record: Record, now: int) -> None:
        """Take a record of the catch-up reader."""
        cursor = self._cursors[self.at[log]]
        if not cursor.attached and cursor.offset == offset:
            self._take(core, log, offset, record, now)

    def _take(self, core: RootCore, log: Log, offset: int, record: Record, now: int) -> None:
        self._has_news, child = True, self.at[log]
        cursor = self._cursors[child]
        if offset < cursor.offset:
            return
        merged = record if isinstance(record, MergedRecord) else None
        if merged is not None and merged.pane.ref.child == child:
            if self._is_held(core, child, merged):
                cursor.offset, cursor.attached, cursor.held = offset, False, merged
                if merged.start > core.resting.frontier(child).bucket_start and cursor.panes.rests:
                    self._read(core, child)  # the pane at the frontier is missing in the log
                return
            if (known := cursor.lists.completed(merged)) is not None:
                usable = cursor.panes.take(known, core.resting.frontier(child), now)
                if usable is not None:
                    self._use(core, log, offset, usable)
            elif merged.end > core.resting.frontier(child).bucket_start:
                self._skipped.append(Skipped(log, offset, UNKNOWN_KEYS, f"{merged.keys_hash}"))
            needed_to = merged.end
            if carries(merged):
                needed_to = max(needed_to, merged.start + cursor.lists.lists_us)
            core.resting.offsets[child].note(needed_to, offset)
        else:
            core.resting.offsets[child].note(None, offset)
        cursor.offset, cursor.held = offset + 1, None
        cursor.attached = cursor.offset >= cursor.position

    def _is_held(self, core: RootCore, child: int, record: MergedRecord) -> bool:
        """Whether a record has to wait: for the frontier, or for room (rule-12)."""
        frontier = core.resting.frontier(child)
        if self._cursors[child].panes.is_ahead(record, frontier):
            return True
        return record.end > frontier.bucket_start and not core.resting.has_room(
            child, core.needed_to
        )

    def _use(self, core: RootCore, log: Log, offset: int, usable: Usable) -> None:
        child, contents = self.at[log], core.contents
        assert isinstance(contents, Aggregates), "only aggregates are merged"
        value: Any = contents.empty
        if usable.pieces:
            try:
                value = contents.install(usable.pieces, usable.end)
            except ValueError:
                value = contents.empty
            if (len(value), recorded(contents.digest(value))) != (usable.rows, usable.digest):
                self._skipped.append(Skipped(log, offset, NOT_A_PANE, f"{len(value)} rows"))
                self._read(core, child)
                return
        core.resting.use(child, usable.end, value, usable.positions, core.needed_to, usable.gap)
        core.resting.rest(child, core.line.live_next)

    def wanted(self, core: RootCore) -> dict[tuple[LineName, Log], int]:
        """Return where the catch-up reader reads: parked logs whose next record can be used."""
        found: dict[tuple[LineName, Log], int] = {}
        for child, cursor in enumerate(self._cursors):
            is_held = cursor.held is not None and self._is_held(core, child, cursor.held)
            if not (cursor.attached or is_held):
                found[LineName.STABLE, self._logs[child]] = cursor.offset
        return found

    # Time.

    def step(self, core: RootCore, now: int) -> int | None:
        """Rest, or read the deltas, as is due; return when this is to be looked at again.

        It looks after each merged record, and once in a while: a root takes many turns.
        """
        if not self._has_news and now - self._looked_at < LOOK_PERIOD_US:
            return self._due_at
        self._has_news, self._looked_at = False, now
        if not self._has_begun:
            self._has_begun = True
            for child, cursor in enumerate(self._cursors):
                end = self._ends.get(self._logs[child], 0)
                has_unread = cursor.offset < end
                cursor.panes.begin(core.resting.frontier(child), now, has_unread=has_unread)
        due: list[int | None] = []
        for child, cursor in enumerate(self._cursors):
            due.append(cursor.panes.look(core.resting.frontier(child), now))
            if cursor.panes.rests:
                core.resting.rest(child, core.line.live_next)
            elif child in core.resting.children:
                self._read(core, child)
        self._due_at = earliest(*due)
        return self._due_at

    def _read(self, core: RootCore, child: int) -> None:
        self._cursors[child].panes.read()
        core.resting.read(child)

    def skipped(self) -> list[Skipped]:
        """Return the records that were not what they name, once."""
        found, self._skipped = self._skipped, []
        return found

    def detail(self, core: RootCore) -> dict[str, int]:
        """Return the counters of the heartbeat."""
        if not self.at:
            return {}
        used = sum(cursor.panes.used for cursor in self._cursors)
        remote = {
            f"{REMOTE_TO}{child}": core.resting.frontier(child).bucket_start
            for child in self._config.remote
        }
        return {"merged": used, "resting": len(core.resting.children)} | remote
