"""An orderer's configuration, and the effects it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from slackwater.model.limits import NEVER
from slackwater.model.names import UNPREFIXED, Names
from slackwater.model.records import OrderedRecord, Position
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import PROCESS, LineName, Policy, Schedule
from slackwater.protocols.dpc.reconcile.downstream import NEAR_BUCKETS_DEFAULT
from slackwater.protocols.dpc.reconcile.staggering import LEASE_US_DEFAULT

WITHHELD: Final = "withheld."
"""Heartbeat detail, before a stream: how many of its logs the query has not taken in (rule-30)."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Append ``record`` to the stable or the live log, in order."""

    line: LineName
    record: OrderedRecord


@dataclass(frozen=True, slots=True)
class SaveState:
    """Write the state record soon, since a line's cursors were parked (rule-5)."""


Effect = Emit | ProbeEnds[int] | SaveState


@dataclass(frozen=True, slots=True)
class OrdererConfig:
    """Configuration of an orderer.

    ``logs`` names each log that the orderer reads (``sw.source.<log>``). ``names`` has, for each
    log, the stream or query of the deployment file, as ``missing`` names it. A part of another
    query is two successive logs, its stable and its tentative topic. ``results`` has an entry for
    each such part: the index of its stable topic in ``logs``, and the part's watermark (us of event
    time) before its first record. ``ahead_buckets_max`` and ``ahead_bytes_max`` are H of rule-12.
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
    """Number of replicas of the child, which catch up one by one (``reconcile/staggering.py``)."""
    turn_lease_us: int = LEASE_US_DEFAULT
    near_buckets_max: int = NEAR_BUCKETS_DEFAULT
    """Maximum lag of the roots behind the stable line when the lines join
    (``reconcile/downstream.py``)."""
    disorders_us: tuple[int, ...] = ()
    """``disorder`` of each log's stream: a skipped reading may lie so far above the reading after
    it. Empty: 0 for all."""
    lateness: Callable[[int], int] = field(default=lambda _e: 0)
    """Lateness at event time e (rule-15): part of the skew between healthy inputs that is buffered.
    Without it the cursors of inputs ahead would never be attached, and the lines never join."""
    in_time_us: int = 0
    """Event time from a bucket's normal time to its deadline: an input so late has not failed
    (rule-14)."""
    results: Mapping[int, int] = field(default_factory=dict)
    reached: Callable[[], int] | None = None
    """The event time (us) that the clock has reached, if it follows the data and the orderer reads
    results: their watermark is ahead of the data, and would advance the clocks of the roots."""
    backlog_rows_max: int = 100_000
    """``backlog_records_max`` of a result topic, where each row is a record."""
    topics: Names = UNPREFIXED
    """Names of topics, to report holes with."""
    placement: int = -1
    """Placement number, if controllers have placed the orderer; -1 otherwise."""
    withheld: frozenset[int] = frozenset()
    """Logs of partitions that the query has not taken in, by index: they are not read, and their
    inputs fail like those of a silent stream (rule-30)."""

    coming: Mapping[str, int] = field(default_factory=dict)
    """By stream, the first partition that is not among ``logs`` and would be, if the topic had it:
    once a source log tells of it, the orderer must be built again (rule-30)."""
    lost_until: int = NEVER
    """Event time before which readings of each input may be lost, from the start on: what they
    were stored in has been lost (rule-37). It is a cut point."""

    def max_skew_us(self, e: int) -> int:
        """Maximum event-time skew between healthy inputs at event time e."""
        return self.lateness(e) + self.in_time_us

    @property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """The logs of each input, in order: one for a stream, two for a query's part."""
        behind = {log + 1 for log in self.results}
        return tuple(
            (i, i + 1) if i in self.results else (i,)
            for i in range(len(self.logs))
            if i not in behind
        )


@dataclass(frozen=True, slots=True)
class Recovered:
    """The ends of the contiguous prefixes of an orderer's own logs (rule-25).

    ``frontier`` and ``next_id`` are of the stable log, ``live_frontier`` is of the live log.
    """

    frontier: Position
    next_id: int
    live_frontier: int
