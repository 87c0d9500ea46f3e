"""The root: merges the children of one part and answers its windows, within the bound, exactly.

It is the last SUnion and SOutput of DPC (sections 4.2 and 4.4.2) in one. The same two lines as in
the orderer, over the children's delta logs: a window is stable when every child's frontier has
passed its end; it is answered tentatively at its deadline, or earlier when every child that has
not failed has passed it and waiting would gain nothing (rule 20). What is written, in which order
and in which transaction is decided by ``answers.py`` from S and T, which are in the log (rule 24).

The stable line folds slices into panes as they come; the live line sees all replicas' logs and
folds what it has chosen when it must answer. Neither keeps a backlog: positions do (R5). One
transaction is under way at a time; a copy whose transaction fails ends, and its restart is the
same procedure as a take-over (rule 27): restore the state record, read the delta logs to their
ends, go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from slackwater.model.records import (
    BucketRecord,
    Hole,
    Kind,
    LogPosition,
    LogState,
    Position,
    RootState,
)
from slackwater.primitives.deltas import Aggregates, KeyTable
from slackwater.primitives.panes import (
    Contents,
    LivePanes,
    Notes,
    PaneStore,
    Share,
    empty_windows,
    folded,
    window_of,
)
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.answers import Answered, Answers, Ready, Transaction
from slackwater.protocols.dpc.ends import Asked, step_us_max
from slackwater.protocols.dpc.line import (
    PROCESS,
    Answer,
    Line,
    LineName,
    Policy,
    ReadToEnd,
    Schedule,
    Wait,
)
from slackwater.protocols.dpc.replicated import (
    UNKNOWN_SEQ,
    DeltaCursor,
    LiveInput,
    StableInput,
)
from slackwater.protocols.dpc.states import LineState
from slackwater.protocols.dpc.upstream import Switched, Upstream, stale_us_max

CORRECTIONS_PER_STEP_MAX: Final = 100
CORRECTED_ROWS_MAX: Final = 20_000
LIVE_WINDOWS_PER_STEP_MAX: Final = 64
LIVE_ROWS_MAX: Final = 20_000
"""Or one window: a transaction takes time for each row, and may take only so long."""
LIVE_ALONE_MAX: Final = 10
"""So many live windows may be answered one after the other while corrections wait: these gain on
them ten to one, however long a transaction takes."""
ORDERED_PERIOD_US: Final = 200_000


class DeltaLog(NamedTuple):
    """One partition of ``sw.deltas.<query>.<part>``."""

    child: int
    replica: int
    line: LineName

    def partition(self, replicas: int) -> int:
        """Its number."""
        return (self.child * replicas + self.replica) * 2 + self.line


@dataclass(frozen=True, slots=True)
class Commit:
    """Write this transaction, and ``state`` as its last record; then call ``committed``."""

    transaction: Transaction[Share[Any]]
    state: RootState


@dataclass(frozen=True, slots=True)
class FetchEnds:
    """Ask the broker for the ends of these logs; answer with ``ends`` (rule 14)."""

    logs: tuple[DeltaLog, ...]


@dataclass(frozen=True, slots=True)
class FetchOrdered:
    """Ask where the ordered logs behind these delta logs begin and end; answer with ``ordered``.

    No answer is one too: the next question comes behind it.
    """

    logs: tuple[DeltaLog, ...]


Effect = Commit | FetchEnds | FetchOrdered | Switched


@dataclass(frozen=True, slots=True)
class RootConfig:
    """What a root copy is told. ``children`` are the stream names of each child (R31).

    ``e0`` is the query's start (R24). ``ahead_buckets_max`` and ``ahead_bytes_max`` are H of rule
    12; the bytes are those of all children. ``contents`` says what
    an answer is made of, figures of deltas or rows as they come (R21): the lines, the cursors and
    the order of what is written are the same for both.
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
    e0: int
    ahead_buckets_max: int = 600
    ahead_bytes_max: int = 256 << 20
    contents: Callable[[KeyTable, tuple[str, ...]], Contents[Any]] = Aggregates
    empty_wait_us: int = 0
    """So long after its normal time an answer without rows may wait for others, to be one run."""
    policy: Policy = PROCESS
    stale_us: int = stale_us_max
    """How long a replica's last word counts (``upstream.py``)."""

    @property
    def logs(self) -> list[DeltaLog]:
        """All the delta logs of the part."""
        return [
            DeltaLog(child, replica, line)
            for child in range(len(self.children))
            for replica in range(self.replicas)
            for line in LineName
        ]


@dataclass(slots=True)
class _Windows:
    """The windows as the Line's units."""

    grid: Grid

    def end(self, start: int) -> int:
        return self.grid.window_end(start)

    def following(self, start: int) -> int:
        assert self.grid.window is not None
        return start + self.grid.window.slide_us

    def news_from(self, start: int) -> int:
        assert self.grid.window is not None
        return self.grid.window_end(start) - self.grid.window.slide_us


def initial_state(config: RootConfig) -> RootState:
    """The state of a part that was never answered: S = T = the first window that holds E0."""
    first = config.grid.first_window_holding(config.e0)
    start = Position(config.grid.bucket_start(config.e0))
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


def stays_down(state: RootState | None, placement: int) -> bool:
    """Only a greater placement number may fence (R17); ``state`` is the log's."""
    return state is not None and state.placement >= placement


def answered_by_all(states: Iterable[RootState | None]) -> int | None:
    """S of the part that is last: before it nobody needs anything. None while a part is silent."""
    answered = [None if state is None else state.stable_from for state in states]
    return None if None in answered else min((s for s in answered if s is not None), default=None)


@dataclass(slots=True)
class _Child:
    stable: StableInput
    panes: PaneStore[Any]
    live: LiveInput
    live_panes: LivePanes[Any]
    put_to: int
    upstream: Upstream


class RootCore:
    """One copy of one root part. Always built from a state record, the first from the initial one.

    Args:
        config: what it is told.
        state: the state record as the log has it (rule 24).
        mute_until: per log, its end seen at the start: no tentative answer before they are read.
    """

    def __init__(
        self, config: RootConfig, state: RootState, *, mute_until: Mapping[DeltaLog, int]
    ) -> None:
        self._config = config
        self._grid = config.grid
        self._mute_until = dict(mute_until)
        self.keys = KeyTable()
        self._contents = config.contents(self.keys, config.fields)
        answered = Answered(state.next_seq, state.epoch, state.stable_from, state.answered_to)
        self.answers: Answers[Share[Any]] = Answers(answered, config.grid, self._due_at)
        self._windows = _Windows(config.grid)
        self.line = Line(
            len(config.children),
            self._windows,
            config.schedule,
            answered.stable_from,
            answered.answered_to,
            config.policy,
        )
        self._logs = config.logs
        self._whole = {self._log_of(s): s.whole for s in state.logs}
        self._children = [self._restore(child, state) for child in range(len(config.children))]
        self._live_position = {log: self._live_cursor(log).offset for log in config.logs}
        for log in config.logs:
            self._live_cursor(log).attached = True
            if log.line is LineName.STABLE:
                cursor = self._stable_cursor(log)
                cursor.attached = cursor.offset == self._live_position[log]
        self._asked: dict[int, dict[DeltaLog, Asked]] = {}
        self._ordered_asked_at = -(2**62)
        self._ordered_awaited = False
        self._unsent: dict[DeltaLog, int] = {}
        self._in_flight: Transaction[Share[Any]] | None = None
        self._live_alone = 0
        self._now = 0
        self.busy = False
        self.wake_at: int | None = None
        self._empty_until: int | None = None

    def _restore(self, child: int, state: RootState) -> _Child:
        config = self._config
        logs = {self._log_of(s): s for s in state.logs}
        pane_of = self._grid.pane_start

        def cursor(replica: int, line: LineName, *, strict: bool) -> DeltaCursor:
            log = logs[DeltaLog(child, replica, line)]
            return DeltaCursor(log.stable if strict else log.live, pane_of, strict=strict)

        frontier = state.child_frontiers[child]
        stable = StableInput(
            [cursor(r, LineName.STABLE, strict=True) for r in range(config.replicas)],
            frontier,
            config.ahead_buckets_max * self._grid.w_us,
        )
        panes = PaneStore(self._grid, self._contents, state.stable_from)
        live_panes = LivePanes(self._grid, self._contents, panes, streams=config.children[child])
        if frontier.bucket_start > state.stable_from:
            panes.advance(frontier.bucket_start)  # before E0 there is nothing
        start = max(state.answered_to, self._grid.bucket_start(config.e0))
        live = LiveInput(
            [
                (
                    cursor(r, LineName.STABLE, strict=False),
                    cursor(r, LineName.LIVE, strict=False),
                )
                for r in range(config.replicas)
            ],
            start,
            config.ahead_buckets_max * self._grid.w_us,
        )
        upstream = Upstream(config.replicas, config.stale_us)
        return _Child(stable, panes, live, live_panes, start, upstream)

    # What comes in.

    def receive(self, log: DeltaLog, offset: int, record: BucketRecord) -> None:
        """A record from the live consumer."""
        self._live_position[log] = offset + 1
        self._count(log, offset, record)
        child = self._children[log.child]
        cursor = self._live_cursor(log)
        if cursor.attached or offset == cursor.offset:
            cursor.attached = True
            self._take_live(child, log, offset, record)
        if log.line is LineName.STABLE:
            cursor = self._stable_cursor(log)
            if cursor.attached or offset == cursor.offset:
                cursor.attached = True
                self._take_stable(child, log, offset, record)

    def catch_up(self, line: LineName, log: DeltaLog, offset: int, record: BucketRecord) -> None:
        """A record from the catch-up reader of one line."""
        cursor = self._stable_cursor(log) if line is LineName.STABLE else self._live_cursor(log)
        if cursor.attached or offset != cursor.offset:
            return
        self._count(log, offset, record)
        child = self._children[log.child]
        if line is LineName.STABLE:
            self._take_stable(child, log, offset, record)
        else:
            self._take_live(child, log, offset, record)
        if cursor.offset > offset:
            cursor.attached = cursor.offset >= self._live_position[log]

    def replica_says(self, child: int, replica: int, state: LineState, heard_at: int) -> None:
        """What a replica said in its latest heartbeat, and when that was heard (R34)."""
        self._children[child].upstream.says(replica, state, heard_at)

    def ends(self, ends: Mapping[DeltaLog, int | None], fetched_at: int) -> None:
        """The ends of some logs as of ``fetched_at``; None: the broker gave no answer."""
        for log, end in ends.items():
            asked = self._asked.setdefault(log.child, {})
            asked.setdefault(log, Asked(self._live_cursor(log).offset)).answer(end, fetched_at)
        self._note_read()

    def begin_at(self, beginnings: Mapping[DeltaLog, int]) -> None:
        """Before anything is read: retention may have been there first (rule 28)."""
        for log, beginning in beginnings.items():
            for cursor in self._cursors(log):
                if cursor.offset < beginning:
                    cursor.jump(beginning)
            self._live_position[log] = max(self._live_position[log], beginning)
            if log.line is LineName.STABLE:
                cursor = self._stable_cursor(log)
                cursor.attached = cursor.offset == self._live_position[log]

    def position_gone(self, line: LineName, log: DeltaLog, beginning: int) -> None:
        """Retention took the record that a parked cursor needs next (rule 28).

        What is left may begin beyond L: then it is a hole, and its writer says it again (rule 11).
        """
        cursor = self._stable_cursor(log) if line is LineName.STABLE else self._live_cursor(log)
        if not cursor.attached and cursor.offset < beginning:
            cursor.jump(beginning)

    def ordered(self, spans: Mapping[DeltaLog, tuple[int, int]]) -> None:
        """Where some ordered logs begin and end.

        A seq below the beginning is sent by nobody any more: whoever waits for it at the end of
        its deltas goes on at the beginning (rule 28). One that is still there can be sent again:
        retention of the deltas was quicker than this root, and their writer goes on as if nothing
        were missing until a heartbeat says so (rule 11). And a log of which every seq has been read
        has nothing to offer in the place of a record with a gap (R15). Logs may be lacking: the
        broker gave no answer.
        """
        self._ordered_awaited = False
        for log, (beginning, end) in spans.items():
            cursor, stable = self._stable_cursor(log), self._children[log.child].stable
            at_end = cursor.offset >= self._live_position[log]
            if cursor.stray is not None and at_end and cursor.next_seq < beginning:
                cursor.jump_to_seq(beginning)
                self._whole[log] = max(self._whole[log], beginning)
            elif cursor.stray is not None and at_end and cursor.next_seq < end:
                self._unsent[log] = cursor.next_seq
            elif cursor.next_seq >= end or beginning == end:
                stable.exhausted[log.replica] = stable.frontier

    def committed(self) -> None:
        """The transaction under way is in the log."""
        assert self._in_flight is not None, "no transaction is under way"
        self.answers.committed(self._in_flight.after)
        self._in_flight = None
        state = self.answers.state
        for child in self._children:
            child.panes.drop_before(state.stable_from)
            child.live_panes.drop_before(state.answered_to)
            for cursor in child.stable.cursors:
                cursor.trail.forget_before(state.stable_from)
            for pair in child.live.cursors:
                for cursor in pair:
                    cursor.trail.forget_before(state.answered_to)

    # What goes out.

    def step(self, now: int) -> list[Effect]:
        """What is due at ``now`` (us of wall time): at most one transaction."""
        passed_us = max(now - self._now, 0) if self._now else 0
        self._now = now
        self.busy = False
        self._empty_until = None
        effects: list[Effect] = []
        self._note_read(passed_us)
        for child in self._children:
            child.upstream.has_come(child.live.each_stable_to)
        stale_at = [child.upstream.notice(now) for child in self._children]
        for child in self._children:
            self._settle(child, now)
        if self.awaits_commit:
            self.wake_at = None  # ``committed`` comes first
            return effects
        self._look_for_lost_seqs(now, effects)
        stable: list[Ready[Share[Any]]] = []
        if self.line.stable_next == self.line.live_next or self._live_alone >= LIVE_ALONE_MAX:
            # Where windows are shorter than a transaction takes, a live answer is always due: then
            # corrections come first once in a while, or the lines would never join.
            stable = self._stable_windows(now)
        tentative = self._live_windows(now, effects)
        if self._doubtful and not self._ordered_awaited:
            soon = self._ordered_asked_at + ORDERED_PERIOD_US
            self.wake_at = soon if self.wake_at is None else min(soon, self.wake_at)
        if not stable and not tentative:
            # Corrections are gathered only when no live answer is due (rule 23).
            stable = self._stable_windows(now)
        self._live_alone = self._live_alone + len(tentative) if tentative and not stable else 0
        transaction = self.answers.plan(stable, tentative)
        self.wake_at = min((at for at in [self.wake_at, *stale_at] if at is not None), default=None)
        if transaction:
            if transaction.after.answered_to > transaction.before.answered_to:
                effects += self._switches(now, transaction.after.answered_to)
            self._in_flight = transaction
            effects.append(Commit(transaction, self._state_after(transaction.after)))
        return effects

    def _stable_windows(self, now: int) -> list[Ready[Share[Any]]]:
        """The next stable answers, as many as one transaction holds (rule 23)."""
        stable_to = min(c.stable.frontier.bucket_start for c in self._children)
        if not self.line.stable_ready(stable_to):
            return []
        self.line.try_join(now, stable_to, attached=True)
        found = list(self._complete_windows(stable_to))
        if self._waits(found, now):
            return []
        self.line.stable_answered(self.answers.plan(found).after.stable_from)
        return found

    def _complete_windows(self, stable_to: int) -> Iterator[Ready[Share[Any]]]:
        """Complete windows in order, some more than a transaction may hold, not across T."""
        start, rows = self.line.stable_next, 0
        answered_to = self.answers.state.answered_to
        for _ in range(CORRECTIONS_PER_STEP_MAX):
            if rows > CORRECTED_ROWS_MAX or self._windows.end(start) > stable_to:
                return
            ready = self._stable_window(start)
            yield ready
            rows += ready.rows
            correcting = start < answered_to
            start += ready.windows * self._slide
            if correcting and start >= answered_to:
                return

    def _stable_window(self, start: int) -> Ready[Share[Any]]:
        run = empty_windows([c.panes for c in self._children], self._grid, start)
        before = (self.answers.state.answered_to - start) // self._slide
        if before > 0:
            run = min(run, before, CORRECTIONS_PER_STEP_MAX)
        if run > 1:
            return Ready(start, None, 0, windows=run)
        end = self._windows.end(start)
        share = self._together([c.panes.window(start, end) for c in self._children])
        return Ready(start, share, len(share.slice), gap=share.notes.lost)

    def _waits(self, found: Sequence[Ready[Share[Any]]], now: int) -> bool:
        """Nothing but emptiness, and not long due: idle queries must not write all the time.

        Corrections never wait, and nothing that has rows does: what is empty before it goes along.
        """
        self._empty_until = None
        if not self._config.empty_wait_us or not found:
            return False
        start = found[0].window_start
        if start < self.answers.state.answered_to or any(r.rows or r.gap for r in found):
            return False
        normal = self._config.schedule.normal_time(self._windows.end(start))
        if normal is None or now >= normal + self._config.empty_wait_us:
            return False
        self._empty_until = normal + self._config.empty_wait_us
        return True

    def _live_windows(self, now: int, effects: list[Effect]) -> list[Ready[Share[Any]]]:
        line, put_to = self.line, [child.put_to for child in self._children]
        before = line.live_next, line.state
        answers = self._due_windows(now, effects)
        if answers and self._waits(answers, now):
            line.live_next, line.state = before
            for child, at in zip(self._children, put_to, strict=True):
                child.put_to = at  # what comes until then counts too
            answers, self.busy = [], False
        if self._empty_until is not None and not answers:
            until = self._empty_until
            self.wake_at = until if self.wake_at is None else min(self.wake_at, until)
            self.busy = False
        return self._in_runs(answers) if self._config.empty_wait_us else answers

    def _in_runs(self, answers: Sequence[Ready[Share[Any]]]) -> list[Ready[Share[Any]]]:
        """Neighbours without rows that lack the same are one run."""
        runs: list[Ready[Share[Any]]] = []
        for ready in answers:
            last = runs[-1] if runs else None
            alone = last is None or last.rows or last.gap or ready.rows or ready.gap
            if last is None or alone or last.missing != ready.missing:
                runs.append(ready)
            else:
                runs[-1] = replace(last, content=None, windows=last.windows + 1)
        return runs

    def _due_windows(self, now: int, effects: list[Effect]) -> list[Ready[Share[Any]]]:
        answers: list[Ready[Share[Any]]] = []
        stable_to = min(c.stable.frontier.bucket_start for c in self._children)
        self.wake_at = None
        for _ in range(LIVE_WINDOWS_PER_STEP_MAX):
            if sum(ready.rows for ready in answers) >= LIVE_ROWS_MAX:
                break
            if self.line.stable_next == self.line.live_next and self.line.stable_ready(stable_to):
                break  # the stable line will say it
            if self.mute:
                return answers
            live_to = [c.live.live_to(c.upstream.stable(now)) for c in self._children]
            tentative, excused = self._passes_tentatively(live_to), self._suspended(now)
            match self.line.judge(now, live_to, tentative=tentative, excused=excused):
                case Wait(until):
                    self.wake_at = until
                    return answers
                case ReadToEnd(inputs):
                    self._ask(inputs, effects)
                    self.wake_at = now + step_us_max
                    return answers
                case Answer(missing):
                    answers.append(self._live_window(self.line.live_next))
                    self.line.live_answered()
                    for i in missing:
                        self._children[i].upstream.doubt(now)
        self.busy = True
        return answers

    def _passes_tentatively(self, live_to: Sequence[int]) -> Callable[[int], bool]:
        end = self._windows.end(self.line.live_next)
        return lambda i: live_to[i] >= end > self._children[i].live.stable_to

    def _suspended(self, now: int) -> list[int]:
        """Children that hold tentative buckets back until they have caught up: the policy is so."""
        if self._config.policy.stabilization != "suspend":
            return []
        return [i for i, c in enumerate(self._children) if c.upstream.suspends(now)]

    def _switches(self, now: int, answered_to: int) -> list[Switched]:
        """This answer is the first out of another replica's words since one was lost (5.1)."""
        found = []
        end = self._windows.end(answered_to - self._slide)
        for i, child in enumerate(self._children):
            lost = child.upstream.lost
            if lost is not None and child.live.passes_without(lost.replica, end):
                child.upstream.lost = None
                found.append(Switched(i, lost.replica, lost.heard_at, lost.detected_at, now))
        return found

    def _live_window(self, start: int) -> Ready[Share[Any]]:
        """Put together what is known now of the window, and name what it lacks (rule 20)."""
        end = self._windows.end(start)
        for child in self._children:
            self._choose(child, child.put_to, end)
        shares = [c.live_panes.window(start, end) for c in self._children]
        share = self._together(shares)
        missing = tuple(sorted(share.notes.missing))
        return Ready(start, share, len(share.slice), missing=missing, gap=share.notes.lost)

    def _choose(self, child: _Child, start: int, end: int) -> None:
        """Choose the ingredients of [start, end): the last time before they are answered."""
        for found in child.live.ingredients(start, end):
            notes = Notes.of(found.missing, found.gap)
            if found.pieces:
                value = folded(self._contents, map(self._contents.of, found.pieces))
                child.live_panes.put(found.start, found.end, value, notes, stable=found.stable)
            else:
                stop = min(found.end, end)
                child.live_panes.put_empty(found.start, stop, notes, stable=found.stable)
        child.put_to = max(child.put_to, end)

    def _settle(self, child: _Child, now: int) -> None:
        """Keep few buckets apart, however long the windows are (G5).

        What the stable line has, need not be chosen. In a failure, what lies far back and is past
        its own deadline is chosen now: what came later would be left to the stable line anyway.
        """
        settled = child.stable.frontier.bucket_start
        reached = self._grid.bucket_start(child.live.reaches_to - child.live.ahead_us_max)
        if reached > max(settled, child.put_to):
            deadline = self._config.schedule.deadline(reached)
            if deadline is not None and deadline <= now:
                self._choose(child, max(child.put_to, settled), reached)
        if max(settled, child.put_to) > child.live.low:
            child.put_to = max(child.put_to, settled)
            child.live.forget_before(child.put_to)
        share = self._config.ahead_bytes_max // len(self._children)
        while child.live.bytes_held > share:
            following = self._grid.next_cut(child.put_to)
            deadline = self._config.schedule.deadline(following)
            if deadline is None or deadline > now or following > child.live.reaches_to:
                return
            self._choose(child, child.put_to, following)
            child.live.forget_before(following)

    def _together(self, shares: Sequence[Share[Any]]) -> Share[Any]:
        return window_of(shares, self._contents)

    # Stable line.

    def _take_stable(self, child: _Child, log: DeltaLog, offset: int, record: BucketRecord) -> None:
        before = child.stable.frontier
        is_taken = child.stable.take(log.replica, offset, record, self._needed_to)
        if child.stable.frontier < before:
            child.panes.begin_again()
        if not is_taken:
            return
        notes = Notes.of((), record.gap)
        if record.kind is Kind.BOUNDARY:
            child.panes.advance(record.bucket_end, notes)
        else:
            child.panes.add(
                Position(record.bucket_start, record.piece),
                record.bucket_end,
                self._contents.of(record),
                notes,
                last=record.piece + 1 == record.pieces,
            )

    def _take_live(self, child: _Child, log: DeltaLog, offset: int, record: BucketRecord) -> None:
        child.live.take(log.replica, log.line, offset, record)

    @property
    def _needed_to(self) -> int:
        """What the stable line needs for its next window: only beyond that is it ahead."""
        return self._windows.end(self.line.stable_next)

    # Positions.

    def wanted(self) -> dict[tuple[LineName, DeltaLog], int]:
        """Where the catch-up readers shall read: parked cursors that can go on (rule 12)."""
        wanted: dict[tuple[LineName, DeltaLog], int] = {}
        for log in self._logs:
            child = self._children[log.child]
            live = self._live_cursor(log)
            if not live.attached and child.live.is_hungry(live):
                wanted[LineName.LIVE, log] = live.offset
            if log.line is LineName.LIVE:
                continue
            cursor = self._stable_cursor(log)
            ahead = cursor.frontier.bucket_start - self._needed_to
            if (
                not cursor.attached
                and child.stable.wants(log.replica)
                and ahead <= child.stable.ahead_us_max
            ):
                wanted[LineName.STABLE, log] = cursor.offset
        return wanted

    def _state_after(self, after: Answered) -> RootState:
        """The state record of a transaction: what a restart needs (rules 23, 27)."""
        start = self._grid.bucket_start(self._config.e0)
        logs = []
        for log in self._logs:
            live = self._live_cursor(log).trail.at(after.answered_to)
            stable = live
            if log.line is LineName.STABLE:
                stable = self._stable_cursor(log).trail.at(after.stable_from)
            logs.append(LogState(log.child, log.replica, log.line, stable, live, self._whole[log]))
        return RootState(
            self._config.fragment,
            placement=self._config.placement,
            next_seq=after.next_seq,
            epoch=after.epoch,
            stable_from=after.stable_from,
            answered_to=after.answered_to,
            child_frontiers=(Position(max(after.stable_from, start)),) * len(self._children),
            logs=tuple(logs),
        )

    def _count(self, log: DeltaLog, offset: int, record: BucketRecord) -> None:
        whole = self._whole[log]
        if record.seq == whole or (
            record.seq == UNKNOWN_SEQ and any(c.awaits(offset, whole) for c in self._cursors(log))
        ):
            self._whole[log] += 1

    def _ask(self, inputs: tuple[int, ...], effects: list[Effect]) -> None:
        wanted = [child for child in inputs if child not in self._asked]
        logs = tuple(log for log in self._logs if log.child in wanted)
        for child in wanted:
            mine = [log for log in logs if log.child == child]
            self._asked[child] = {log: Asked(self._live_cursor(log).offset) for log in mine}
        if logs:
            effects.append(FetchEnds(logs))

    def _look_for_lost_seqs(self, now: int, effects: list[Effect]) -> None:
        """Ask for the extent of ordered logs that a delta log seems to lack something of."""
        if self._ordered_awaited or now - self._ordered_asked_at < ORDERED_PERIOD_US:
            return
        logs = self._doubtful
        if logs:
            self._ordered_asked_at, self._ordered_awaited = now, True
            effects.append(FetchOrdered(logs))

    @property
    def _doubtful(self) -> tuple[DeltaLog, ...]:
        """Logs that have a later seq than the next, or are waited for in the place of a gap."""
        return tuple(
            DeltaLog(child, replica, LineName.STABLE)
            for child, of in enumerate(self._children)
            for replica, cursor in enumerate(of.stable.cursors)
            if cursor.stray is not None or replica in of.stable.awaited
        )

    def _note_read(self, passed_us: int = 0) -> None:
        """Tell the line which children have been read to the ends that were asked for."""
        for child, logs in list(self._asked.items()):
            read = [a.is_read(self._live_cursor(log).offset, passed_us) for log, a in logs.items()]
            if all(read):
                self.line.note_read(child, min(a.fetched_at for a in logs.values()))
                del self._asked[child]

    def _log_of(self, state: LogState) -> DeltaLog:
        return DeltaLog(state.child, state.replica, LineName(state.line))

    def _live_cursor(self, log: DeltaLog) -> DeltaCursor:
        return self._children[log.child].live.cursors[log.replica][log.line]

    def _stable_cursor(self, log: DeltaLog) -> DeltaCursor:
        return self._children[log.child].stable.cursors[log.replica]

    def _cursors(self, log: DeltaLog) -> list[DeltaCursor]:
        live = self._live_cursor(log)
        return [live, self._stable_cursor(log)] if log.line is LineName.STABLE else [live]

    def _due_at(self, end: int) -> int:
        normal = self._config.schedule.normal_time(end)
        return self._now if normal is None else normal

    @property
    def _slide(self) -> int:
        assert self._grid.window is not None
        return self._grid.window.slide_us

    # What others want to know.

    @property
    def awaits_commit(self) -> bool:
        """A transaction is under way: until ``committed`` a step can answer nothing."""
        return self._in_flight is not None

    @property
    def mute(self) -> bool:
        """No tentative answer yet: unread deltas may hold what would be missing (rule 27).

        A log that has been read past the next window's end is read far enough: its cursor may be
        parked there, ahead of its time (rule 12).
        """
        if self._mute_until:
            needed = Position(self._windows.end(self.line.live_next))
            self._mute_until = {
                log: end
                for log, end in self._mute_until.items()
                if self._live_cursor(log).offset < end and self._live_cursor(log).frontier < needed
            }
        return bool(self._mute_until)

    @property
    def live_offsets(self) -> dict[DeltaLog, int]:
        """Where the live consumer starts in each log."""
        return dict(self._live_position)

    @property
    def stable_frontiers(self) -> tuple[Position, ...]:
        """How far each child's stable deltas have been accepted."""
        return tuple(child.stable.frontier for child in self._children)

    @property
    def read_to(self) -> dict[tuple[int, int], int]:
        """How far each (child, replica) has come in its stable log, as the live line has read it.

        For the replica, which does not put live buckets behind corrections (``downstream.py``).
        """
        return {
            (log.child, log.replica): self._live_cursor(log).frontier.bucket_start
            for log in self._logs
            if log.line is LineName.STABLE
        }

    @property
    def held_slices(self) -> int:
        """How many slices, panes and places are held in memory (G5)."""
        return sum(
            len(c.panes) + len(c.live_panes) + c.live.held + c.stable.held for c in self._children
        )

    @property
    def held_bytes(self) -> int:
        """About what the live line keeps apart, of all children (G5)."""
        return sum(child.live.bytes_held for child in self._children)

    @property
    def connected(self) -> bool:
        """Every log has brought something, START at least: the way from its orderer is open."""
        return all(self._whole.values())

    @property
    def holes(self) -> tuple[Hole, ...]:
        """Holes in replicas' stable logs and deltas: their writers send again (rule 11)."""
        query, replicas = self._config.query, self._config.replicas
        torn = [
            Hole(f"sw.ordered.{query}.{child}", 2 * replica, inc)
            for child, state in enumerate(self._children)
            for replica, inc in state.stable.torn.items()
        ]
        unsent = [
            Hole(f"sw.deltas.{query}.{self._config.part}", log.partition(replicas), cursor.inc)
            for log, seq in self._unsent.items()
            if (cursor := self._stable_cursor(log)).stray is not None and cursor.next_seq == seq
        ]
        return (*torn, *unsent)
