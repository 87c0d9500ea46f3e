"""A root copy: the product's core, its transactions, and the restart that is also the take-over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulator.kafka import FencedError, Log, Open, PositionGoneError
from tests.simulator.process import Process

from slackwater.model.records import BucketRecord, DeltaRecord, Kind, OrderedRecord
from slackwater.protocols.dpc.replicated import damaged_delta
from slackwater.protocols.dpc.root import (
    ORDERED_PERIOD_US,
    Commit,
    DeltaLog,
    FetchEnds,
    FetchOrdered,
    RootCore,
    initial_state,
    stays_down,
)

if TYPE_CHECKING:
    from tests.simulator.queries import SimQuery

LIVE_RECORDS_MAX = 200
CATCH_UP_RECORDS_MAX = 50
CATCH_UP_WAIT_US = 3_000
STEP_US = 200
RECORD_US = 20


class SimRoot(Process):
    """One copy of part ``part``."""

    def __init__(self, query: SimQuery, part: int) -> None:
        super().__init__(query.world, f"root/{query.name}.{part}")
        self.query, self.part = query, part
        self.core: RootCore | None = None
        self.placement = self.world.next_placement()
        self._id = f"root-{query.name}-{part}"
        self._epoch = -1
        self.deaf_to: set[tuple[int, int]] = set()
        """(child, replica) whose deltas the live consumer does not fetch any more."""
        self._logs: dict[DeltaLog, Log[object]] = {}
        self._positions: dict[DeltaLog, int] = {}
        self._commit: Commit | None = None

    # Start: rule 27.

    def start(self) -> None:
        broker = self.world.broker
        if not broker.up:
            self.later(20_000, self.start)
            return
        if stays_down(self.query.root_state(self.part), self.placement):
            self.world.note(self.name, "stays down: a greater placement was here")
            self.kill()
            return
        self._epoch = broker.fence(self._id)
        config = self.query.root_config(self.part, self.placement)
        state = self.query.root_state(self.part) or initial_state(config)
        self._logs = {log: self.query.root_log(self.part, log) for log in config.logs}
        mute_until = {log: partition.end for log, partition in self._logs.items()}
        self.core = RootCore(config, state, mute_until=mute_until)
        self.core.begin_at({log: partition.beginning for log, partition in self._logs.items()})
        self._positions = self.core.live_offsets
        for partition in self._logs.values():
            self.watch(partition)
        self.world.works(self)
        self.turn()

    # The loop.

    def turn(self) -> None:
        core = self.core
        if core is None:
            return
        read = self._read_live(core) + self._read_parked(core)
        config, ahead_us = self.query.config, self.now - self.world.scheduler.now
        for child in range(len(config.children)):
            for replica in range(config.replicas):
                name = self.query.orderer_name(child, replica)
                heard = self.world.heartbeats.heard(name)
                if heard is not None:
                    state, at = heard
                    core.replica_says(child, replica, state, at + ahead_us)
        now = self.now
        for effect in core.step(now):
            match effect:
                case FetchEnds(logs):
                    self._fetch_ends(core, logs)
                case FetchOrdered(logs):
                    self._fetch_ordered(core, logs)
                case Commit():
                    self._begin(core, effect)
        self.world.heartbeats.say(self, core.line.state.value, core.holes)
        self.query.places.say(self, core)
        cost = STEP_US + read * RECORD_US
        if core.busy or self._is_behind:
            self.turn_in(cost)
        elif self._has_parked_records(core):
            self.turn_in(max(CATCH_UP_WAIT_US, cost))
        if core.wake_at is not None and self._commit is None:
            self.turn_in(max(core.wake_at - now, cost))

    @property
    def _is_behind(self) -> bool:
        up = self.world.broker.up
        return up and any(
            self._positions[log] < at.end and (log.child, log.replica) not in self.deaf_to
            for log, at in self._logs.items()
        )

    def _has_parked_records(self, core: RootCore) -> bool:
        """Without them there is no need to look again: what is appended wakes the loop."""
        return self.world.broker.up and any(
            offset < self._logs[log].end for (_, log), offset in core.wanted().items()
        )

    def _read_live(self, core: RootCore) -> int:
        if not self.world.broker.up:
            return 0
        count = 0
        for log, partition in self._logs.items():
            if (log.child, log.replica) in self.deaf_to:
                continue
            at = max(self._positions[log], partition.beginning)
            for offset, value in partition.read(at, LIVE_RECORDS_MAX):
                self._positions[log] = offset + 1
                core.receive(log, offset, self._decoded(log, offset, value))
                count += 1
        return count

    def _read_parked(self, core: RootCore) -> int:
        if not self.world.broker.up:
            return 0
        count = 0
        for (line, log), offset in core.wanted().items():
            partition = self._logs[log]
            try:
                records = partition.read(offset, CATCH_UP_RECORDS_MAX)
            except PositionGoneError:
                core.position_gone(line, log, partition.beginning)
                continue
            for at, value in records:
                core.catch_up(line, log, at, self._decoded(log, at, value))
                count += 1
        return count

    def _decoded(self, of: DeltaLog, offset: int, value: object) -> BucketRecord:
        """As the shell has it; an ordered record counts by its offset (R21)."""
        if isinstance(value, OrderedRecord):
            return replace(value, seq=offset)
        if value is None and self.query.config.rows:
            return OrderedRecord(Kind.VOID, of.child, of.replica, 0, 0, 0, seq=offset)
        if value is None:
            return damaged_delta(of.child, of.replica)
        assert isinstance(value, DeltaRecord)
        return value

    def _fetch_ends(self, core: RootCore, logs: tuple[DeltaLog, ...]) -> None:
        asked_at = self.now
        known = self.world.broker.up

        def answer() -> None:
            up = known and self.world.broker.up
            core.ends({log: self._logs[log].end if up else None for log in logs}, asked_at)
            self.turn_in(0)

        wait = (
            self.world.scheduler.between(500, 3_000) if known else self.world.config.margin_us // 2
        )
        self.later(wait, answer)

    def _fetch_ordered(self, core: RootCore, logs: tuple[DeltaLog, ...]) -> None:
        if not self.world.broker.up:
            self.later(ORDERED_PERIOD_US, lambda: core.ordered({}))
            return

        def answer() -> None:
            ordered = {log: self.query.ordered_log(*log) for log in logs}
            core.ordered({log: (of.beginning, of.end) for log, of in ordered.items()})
            self.turn_in(0)

        self.later(self.world.scheduler.between(500, 3_000), answer)

    # Transactions.

    def _begin(self, core: RootCore, commit: Commit) -> None:
        assert self._commit is None, "one transaction at a time"
        self._commit = commit
        self.later(self.world.scheduler.between(500, 3_000), lambda: self._write(core, commit))

    def _write(self, core: RootCore, commit: Commit) -> None:
        world = self.world
        if not world.broker.up:
            self.later(10_000, lambda: self._write(core, commit))
            return
        query = self.query
        records: list[tuple[Log[object], object]] = [
            (query.results_log(self.part), commit.transaction),
            *query.result_lines(self.part, commit.transaction, core.keys),
            (query.state_log, commit.state),
        ]
        try:
            transaction = world.broker.begin(self._id, self._epoch, records)
        except FencedError:
            world.restart(self)  # an older copy may have started last: then this one comes back
            return
        delay = world.scheduler.between(500, 4_000)
        self.later(delay, lambda: self._close(core, commit, transaction))

    def _close(self, core: RootCore, commit: Commit, transaction: Open) -> None:
        world = self.world
        if not world.broker.up:
            self.later(10_000, lambda: self._close(core, commit, transaction))
            return
        try:
            world.broker.commit(self._id, self._epoch, transaction)
        except FencedError:
            world.restart(self)  # an older copy may have started last: then this one comes back
            return
        self.query.committed(self.part, self.placement, commit, core.keys)
        self._commit = None
        # The acknowledgement may never come: then the restart finds the commit in the log.
        core.committed()
        self.turn_in(0)
