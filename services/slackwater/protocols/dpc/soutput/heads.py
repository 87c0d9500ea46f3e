"""Takes the state of a root's stable line out of its core, and puts it into another (Flux, 3.3.1).

A *cut* has, of each child, the panes and the frontier, and of each log the positions from which
reading continues there. It is taken between two transactions, so S and T are in the results. It
ends at a whole bucket: of a bucket that has begun the pieces are left out, and its logs are read
again from where the bucket begins, at most one bucket of each. In Flux the whole state of an
operator is moved; pieces of one bucket are read again in less time than it takes to write them.

The live line continues where the stable line does, or at T if that is later: before the frontier it
uses the stable line's panes. So of a window of a day nothing is read again but what follows the
cut. Positions from before the cut remain in the state record as those at S and T: a root that finds
no head can do without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from slackwater.model.heads import Head, LogHead, Noted
from slackwater.model.records import BucketRecord, LogPosition, LogState, RootState
from slackwater.primitives.contents import Contents
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.common.inputs import Inputs
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.answers import Answered, AnswerPlanner
from slackwater.protocols.dpc.soutput.config import DeltaLog, RootConfig
from slackwater.protocols.dpc.soutput.decision import Child
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor
from slackwater.protocols.dpc.soutput.stable_input import StableInput

RECORD_US: Final = 100.0
KEY_US: Final = 0.1
"""CPU time to decode and fold a delta, and one of its keys; half of it is for keys that change."""
COUNTED_MAX: Final = 256
"""The mean number of keys is that of about as many of the last records."""


@dataclass(frozen=True, slots=True)
class HeadCut:
    """The stable lines of a part's children at one moment. ``panes`` is by child and start."""

    answered: Answered
    frontiers: tuple[int, ...]
    noted: tuple[tuple[Noted, ...], ...]
    panes: Mapping[tuple[int, int], Any]
    logs: tuple[LogHead, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A head whose panes have been installed, by child and start, with these numbers of keys."""

    head: Head
    panes: Mapping[tuple[int, int], Any]
    keys: KeyTable
    contents: Contents[Any]

    def of_child(self, child: int) -> tuple[dict[int, Any], tuple[Noted, ...]]:
        """Return the panes of a child by their starts, and its losses."""
        panes = {start: pane for (of, start), pane in self.panes.items() if of == child}
        return panes, self.head.noted[child]


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of the logs for the two heads that are stored; in each state record."""

    offsets: Mapping[DeltaLog, int]
    frontiers: tuple[int, ...]

    @classmethod
    def of_state(cls, state: RootState) -> Kept | None:
        """Return what a state record has; None if it has nothing, or of other logs."""
        if len(state.kept_from) != len(state.logs):
            return None
        logs = map(at_of, state.logs)
        return cls(dict(zip(logs, state.kept_from, strict=True)), state.moved_to)

    @classmethod
    def of_heads(cls, older: Head, newer: Head) -> Kept:
        """Return what is kept for these."""
        offsets: dict[DeltaLog, int] = {}
        for log in (*older.logs, *newer.logs):
            at = at_of(log)
            offsets[at] = min(log.first, offsets.get(at, log.first))
        return cls(offsets, older.frontiers)

    def added_to(self, state: RootState, inputs: Inputs[DeltaLog, DeltaCursor]) -> RootState:
        """Return the state record with this, and with what its writer itself has not read yet."""
        kept_from = []
        for log in state.logs:
            at = at_of(log)
            read = (cursor.offset for _, cursor in inputs.readers(at))
            kept_from.append(min(self.offsets.get(at, 0), *read))
        return replace(state, kept_from=tuple(kept_from), moved_to=self.frontiers)


@dataclass(slots=True)
class ReadCost:
    """How long it takes to read records, from the mean number of the last ones' keys."""

    records: int = 0
    _mean_keys: float = 0.0

    def add(self, record: BucketRecord) -> None:
        """Count a record that has been read."""
        self.records += 1
        self._mean_keys += (len(record.keys) - self._mean_keys) / min(self.records, COUNTED_MAX)

    def of(self, records: int) -> int:
        """Return the time to read as many, us."""
        return round(records * (RECORD_US + self._mean_keys * KEY_US))


def contiguous_seqs(state: RootState, moved: Moved | None) -> dict[DeltaLog, int]:
    """Return by log the seq below which all have been read, by the writer of the later record."""
    found = {at_of(log): log.contiguous_seq for log in state.logs}
    for head in () if moved is None else moved.head.logs:
        found[at_of(head)] = max(head.contiguous_seq, found[at_of(head)])
    return found


def contents_of(config: RootConfig, moved: Moved | None) -> tuple[KeyTable, Contents[Any]]:
    """Return the keys and contents of a core, with those that were installed."""
    if moved is not None:
        return moved.keys, moved.contents
    keys = KeyTable(kept_keys_min=config.kept_keys_min)
    return keys, config.contents(keys, config.fields)


def cut_of(
    children: Sequence[Child],
    inputs: Inputs[DeltaLog, DeltaCursor],
    contiguous_seq: Mapping[DeltaLog, int],
    answered: Answered,
) -> HeadCut:
    """Take the cut of these children; no transaction may be in flight."""
    panes: dict[tuple[int, int], Any] = {}
    noted: list[tuple[Noted, ...]] = []
    for number, child in enumerate(children):
        of_child, lost = child.panes.held()
        panes |= {(number, start): pane for start, pane in of_child.items()}
        noted.append(lost)
    return HeadCut(
        answered,
        tuple(child.panes.frontier.bucket_start for child in children),
        tuple(noted),
        panes,
        tuple(
            _log_head(children[log.child], inputs, log, seq, answered)
            for log, seq in contiguous_seq.items()
        ),
    )


def _log_head(
    child: Child,
    inputs: Inputs[DeltaLog, DeltaCursor],
    log: DeltaLog,
    contiguous_seq: int,
    answered: Answered,
) -> LogHead:
    frontier = child.panes.frontier.bucket_start
    live = inputs.live(log).replay_positions.at(max(frontier, answered.answered_to))
    stable = live
    if log.line is LineName.STABLE:
        stable = position_in(child.stable, log.replica)
        if answered.answered_to <= frontier:
            live = stable  # of a pane there is one replay position only, that of its beginning
    return LogHead(log.child, log.replica, int(log.line), stable, live, contiguous_seq)


def position_in(stable: StableInput, replica: int, end: int | None = None) -> LogPosition:
    """Return where a replica's stable log is to be read again, at the start of a bucket.

    Records beyond a missing one have been dropped, so they are read again. ``end``: the event time
    up to which all has been read that counts; a run of empty buckets that passes it is read again.
    """
    cursor = stable.cursors[replica]
    begun = stable.begun.get(replica)
    here = cursor.frontier
    if begun is not None:
        start = begun.frontier.bucket_start
        passes = end is not None and start < end < here.bucket_start
        if passes or (here.piece and start == here.bucket_start):
            return begun
    return cursor.pending_gap or cursor.position()


class MovableState:
    """The state of a core that is moved: what a head has, and what is kept for the stored ones.

    Args:
        children: the core's children.
        inputs: their logs, and where the lines are.
        contiguous_seq: by log, the seq below which all have been read.
        answers: S and T.
        kept: what the stored heads need; None if there are not two, or if this copy needs more.
    """

    def __init__(
        self,
        children: Sequence[Child],
        inputs: Inputs[DeltaLog, DeltaCursor],
        contiguous_seq: Mapping[DeltaLog, int],
        answers: AnswerPlanner[Any],
        kept: Kept | None,
    ) -> None:
        self._children = children
        self._inputs = inputs
        self._contiguous_seq = contiguous_seq
        self._answers = answers
        self.kept = kept
        self._read_cost = ReadCost()
        self.writes_from: int | None = None
        """Start of the first pane that is being written: the keys of panes from there on are
        needed."""

    @property
    def needed_from(self) -> int:
        """The event time before which no key is needed (rule-35): S, or what is behind it.

        A copy that follows may not have read to S, and panes are written after S has passed them.
        """
        panes = min(child.panes.complete_to for child in self._children)
        found = min(self._answers.state.stable_from, panes)
        return found if self.writes_from is None else min(found, self.writes_from)

    def count(self, record: BucketRecord) -> None:
        """Count a record that has been read."""
        self._read_cost.add(record)

    @property
    def records_read(self) -> int:
        """Number of records that this copy has read, repeated ones too."""
        return self._read_cost.records

    def cut(self) -> HeadCut:
        """Return what a head holds now; no transaction is in flight."""
        return cut_of(self._children, self._inputs, self._contiguous_seq, self._answers.state)

    def read_us(self, records: int) -> int:
        """Return how long it takes to read records, us."""
        return self._read_cost.of(records)

    def reread_us(self, head: Head | None) -> int:
        """Return how long it would take to read again what follows the head, or S."""
        after = {} if head is None else {at_of(log): log.stable.offset for log in head.logs}
        stable_from, records = self._answers.state.stable_from, 0
        for log in self._contiguous_seq:
            if log.line is LineName.STABLE:
                cursor = self._inputs.stable(log)
                first = max(cursor.replay_positions.at(stable_from).offset, after.get(log, 0))
                records += max(cursor.offset - first, 0)
        return self._read_cost.of(records)

    def is_behind(self, frontiers: Sequence[int]) -> bool:
        """Return whether a child has not been read as far as its frontier in the older head."""
        return any(
            child.stable.frontier.bucket_start < frontier
            for child, frontier in zip(self._children, frontiers, strict=False)
        )

    def follow(self, state: RootState) -> None:
        """Adopt what is kept for the heads that another copy has stored."""
        self.kept = None if self.is_behind(state.moved_to) else Kept.of_state(state)

    def added_to(self, state: RootState) -> RootState:
        """Return the state record with what is kept."""
        return state if self.kept is None else self.kept.added_to(state, self._inputs)


def at_of(state: LogState | LogHead) -> DeltaLog:
    """Return the log that an entry of a state record or of a head describes."""
    return DeltaLog(state.child, state.replica, LineName(state.line))


def fits_head(config: RootConfig, state: RootState, head: Head) -> bool:
    """Return whether a root can continue from the head instead of from S of the state record.

    The state record may be later than the head. Where S has passed a frontier of the head, it has
    less to read by itself.
    """
    of_logs = sorted((log.child, log.replica, log.line) for log in head.logs)
    return (
        len(head.frontiers) == len(head.noted) == len(config.children)
        and of_logs == sorted((log.child, log.replica, int(log.line)) for log in config.logs)
        and head.next_seq <= state.next_seq
        and head.stable_from <= state.stable_from <= min(head.frontiers)
        and head.answered_to <= state.answered_to
        and all(config.grid.is_cut(frontier) for frontier in head.frontiers)
    )


def continued(
    at: LogState, head: LogHead | None, frontier: int, answered_to: int
) -> tuple[LogPosition, LogPosition]:
    """Return where the stable and the live line continue in a log, of both records the later one.

    ``frontier`` is the child's in the head; the live line needs nothing before it, nor before T.
    """
    if head is None:
        return at.stable, at.live
    stable = max(at.stable, head.stable, key=lambda position: position.offset)
    if answered_to > frontier:
        return stable, at.live
    return stable, max(at.live, head.live, key=lambda position: position.offset)
