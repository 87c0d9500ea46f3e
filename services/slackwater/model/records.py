"""The records of the internal logs, as values.

Each data log of the pipeline holds one of three types of record: *source* records (written by a
sensor proxy), *ordered* records (written by an orderer) or *delta* records (written by an
aggregator, one per ordered record). They are columnar: a header of a few numbers, and one numpy
array per column. ``slackwater.codec`` defines the bytes; rule-1 to rule-5 of
``docs/protocols/rules.md`` and section 4.1 of the DPC paper, whose tuple types they carry, define
the fields.

Times are int microseconds since the Unix epoch (event time), offsets and ids plain ints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

type_f64 = npt.NDArray[np.float64]
type_i64 = npt.NDArray[np.int64]
type_i32 = npt.NDArray[np.int32]

NO_EPOCH: Final = -1
"""Where a leader epoch is not known."""


class Kind(IntEnum):
    """The type of a record; UNDO and REC_DONE exist only in the results (rule-2)."""

    START = 0
    """Start of a writer: later records of an older incarnation are dropped (rule-10)."""
    INSERTION = 1
    """Stable readings, or their aggregate."""
    TENTATIVE = 2
    """Readings, or their aggregate, from which some source is missing."""
    BOUNDARY = 3
    """Watermark: no reading below it follows (source); a run of empty buckets (ordered, delta)."""
    VOID = 4
    """Placeholder for a record that could not be decoded: takes its seq, changes nothing."""


class Gap(NamedTuple):
    """Readings deleted by retention before they were read (rule-28)."""

    stream: str
    lost: int


class Position(NamedTuple):
    """Position in a log of buckets: the next piece of the next bucket (rule-11)."""

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
        """Return the columns, which are already decoded."""
        return self


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One record of ``sw.source.<stream>``.

    ``boundary`` is the watermark after the record: no reading with stime < boundary follows.
    ``first_id`` is the id of the first reading (without readings: the next id, and ``last_id`` is
    one less). ``input_position`` is where the writer continues in its own input. ``spool`` names
    the writer's spool (START only). ``stime_min`` and ``stime_max`` are the smallest and largest
    stime of the readings (both = boundary without readings). ``gap`` counts readings known to be
    lost before the record. In START both stimes bound the event time that damage before it may
    affect (trace-15), and a ``gap`` of 0 marks that the ids restart (rule-28).

    ``partitions``, in a record without readings, is the number of the stream's source logs that the
    writer knows, one for each partition of the stream's topic; 0 for a stream of one log (rule-30).

    ``input_epoch``, of an input from a topic, is the leader epoch of the message before
    ``input_position`` or of a later one; ``NO_EPOCH`` if it is not known (rule-31).
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
    partitions: int = 0
    input_epoch: int = NO_EPOCH

    @property
    def readings(self) -> int:
        """Number of readings in the record."""
        return self.last_id - self.first_id + 1

    @classmethod
    def void(cls, stream: str) -> SourceRecord:
        """The placeholder for a record that cannot be decoded."""
        return cls(Kind.VOID, stream, 0, 0, -1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ResultBatch:
    """One window of one result partition, or a run of empty ones, as readings for another query.

    In a chain the rows of a window have the event time window end - 1 us. The batch covers event
    time from ``prev_watermark``, that instant, up to ``boundary``, the same instant of the next
    window: batches of adjacent windows touch, stable and tentative ones alike. ``offset`` is the
    offset of its first record, ``next_offset`` one past its last; transaction markers may take
    offsets in between and up to the next batch. Ids are the rows' ``seq``. Of the ``lost`` rows
    ``lost_rows`` had a ``seq`` in this window, and ids begin after as many. See trace-20.
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
    lost_rows: int = 0
    partitions: ClassVar[int] = 0
    """As in a source record: a part of a query is a stream of one log."""

    @property
    def readings(self) -> int:
        """Number of rows in the batch."""
        return self.last_id - self.first_id + 1


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A state of variable length in a record (``slackwater.primitives.states``).

    ``lengths``, per field of shape (keys,), are the numbers of entries of each key.

    ``ids`` and ``weights``, per field, are those of the first key, then of the second, ...
    """

    lengths: tuple[type_f64, ...]
    ids: tuple[type_f64, ...]
    weights: tuple[type_f64, ...]

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        return sum(a.nbytes for each in (self.lengths, self.ids, self.weights) for a in each)


@dataclass(frozen=True, slots=True)
class OrderedRecord:
    """One record of ``sw.ordered.<query>.<child>``.

    INSERTION and TENTATIVE carry piece ``piece`` of ``pieces`` of the bucket
    [``bucket_start``, ``bucket_end``); BOUNDARY covers a run of empty buckets. Readings are
    grouped by key: key ``keys[i]`` owns ``values[f][offsets[i]:offsets[i + 1]]``; ``offsets`` is
    (len(keys) + 1,), float64 (exact: a piece is far below 2**53), rising from 0.
    Without a window the readings are *rows*, in order: ``stimes`` and ``key_index`` (n,) as in a
    source record, and ``offsets`` is [0]; pieces are then cut between rows.
    ``frontier`` (START only) is the position from which the writer continues, ``placement`` (START
    only) its placement number, -1 if controllers have not placed it. ``seq`` is the record's offset
    if the reader counts by offsets; it is not on the wire (trace-21). ``states`` are those of the
    aggregates of its readers, by name.
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
    placement: int = -1
    seq: int = -1
    states: Mapping[str, Ragged] = field(default_factory=dict, kw_only=True)

    @property
    def readings(self) -> int:
        """Number of readings in the record."""
        return len(self.stimes) or int(self.offsets[-1])

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, without the text of the keys, which is shared."""
        rows = self.stimes.nbytes + self.key_index.nbytes + self.offsets.nbytes
        states = sum(state.nbytes for state in self.states.values())
        return 8 * len(self.keys) + rows + sum(column.nbytes for column in self.values) + states


@dataclass(frozen=True, slots=True)
class DeltaRecord:
    """One record of ``sw.deltas.<query>.<part>``: the aggregate of one ordered record.

    ``seq`` is the offset of the ordered record it was made from (rule-10, rule-19). ``keys_hash``
    is Spark's ``xxhash64`` of the key list: a reader need not decode a known list again. The five
    figures are float64 of shape (fields, keys): number of values (without NaN), their sum, the sum
    of squared deviations from the slice's own mean, smallest and largest (NaN where count is 0).
    ``others`` has those that an aggregate brings along, and ``states`` theirs, by name.
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
    others: Mapping[str, type_f64] = field(default_factory=dict, kw_only=True)
    states: Mapping[str, Ragged] = field(default_factory=dict, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, without the text of the keys, which is shared."""
        states = sum(state.nbytes for state in self.states.values())
        return 8 * len(self.keys) + (5 + len(self.others)) * self.count.nbytes + states


BucketRecord = OrderedRecord | DeltaRecord
"""Input records of a root: deltas, or ordered records for a query without a window."""


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where a line continues in a source log, and the watermark at that offset (rule-5)."""

    offset: int
    next_id: int
    inc: int
    boundary: int


@dataclass(frozen=True, slots=True)
class StreamPositions:
    """An orderer's positions in one stream: stable line, operator state, live line (trace-26)."""

    stream: str
    next: SourcePosition
    rebuild: SourcePosition
    live: SourcePosition


@dataclass(frozen=True, slots=True)
class OrdererState:
    """State record of an orderer; an old one is as correct as a new one (rule-5)."""

    fragment: str
    frontier: int
    last_id: int
    live_frontier: int
    stable_offset: int
    live_offset: int
    streams: tuple[StreamPositions, ...]
    placement: int = -1
    """The writer's placement number; -1 if controllers have not placed it."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where one line of a root continues in one deltas partition (rule-23).

    ``frontier`` is the end of that log's own contiguous records (L of rule-11).
    """

    offset: int
    next_seq: int
    inc: int
    frontier: Position


@dataclass(frozen=True, slots=True)
class LogState:
    """A root's positions in the partition of (child, replica, line), line 0 stable, 1 live.

    Every seq below ``contiguous_seq`` has been read, and an aggregator need not send it again
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
    """State record of a root, the last record of each of its transactions (rule-23).

    ``stable_from`` is S (first window without a stable answer), ``answered_to`` is T (first window
    without any answer); both are window starts. ``child_frontiers`` holds each child's accepted
    stable frontier. ``term``, ``copy``, ``vain`` and ``resigned`` tell which copy of the part
    answers (``protocols.flux.pair.Tenure``); ``placement`` is its number. ``digest`` is that of the
    panes from the S before to this one (``primitives.digests``), or 0: for another copy to compare.

    A copy of a part also writes such a record under its own name, outside transactions: with its
    own number and positions, and what it has adopted (rule-5).
    """

    fragment: str
    placement: int
    next_seq: int
    epoch: int
    stable_from: int
    answered_to: int
    child_frontiers: tuple[Position, ...]
    logs: tuple[LogState, ...]
    term: int = 0
    copy: int = -1
    vain: int = 0
    resigned: bool = False
    digest: int = 0
    kept_from: tuple[int, ...] = ()
    """Of each of ``logs``, the offset below which nobody needs a record who installs one of the two
    heads (``model.heads``) that are stored; empty: the smaller of its two positions."""
    moved_to: tuple[int, ...] = ()
    """Of each child, the frontier in the older of these heads."""
    merged_from: tuple[int, ...] = ()
    """Of each child, the offset in the log of its merged panes from which a root reads at S."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A hole that a reader has found in a log; the log's writer sends again (rule-11)."""

    topic: str
    partition: int
    inc: int


DEAD: Final = "dead"
"""Heartbeat detail, 1 in a report that a process has ended: its supervisor sends it in its name."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The state of a process, sent every 100 ms to ``sw.heartbeats``.

    ``process`` is the name in ``slackwater status`` (``orderer/climate.0.a``), ``started_at`` the
    wall time in us of its start, ``inc`` the incarnation of its log (-1 without one), ``ready``
    whether it is in operation, ``states`` the state of each output: STABLE, UP_FAILURE or
    STABILIZATION, or FOLLOWING of a root whose other copy answers. ``detail`` has counters for
    operators, an orderer's lease status for its peers, and a root's read positions for orderers.

    A process that carries parts with names of their own reports ``parts`` instead of its own state.
    Between two such records it sends *pulses*: the state is that of its record with ``at`` =
    ``repeats``, which is not repeated.

    When a process has ended, its supervisor sends a last record under its name and pid, with the
    detail ``DEAD``.
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

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended, as its supervisor reports."""
        return DEAD in self.detail

    def as_dead(self) -> Heartbeat:
        """Return this heartbeat as it is after its process has ended."""
        return replace(self, ready=False, states={}, holes=(), detail=self.detail | {DEAD: 1})

    def each(self) -> Iterator[Heartbeat]:
        """Yield a heartbeat for each part, or without parts the process's own.

        A pulse yields none.
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
    """The state of a part of a process, with a name and a start time of its own."""

    process: str
    started_at: int
    inc: int
    ready: bool
    states: dict[str, str]
    holes: tuple[Hole, ...] = ()
    detail: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegistryRecord:
    """One entry of ``sw.registry``: its key ``name``, and its definition as JSON."""

    name: str
    definition: str
