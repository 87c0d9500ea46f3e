"""The root: merges the children of one part and answers its windows within the bound.

The root combines the last SUnion and SOutput of DPC (sections 4.2 and 4.4.2). It has the same two
lines as the orderer, over the children's delta logs. A window is stable when every child's frontier
has passed its end. It is answered tentatively at its deadline, or from its normal time on as soon
as every child that has not failed has passed its end (rule-20). ``answers.py`` decides the order of
records and transactions from S and T, which are in the log (rule-24).

The stable line folds slices into panes as they arrive. The live line reads all replicas' logs and
folds the chosen slices when it must answer. Neither buffers a backlog: the lines read it again from
recorded positions (trace-5). A step processes input, makes a decision (``decision.py``), and
applies it. One transaction is in flight at a time. A copy whose transaction fails ends. Its restart
is the same procedure as a take-over: it restores the state record, reads the delta logs to their
ends, and continues (rule-27).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackwater.model.records import BucketRecord, Hole, RootState
from slackwater.primitives.digests import NO_DIGEST
from slackwater.primitives.panes import PaneShare
from slackwater.protocols.common.inputs import Inputs, ProbeEnds
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.answers import (
    CORRECTIONS_MAX,
    Answered,
    AnswerPlanner,
    Transaction,
    rows_of,
    units_of,
)
from slackwater.protocols.dpc.soutput.children import (
    check_excess,
    digest_of_panes,
    forget_answered,
    holes_of,
    input_log,
    log_states,
    restore_child,
    settle,
    switches_of,
    take_stable,
)
from slackwater.protocols.dpc.soutput.config import (
    Commit,
    DeltaLog,
    Effect,
    RootConfig,
    merged_from,
    state_after,
)
from slackwater.protocols.dpc.soutput.decision import (
    LIVE_ROWS_MAX,
    Decider,
    Decision,
    earliest,
    line_from,
)
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor
from slackwater.protocols.dpc.soutput.heads import (
    Kept,
    MovableState,
    Moved,
    contents_of,
    contiguous_seqs,
)
from slackwater.protocols.dpc.soutput.lost_seqs import LostSeqs
from slackwater.protocols.dpc.soutput.overload import Overload
from slackwater.protocols.dpc.soutput.resting import Resting


class RootCore:
    """One copy of one root part, always built from a state record (at first the initial state).

    Args:
        config: the copy's configuration.
        state: the state record in the log (rule-24).
        suppress_until: by log, its end offset at the start. No tentative answer is given until the
            live line has read all logs to there.
        moved: a head that is later than S of the state record, with its panes; without it the
            panes are built by reading from S.
    """

    def __init__(
        self,
        config: RootConfig,
        state: RootState,
        *,
        suppress_until: Mapping[DeltaLog, int],
        moved: Moved | None = None,
    ) -> None:
        self._config = config
        self._grid = config.grid
        self.keys, self.contents = contents_of(config, moved)
        answered = Answered(state.next_seq, state.epoch, state.stable_from, state.answered_to)
        self.answers: AnswerPlanner[PaneShare[Any]] = AnswerPlanner(
            answered, config.grid, self._due_at, max(CORRECTIONS_MAX, config.live_windows_max)
        )
        self.line = line_from(config, answered)
        self.overload = Overload(
            self._normal_time_of,
            config.bound_us,
            config.tolerance_us,
            config.live_windows_max,
            LIVE_ROWS_MAX,
        )
        self._logs = config.logs
        self._contiguous_seq = contiguous_seqs(state, moved)
        self._begun: set[DeltaLog] = config.remote_logs
        """Logs of which truncation has deleted records, and those that stay empty."""
        children = range(len(config.children))
        self._children = [
            restore_child(config, child, state, self.contents, moved) for child in children
        ]
        self._decider = Decider(
            config.grid,
            config.schedule,
            config.policy,
            self.contents,
            config.empty_wait_us,
            self._children,
            self.answers,
            self.overload,
            config.bound_us,
            config.is_history,
        )
        self._logs_of = [[log for log in self._logs if log.child == child] for child in children]
        self._inputs: Inputs[DeltaLog, DeltaCursor] = Inputs(
            {log: input_log(self._children[log.child], log) for log in self._logs},
            self._logs_of,
            suppress_until,
        )
        self.movable = MovableState(
            self._children, self._inputs, self._contiguous_seq, self.answers, Kept.of_state(state)
        )
        self.resting = Resting(
            config.grid,
            self._children,
            self._inputs,
            self._contiguous_seq,
            merged_from(config, state),
        )
        self._lost_seqs = LostSeqs(self._children, self._inputs, self._contiguous_seq)
        self._in_flight: Transaction[PaneShare[Any]] | None = None
        self._live_alone = 0
        self._now = 0
        self.busy = False
        self.wake_at: int | None = None

    # What comes in.

    def receive(self, log: DeltaLog, offset: int, record: BucketRecord) -> None:
        """Process a record from the live consumer."""
        readers = self._inputs.receive(log, offset, offset + 1)
        self.movable.count(record)
        self._lost_seqs.count(log, offset, record)
        for line, cursor in readers:
            if self.resting.is_read(line, log):
                self._offer(line, log, offset, record)
            else:
                cursor.attached = False

    def catch_up(self, line: LineName, log: DeltaLog, offset: int, record: BucketRecord) -> None:
        """Process a record from the catch-up reader of one line."""
        cursor = self._inputs.replaying(line, log, offset, offset + 1)
        if cursor is None or not self.resting.is_read(line, log):
            return
        self.movable.count(record)
        self._lost_seqs.count(log, offset, record)
        self._offer(line, log, offset, record)
        if cursor.offset > offset:  # else the cursor could not take the record, and stays parked
            self._inputs.attach(line, log)

    def _offer(self, line: LineName, log: DeltaLog, offset: int, record: BucketRecord) -> None:
        child, to = self._children[log.child], self.needed_to
        if line is LineName.STABLE:
            take_stable(child.stable, child.panes, self.contents, log, offset, record, to)
        else:
            child.live.take(log.replica, log.line, offset, record)

    def update_replica(self, child: int, replica: int, state: LineState | None, at: int) -> None:
        """Record the state in a replica's heartbeat received at ``at``, or its death (trace-34)."""
        self._children[child].upstream.update(replica, state, at)

    def ends(self, ends: Mapping[DeltaLog, int | None], fetched_at: int) -> None:
        """Record end offsets requested at ``fetched_at``; None if the broker gave no answer."""
        self._inputs.answer(ends, fetched_at)
        self._note_read()

    def begin_at(self, beginnings: Mapping[DeltaLog, int]) -> None:
        """Move cursors below a log's beginning to it, before the first read (rule-28)."""
        self._inputs.begin_at(beginnings)
        self._begun |= {log for log, beginning in beginnings.items() if beginning}

    def live_at(self, log: DeltaLog, offset: int) -> None:
        """Set the position of a live consumer that already reads the log for other fragments."""
        self._inputs.live_at(log, offset)

    def position_gone(self, line: LineName, log: DeltaLog, beginning: int) -> None:
        """Move a parked cursor whose next record was removed by retention (rule-28).

        The log may then begin beyond L: that is a hole, and its writer sends it again (rule-11).
        """
        self._inputs.position_gone(line, log, beginning)

    def ordered(self, spans: Mapping[DeltaLog, tuple[int, int]]) -> None:
        """Record the beginnings and ends of some ordered logs, as answer to ``FetchOrdered``."""
        self._lost_seqs.ordered(spans)

    def committed(self, now: int) -> None:
        """Record that the transaction in flight is in the log."""
        assert self._in_flight is not None, "no transaction is in progress"
        self.overload.ends(now)
        self.answers.committed(self._in_flight.after)
        self._in_flight = None
        for child in self._children:
            forget_answered(child, self.answers.state)
        self.keys.forget_before(self.movable.needed_from)

    def follow(self, state: RootState) -> int:
        """Adopt S, T, the epoch and the next seq of a state record that another copy has committed.

        Returns its digest of the panes between the two S (``digest_of_panes``), 0 without one.

        What has been read stays. Windows before S and T are answered, so what only they need is
        dropped, and both lines continue there as after a restart (rule-27).

        Raises:
            ValueError: the record is older than what has been adopted.
        """
        assert self._in_flight is None, "a copy that answers does not follow"
        answered = Answered(state.next_seq, state.epoch, state.stable_from, state.answered_to)
        digest = self._digest_to(answered.stable_from)
        self.resting.holding.skip_to(state)
        self.movable.follow(state)
        if answered == self.answers.state:
            return NO_DIGEST
        self.answers.committed(answered)
        self.line = line_from(self._config, answered)
        for child in self._children:
            child.chosen.to = max(child.chosen.to, answered.answered_to)
            forget_answered(child, answered)
        self.keys.forget_before(self.movable.needed_from)
        return digest

    # What goes out.

    def step(self, now: int) -> list[Effect]:
        """Do what is due at ``now`` (us of wall time): at most one transaction."""
        stale_at = self._look(now)
        if self.awaits_commit:
            self.wake_at, self.busy = None, False  # ``committed`` comes first
            return []
        return self._take(self.decide(now), stale_at)

    def attend(self, now: int) -> None:
        """Process input and time, and decide nothing: another copy answers."""
        self._look(now)

    def _look(self, now: int) -> int | None:
        """Process input and time; return when the next replica's heartbeat becomes stale."""
        passed_us = max(now - self._now, 0) if self._now else 0
        self._now = now
        self._note_read(passed_us)
        for child in self._children:
            child.upstream.has_come(child.live.each_stable_to)
        stale_at = earliest(*[child.upstream.notice(now) for child in self._children])
        for child in self._children:
            settle(self._config, child, now)
            check_excess(self._config, child, now)
        return stale_at

    def decide(self, now: int) -> Decision:
        """Decide what to answer now, without changing any state."""
        return self._decider.decide(
            self.line, now, suppress_tentative=self.suppress_tentative, live_alone=self._live_alone
        )

    def _take(self, decision: Decision, stale_at: int | None) -> list[Effect]:
        """Apply a decision."""
        now = self._now
        self.line, self._live_alone = decision.line, decision.live_alone
        for i, (child, chosen) in enumerate(zip(self._children, decision.chosen, strict=True)):
            if chosen is not child.chosen:
                child.chosen = chosen
                chosen.panes.seal()
            if i in decision.doubted:
                child.upstream.doubt(now)
        effects: list[Effect] = []
        ordered_at = self._lost_seqs.look(now, effects)
        self._ask(decision.unread, effects)
        self.busy = decision.busy
        self.wake_at = earliest(decision.wake_at, ordered_at, stale_at)
        if decision.transaction:
            self._begin(decision.transaction, effects)
        return effects

    def _begin(self, transaction: Transaction[PaneShare[Any]], effects: list[Effect]) -> None:
        if transaction.after.answered_to > transaction.before.answered_to:
            end = self._grid.window_end(self._grid.later(transaction.after.answered_to, -1))
            effects += switches_of(self._children, end, self._now)
        self._in_flight = transaction
        self.overload.begins(self._now, units_of(transaction), rows_of(transaction))
        effects.append(Commit(transaction, self._state_after(transaction.after), self.keys))

    def _normal_time_of(self, start: int, windows: int) -> int | None:
        """Normal time of the window ``windows`` after the window that begins at ``start``."""
        end = self._grid.window_end(self._grid.later(start, windows))
        return self._config.schedule.normal_time(end)

    # Stable line.

    @property
    def needed_to(self) -> int:
        """End of the stable line's next window; input beyond it is ahead of the line."""
        return self._grid.window_end(self.line.stable_next)

    # Positions.

    def wanted(self) -> dict[tuple[LineName, DeltaLog], int]:
        """Offsets for the catch-up readers: parked cursors that need input (rule-12)."""
        wanted: dict[tuple[LineName, DeltaLog], int] = {}
        for log, cursor in self._inputs.parked(LineName.LIVE):
            is_read = self.resting.is_read(LineName.LIVE, log)
            if is_read and self._children[log.child].live.needs_input(log.replica, cursor):
                wanted[LineName.LIVE, log] = cursor.offset
        for log, cursor in self._inputs.parked(LineName.STABLE):
            stable = self._children[log.child].stable
            is_read = self.resting.is_read(LineName.STABLE, log) and stable.wants(log.replica)
            if is_read and stable.has_room(cursor.boundary, self.needed_to):
                wanted[LineName.STABLE, log] = cursor.offset
        return wanted

    def _state_after(self, after: Answered) -> RootState:
        """The state record of a transaction: all that a restart needs (rule-23, rule-27)."""
        logs = log_states(self._logs, self._inputs, self._contiguous_seq, after)
        state = state_after(self._config, after, logs, self._digest_to(after.stable_from))
        return self.resting.added_to(self.movable.added_to(state))

    def _digest_to(self, stable_from: int) -> int:
        """The digest of the panes from S to ``stable_from``, if it is compared (rule-38)."""
        before = self.answers.state.stable_from
        is_compared = self._config.is_compared(before)
        return digest_of_panes(self._children, before, stable_from) if is_compared else NO_DIGEST

    def _ask(self, children: tuple[int, ...], effects: list[Effect]) -> None:
        """Request the ends of all logs of these children, unless a request is pending."""
        is_probed = self._inputs.is_probed
        asked = [child for child in children if not any(map(is_probed, self._logs_of[child]))]
        if asked:
            logs = self._inputs.probe(log for child in asked for log in self._logs_of[child])
            effects.append(ProbeEnds(logs))

    def _note_read(self, passed_us: int = 0) -> None:
        """Pass to the line the children that have been read to requested ends."""
        deadline = self._config.schedule.deadline
        for child, fetched_at in self._inputs.read_through(deadline, passed_us):
            self.line.note_read(child, fetched_at)

    def _due_at(self, end: int) -> int:
        normal = self._config.schedule.normal_time(end)
        return self._now if normal is None else normal

    # Status for other components.

    @property
    def awaits_commit(self) -> bool:
        """True while a transaction is in flight: no step can answer until ``committed``."""
        return self._in_flight is not None

    @property
    def suppress_tentative(self) -> bool:
        """True while tentative answers are suppressed: unread deltas may complete them (rule-27).

        Reading a log past the next window's end suffices: its cursor may be parked there, ahead of
        its time (rule-12).
        """
        inputs = self._inputs
        return inputs.has_unread and inputs.is_unread(self._grid.window_end(self.line.live_next))

    @property
    def live_offsets(self) -> dict[DeltaLog, int]:
        """The live consumer's start offset in each log."""
        return self._inputs.positions

    @property
    def read_to(self) -> dict[tuple[int, int], int]:
        """By (child, replica), how far the live line has read the log, for ``Downstream``."""
        return {
            (log.child, log.replica): self._inputs.live(log).boundary
            for log in self._logs
            if log.line is LineName.STABLE and self.resting.needs(log)
        }

    @property
    def state(self) -> RootState:
        """The state record of this copy if a transaction ended now."""
        return self._state_after(self.answers.state)

    @property
    def held_slices(self) -> int:
        """Number of slices, panes and replay positions in memory (guarantee-5)."""
        return sum(
            len(c.panes) + len(c.chosen.panes) + c.live.held + c.stable.held for c in self._children
        )

    @property
    def held_bytes(self) -> int:
        """Approximate bytes buffered by the live line for all children; bounded by H (rule-12)."""
        return sum(child.live.bytes_held for child in self._children)

    @property
    def connected(self) -> bool:
        """True if every log has a record that this copy or an earlier one has read, or had one."""
        begun = self._begun
        return all(seq or log in begun for log, seq in self._contiguous_seq.items())

    @property
    def holes(self) -> tuple[Hole, ...]:
        """Holes in replicas' stable logs and deltas; their writers send again (rule-11)."""
        return holes_of(self._config, self._children, self._lost_seqs.unsent)
