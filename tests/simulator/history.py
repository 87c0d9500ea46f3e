"""The history of a world: what was sent, logged and committed, when, and which faults there were.

Checkers see this and nothing else: no core, no process, no model of Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from tests.simulator.config import WorldConfig
from tests.simulator.readings import SensorReading

from slackwater.model.records import OrderedRecord, RootState, SourceRecord
from slackwater.primitives.lateness import Step
from slackwater.protocols.dpc.soutput.answers import Transaction

ReportedRows = list[tuple[str, tuple[float, ...]]]
"""Rows of a window: key, and (count, sum, m2, min, max) of each field; or time and values."""


class Committed(NamedTuple):
    """One transaction of a part, as a read-committed reader sees it."""

    at: int
    part: int
    placement: int
    transaction: Transaction[Any]
    keys: dict[int, ReportedRows]
    """Rows of each window, by its seq."""
    state: RootState | None = None
    """The state record of the same transaction."""


class Learned(NamedTuple):
    """A step of a stream's ``expect_every`` as it was recorded."""

    stream: str
    step: Step
    in_time: bool
    """Everybody had read it before it held."""


class Note(NamedTuple):
    """Something that happened to a process, or that it said."""

    at: int
    process: str
    what: str


class Outage(NamedTuple):
    """Something was not as it should be, from ``start`` until all of it was over."""

    start: int
    end: int
    what: str


class Sample(NamedTuple):
    """What the processes held in memory at a time: bytes of readings, buckets, windows."""

    at: int
    held: dict[str, int]


OrderedLogs = dict[tuple[int, int, int], list[tuple[int, OrderedRecord]]]


@dataclass
class OfQuery:
    """What is told of one query alone."""

    config: WorldConfig
    committed: list[Committed] = field(default_factory=list)
    unavailable: list[tuple[int, int]] = field(default_factory=list)
    """Times at which some stage had no copy that could work (guarantee-2 does not hold then)."""
    ordered_logs: OrderedLogs = field(default_factory=dict)
    """By (child, replica, line): all that was ever in them and decodes."""


@dataclass
class History(OfQuery):
    """What a checker may see."""

    notes: list[Note] = field(default_factory=list)
    """What befell the processes."""
    reported_states: list[Note] = field(default_factory=list)
    """What their heartbeats said, each change of it."""
    samples: list[Sample] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    sent: dict[str, list[SensorReading]] = field(default_factory=dict)
    """What each sensor has handed over, in its order."""
    refused: dict[str, list[tuple[str, SensorReading]]] = field(default_factory=dict)
    """By stream: what went to quarantine, and why."""
    source_logs: dict[str, list[tuple[int, SourceRecord]]] = field(default_factory=dict)
    """All that was ever in them, also what retention took."""
    damaged: int = 0
    """How many records of the ordered logs were damaged."""
    cut: dict[str, list[int]] = field(default_factory=dict)
    """By stream that lost something: behind which offset, by retention or by damage, each time.

    By query, where it took some of its results.
    """
    learned: list[Learned] = field(default_factory=list)
    clocks_agree: bool = True
    """Within the margin, all the time (trace-12)."""
    ended_at: int = 0
    reader: OfQuery | None = None
    """Of the query that reads this one's results or children."""

    @property
    def of_reader(self) -> History | None:
        """The same run, as the checkers of the reading query see it."""
        if self.reader is None:
            return None
        own = {f.name: getattr(self.reader, f.name) for f in fields(OfQuery)}
        return replace(self, **own, reader=None)
