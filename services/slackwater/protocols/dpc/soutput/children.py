"""Restores the children of a root from its state record, and bounds their memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slackwater.model.errors import HeldTooMuchError
from slackwater.model.records import BucketRecord, Hole, Kind, LogState, Position, RootState
from slackwater.primitives.contents import Contents
from slackwater.primitives.digests import NO_DIGEST, combined, recorded
from slackwater.primitives.live_panes import LivePanes
from slackwater.primitives.panes import Notes, PaneStore
from slackwater.protocols.common.inputs import InputLog, Inputs
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.answers import Answered
from slackwater.protocols.dpc.soutput.config import DeltaLog, RootConfig
from slackwater.protocols.dpc.soutput.decision import Child, Chosen
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor
from slackwater.protocols.dpc.soutput.heads import Moved, at_of, continued
from slackwater.protocols.dpc.soutput.live_input import LiveInput
from slackwater.protocols.dpc.soutput.stable_input import StableInput
from slackwater.protocols.dpc.soutput.upstream import Switched, Upstream


def restore_child(
    config: RootConfig,
    child: int,
    state: RootState,
    contents: Contents[Any],
    moved: Moved | None = None,
) -> Child:
    """The child's cursors and panes, at the positions of the state record, or of a head."""
    grid = config.grid
    logs = {at_of(s): s for s in state.logs}
    heads = {} if moved is None else {at_of(head): head for head in moved.head.logs}
    frontier = state.child_frontiers[child]
    if moved is not None:
        frontier = Position(moved.head.frontiers[child])
    e, answered_to = frontier.bucket_start, state.answered_to

    def cursor(replica: int, line: LineName, *, strict: bool) -> DeltaCursor:
        log = DeltaLog(child, replica, line)
        at, replay_from = logs[log], logs[log].stable if strict else logs[log].live
        position = continued(at, heads.get(log), e, answered_to)[0 if strict else 1]
        return DeltaCursor(position, grid.pane_start, strict=strict, replay_from=replay_from)

    stable = StableInput(
        [cursor(r, LineName.STABLE, strict=True) for r in range(config.replicas)],
        frontier,
        config.ahead_buckets_max * grid.w_us,
        config.ahead_buckets_max,
    )
    panes = PaneStore(grid, contents, state.stable_from)
    live_panes = LivePanes(grid, contents, panes, streams=config.children[child])
    start = max(answered_to, grid.bucket_start(config.start_time))
    if moved is not None:
        panes.install(e, *moved.of_child(child))
        start = max(start, e)
    elif e > state.stable_from:
        panes.advance(e)  # no reading lies between S and E0's bucket
    live = LiveInput(
        [
            (
                cursor(r, LineName.STABLE, strict=False),
                cursor(r, LineName.LIVE, strict=False),
            )
            for r in range(config.replicas)
        ],
        start,
        config.ahead_buckets_max * grid.w_us,
        config.ahead_buckets_max,
    )
    chosen = Chosen(contents, live_panes, start)
    return Child(stable, panes, live, chosen, Upstream(config.replicas, config.stale_us))


def settle(config: RootConfig, child: Child, now: int) -> None:
    """Release buffered buckets, so that memory is independent of window length (guarantee-5).

    Buckets that the stable line has taken are released; the live line uses the stable line's panes
    for them. In a failure the stable line takes none. Then buckets past their deadline are chosen
    for the live line, and folded into panes, if they lie more than H behind the newest bucket or
    exceed the child's share of the bytes. A later version of them counts for the stable line only.
    """
    settled = child.stable.frontier.bucket_start
    reached = config.grid.bucket_start(child.live.reaches_to - child.live.ahead_us_max)
    if reached > max(settled, child.chosen.to):
        deadline = config.schedule.deadline(reached)
        if deadline is not None and deadline <= now:
            _choose(child, max(child.chosen.to, settled), reached)
    if max(settled, child.chosen.to) > child.live.low:
        child.chosen.to = max(child.chosen.to, settled)
        child.live.forget_before(child.chosen.to)
    while child.live.bytes_held > _bytes_max(config):
        following = config.grid.next_cut(child.chosen.to)
        deadline = config.schedule.deadline(following)
        if deadline is None or deadline > now or following > child.live.reaches_to:
            return
        _choose(child, child.chosen.to, following)
        child.live.forget_before(following)


def _bytes_max(config: RootConfig) -> int:
    """A child's share of H for buckets (rule-12)."""
    return config.ahead_bytes_max // len(config.children)


def check_excess(config: RootConfig, child: Child, now: int) -> None:
    """Raise if a child buffers more than its share of H without need; call after ``settle``.

    Chosen buckets and buckets past their deadline are not needed: ``settle`` has released them, or
    as many as exceeded the share. Buckets that may not be chosen yet may exceed it (rule-12).

    Raises:
        HeldTooMuchError: the session is then rebuilt from its logs.
    """
    if child.live.bytes_held <= _bytes_max(config):
        return
    chosen_to = max(child.chosen.to, child.stable.frontier.bucket_start)

    def is_past(end: int) -> bool:
        deadline = config.schedule.deadline(end)
        is_due = deadline is not None and deadline <= now and end <= child.live.reaches_to
        return is_due or end <= chosen_to

    excess = child.live.bytes_before(is_past)
    if excess > _bytes_max(config):
        raise HeldTooMuchError(config.fragment, excess, _bytes_max(config))


def _choose(child: Child, start: int, end: int) -> None:
    child.chosen.choose(child.live, start, end)
    child.chosen.panes.seal()


def forget_answered(child: Child, answered: Answered) -> None:
    """Drop what only windows need that are answered."""
    child.panes.drop_before(answered.stable_from)
    child.chosen.panes.drop_before(answered.answered_to)
    for cursor in child.stable.cursors:
        cursor.replay_positions.forget_before(answered.stable_from)
    for pair in child.live.cursors:
        for cursor in pair:
            cursor.replay_positions.forget_before(answered.answered_to)


def digest_of_panes(children: Sequence[Child], start: int, end: int) -> int:
    """Return the digest of all children's panes in [start, end), as in a state record (rule-27).

    0 if there is none: some are not complete, or copies may hold different versions of them.
    """
    if end <= start or any(child.panes.complete_to < end for child in children):
        return NO_DIGEST
    found = [child.panes.digest(start, end) for child in children]
    if None in found:
        return NO_DIGEST
    return recorded(sum(combined(at, digest or 0) for at, digest in enumerate(found)))


def switches_of(children: Sequence[Child], end: int, now: int) -> list[Switched]:
    """Return the switches that a first answer up to ``end`` completes (DPC 5.1).

    Another replica than the lost one has passed the end of its last window.
    """
    found = []
    for i, child in enumerate(children):
        lost = child.upstream.lost
        if lost is not None and child.live.passes_without(lost.replica, end):
            child.upstream.lost = None
            found.append(Switched(i, lost.replica, lost.last_heartbeat, lost.detected_at, now))
    return found


def input_log(child: Child, log: DeltaLog) -> InputLog[DeltaCursor]:
    """The cursors in a log of the child; only the live line reads its live log."""
    is_stable = log.line is LineName.STABLE
    return InputLog(
        child.live.cursors[log.replica][log.line],
        child.stable.cursors[log.replica] if is_stable else None,
    )


def log_states(
    logs: Iterable[DeltaLog],
    inputs: Inputs[DeltaLog, DeltaCursor],
    contiguous_seq: Mapping[DeltaLog, int],
    after: Answered,
) -> list[LogState]:
    """The positions of a state record, to replay from when this is answered."""
    found = []
    for log in logs:
        live = inputs.live(log).replay_positions.at(after.answered_to)
        stable = live
        if log.line is LineName.STABLE:
            stable = inputs.stable(log).replay_positions.at(after.stable_from)
        found.append(LogState(log.child, log.replica, log.line, stable, live, contiguous_seq[log]))
    return found


def take_stable(
    stable: StableInput,
    panes: PaneStore[Any],
    contents: Contents[Any],
    log: DeltaLog,
    offset: int,
    record: BucketRecord,
    needed_to: int,
) -> None:
    """Offer a record of a replica's stable log to the stable line; fold it if it counts.

    ``needed_to`` is the end of the stable line's next window.
    """
    before = stable.frontier
    is_taken = stable.take(log.replica, offset, record, needed_to)
    if stable.frontier < before:
        panes.begin_again()
    if not is_taken:
        return
    notes = Notes.of((), record.gap)
    if record.kind is Kind.BOUNDARY:
        panes.advance(record.bucket_end, notes)
    else:
        panes.add(
            Position(record.bucket_start, record.piece),
            record.bucket_end,
            contents.of(record),
            notes,
            last=record.piece + 1 == record.pieces,
        )


def holes_of(
    config: RootConfig, children: Sequence[Child], unsent: Iterable[tuple[DeltaLog, int]]
) -> tuple[Hole, ...]:
    """The holes in replicas' stable logs, and in the deltas of these logs and incarnations."""
    query, topics = config.child_query, config.topics
    missing_from = [
        Hole(topics.ordered(query, child), 2 * replica, inc)
        for child, state in enumerate(children)
        for replica, inc in state.stable.missing_from.items()
    ]
    unsent_in = [
        Hole(topics.deltas(query, config.part), log.partition(config.replicas), inc)
        for log, inc in unsent
    ]
    return (*missing_from, *unsent_in)
