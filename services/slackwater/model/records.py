"""The records of the internal logs, as values.

Every log of the pipeline holds one of three records: a *source* record (written by a sensor
proxy), an *ordered* record (written by an orderer) or a *delta* record (written by an aggregator,
one per ordered record). They are columnar: a header of a few numbers, and one numpy array per
column. The bytes belong to ``slackwater.codec``; the meaning of each field is rule-1 to rule-5 of
``docs/protocols/rules.md`` and section 4.1 of the DPC paper, whose tuple types they carry.

Times are int microseconds since the Unix epoch (event time), offsets and ids plain ints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

type_f64 = npt.NDArray[np.float64]
type_i64 = npt.NDArray[np.int64]
type_i32 = npt.NDArray[np.int32]


class Kind(IntEnum):
    """What a record is (rule-2). UNDO and REC_DONE exist only in the results."""

    START = 0
    """A writer begins: every record of an older incarnation behind it is dropped (rule-10)."""
    INSERTION = 1
    """Stable readings, or their aggregate."""
    TENTATIVE = 2
    """Readings, or their aggregate, from which some source is missing."""
    BOUNDARY = 3
    """Nothing below it will follow (source); a run of empty buckets (ordered, delta)."""
    VOID = 4
    """Stands for a record that could not be decoded: takes its seq, changes nothing."""


class Gap(NamedTuple):
    """Readings that retention took away before they were read (rule-28)."""

    stream: str
    lost: int


class Position(NamedTuple):
    """How far a log of buckets has come: the next piece of the next bucket (rule-11)."""

    bucket_start: int
    piece: int = 0


class Readings(Protocol):
    """The columns of a source record, decoded when they are first needed (rule-13)."""

    def load(self) -> SourceColumns:
        """Decode; raises ``MalformedRecordError`` if the bytes are damaged."""
        ...


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The readings of one source record in the order of their ids.

    Shapes: ``stimes`` (n,), ``key_index`` (n,) into ``keys``, each of ``values`` (n,), one for
    each name in ``fields``. A missing value is NaN.
    """

    stimes: type_i64
    key_index: type_i32
    keys: Sequence[str]
    fields: tuple[str, ...]
    values: tuple[type_f64, ...]

    def load(self) -> SourceColumns:
        """The columns themselves: they are decoded already."""
        return self


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One record of ``sw.source.<stream>``.

    ``boundary`` is the promise that holds after the record: no reading with stime < boundary
    follows. ``first_id`` is the id of the first reading (without readings: the next id to come,
    and ``last_id`` is one less). ``input_position`` is where the writer goes on in its own input.
    ``spool`` names the writer's spool (START only). ``stime_max`` is the largest stime among the
    readings, ``stime_min`` the smallest (both = boundary when there are none). ``gap`` tells of
    readings that the writer knows to be lost before it. In START both stimes say up to where damage
    before it may be felt (trace-15), and a ``gap``, of 0, says that the ids begin anew (rule-28).
    """

    kind: Kind
    stream: str
    inc: int
    first_id: int
    last_id: int
    boundary: int
    stime_min: int
    stime_max: int
    input_position: int = 0
    spool: str = ""
    gap: tuple[Gap, ...] = ()
    columns: Readings | None = None

    @property
    def readings(self) -> int:
        """How many readings the record carries."""
        return self.last_id - self.first_id + 1

    @classmethod
    def void(cls, stream: str) -> SourceRecord:
        """Stands for a record that cannot be read."""
        return cls(Kind.VOID, stream, 0, 0, -1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ResultBatch:
    """One window of one result partition, or a run of empty ones, as readings for another query.

    As a stream (trace-20) a window's rows have the event time window end - 1 us. So the batch
    accounts for the event times from ``prev_watermark``, that instant, up to ``boundary``, the same
    instant of the window behind: batches of neighbouring windows touch, stable and tentative ones
    alike. ``offset`` is that of its first record, ``next_offset`` one past its last; in between,
    and up to the next batch, offsets may be taken by markers of transactions. Ids are the rows'
    ``seq``.
    """

    kind: Kind
    stream: str
    offset: int
    next_offset: int
    prev_watermark: int
    boundary: int
    first_id: int
    last_id: int
    missing: tuple[str, ...] = ()
    lost: int = 0
    bytes_held: int = 0
    stime_min: int = 0
    stime_max: int = 0
    columns: Readings | None = None

    @property
    def readings(self) -> int:
        """How many rows the batch carries."""
        return self.last_id - self.first_id + 1


@dataclass(frozen=True, slots=True)
class OrderedRecord:
    """One record of ``sw.ordered.<query>.<child>``.

    INSERTION and TENTATIVE carry piece ``piece`` of ``pieces`` of the bucket
    [``bucket_start``, ``bucket_end``); BOUNDARY covers a run of empty buckets. Readings are
    grouped by key: key ``keys[i]`` owns ``values[f][offsets[i]:offsets[i + 1]]``; ``offsets`` is
    (len(keys) + 1,), float64 (exact: a piece is far below 2**53), rising from 0.
    Of a query without a window they are *rows*, in their order: ``stimes`` and ``key_index`` (n,)
    as in a source record, and ``offsets`` is [0]; pieces are then cut between rows.
    ``frontier`` (START only) is the position the writer goes on from. ``seq`` is the record's
    offset where its reader counts by it (trace-21); it is not on the wire.
    """

    kind: Kind
    child: int
    replica: int
    inc: int
    bucket_start: int
    bucket_end: int
    piece: int = 0
    pieces: int = 1
    first_id: int = 0
    last_id: int = -1
    frontier: Position | None = None
    missing: tuple[str, ...] = ()
    gap: tuple[Gap, ...] = ()
    keys: Sequence[str] = ()
    offsets: type_f64 = field(default_factory=lambda: np.zeros(1))
    fields: tuple[str, ...] = ()
    values: tuple[type_f64, ...] = ()
    stimes: type_i64 = field(default_factory=lambda: np.zeros(0, np.int64))
    key_index: type_i32 = field(default_factory=lambda: np.zeros(0, np.int32))
    seq: int = -1

    @property
    def readings(self) -> int:
        """How many readings the record carries."""
        return len(self.stimes) or int(self.offsets[-1])

    @property
    def nbytes(self) -> int:
        """About its size in memory; the keys' text is shared by many."""
        rows = self.stimes.nbytes + self.key_index.nbytes + self.offsets.nbytes
        return 8 * len(self.keys) + rows + sum(column.nbytes for column in self.values)


@dataclass(frozen=True, slots=True)
class DeltaRecord:
    """One record of ``sw.deltas.<query>.<part>``: the aggregate of one ordered record.

    ``seq`` is the offset of the ordered record it was made from (rule-10, rule-19). ``keys_hash``
    is Spark's ``xxhash64`` of the key list: a reader that knows the hash need not decode the keys.
    The five figures are float64 of shape (fields, keys): how many values (NaN not counted), their
    sum, the sum of squared deviations from the slice's own mean, smallest and largest (NaN where
    count is 0).
    """

    kind: Kind
    child: int
    replica: int
    inc: int
    bucket_start: int
    bucket_end: int
    seq: int
    piece: int = 0
    pieces: int = 1
    first_id: int = 0
    last_id: int = -1
    frontier: Position | None = None
    missing: tuple[str, ...] = ()
    gap: tuple[Gap, ...] = ()
    keys: Sequence[str] = ()
    keys_hash: int = 0
    fields: tuple[str, ...] = ()
    count: type_f64 = field(default_factory=lambda: np.zeros((0, 0)))
    sum: type_f64 = field(default_factory=lambda: np.zeros((0, 0)))
    m2: type_f64 = field(default_factory=lambda: np.zeros((0, 0)))
    min: type_f64 = field(default_factory=lambda: np.zeros((0, 0)))
    max: type_f64 = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def nbytes(self) -> int:
        """About its size in memory; the keys' text is shared by many."""
        return 8 * len(self.keys) + 5 * self.count.nbytes


BucketRecord = OrderedRecord | DeltaRecord
"""What a root reads: deltas, or for a query without a window the ordered records themselves."""


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where a line goes on in a source log (rule-5), and the promise that held there."""

    offset: int
    next_id: int
    inc: int
    boundary: int


@dataclass(frozen=True, slots=True)
class StreamPositions:
    """An orderer's three positions in one stream: stable line, operator state, live line.

    See trace-26.
    """

    stream: str
    next: SourcePosition
    rebuild: SourcePosition
    live: SourcePosition


@dataclass(frozen=True, slots=True)
class OrdererState:
    """State record of an orderer (rule-5): an old one is as right as a new one."""

    fragment: str
    frontier: int
    last_id: int
    live_frontier: int
    stable_offset: int
    live_offset: int
    streams: tuple[StreamPositions, ...]


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where one line of a root goes on in one deltas partition (rule-23).

    ``frontier`` is L of rule-11: the end of that log's own contiguous records.
    """

    offset: int
    next_seq: int
    inc: int
    frontier: Position


@dataclass(frozen=True, slots=True)
class LogState:
    """A root's positions in the partition of (child, replica, line), line 0 stable, 1 live.

    Every seq below ``contiguous_seq`` has been read: what an aggregator need not send again
    (rule-26).
    """

    child: int
    replica: int
    line: int
    stable: LogPosition
    live: LogPosition
    contiguous_seq: int


@dataclass(frozen=True, slots=True)
class RootState:
    """State record of a root copy, the last record of each of its transactions (rule-23).

    ``stable_from`` is S (first window without a stable answer), ``answered_to`` is T (first window
    without any answer); both are window starts. ``child_frontiers`` holds each child's accepted
    stable frontier.
    """

    fragment: str
    placement: int
    next_seq: int
    epoch: int
    stable_from: int
    answered_to: int
    child_frontiers: tuple[Position, ...]
    logs: tuple[LogState, ...]


@dataclass(frozen=True, slots=True)
class Hole:
    """A hole that a reader sees in somebody's log (rule-11): its writer sends again."""

    topic: str
    partition: int
    inc: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What every process says every 100 ms in ``sw.heartbeats``.

    ``process`` is the name ``slackwater status`` prints (``orderer/climate.0.a``), ``started_at``
    wall time in us of its start, ``inc`` the incarnation of its log (-1 without one), ``ready``
    whether it does its work, ``states`` per output: STABLE, UP_FAILURE or STABILIZATION,
    ``detail`` counters for people, an orderer's turn at catching up for its peers, and how far a
    root has read for orderers.

    Of a process that carries others, which have names of their own, ``parts`` tell, and nothing is
    asked about itself. Between two such records it sends *pulses*: all is as in its record with
    ``at`` = ``repeats``, which is not said again.
    """

    process: str
    pid: int
    started_at: int
    at: int
    inc: int
    ready: bool
    states: dict[str, str]
    holes: tuple[Hole, ...] = ()
    detail: dict[str, int] = field(default_factory=dict)
    parts: tuple[HeartbeatPart, ...] = ()
    repeats: int = 0

    def each(self) -> Iterator[Heartbeat]:
        """What it tells of each part as if that were a process; without parts, of its process.

        A pulse tells nothing by itself.
        """
        if not self.parts and not self.repeats:
            yield self
        for part in self.parts:
            yield Heartbeat(
                part.process,
                self.pid,
                part.started_at,
                self.at,
                part.inc,
                part.ready,
                part.states,
                part.holes,
                part.detail,
            )


@dataclass(frozen=True, slots=True)
class HeartbeatPart:
    """What a heartbeat tells of a part of its process, which has a name and a start of its own."""

    process: str
    started_at: int
    inc: int
    ready: bool
    states: dict[str, str]
    holes: tuple[Hole, ...] = ()
    detail: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegistryRecord:
    """One entry of ``sw.registry``: its key ``name``, and JSON that the registry understands."""

    name: str
    definition: str
