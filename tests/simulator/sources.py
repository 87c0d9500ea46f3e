"""A sensor with its proxy: the product's source core with a spool that survives a crash.

The proxy flushes at cut points, stores the flushed records in the spool, and sends the spool's
records in order. *Silence* cuts only the link to Kafka: readings are still spooled, with their ids
and watermarks, and are sent afterwards (a backlog). A restarted proxy reads its log, appends START
and continues at the end of the contiguous prefix (rule-6, rule-7 and rule-9). A paused one that
resumes beside its successor sends its remaining records with its old incarnation.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tests.simulator.config import FIELDS
from tests.simulator.kafka import PositionGoneError
from tests.simulator.process import Process
from tests.simulator.readings import Sensor, SensorReading

from slackwater.model.deployment import AHEAD_DEFAULT_US
from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.primitives.lateness import Step
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.protocols.dpc.source.core import SourceCore, SourceRules
from slackwater.protocols.dpc.source.scan import LogScan, Resume
from slackwater.proxy.expecting import AHEAD_US, Expecting

if TYPE_CHECKING:
    from tests.simulator.world import World

BURST_RECORDS = 200


@dataclass(slots=True)
class Spool:
    """State that survives a crash.

    Records not yet confirmed in the log, and the input's position.
    """

    records: deque[SourceRecord] = field(default_factory=deque)
    acknowledged: set[tuple[Kind, int, int]] = field(default_factory=set)
    """Records confirmed in the log, after one that is not."""
    resume: Resume = field(default_factory=Resume)
    silent_until: int = -1
    """Time until which the link between the proxy and Kafka is cut."""
    unkept: list[SensorReading] = field(default_factory=list)
    """Readings sent by the sensor and not stored yet: it will send them again."""
    full_until: int = -1
    """Time until which the spool is full."""
    ended: bool = False
    """Whether the input has ended (a file, a removed sensor)."""


class SimProxy(Process):
    """One incarnation of a proxy, for one stream."""

    def __init__(self, world: World, stream: str) -> None:
        super().__init__(world, f"proxy/{stream}")
        self.stream = stream
        self.log = world.source_log(stream)
        self.spool = world.spools[stream]
        self.sensor: Sensor = world.sensors[stream]
        self.clock_lag_us = 0
        """Lag of its watermark behind the largest possible one."""
        rules = SourceRules(
            log=stream,
            fields=FIELDS,
            disorder_us=world.config.disorder_of(stream),
            late="promise",
            clock_boundaries=stream not in world.config.expect_every_us,
            ahead_us=AHEAD_DEFAULT_US,
            readings_max=world.config.record_readings_max,
            learning=world.config.learning_of(stream),
        )
        if stream in world.config.expect_every_us:
            rules = replace(rules, late="input")
        if world.config.history_speed:
            rules = replace(rules, late="input", clock_boundaries=False, ahead_us=None)
        self._rules = rules
        self.core: SourceCore | None = None
        self.inc = -1
        self._next_offset = 0
        """Offset after the last of its own records in the log."""
        self._unsent: deque[SourceRecord] = deque()
        self._refused: list[tuple[str, SensorReading]] = []
        self._flush_at = 0
        self._expecting = Expecting(stream, self._record)

    def start(self) -> None:
        """Read the log, append START, read up to it; then send data (rule-6)."""
        if not self.world.broker.up:
            self.later(20_000, self.start)
            return
        scan = LogScan()
        for offset, value in self.log.values():
            scan.see(offset, decoded(self.stream, value))
        self._seen_to = self.log.end
        spool = self.spool
        kept = [r.first_id for r in spool.records if r.kind is Kind.INSERTION]
        scan.give_up(self.stream, min([spool.resume.next_id, *kept]), spool.resume.watermark)
        resume = Resume(scan.ids.next_id, max(scan.watermark, -(2**62)))
        start = SourceCore(self._rules, resume).start(self.stream, scan.affected_until)
        self.producer.send(
            self.log, start, lambda offset: self._run(lambda: self._begun(offset, scan))
        )

    def _begun(self, offset: int, scan: LogScan) -> None:
        try:
            unseen = self.log.read(self._seen_to, offset - self._seen_to + 1)
        except PositionGoneError:  # the start fails: its process was paused, and retention was not
            self.world.restart(self)
            return
        for at, value in unseen:
            scan.see(at, decoded(self.stream, value))
        self.inc = offset
        self._next_offset = offset + 1
        spool = self.spool
        # Records in the log need not be sent; a boundary alone is soon made again.
        spool.records = deque(
            r for r in spool.records if r.kind is Kind.INSERTION and r.first_id >= scan.ids.next_id
        )
        spool.acknowledged.clear()
        self._unsent = deque(replace(r, inc=self.inc) for r in spool.records)
        watermark = max(spool.resume.watermark, scan.watermark)
        self.core = SourceCore(self._rules, replace(spool.resume, watermark=watermark))
        self.sensor.again(spool.unkept)
        self.core.read_by(self.world.grids_of(self.stream), None)
        self._expecting.restore(self.world.steps_of(self.stream))
        self.world.works(self)
        self.turn()

    def turn(self) -> None:
        core = self.core
        if core is None:
            return
        now = self.now
        if now >= self._flush_at:
            if not self.spool.ended:
                self._flush(core, now)
            self._flush_at = core.next_flush_us(now, self.world.config.grid)
        if core.gaps is not None:
            self._expecting.step([core], now, now + self.world.config.paced(AHEAD_US))
        self._send()
        wait = self._flush_at - now
        if self._unsent and not self._is_silent:
            wait = min(wait, 1_000)
        self.turn_in(wait)

    def _record(self, step: Step) -> None:
        world, stream = self.world, self.stream
        entry = stream, step
        self.producer.send(world.registry_log, entry, lambda _: world.recorded(stream, step))

    def _flush(self, core: SourceCore, now: int) -> None:
        if not self.is_present:
            # A zombie receives no readings, so it must not advance its watermark (trace-10).
            self._unsent.extend(core.flush(self.inc))
            return
        is_full = self.world.scheduler.now < self.spool.full_until
        if not (is_full and core.waiting):  # else sensors get push-back, and keep their readings
            self._take_in(core, now)
        before = core.saved()
        records = core.flush(self.inc, clock_us=now - self.clock_lag_us)
        if is_full:
            core.restore(before)  # unstored readings are neither sent nor covered
            return
        self._keep()
        if records:
            self.spool.records.extend(records)
            self.spool.resume = Resume(core.next_id, core.watermark, core.largest, core.position)
        self._unsent.extend(records)

    def _take_in(self, core: SourceCore, now: int) -> None:
        """Take all readings that the sensor has by true time.

        Its clock differs from this process's.
        """
        readings = self.sensor.until(self.world.scheduler.now)
        if not readings:
            return
        self.spool.unkept += readings
        for refused in core.offer(arrived(readings), now):
            self._refused += [(refused.reason, readings[i]) for i in refused.indices.tolist()]

    def _keep(self) -> None:
        """Store the readings in the spool or in quarantine: the sensor may then discard them."""
        spool, history = self.spool, self.world.history
        history.sent.setdefault(self.stream, []).extend(spool.unkept)
        history.refused.setdefault(self.stream, []).extend(self._refused)
        spool.unkept.clear()
        self._refused.clear()

    @property
    def is_present(self) -> bool:
        """Whether this incarnation owns the spool and receives readings."""
        return self.world.proxies[self.stream] is self

    @property
    def _is_silent(self) -> bool:
        return self.world.scheduler.now < self.spool.silent_until

    def _send(self) -> None:
        if self._is_silent or not self.world.broker.up:
            return
        burst = BURST_RECORDS if len(self._unsent) > 1 else 1
        while self._unsent and burst:
            record = self._unsent.popleft()
            self.producer.send(self.log, record, partial(self._acknowledged, record))
            burst -= 1

    def _acknowledged(self, record: SourceRecord, offset: int) -> None:
        """Only records before the first hole may be deleted (trace-1)."""
        if not self.is_present:
            return
        before, self._next_offset = self._next_offset, offset + 1
        if self._is_superseded(before, offset):
            self.world.restart(self)  # after another writer's START they do not count (rule-6)
            return
        spool = self.spool
        spool.acknowledged.add(identity(record))
        while spool.records and identity(spool.records[0]) in spool.acknowledged:
            spool.acknowledged.discard(identity(spool.records.popleft()))

    def _is_superseded(self, first: int, end: int) -> bool:
        """Return whether another writer began between two of its records.

        A zombie about to start.
        """
        foreign = (
            decoded(self.stream, value)
            for _, value in self.log.read(max(first, self.log.beginning), end - first)
        )
        return any(record.kind is Kind.START for record in foreign)


def identity(record: SourceRecord) -> tuple[Kind, int, int]:
    """Return a record's identity, which is the same for all incarnations."""
    return record.kind, record.first_id, record.boundary


def arrived(readings: list[SensorReading]) -> Arrived:
    """Return readings as columns."""
    places: dict[str, int] = {}
    index = [places.setdefault(r.key, len(places)) for r in readings]
    n = len(readings)
    return Arrived(
        np.array([r.stime for r in readings], np.int64),
        np.array(index, np.int32),
        list(places),
        (np.array([r.value for r in readings]),),
        np.arange(n, dtype=np.int64),
        n,
    )


def decoded(stream: str, value: object) -> SourceRecord:
    """Return a record of a source log as in the shells: VOID if it does not decode (trace-15)."""
    assert value is None or isinstance(value, SourceRecord)
    return value or SourceRecord.void(stream)


def columns(record: SourceRecord) -> SourceColumns:
    """Return the readings of a source record."""
    assert record.columns is not None
    return record.columns.load()
