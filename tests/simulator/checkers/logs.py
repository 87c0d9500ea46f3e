"""Invariants of the logs themselves, independent of their readers.

Replicas agree bit for bit on every bucket, also with their own repetitions; stable ids are
contiguous; every writer has written START; a root's state record matches its transaction.

See rule-3, rule-4, rule-8, rule-22 to rule-24.
"""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts
from tests.simulator.history import OrderedLogs

from slackwater.model.records import Kind, OrderedRecord, Position

Content = tuple[object, ...]


def check(facts: Facts) -> None:
    """Check the ordered logs, then the state records."""
    _source_writers(facts)
    for logs in (facts.history.ordered_logs, *facts.history.later_logs):
        for child in range(len(facts.config.children)):
            _of_child(facts, logs, child)
    _states(facts)


def _of_child(facts: Facts, logs: OrderedLogs, child: int) -> None:
    contents: dict[tuple[int, int], Content] = {}
    for replica in range(facts.config.replicas):
        starts = _stable_log(facts, logs, (child, replica), contents)
        for offset, record in logs.get((child, replica, 1), []):
            if record.inc not in starts:
                text = f"live log {child}.{replica}: no writer for offset {offset}: {record.inc}"
                raise _violation(facts, text)


def _violation(facts: Facts, text: str) -> Violation:
    return Violation("logs", facts.history.ended_at, text)


def _source_writers(facts: Facts) -> None:
    for stream, log in facts.history.source_logs.items():
        starts = {offset for offset, record in log if record.kind is Kind.START}
        for offset, record in log:
            if record.kind is not Kind.START and record.inc not in starts:
                raise _violation(facts, f"{stream}: no writer for offset {offset}: {record.inc}")


def _stable_log(
    facts: Facts,
    logs: OrderedLogs,
    at: tuple[int, int],
    contents: dict[tuple[int, int], Content],
) -> set[int]:
    """Read the log by rule-11; return the incarnations that wrote it."""
    child, replica = at
    log = logs.get((child, replica, 0), [])
    # A damaged START has no record, but its incarnation was begun by a writer nevertheless.
    starts: set[int] = set()
    if facts.history.damaged:
        live = logs.get((child, replica, 1), [])
        emitted_by = {record.inc for _, record in (*log, *live)}
        starts = emitted_by - {offset for offset, _ in log} - {-1}
    inc, next_id = -1, None
    frontier: Position | None = None
    for offset, record in log:
        if record.kind is Kind.START:
            starts.add(offset)
            inc, frontier, next_id = offset, record.frontier, record.first_id
            continue
        if record.kind is Kind.VOID or record.inc < inc:
            continue
        if record.inc not in starts:
            raise _violation(facts, f"stable log {child}.{replica}: no writer for offset {offset}")
        if Position(record.bucket_start, record.piece) != frontier:
            continue
        if record.kind is Kind.INSERTION and record.first_id != next_id:
            text = f"stable log {child}.{replica}: id {record.first_id} at {offset}, not {next_id}"
            raise _violation(facts, text)
        next_id = record.last_id + 1
        frontier = _next_position(record)
        _agree(facts, record, contents)
    return starts


def _next_position(record: OrderedRecord) -> Position:
    if record.kind is Kind.INSERTION and record.piece + 1 < record.pieces:
        return Position(record.bucket_start, record.piece + 1)
    return Position(record.bucket_end)


def _agree(facts: Facts, record: OrderedRecord, contents: dict[tuple[int, int], Content]) -> None:
    if record.kind is Kind.BOUNDARY or record.gap:
        return
    content: Content = (
        record.bucket_end,
        record.pieces,
        tuple(record.keys),
        record.offsets.tobytes(),
        tuple(v.tobytes() for v in record.values),
        record.stimes.tobytes(),
        record.key_index.tobytes(),
    )
    if contents.setdefault((record.bucket_start, record.piece), content) != content:
        at = (record.bucket_start - facts.config.start_time_us) / 1e6
        text = f"child {record.child}: the bucket at {at:g} s was said in two ways"
        if not facts.history.cut:
            raise _violation(facts, text)


def _states(facts: Facts) -> None:
    """Check state records against their transactions; some numbers never decrease."""
    placements: dict[tuple[int, str], int] = {}
    contiguous_seqs: dict[tuple[str, int, int, int], int] = {}
    fragments: dict[int, list[str]] = {}
    for committed in facts.history.committed:
        state, after = committed.state, committed.transaction.after
        if state is None:
            continue
        reported = (state.next_seq, state.epoch, state.stable_from, state.answered_to)
        if reported != (after.next_seq, after.epoch, after.stable_from, after.answered_to):
            raise Violation("logs", committed.at, f"the state record has {reported}, not {after}")
        # In a split network the root of the earlier generation may have been placed last.
        copies = facts.config.copies
        of = committed.part, state.fragment if copies == 1 else f"{state.fragment} {state.copy}"
        if state.placement < placements.get(of, -1):
            raise Violation("logs", committed.at, f"placement {state.placement} answers again")
        placements[of] = state.placement
        generations = fragments.setdefault(committed.part, [])
        if state.fragment not in generations:
            generations.append(state.fragment)
        elif state.fragment != generations[-1]:
            text = f"{state.fragment} answers again after {generations[-1]}"
            raise Violation("logs", committed.at, text)
        for log in state.logs:
            key = (f"{of[1]} {state.placement}", log.child, log.replica, log.line)
            if log.contiguous_seq < contiguous_seqs.get(key, 0):
                raise Violation(
                    "logs", committed.at, f"`whole` of {key} went back to {log.contiguous_seq}"
                )
            contiguous_seqs[key] = log.contiguous_seq
