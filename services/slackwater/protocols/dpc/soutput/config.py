"""A root copy's configuration, the effects it returns, and its initial state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from slackwater.model.deployment import BOUND_TOLERANCE_US
from slackwater.model.errors import SlackwaterError
from slackwater.model.names import ONLY, UNPREFIXED, Names, RootName
from slackwater.model.records import LogPosition, LogState, Position, RootState
from slackwater.primitives.contents import Contents
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.digests import NO_DIGEST, combined
from slackwater.primitives.key_table import KEPT_KEYS_MIN, KeyTable
from slackwater.primitives.panes import PaneShare
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import PROCESS, LineName, Policy, Schedule
from slackwater.protocols.dpc.soutput.answers import Answered, Transaction
from slackwater.protocols.dpc.soutput.upstream import STALE_US_MAX, Switched

LIVE_WINDOWS_PER_STEP_MAX: Final = 64
HELD_READ_US_MAX: Final = 5_000
"""How long it may take to read what a copy holds undecoded, us, by the estimate of heads. If no key
comes in two deltas, and each line reads for itself, it takes ten times as long: 50 ms. A copy reads
while it fences, and a fence takes longer."""
COMPARE_PERIOD_US: Final = 4_000_000
"""Event time in which two copies compare the panes of one state record. A digest takes as long as
the panes themselves."""


class DeltaLog(NamedTuple):
    """One partition of ``sw.deltas.<query>.<part>``."""

    child: int
    replica: int
    line: LineName

    def partition(self, replicas: int) -> int:
        """The partition's number."""
        return (self.child * replicas + self.replica) * 2 + self.line


@dataclass(frozen=True, slots=True)
class Commit:
    """Write this transaction, with ``state`` as its last record; then call ``committed``.

    ``keys`` has the keys of its rows. Later input may add keys, and forget others, which changes no
    number and no order of these: their windows are not answered before ``committed``, until when
    the transaction may be encoded at any time (rule-35).
    """

    transaction: Transaction[PaneShare[Any]]
    state: RootState
    keys: KeyTable


@dataclass(frozen=True, slots=True)
class FetchOrdered:
    """Fetch the beginnings and ends of the ordered logs that these delta logs are made from.

    Pass the result to ``ordered``, also an empty one: only then is the next request made.
    """

    logs: tuple[DeltaLog, ...]


Effect = Commit | ProbeEnds[DeltaLog] | FetchOrdered | Switched


COUNTED_PLACEMENT_MAX: Final = 2**48
"""Upper bound of placement numbers that are offsets of the registry (under ``up``)."""


@dataclass(frozen=True, slots=True)
class RootConfig:
    """Configuration of a root copy.

    ``children`` has the stream names of each child (trace-31). ``start_time`` is the query's start
    in us of event time (trace-24). ``bound_us`` is X, ``tolerance_us`` the tolerance for late
    answers (``overload.py``). ``ahead_buckets_max`` and ``ahead_bytes_max`` are H of rule-12; the
    bytes are for all children together. ``contents`` selects what an answer consists of, aggregates
    of deltas or plain rows (trace-21); the lines, the cursors and the order of records are the same
    for both.
    """

    fragment: str
    query: str
    part: int
    placement: int
    children: tuple[tuple[str, ...], ...]
    replicas: int
    fields: tuple[str, ...]
    grid: Grid
    schedule: Schedule
    start_time: int
    bound_us: int
    ahead_buckets_max: int = 600
    ahead_bytes_max: int = 256 << 20
    contents: Callable[[KeyTable, tuple[str, ...]], Contents[Any]] = Aggregates
    empty_wait_us: int = 0
    """How long after its normal time an answer without rows may wait for others to form a run."""
    tolerance_us: int = BOUND_TOLERANCE_US
    live_windows_max: int = LIVE_WINDOWS_PER_STEP_MAX
    policy: Policy = PROCESS
    stale_us: int = STALE_US_MAX
    """How long a replica's last heartbeat is valid (``upstream.py``)."""
    topics: Names = UNPREFIXED
    """Names of topics, to report holes with."""
    children_of: str = ""
    """The query whose children the root reads; empty: ``query``."""
    is_history: bool = False
    """Whether the event clock follows the data: all that has been read is due at once."""
    copy: int = ONLY
    """The number of this copy, if the part has two."""
    held_read_us_max: int = HELD_READ_US_MAX
    compare_period_us: int = COMPARE_PERIOD_US
    """0: they compare all panes."""
    reread_us_max: int = 1_000_000
    """The state is stored when a start would read for longer (``protocols.flux.movement``)."""
    head_period_us: int = 5_000_000
    """Shortest time between two heads."""
    kept_keys_min: int = KEPT_KEYS_MIN
    """Keys of which none is forgotten (``primitives.key_table``)."""
    merged_wait_us: int | None = None
    """How long a merged pane is waited for (``protocols.fargo.parent``); None without mergers."""
    remote: frozenset[int] = frozenset()
    """The children of which only merged panes come, since a site has them (rule-37). Their logs of
    deltas are empty here."""
    is_recorded: bool = False
    """Whether controllers have recorded ``placement``: all starts on one node then have one
    number."""
    has_earlier: bool = False
    """Whether an earlier generation of the query has not ended yet, and answers (rule-29)."""

    @property
    def process(self) -> str:
        """The name of this copy; ``fragment`` is that of the part, and of its state record."""
        return RootName(self.query, self.part, self.copy).process

    def is_compared(self, stable_from: int) -> bool:
        """Whether copies compare the panes that follow S: those of the first S in each period.

        The periods of the parts begin at different times, so that not all of a host's parts have
        more to do at once.
        """
        if self.copy == ONLY or not self.compare_period_us:
            return self.copy != ONLY
        of_part = combined(self.part, 0) % self.compare_period_us
        before = self.grid.later(stable_from, -1)
        period, last = ((e + of_part) // self.compare_period_us for e in (stable_from, before))
        return period != last

    @property
    def child_query(self) -> str:
        """The query after which the ordered logs and deltas are named."""
        return self.children_of or self.query

    @property
    def remote_logs(self) -> set[DeltaLog]:
        """The logs that stay empty, since a site has the child."""
        return {log for log in self.logs if log.child in self.remote}

    @property
    def logs(self) -> list[DeltaLog]:
        """All the delta logs of the part."""
        return [
            DeltaLog(child, replica, line)
            for child in range(len(self.children))
            for replica in range(self.replicas)
            for line in LineName
        ]


def initial_state(config: RootConfig) -> RootState:
    """The state of an unanswered part: S = T = the first window that holds E0."""
    first = config.grid.first_window_holding(config.start_time)
    start = Position(config.grid.bucket_start(config.start_time))
    position = LogPosition(0, 0, -1, start)
    return RootState(
        config.fragment,
        placement=-1,
        next_seq=0,
        epoch=0,
        stable_from=first,
        answered_to=first,
        child_frontiers=(start,) * len(config.children),
        logs=tuple(
            LogState(log.child, log.replica, log.line, position, position, 0) for log in config.logs
        ),
    )


def merged_from(config: RootConfig, state: RootState) -> tuple[int, ...]:
    """Return the offsets in the logs of merged panes from which a root continues."""
    if config.merged_wait_us is None:
        return ()
    children = len(config.children)
    return state.merged_from if len(state.merged_from) == children else (0,) * children


def start_of_generation(answered_us: int, earlier_start_us: int, looks_back_us: int = 0) -> int:
    """The start of the event time of a new generation, in us (rule-29).

    Args:
        answered_us: the smallest S of the earlier generation's parts.
        earlier_start_us: the start of that generation. Readings before it belong to no window.
        looks_back_us: the ``within`` of a join: how far apart the two readings of a pair may be.
    """
    return max(answered_us - looks_back_us, earlier_start_us)


def continued_state(config: RootConfig, earlier: RootState) -> RootState:
    """The state of a part whose earlier generation has answered up to ``earlier`` (rule-29).

    The results continue: next seq, epoch, S and T are those of ``earlier``. The positions are the
    beginnings of the generation's own logs, whose records before S are dropped.

    Raises:
        SlackwaterError: the generation begins after S, and windows would have no answer.
    """
    begun = initial_state(config)
    if earlier.stable_from < begun.stable_from:
        raise SlackwaterError(
            f"{config.fragment} begins at {begun.stable_from} us, after {earlier.stable_from} us,"
            " the first window that the earlier generation has not answered"
        )
    return replace(
        begun,
        next_seq=earlier.next_seq,
        epoch=earlier.epoch,
        stable_from=earlier.stable_from,
        answered_to=earlier.answered_to,
        child_frontiers=_frontiers(config, earlier.stable_from),
        term=earlier.term,
    )


def state_after(
    config: RootConfig, after: Answered, logs: Iterable[LogState], digest: int = NO_DIGEST
) -> RootState:
    """The state record of a part after a transaction that leads to ``after``."""
    return RootState(
        config.fragment,
        placement=config.placement,
        next_seq=after.next_seq,
        epoch=after.epoch,
        stable_from=after.stable_from,
        answered_to=after.answered_to,
        child_frontiers=_frontiers(config, after.stable_from),
        logs=tuple(logs),
        digest=digest,
    )


def _frontiers(config: RootConfig, stable_from: int) -> tuple[Position, ...]:
    """The frontiers of children whose windows before S are answered: S, or the query's start."""
    start = config.grid.bucket_start(config.start_time)
    return (Position(max(stable_from, start)),) * len(config.children)


def fits(config: RootConfig, state: object) -> bool:
    """True if the state record can be this part's: it has a position in each of the part's logs.

    A placement number of ``COUNTED_PLACEMENT_MAX`` or more does not fit, unless controllers have
    recorded it. Records of other fragments are not checked: True.
    """
    if not isinstance(state, RootState) or state.fragment != config.fragment:
        return True
    if not config.is_recorded and state.placement >= COUNTED_PLACEMENT_MAX:
        return False
    logs = [(log.child, log.replica, log.line) for log in state.logs]
    return len(state.child_frontiers) == len(config.children) and sorted(logs) == sorted(
        (log.child, log.replica, int(log.line)) for log in config.logs
    )


def stays_down(state: RootState | None, placement: int, *, is_recorded: bool = False) -> bool:
    """True if a root with this placement number must not start: ``state`` has one as great.

    Only a greater number may fence (trace-17). All starts of a placement that controllers have
    recorded have one number (``is_recorded``): an equal one may start, and fences the others.
    """
    if state is None or (is_recorded and state.placement == placement):
        return False
    return state.placement >= placement


def needed_from(states: Iterable[RootState | None], child: int) -> int | None:
    """The event time before which no root needs a bucket of the child again.

    It is the smallest S, or of a root with two heads the frontier in the older one; None if a root
    has no state.
    """
    found = [
        None
        if state is None
        else (state.stable_from if len(state.moved_to) <= child else state.moved_to[child])
        for state in states
    ]
    return None if None in found else min((e for e in found if e is not None), default=None)


def answered_by_all(states: Iterable[RootState | None]) -> int | None:
    """The smallest S of all parts: no part needs older data. None if a part has no state."""
    answered = [None if state is None else state.stable_from for state in states]
    return None if None in answered else min((s for s in answered if s is not None), default=None)
