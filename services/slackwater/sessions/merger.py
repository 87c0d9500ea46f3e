"""The session of a merger: one copy of the merger of one child, for all parts, without I/O.

``protocols.fargo.merger`` has the panes, ``protocols.dpc.soutput.stable_input`` the child's
replicas: each bucket is taken once (rule-11), as a root does. This module has the start, the logs,
and what becomes of a merger that nobody needs where it is.

A merger continues behind the last record in its log, which any copy may have written, or at S of
the part if that is later. If the deltas there have been deleted, since the roots have stored their
panes (rule-34), it begins at the next pane of which all deltas are kept. A pane that it leaves out
is read from the deltas.

At a site with a Kafka of its own it leaves nothing out: the centre has no deltas (rule-37). There
the deltas behind its log are kept, and it continues behind its log whatever has been answered.

It reports no hole and nobody waits for it. Where it is stuck, the roots go on with the deltas, and
whatever hinders them is their concern: a merger that they have left behind begins again at S.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from slackwater.model.merged import MergedRecord
from slackwater.model.names import UNPREFIXED, MergerName, Names, RootName, part_names, root_of
from slackwater.model.records import Heartbeat, LogPosition, Position, RootState
from slackwater.primitives.deltas import Aggregates, Slice
from slackwater.primitives.key_table import KEPT_KEYS_MIN, KeyTable
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.inputs import InputLog, Inputs
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.children import take_stable
from slackwater.protocols.dpc.soutput.config import DeltaLog
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor
from slackwater.protocols.dpc.soutput.heads import position_in
from slackwater.protocols.dpc.soutput.stable_input import StableInput
from slackwater.protocols.fargo.merger import Merger
from slackwater.sessions.effects import Append, Effect, Rebuild
from slackwater.sessions.events import (
    CommitFailed,
    CommitSucceeded,
    EarlierEnded,
    EndsFetched,
    HeartbeatReceived,
    HeartbeatReturned,
    HoleReported,
    IncarnationClaimed,
    LiveAt,
    PassedBy,
    PositionGone,
    PositionsFetched,
    Received,
    Record,
    RecordDelivered,
    Replayed,
    ReplayedTo,
    ResignRequested,
    SessionEvent,
)
from slackwater.sessions.requests import Beginnings, Log, Procedure, ReadMerged, ReadPart, State
from slackwater.sessions.root_logs import checked_record
from slackwater.sessions.session import Form, Report

LAST_RECORDS_MAX: Final = 64
"""Records of a log of merged panes in which the last pane is looked for."""
STALLED_US: Final = 1_000_000
"""How long a merger that the roots have left behind may stand still before it begins again."""
LINE: Final = LineName.LIVE
"""The name of its only line for ``Inputs``: the live consumer's."""


@dataclass(frozen=True, slots=True)
class MergerConfig:
    """Configuration of a copy of a merger; for the fields see ``RootConfig``."""

    query: str
    child: int
    copy: int
    parts: int
    replicas: int
    fields: tuple[str, ...]
    grid: Grid
    start_time: int
    contents: Callable[[KeyTable, tuple[str, ...]], Aggregates] = Aggregates
    ahead_buckets_max: int = 600
    topics: Names = UNPREFIXED
    children_of: str = ""
    stalled_us: int = STALLED_US
    keeps_all: bool = False
    """Whether each pane is needed, since it is sent to a centre; also those with losses."""
    kept_keys_min: int = KEPT_KEYS_MIN

    @property
    def process(self) -> str:
        """The name of this copy."""
        return MergerName(self.query, self.child, self.copy).process

    @property
    def logs(self) -> list[DeltaLog]:
        """The stable deltas of the child, of each part."""
        return [DeltaLog(self.child, r, LineName.STABLE) for r in range(self.replicas)]

    def place(self, part: int, log: DeltaLog, children_query: str) -> Log:
        """Where the deltas of a part are."""
        return self.topics.deltas(children_query, part), log.partition(self.replicas)


@dataclass(slots=True)
class _Part:
    """What the merger has of one part."""

    number: int
    log: Log
    """Where its merged panes are written."""
    contents: Aggregates
    keys: KeyTable
    merger: Merger[Slice]
    stable: StableInput
    inputs: Inputs[DeltaLog, DeltaCursor]
    answered_to: int = 0
    """S of the part, as the roots report it."""
    moved_at: int = 0
    frontier_then: Position = field(default_factory=lambda: Position(0))

    def positions_at(self, end: int) -> list[LogPosition]:
        """Where the logs of the replicas are read on behind the pane that ends at ``end``."""
        stable = self.stable
        return [position_in(stable, replica, end) for replica in range(len(stable.cursors))]

    def acknowledged(self) -> None:
        """Record that the next of the written records is in the log; its keys may be forgotten."""
        self.merger.acknowledged()
        self.keys.forget_before(self.merger.needed_from)

    def offer(self, log: DeltaLog, offset: int, record: Any) -> None:
        """Take a record, and note the panes that it completes."""
        low = self.merger.unwritten_from
        take_stable(self.stable, self.merger.panes, self.contents, log, offset, record, low)
        self.merger.look(self.positions_at)


class MergerSession:
    """Session of one copy of a merger."""

    hole: Final = None
    """Its log has none that matter: a pane that is missing is read from the deltas."""
    inc: Final = -1
    """Copies write the same: none replaces another."""

    def __init__(self, config: MergerConfig) -> None:
        self.config = config
        of = config.children_of or config.query
        self._at: dict[Log, tuple[int, DeltaLog]] = {
            config.place(part, log, of): (part, log)
            for part in range(config.parts)
            for log in config.logs
        }
        self._places = {at: log for log, at in self._at.items()}
        self._parts: list[_Part] = []
        self._by_log: dict[Log, _Part] = {}
        self._queued: list[Effect] = []
        self._is_ending = False
        self._now = 0

    @property
    def fragment(self) -> str:
        """Name of the fragment."""
        return self.config.process

    @property
    def parts(self) -> Sequence[_Part]:
        """What it has of each part; for tests."""
        return self._parts

    @property
    def inputs(self) -> Mapping[Log, Form]:
        """The stable deltas of the child."""
        return dict.fromkeys(self._at, "deltas")

    @property
    def listens_to(self) -> Sequence[str]:
        """The roots, which may go on without it."""
        query = self.config.query
        names = (part_names(query, part) for part in range(self.config.parts))
        return [name.process for of in names for name in of]

    # Start.

    def start(self) -> Procedure[Sequence[Effect]]:
        """Find out, for each part, behind which pane to continue."""
        beginnings = yield Beginnings(tuple(self._at))
        for number in range(self.config.parts):
            part = yield from self._begin(number, beginnings)
            self._parts.append(part)
            self._by_log[part.log] = part
        return []

    def _begin(self, part: int, beginnings: Mapping[Log, int]) -> Procedure[_Part]:
        config = self.config
        log: Log = (config.topics.merged(config.query, part), config.child)
        state, _ = yield ReadPart(config.query, part, self._fits)
        records = yield ReadMerged(log, LAST_RECORDS_MAX)
        start, frontier, positions = self._continue_at(None if config.keeps_all else state, records)
        first = [beginnings[self._places[part, of]] for of in config.logs]
        gone = [at > position.offset for at, position in zip(first, positions, strict=True)]
        if all(gone) and any(first):
            if state is not None and not config.keeps_all:
                moved_to = state.moved_to[config.child : config.child + 1]
                start = frontier = self._edge_from(max(frontier, *moved_to, state.answered_to))
            positions = [LogPosition(at, -1, -1, Position(frontier)) for at in first]
        keys = KeyTable(kept_keys_min=config.kept_keys_min)
        contents = config.contents(keys, config.fields)
        merger = Merger(
            *(config.child, config.grid, contents, start), writes_losses=config.keeps_all
        )
        if frontier > start:
            merger.panes.advance(frontier)
        cursors = [DeltaCursor(at, config.grid.pane_start, strict=True) for at in positions]
        ahead = config.ahead_buckets_max
        stable = StableInput(cursors, Position(frontier), ahead * config.grid.w_us, ahead)
        logs = {of: InputLog(cursors[of.replica], None) for of in config.logs}
        inputs: Inputs[DeltaLog, DeltaCursor] = Inputs(logs, [config.logs], {})
        inputs.begin_at(dict(zip(config.logs, first, strict=True)))
        return _Part(part, log, contents, keys, merger, stable, inputs)

    def _fits(self, state: State) -> bool:
        """Whether a state record of the part has its logs."""
        if not isinstance(state, RootState):
            return True
        part = root_of(state.fragment)
        if part is None or RootName(self.config.query, part.part) != part:
            return True
        logs = {(of.child, of.replica, of.line) for of in state.logs}
        return {(*of[:2], int(of.line)) for of in self.config.logs} <= logs

    def _continue_at(
        self, state: RootState | None, records: Sequence[MergedRecord]
    ) -> tuple[int, int, list[LogPosition]]:
        """Return the start of the first pane, the event time to begin at, and the positions."""
        config, grid = self.config, self.config.grid
        if state is None:
            frontier = grid.bucket_start(config.start_time)
            positions = [LogPosition(0, 0, -1, Position(frontier))] * config.replicas
        else:
            frontier = state.child_frontiers[config.child].bucket_start
            of = {(log.child, log.replica, log.line): log.stable for log in state.logs}
            positions = [of[log.child, log.replica, int(log.line)] for log in config.logs]
        ends = [
            record
            for record in records
            if record.pane.ref.child == config.child
            and record.pane.piece + 1 >= record.pane.ref.pieces
            and len(record.positions) == config.replicas
            and record.end > frontier
            and grid.pane_start(record.end) == record.end
        ]
        if not ends:
            return grid.pane_start(frontier), frontier, positions
        last = max(ends, key=lambda record: record.end)
        return last.end, last.end, list(last.positions)

    def _edge_from(self, e: int) -> int:
        """Return the first start of a pane at ``e`` or later."""
        at = self.config.grid.pane_start(e)
        return at if at == e else self.config.grid.pane_end(e)

    @property
    def live_offsets(self) -> Mapping[Log, int]:
        """Offsets at which the live consumer starts."""
        return {
            self._places[part.number, log]: offset
            for part in self._parts
            for log, offset in part.inputs.positions.items()
        }

    # Input.

    def take(self, event: SessionEvent) -> int | None:
        """Take an event; see ``Session``. A pane that is complete is written at once."""
        match event:
            case Received(log, offset, record):
                return self._receive(log, offset, record)
            case Replayed(_, log, offset, record):
                number, of = self._at[log]
                part = self._parts[number]
                cursor = part.inputs.replaying(LINE, of, offset, offset + 1)
                if cursor is not None:
                    part.offer(of, offset, self._checked(log, offset, record))
                    if cursor.offset > offset:
                        part.inputs.attach(LINE, of)
            case LiveAt(log, offset):
                number, of = self._at[log]
                self._parts[number].inputs.live_at(of, offset)
            case PassedBy(log, offset):
                number, of = self._at[log]
                self._parts[number].inputs.pass_by(of, offset)
            case PositionGone(_, log, beginning):
                self._end(f"{log[0]}:{log[1]} now begins at {beginning}")
            case RecordDelivered(log, _):
                self._by_log[log].acknowledged()
            case HeartbeatReceived(beat):
                self._note_answered(beat)
            case (
                HeartbeatReturned()
                | ReplayedTo()
                | EndsFetched()
                | PositionsFetched()
                | CommitSucceeded()
                | CommitFailed()
                | IncarnationClaimed()
                | HoleReported()
                | ResignRequested()
                | EarlierEnded()
            ):
                pass
            case _:
                assert_never(event)
        return None

    def _receive(self, log: Log, offset: int, record: Record) -> int | None:
        number, of = self._at[log]
        part = self._parts[number]
        readers = part.inputs.receive(of, offset, offset + 1)
        if readers:
            part.offer(of, offset, self._checked(log, offset, record))
        return 0 if part.merger.is_busy else None

    def _checked(self, log: Log, offset: int, record: Record) -> Any:
        checked, skipped = checked_record("deltas", self._at[log][1], log, offset, record)
        self._queued += skipped
        return checked

    def _note_answered(self, beat: Heartbeat) -> None:
        """Take S of a part from a root's heartbeat."""
        name = root_of(beat.process)
        if name is not None and name.part < len(self._parts):
            part = self._parts[name.part]
            part.answered_to = max(part.answered_to, beat.detail.get("stable_from", 0))

    def needs(self, log: Log, offset: int) -> bool:
        """Return whether the record is read now, not later by a catch-up reader."""
        number, of = self._at[log]
        return self._parts[number].inputs.needs(of, offset)

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Return the start offsets of the catch-up reader."""
        found: dict[tuple[LineName, Log], int] = {}
        for part in self._parts:
            low, stable = part.merger.unwritten_from, part.stable
            for log, cursor in part.inputs.parked(LINE):
                if stable.wants(log.replica) and stable.has_room(cursor.boundary, low):
                    found[LINE, self._places[part.number, log]] = cursor.offset
        return found

    # Output.

    def step(self, now: int) -> Sequence[Effect]:
        """Write what is complete, some in each turn."""
        self._now = now
        for part in self._parts if not self._is_ending else ():
            self._queued += [Append(part.log, record) for record in part.merger.write()]
            self._look_behind(part, now)
        effects, self._queued = self._queued, []
        return effects

    def _look_behind(self, part: _Part, now: int) -> None:
        """Begin again if the part has been answered beyond where this merger stands still.

        It would begin where it is if it needs all.
        """
        if self.config.keeps_all:
            return
        frontier = part.stable.frontier
        if frontier != part.frontier_then or not part.moved_at:
            part.frontier_then, part.moved_at = frontier, now
            return
        has_stalled = now - part.moved_at >= self.config.stalled_us
        if has_stalled and part.answered_to > frontier.bucket_start:
            self._end(f"part {part.number} has been answered without it")

    def _end(self, why: str) -> None:
        if not self._is_ending:
            self._is_ending = True
            self._queued.append(Rebuild(f"{self.fragment}: {why}"))

    @property
    def busy(self) -> bool:
        """Whether more work is due immediately."""
        return bool(self._queued) or any(part.merger.is_busy for part in self._parts)

    @property
    def wake_at(self) -> int | None:
        """Time of the next look at what the roots have answered."""
        return None if self._is_ending else self._now + self.config.stalled_us

    @property
    def state(self) -> str:
        """It has one state: what it has not merged is read without it."""
        return LineState.STABLE.value

    def report(self) -> Report:
        """Report progress and counters."""
        config = self.config
        mergers = [part.merger for part in self._parts]
        return Report(
            ready=bool(self._parts),
            states={config.topics.merged(config.query, 0): self.state},
            detail={
                "merged_to": min((merger.merged_to for merger in mergers), default=0),
                "panes": sum(merger.written for merger in mergers),
                "withheld": sum(merger.withheld for merger in mergers),
            },
        )
