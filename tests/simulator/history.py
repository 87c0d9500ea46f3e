"""The history of a run: records sent, logged and committed, with times, and the faults.

It is the only input of the checkers: no core, no process, no model of Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from tests.simulator.config import WorldConfig
from tests.simulator.readings import SensorReading
from tests.simulator.topics import TopicHistory

from slackwater.model.heads import Key, Stored
from slackwater.model.merged import MergedRecord
from slackwater.model.records import OrderedRecord, RootState, SourceRecord
from slackwater.primitives.lateness import Step
from slackwater.protocols.dpc.soutput.answers import Transaction

ReportedRows = list[tuple[str, tuple[float, ...]]]
"""Rows of a window: key, and (count, sum, m2, min, max) of each field; or time and values."""


class Committed(NamedTuple):
    """One transaction of a part, as seen by a read-committed reader."""

    at: int
    part: int
    placement: int
    transaction: Transaction[Any]
    keys: dict[int, ReportedRows]
    """Rows of each window, by its seq."""
    state: RootState | None = None
    """The state record of the same transaction."""


class Term(NamedTuple):
    """The record with which a copy of a part has begun to answer."""

    at: int
    part: int
    state: RootState


Deltas = dict[tuple[int, int], list[tuple[int, object]]]
"""By child and replica: all records that have been in a log of stable deltas."""


class Merged(NamedTuple):
    """The merged panes of a child for a part, and the deltas that are in the logs."""

    part: int
    child: int
    records: list[MergedRecord]
    deltas: Deltas


class Linked(NamedTuple):
    """The merged panes of a child that is at a site, in the logs of both places."""

    part: int
    child: int
    at_site: list[MergedRecord]
    at_centre: list[MergedRecord]


class Installed(NamedTuple):
    """The panes that a copy of a part has installed when it started, by child and start."""

    at: int
    part: int
    stable_from: int
    frontiers: tuple[int, ...]
    """Of each child: the event time up to which it has its panes."""
    panes: dict[tuple[int, int], bytes]
    deltas: Deltas
    """Till then."""


class StoredRecord(NamedTuple):
    """A record of the log of panes."""

    key: Key
    record: Stored


class Learned(NamedTuple):
    """A recorded step of a stream's ``expect_every``."""

    stream: str
    step: Step
    in_time: bool
    """Whether all processes had read it before it took effect."""


class Note(NamedTuple):
    """An event of a process, or a heartbeat."""

    at: int
    process: str
    what: str


class Outage(NamedTuple):
    """A fault's effect, from ``start`` until all of it was over."""

    start: int
    end: int
    what: str


class Sample(NamedTuple):
    """Memory of the processes at a time: bytes of readings, buckets, windows."""

    at: int
    held: dict[str, int]


OrderedLogs = dict[tuple[int, int, int], list[tuple[int, OrderedRecord]]]


@dataclass
class OfQuery:
    """The history of one query."""

    config: WorldConfig
    committed: list[Committed] = field(default_factory=list)
    unavailable: list[tuple[int, int]] = field(default_factory=list)
    """Times at which a stage had no working copy (guarantee-2 does not apply)."""
    ordered_logs: OrderedLogs = field(default_factory=dict)
    """By (child, replica, line): all records ever in them that decode."""
    tenures: list[Term] = field(default_factory=list)
    """The beginnings of terms, of parts with two copies."""
    resigned: list[Term] = field(default_factory=list)
    """When a copy resigned, with its last record."""
    installed: list[Installed] = field(default_factory=list)
    """What copies that started have not read again."""
    merged: list[Merged] = field(default_factory=list)
    """What its mergers have written."""
    linked: list[Linked] = field(default_factory=list)
    """And what uplinks have, of children at sites."""
    later_logs: list[OrderedLogs] = field(default_factory=list)
    """Those of each later generation."""
    deleted_at: int = -1
    """When its deletion was requested first; -1: never."""


@dataclass
class History(OfQuery):
    """The input of the checkers."""

    notes: list[Note] = field(default_factory=list)
    """Events of the processes."""
    reported_states: list[Note] = field(default_factory=list)
    """Heartbeats, one for each change."""
    samples: list[Sample] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    sent: dict[str, list[SensorReading]] = field(default_factory=dict)
    """Readings sent by each sensor, in order."""
    refused: dict[str, list[tuple[str, SensorReading]]] = field(default_factory=dict)
    """By stream: quarantined readings and reasons."""
    source_logs: dict[str, list[tuple[int, SourceRecord]]] = field(default_factory=dict)
    """By log: all records ever in the source logs, including those deleted by retention."""
    logs_of: dict[str, list[str]] = field(default_factory=dict)
    """By stream that reads a topic: its source logs. Other streams have one log of their name."""
    topics: dict[str, TopicHistory] = field(default_factory=dict)
    """By stream that reads a topic: what was in the topic."""
    quarantined: dict[str, list[bytes]] = field(default_factory=dict)
    """By stream that reads a topic: the entries in quarantine, as written."""
    damaged: int = 0
    """Number of damaged records of the ordered logs."""
    cut: dict[str, list[int]] = field(default_factory=dict)
    """By source log with losses: the offsets after which retention or damage removed records. By
    query, if retention removed results."""
    learned: list[Learned] = field(default_factory=list)
    strikes: int = 0
    """Number of faults that were injected."""
    clocks_agree: bool = True
    """Whether clocks agreed within the margin at all times (trace-12)."""
    fastest_us: int = 0
    """The greatest lead of a machine's clock at any time."""
    ended_at: int = 0
    stayed_down: int = 0
    """Starts that have found a greater placement number."""
    placed: dict[tuple[str, int], str] = field(default_factory=dict)
    """With machines, at the end: names and numbers of what each node is to run."""
    running: list[tuple[str, str]] = field(default_factory=list)
    """With machines, at the end: what runs, and on which node."""
    alive: list[tuple[str, str]] = field(default_factory=list)
    """With machines, at the end: all processes, and what aggregators have, and on which node."""
    to_run: list[str] = field(default_factory=list)
    """With machines, at the end: what is to run, by the recorded queries."""
    not_ready: list[str] = field(default_factory=list)
    """With machines, at the end: what the planning controller takes to be not ready."""
    accepted: list[str] = field(default_factory=list)
    """With machines: the queries, and their generations, whose ``apply`` was confirmed."""
    deleted: list[str] = field(default_factory=list)
    """With machines: the queries whose deletion was confirmed."""
    recorded: list[str] = field(default_factory=list)
    """With machines, at the end: the recorded queries that are not deleted."""
    tombstones: list[str] = field(default_factory=list)
    """With machines, at the end: the recorded queries that were deleted in an earlier view."""
    registered: dict[str, str] = field(default_factory=dict)
    """With machines, at the end: the state of each query that is registered in Kafka."""
    reader: OfQuery | None = None
    """The history of the query that reads this one's results or children."""

    def logs(self, stream: str) -> list[str]:
        """Return the source logs of a stream."""
        return self.logs_of.get(stream, [stream])

    def stream_of(self, log: str) -> str:
        """Return the stream of a source log."""
        return next((stream for stream, logs in self.logs_of.items() if log in logs), log)

    @property
    def of_reader(self) -> History | None:
        """The same run for the checkers of the reading query."""
        if self.reader is None:
            return None
        own = {f.name: getattr(self.reader, f.name) for f in fields(OfQuery)}
        return replace(self, **own, reader=None)
