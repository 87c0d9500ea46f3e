"""What an orderer is told at its start, and the effects that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slackwater.model.names import UNPREFIXED, Names
from slackwater.model.records import OrderedRecord, Position
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import PROCESS, LineName, Policy, Schedule
from slackwater.protocols.dpc.reconcile.downstream import NEAR_BUCKETS_DEFAULT
from slackwater.protocols.dpc.reconcile.staggering import LEASE_US_DEFAULT


@dataclass(frozen=True, slots=True)
class Emit:
    """Append ``record`` to the stable or the live log, after all that was appended before."""

    line: LineName
    record: OrderedRecord


@dataclass(frozen=True, slots=True)
class SaveState:
    """Write the state record soon: the line has parked (rule-5)."""


Effect = Emit | ProbeEnds[int] | SaveState


@dataclass(frozen=True, slots=True)
class OrdererConfig:
    """What an orderer is told at its start.

    ``logs`` names each log it reads (``sw.source.<log>``), ``names`` the stream or query of the
    deployment file that ``missing`` shall name. A part of a query is two logs, the stable and then
    the tentative topic; ``results`` has the number of the first, and what is promised of the part
    before its first record: no row below that time. The bounds are rule-12's H and the size of a
    piece (trace-32).
    """

    fragment: str
    child: int
    replica: int
    logs: tuple[str, ...]
    names: tuple[str, ...]
    grid: Grid
    schedule: Schedule
    ahead_buckets_max: int = 600
    ahead_bytes_max: int = 256 << 20
    parked_lookahead_buckets: int = 16
    backlog_records_max: int = 1000
    buckets_per_step_max: int = 8
    seek_period_us: int = 100_000
    policy: Policy = PROCESS
    replicas: int = 1
    """Of the child: they take turns at catching up (``reconcile/staggering.py``)."""
    turn_lease_us: int = LEASE_US_DEFAULT
    near_buckets_max: int = NEAR_BUCKETS_DEFAULT
    """So far behind the stable line the roots may be when the lines join
    (``reconcile/downstream.py``)."""
    disorders_us: tuple[int, ...] = ()
    """The ``disorder`` of each log's stream, how far a skipped reading may lie ahead; (): none."""
    lateness: Callable[[int], int] = field(default=lambda _e: 0)
    """How far apart the promises of healthy inputs may be (rule-15): so much more is held of those
    that are ahead. A cursor that had to let go of it would never be attached, nor the lines one."""
    in_time_us: int = 0
    """Event time that goes by until a deadline: so late an input is still healthy (rule-14)."""
    results: Mapping[int, int] = field(default_factory=dict)
    backlog_rows_max: int = 100_000
    """In a result topic each row is a record, and a window may have many."""
    topics: Names = UNPREFIXED
    """What the logs are called in which holes are told."""

    def max_skew_us(self, e: int) -> int:
        """How far inputs may be apart at event time e that all are in time."""
        return self.lateness(e) + self.in_time_us

    @property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """The logs of each input, in order: one of a stream, two of a query's part."""
        behind = {log + 1 for log in self.results}
        return tuple(
            (i, i + 1) if i in self.results else (i,)
            for i in range(len(self.logs))
            if i not in behind
        )


@dataclass(frozen=True, slots=True)
class Recovered:
    """What an orderer's own logs say of it (rule-25): the end of their contiguous prefixes."""

    frontier: Position
    next_id: int
    live_frontier: int
