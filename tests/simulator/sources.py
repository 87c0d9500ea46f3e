"""A sensor with its proxy: the product's own source core around a spool that survives a crash.

The proxy flushes at cut points, puts what it flushes into the spool, and sends the spool's records
in order. *Silence* cuts the link to Kafka only: readings go on being spooled, with their ids and
promises, and are sent afterwards (a backlog). A restarted proxy reads its log, appends START and
goes on at the end of the contiguous prefix (rule-6, rule-7 and rule-9). A paused one that wakes
beside its successor sends what it still holds under its old incarnation.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tests.simulator.config import FIELDS
from tests.simulator.process import Process
from tests.simulator.readings import Sensor, SensorReading

from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.primitives.lateness import Step
from slackwater.protocols.dpc.source.core import Arrived, SourceCore, SourceRules
from slackwater.protocols.dpc.source.scan import LogScan, Resume
from slackwater.proxy.expecting import AHEAD_US, Expecting

if TYPE_CHECKING:
    from tests.simulator.world import World

BURST_RECORDS = 200


@dataclass(slots=True)
class Spool:
    """What a crash leaves: records not yet known to be in the log, and where the input stands."""

    records: deque[SourceRecord] = field(default_factory=deque)
    acknowledged: set[tuple[Kind, int, int]] = field(default_factory=set)
    """Records known to be in the log, beyond one that is not."""
    resume: Resume = field(default_factory=Resume)
    silent_until: int = -1
    """The link between the proxy and Kafka is cut until then."""
    unkept: list[SensorReading] = field(default_factory=list)
    """Readings that the sensor has sent and that are not kept yet: it will send them again."""
    full_until: int = -1
    """Nothing more can be kept until then."""
    ended: bool = False
    """The input has ended (a file, a sensor switched off for good)."""


class SimProxy(Process):
    """One incarnation of a proxy, for one stream."""

    def __init__(self, world: World, stream: str) -> None:
        super().__init__(world, f"proxy/{stream}")
        self.stream = stream
        self.log = world.source_log(stream)
        self.spool = world.spools[stream]
        self.sensor: Sensor = world.sensors[stream]
        self.clock_lag_us = 0
        """How much less it promises than it could."""
        rules = SourceRules(
            log=stream,
            fields=FIELDS,
            disorder_us=world.config.disorder_of(stream),
            late="promise",
            clock_boundaries=stream not in world.config.expect_every_us,
            readings_max=world.config.record_readings_max,
            learning=world.config.learning_of(stream),
        )
        if stream in world.config.expect_every_us:
            rules = replace(rules, late="input")
        self._rules = rules
        self.core: SourceCore | None = None
        self.inc = -1
        self._next_offset = 0
        """After the last of its own records in the log."""
        self._unsent: deque[SourceRecord] = deque()
        self._refused: list[tuple[str, SensorReading]] = []
        self._flush_at = 0
        self._expecting = Expecting(stream, self._record)

    def start(self) -> None:
        """rule-6: read the log, append START, read on to it; then data."""
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
        for at, value in self.log.read(self._seen_to, offset - self._seen_to + 1):
            scan.see(at, decoded(self.stream, value))
        self.inc = offset
        self._next_offset = offset + 1
        spool = self.spool
        # What is in the log already needs no sending; a promise alone is made again soon.
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
            # A zombie hears nothing, so it has nothing to promise (trace-10).
            self._unsent.extend(core.flush(self.inc))
            return
        is_full = self.world.scheduler.now < self.spool.full_until
        if not (is_full and core.waiting):  # else sensors are pushed back, and keep what they have
            self._take_in(core)
        before = core.saved()
        records = core.flush(self.inc, clock_us=now - self.clock_lag_us)
        if is_full:
            core.restore(before)  # what could not be kept is neither promised nor sent
            return
        self._keep()
        if records:
            self.spool.records.extend(records)
            self.spool.resume = Resume(core.next_id, core.watermark, core.largest, core.position)
        self._unsent.extend(records)

    def _take_in(self, core: SourceCore) -> None:
        """All that the sensor has by now, by true time: its clock is not ours."""
        readings = self.sensor.until(self.world.scheduler.now)
        if not readings:
            return
        self.spool.unkept += readings
        for refused in core.offer(arrived(readings)):
            self._refused += [(refused.reason, readings[i]) for i in refused.indices.tolist()]

    def _keep(self) -> None:
        """What was taken in is in the spool or in quarantine: the sensor may forget it."""
        spool, history = self.spool, self.world.history
        history.sent.setdefault(self.stream, []).extend(spool.unkept)
        history.refused.setdefault(self.stream, []).extend(self._refused)
        spool.unkept.clear()
        self._refused.clear()

    @property
    def is_present(self) -> bool:
        """Is this the incarnation that owns the spool and hears the sensor?"""
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
        """Only what lies before the first hole may be forgotten (trace-1)."""
        if not self.is_present:
            return
        before, self._next_offset = self._next_offset, offset + 1
        if self._is_superseded(before, offset):
            self.world.restart(self)  # deliveries after a foreign START do not count (rule-6)
            return
        spool = self.spool
        spool.acknowledged.add(identity(record))
        while spool.records and identity(spool.records[0]) in spool.acknowledged:
            spool.acknowledged.discard(identity(spool.records.popleft()))

    def _is_superseded(self, first: int, end: int) -> bool:
        """Did another writer begin between two of its records? A zombie that was about to."""
        foreign = (
            decoded(self.stream, value)
            for _, value in self.log.read(max(first, self.log.beginning), end - first)
        )
        return any(record.kind is Kind.START for record in foreign)


def identity(record: SourceRecord) -> tuple[Kind, int, int]:
    """What a record is, whichever incarnation sends it."""
    return record.kind, record.first_id, record.boundary


def arrived(readings: list[SensorReading]) -> Arrived:
    """Readings as columns."""
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
    """A record of a source log as the shells have it: what cannot be read is VOID (trace-15)."""
    assert value is None or isinstance(value, SourceRecord)
    return value or SourceRecord.void(stream)


def columns(record: SourceRecord) -> SourceColumns:
    """The readings of a source record."""
    assert record.columns is not None
    return record.columns.load()
