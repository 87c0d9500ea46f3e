"""Proxies on a broker in memory, with a clock that the test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from tests.support.memory import MemoryBroker
from tests.support.quarantine_counts import DistinctCounts
from tests.support.topic_world import ChangingTopics

from slackwater.codec import decode_source, encode_source
from slackwater.model.deployment import Clock, Deployment, FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.model.errors import MalformedRecordError
from slackwater.model.names import Names, ProxyName
from slackwater.model.records import Kind, SourcePosition, SourceRecord
from slackwater.primitives.eventclock import AnchoredClock, DataClock, EventClock, WallClock
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.sunion.cursor import SourceCursor
from slackwater.proxy.quarantine import Quarantine
from slackwater.proxy.replaying import ReplayInput
from slackwater.proxy.sensors import SensorInput, inbox_of
from slackwater.proxy.shell import Input, InputContext, Silence, turn
from slackwater.proxy.spool import BYTES_DEFAULT_MAX, Spool
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.clock import SystemClock

STREAM = "room"
LOG = (f"sw.source.{STREAM}", 0)
S = 1_000_000
SPEC = StreamSpec(
    STREAM,
    KeySpec(column="node"),
    TimeSpec(("ts",), unit="s"),
    (FieldSpec("t", "t"),),
)
AHEAD = replace(SPEC, ahead_us=86_400 * S)
"""A stream whose readings may be a day ahead of the clock, for tests whose time stands still."""


class World:
    """One stream's logs, files and clock, and its proxies."""

    def __init__(
        self,
        folder: Path,
        event_clock: EventClock | None = None,
        *,
        spec: StreamSpec = SPEC,
        clock: Clock = "wall",
    ) -> None:
        self.folder = folder
        self.now_us = 1_000 * S
        self.event_clock = event_clock or WallClock()
        self.spec = spec
        self.deployment = Deployment(clock, {spec.name: spec}, {})
        self.broker = MemoryBroker()
        self.topics = ChangingTopics()
        for topic in (LOG[0], f"sw.quarantine.{spec.name}"):
            self.broker.create_topic(topic)
        self.failures: list[str] = []
        self.silences: tuple[Silence, ...] = ()
        self.contexts: list[InputContext] = []

    def file(self, rows: Sequence[str], name: str = "room.csv") -> Path:
        """Write a file with the columns node, ts, t."""
        path = self.folder / name
        path.write_text("node,ts,t\n" + "".join(f"{row}\n" for row in rows))
        return path

    def ingest(self, times: Sequence[float], name: str, data: str = "a") -> None:
        """Put a file with a reading at each of these times (s) into a sensor proxy's inbox."""
        path = self.file([f"n,{t},{t}" for t in times], f"{name}.csv")
        inbox = inbox_of(self.folder / data, STREAM)
        inbox.mkdir(parents=True, exist_ok=True)
        (inbox / f"{name}.json").write_text(json.dumps({"file": str(path)}))

    def context(
        self, data: str = "a", spool_bytes_max: int = BYTES_DEFAULT_MAX, share: int = 0
    ) -> InputContext:
        writer = self.broker.writer(self.failures.append)
        context = InputContext(
            spec=self.spec,
            name=ProxyName(self.spec.name, share),
            deployment=self.deployment,
            transport=self.broker,
            cluster="",
            writer=writer,
            quarantine=Quarantine(writer, self.spec.name, Names()),
            spool=Spool.open(self.folder / data / "proxy" / f"{STREAM}.sqlite", spool_bytes_max),
            clock=SystemClock(wall_us=lambda: self.now_us, monotonic_us=lambda: self.now_us),
            stop=threading.Event(),
            silences=self.silences,
            topics=self.topics,
        )
        self.contexts.append(context)
        context.start_clock(self.event_clock)
        return context

    def replay(self, path: Path, **ends: int | None) -> ReplayInput:
        """Start a proxy that replays a file."""
        made = ReplayInput(
            self.context(),
            path,
            end_at_us=ends.get("end_at_us"),
            end_boundary_us=ends.get("end_boundary_us"),
        )
        made.begin()
        return made

    def sensors(self, data: str = "a", spool_bytes_max: int = BYTES_DEFAULT_MAX) -> SensorInput:
        """Start a proxy with a spool, in a new data directory or again in the same."""
        made = SensorInput(self.context(data, spool_bytes_max))
        made.begin()
        return made

    def run(
        self, proxy: Input, seconds: float, *, turns_max: int = 10_000, hints: bool = False
    ) -> None:
        """Let time pass for one proxy; call it at the times that it requests.

        ``hints``: store its logs' progress after each turn.
        """
        until = self.now_us + round(seconds * S)
        for _ in range(turns_max):
            wake = turn(self.contexts[-1], proxy, self.now_us)
            if hints:
                known = {log.name: log.hint for log in proxy.logs if log.hint is not None}
                self.contexts[-1].spool.keep_hints(known)
            if self.now_us >= until and wake > self.now_us:
                return
            self.now_us = min(max(wake, self.now_us), until)
        raise AssertionError("the proxy does not come to rest")

    # Observations of a reader.

    def raw(self) -> list[tuple[int, SourceRecord]]:
        return [(r.offset, _decoded(r.value)) for r in read_to_end(self.broker, LOG)]

    def damage(self, offset: int) -> None:
        """Replace the records from there on by bytes that do not decode."""
        for entry in self.broker.log(LOG).entries[offset:]:
            entry.record = entry.record._replace(value=b"no record at all")

    def accepted(self, raw: Iterable[tuple[int, SourceRecord]] | None = None) -> list[SourceRecord]:
        """Return the records that a strict cursor accepts, of the whole log or of its read part."""
        cursor = SourceCursor(SourcePosition(0, 0, 0, -(2**62)), strict=True)
        read = self.raw() if raw is None else raw
        return [record for offset, record in read if cursor.offer(offset, record)]

    def readings(
        self, raw: Iterable[tuple[int, SourceRecord]] | None = None
    ) -> list[tuple[int, float, float]]:
        """Return (id, stime in s, value) of all accepted readings."""
        found = []
        for record in self.accepted(raw):
            if record.columns is not None and record.readings:
                c = record.columns.load()
                for i, (stime, value) in enumerate(zip(c.stimes, c.values[0], strict=True)):
                    found.append((record.first_id + i, int(stime) / S, float(value)))
        return found

    def boundary_s(self) -> float:
        """Return the watermark of a reader."""
        return max(record.boundary for record in self.accepted()) / S

    def check(self) -> None:
        """Check that ids have no gap, and watermarks never decrease and are kept."""
        watermark, next_id = -(2**62), 0
        for record in self.accepted():
            if record.kind is Kind.START:
                continue
            assert record.first_id == next_id
            next_id = record.last_id + 1
            if record.readings:
                assert record.stime_min >= watermark, "below the watermark"
            assert record.boundary >= watermark, "the watermark decreased"
            watermark = record.boundary

    def quarantined(self) -> list[dict[str, Any]]:
        log = (f"sw.quarantine.{self.spec.name}", 0)
        return [orjson.loads(r.value) for r in read_to_end(self.broker, log)]

    def counts(self) -> dict[str, int]:
        """Return the number of distinct entries by reason."""
        distinct = DistinctCounts()
        for entry in self.quarantined():
            distinct.add(orjson.dumps(entry))
        return dict(distinct.counts.get(self.spec.name, {}))

    def write(self, record: SourceRecord) -> None:
        """Append as another writer would."""
        self.broker.writer(self.failures.append).append(*LOG, encode_source(record))


def _decoded(value: bytes) -> SourceRecord:
    try:
        return decode_source(value)
    except MalformedRecordError:
        return SourceRecord.void(STREAM)


def grids(proxy: Input, *grid: Grid) -> None:
    """Register queries over a proxy's stream."""
    context: InputContext = getattr(proxy, "_context")  # noqa: B009 -- no part of the protocol
    context.readers = {f"q{number}": ((STREAM,), of) for number, of in enumerate(grid)}
    for log in proxy.logs:
        log.core.read_by(grid, None)


def anchored(speed: float = 1.0, event_s: float = 0.0, in_s: float = 0.0) -> AnchoredClock:
    """Return an event clock that reaches ``event_s`` at the world's start plus ``in_s``."""
    return AnchoredClock(1_000 * S + round(in_s * S), round(event_s * S), speed)


__all__ = ["LOG", "SPEC", "STREAM", "DataClock", "S", "World", "anchored", "grids", "replace"]
