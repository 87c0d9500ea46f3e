"""A root's session alone: its start, its transactions, and heartbeats of others.

Its host is a few lists in memory. A test determines the events between two requests of a procedure
(``Host.before``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

import pytest
from tests.paper.stage import MS, Settings

from slackwater.model.errors import SlackwaterError, SupersededError
from slackwater.model.heads import StoredState
from slackwater.model.records import (
    DeltaRecord,
    Heartbeat,
    Kind,
    LogPosition,
    LogState,
    OrderedRecord,
    Position,
    RootState,
)
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.rows import RowContents
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import (
    COUNTED_PLACEMENT_MAX,
    Commit,
    DeltaLog,
    RootConfig,
    continued_state,
    fits,
    initial_state,
)
from slackwater.sessions.effects import Effect, Fail, FetchEnds, LogLine, Perform, Refute, Skipped
from slackwater.sessions.events import (
    CommitFailed,
    CommitSucceeded,
    HeartbeatReceived,
    IncarnationClaimed,
    LiveAt,
    Received,
    Replayed,
)
from slackwater.sessions.requests import (
    Beginnings,
    ClaimPart,
    Ends,
    OpenTransactions,
    PrepareTransactions,
    Procedure,
    ReadPanes,
    ReadPart,
    Request,
)
from slackwater.sessions.root import RootSession

SETTINGS = Settings(bucket_ms=100, window_ms=100, bound_ms=1_000)
STABLE, LIVE = ("sw.ordered.q.0", 0), ("sw.ordered.q.0", 1)
PLACEMENT = 5


class AwayError(SlackwaterError):
    """The broker does not respond."""


class Host:
    """The logs for a root of one child and one replica."""

    def __init__(
        self,
        state: RootState | None = None,
        *,
        placement: int = PLACEMENT,
        is_recorded: bool = False,
        query: str = "q",
        others: Mapping[int, RootState] = MappingProxyType({}),
    ) -> None:
        self.config = RootConfig(
            f"root/{query}.0", query, 0, placement, (("s1",),), 1, ("v",), SETTINGS.grid,
            SETTINGS.schedule(2), start_time=0, bound_us=SETTINGS.bound_ms * MS,
            contents=RowContents, is_recorded=is_recorded,
        )  # fmt: skip
        self.session = RootSession(self.config, windowed=False)
        self.state = state
        self.others = dict(others)
        self.panes = StoredState()
        self.ends = {STABLE: 0, LIVE: 0}
        self.beginnings = {STABLE: 0, LIVE: 0}
        self.asked: list[Request] = []
        self.claimed: list[RootState] = []
        self.is_away = False
        self.before: dict[type[Request], Callable[[], None]] = {}

    @property
    def stable_frontier(self) -> Position:
        """The frontier of the child's accepted stable deltas."""
        return self.session.core._children[0].stable.frontier

    def started(self) -> Self:
        self.perform(self.session.start())
        self.do(self.session.step(0))
        return self

    def perform(self, procedure: Procedure[Any]) -> Any:
        try:
            request = procedure.send(None)
            while True:
                self.asked.append(request)
                self.before.pop(type(request), lambda: None)()
                if self.is_away:
                    request = procedure.throw(AwayError("no answer"))
                else:
                    request = procedure.send(self.answer(request))
        except StopIteration as ended:
            return ended.value

    def answer(self, request: Request) -> Any:
        match request:
            case ReadPart():
                return self.state, self.others
            case ReadPanes():
                return self.panes
            case Beginnings(logs):
                return {log: self.beginnings.get(log, 0) for log in logs}
            case Ends(logs):
                return {log: self.ends.get(log, 0) for log in logs}
            case PrepareTransactions() | OpenTransactions():
                return None
            case ClaimPart(state):
                self.claimed.append(state)
                return None
        raise AssertionError(request)

    def do(self, effects: Sequence[Effect]) -> list[Effect]:
        """Run procedures; return the effects left for the test."""
        for effect in effects:
            if isinstance(effect, Perform):
                self.perform(effect.procedure)
        return [e for e in effects if not isinstance(e, Perform)]

    def step(self, now: int) -> list[Effect]:
        return self.do(self.session.step(now))

    def boundary(self, start_ms: int, end_ms: int, **other: Any) -> None:
        """Extend the orderer's stable log, and pass the record on as the live consumer."""
        offset = self.ends[STABLE]
        self.ends[STABLE] += 1
        self.session.take(Received(STABLE, offset, boundary(start_ms, end_ms, **other)))

    def begun(self) -> Self:
        """Write the orderer's START."""
        self.ends[STABLE] += 1
        self.session.take(Received(STABLE, 0, START))
        return self

    def commits(self, now: int) -> list[Commit]:
        return [effect for effect in self.step(now) if isinstance(effect, Commit)]


START = OrderedRecord(Kind.START, 0, 0, -1, 0, 0, frontier=Position(0))


def boundary(start_ms: int, end_ms: int, **other: Any) -> OrderedRecord:
    record = OrderedRecord(Kind.BOUNDARY, 0, 0, 0, start_ms * MS, end_ms * MS)
    return replace(record, **other)


def answered(to_ms: int, placement: int) -> RootState:
    """Return the state record of a copy that has answered up to there."""
    at = LogPosition(0, 0, -1, Position(0))
    logs = tuple(LogState(0, 0, line, at, at, 0) for line in LineName)
    frontier = (Position(to_ms * MS),)
    return RootState("root/q.0", placement, 1, 0, to_ms * MS, to_ms * MS, frontier, logs)


# --- start and take-over: rule-27 -----------------------------------------------------------------


@pytest.mark.parametrize("placement", [PLACEMENT, PLACEMENT + 1])
def test_a_copy_that_was_placed_no_later_stays_down_and_fences_nobody(placement: int) -> None:
    host = Host(answered(100, placement))

    def fences() -> None:
        raise AssertionError("the copy that was placed later can commit no more")

    host.before[OpenTransactions] = fences
    with pytest.raises(SupersededError, match="stays down"):
        host.perform(host.session.start())


@pytest.mark.parametrize("last", [PLACEMENT, PLACEMENT - 1])
def test_a_start_with_a_recorded_number_continues_what_an_earlier_start_answered(
    last: int,
) -> None:
    host = Host(answered(100, last), is_recorded=True)
    try:
        host.perform(host.session.start())
    except SupersededError as error:
        raise AssertionError("it starts again") from error
    assert host.session.core.answers.state.stable_from == 100 * MS


def test_a_number_that_no_log_counts_to_is_a_placement_only_if_controllers_recorded_it() -> None:
    recorded = answered(100, COUNTED_PLACEMENT_MAX)
    assert not fits(Host().config, recorded)
    assert fits(Host(is_recorded=True).config, recorded)


def test_a_recorded_number_that_is_smaller_stays_down() -> None:
    host = Host(answered(100, PLACEMENT + 1), is_recorded=True)
    with pytest.raises(SupersededError, match="stays down"):
        host.perform(host.session.start())


@pytest.mark.parametrize("earlier", [answered(100, PLACEMENT - 1), answered(100, 1)])
def test_a_recorded_number_counts_before_the_first_answer(earlier: RootState) -> None:
    """trace-41: an earlier copy that its node starts again must not fence this one."""
    host = Host(earlier, is_recorded=True).started()
    assert host.claimed == [replace(earlier, placement=PLACEMENT, term=1, vain=1)]
    again = Host(host.claimed[0], is_recorded=True)
    again.started()
    assert again.claimed == [], "a restart has the number already"
    stale = Host(host.claimed[0], is_recorded=True, placement=PLACEMENT - 1)
    with pytest.raises(SupersededError) as stays_down:
        stale.perform(stale.session.start())
    assert stays_down.value.placement == PLACEMENT - 1


def test_a_new_generation_s_number_counts_before_its_first_answer() -> None:
    host = Host(is_recorded=True)
    host.others = {0: answered(100, 1)}
    host.started()
    assert [state.placement for state in host.claimed] == [PLACEMENT]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_the_first_root_of_a_part_claims_nothing(is_recorded: bool) -> None:
    assert Host(is_recorded=is_recorded).started().claimed == []


def test_under_one_supervisor_nothing_is_claimed() -> None:
    assert Host(answered(100, PLACEMENT - 1)).started().claimed == []


def test_what_it_goes_on_from_is_read_behind_the_fence() -> None:
    """The older copy commits once more after the first read, and is then fenced (trace-18)."""
    host = Host(answered(100, 1))

    def commits_once_more() -> None:
        host.state = answered(200, 1)

    host.before[OpenTransactions] = commits_once_more
    host.started()
    assert host.session.core.answers.state.stable_from == 200 * MS


def test_until_it_fences_it_reads_and_the_older_copy_answers() -> None:
    """It has read six windows when it fences; the older copy has answered two of them."""
    host = Host(answered(0, 1))
    host.perform(host.session.start())
    assert not any(isinstance(request, OpenTransactions) for request in host.asked)
    host.begun()
    for start_ms in range(0, 600, 100):
        host.boundary(start_ms, start_ms + 100)
    host.state = replace(answered(200, 1), next_seq=9)
    host.do(host.session.step(700 * MS))
    (commit,) = host.commits(701 * MS)
    first, last = commit.transaction.effects[0], commit.transaction.effects[-1]
    assert (first.seq, commit.transaction.before.stable_from) == (9, 200 * MS)
    assert (commit.transaction.after.stable_from, last) == (600 * MS, first)


def test_a_copy_ends_before_it_answers_if_another_copy_was_placed_meanwhile() -> None:
    """That copy has a greater number, and answered before this one fenced it."""
    host = Host(answered(100, 1))
    host.perform(host.session.start())

    def is_placed_and_answers() -> None:
        host.state = answered(200, PLACEMENT + 1)

    host.before[OpenTransactions] = is_placed_and_answers
    assert host.step(0) == []
    assert [type(effect) for effect in host.step(0)] == [Fail]
    host.session.take(Received(STABLE, 0, START))
    host.session.take(Received(STABLE, 1, boundary(0, 500)))
    assert host.step(2_000 * MS) == [], "it has ended"


def test_nothing_is_answered_before_transactions_are_open() -> None:
    host = Host()
    host.perform(host.session.start())
    (opening,) = host.session.step(0)
    assert isinstance(opening, Perform)
    host.begun().boundary(0, 500)
    assert host.session.step(100 * MS) == []
    assert not host.session.report().ready
    host.perform(opening.procedure)
    assert len(host.commits(101 * MS)) == 1


def test_it_is_mute_until_the_ends_that_it_saw() -> None:
    host = Host()
    host.ends[STABLE] = 2
    host.started()
    assert host.session.core.suppress_tentative
    assert host.session.state == "UP_FAILURE"
    host.session.take(Received(STABLE, 0, START))
    host.session.take(Received(STABLE, 1, boundary(0, 100)))
    assert not host.session.core.suppress_tentative


@pytest.mark.parametrize(("restored", "late"), [(None, 0), (answered(0, PLACEMENT - 1), 1)])
def test_what_was_overdue_before_the_first_start_is_not_late(
    restored: RootState | None, late: int
) -> None:
    """A query that starts in the past is not overloaded; what a failure delays is late."""
    host = Host(restored)
    host.perform(host.session.start())
    host.do(host.session.step(100_000 * MS))
    host.begun().boundary(0, 100)
    assert len(host.commits(100_001 * MS)) == 1
    host.session.take(CommitSucceeded(100_002 * MS))
    assert (host.session.report().detail["beyond_bound"] > 0) == bool(late)


# --- generations: rule-29 -------------------------------------------------------------------------


def test_a_new_generation_continues_behind_the_earlier_one_s_fence() -> None:
    """The earlier one commits once more after the first read, and is then fenced."""
    host = Host(query="q.g1", others={0: answered(100, PLACEMENT + 1)})

    def commits_once_more() -> None:
        host.others = {0: replace(answered(200, PLACEMENT + 1), answered_to=300 * MS, epoch=2)}

    host.before[OpenTransactions] = commits_once_more
    host.started()
    state = host.session.core.answers.state
    assert (state.stable_from, state.answered_to) == (200 * MS, 300 * MS)
    assert (state.next_seq, state.epoch) == (1, 2)


def test_the_last_generation_that_has_answered_is_continued() -> None:
    host = Host(query="q.g7", others={0: answered(100, 1), 3: answered(200, 1)})
    host.perform(host.session.start())
    assert host.session.core.answers.state.stable_from == 200 * MS


def test_a_generation_that_begins_after_the_earlier_one_s_answers_is_refused() -> None:
    host = Host(query="q.g1", others={0: answered(100, 1)})
    begins_late = replace(host.config, start_time=500 * MS)
    with pytest.raises(SlackwaterError, match=r"root/q\.g1\.0 begins at 500000 us"):
        continued_state(begins_late, answered(100, 1))


# --- transactions: rule-24 ------------------------------------------------------------------------


def test_a_transaction_waits_for_the_one_before() -> None:
    host = Host().started().begun()
    host.boundary(0, 100)
    (first,) = host.commits(150 * MS)
    host.boundary(100, 200)
    host.boundary(200, 300)
    assert host.commits(350 * MS) == []
    assert host.session.wake_at is None, "no wake-up is due"
    host.session.take(CommitSucceeded(360 * MS))
    (second,) = host.commits(361 * MS)
    assert second.transaction.before == first.transaction.after


def test_a_transaction_that_failed_ends_the_copy_and_counts_for_nothing() -> None:
    host = Host().started().begun()
    host.boundary(0, 100)
    host.commits(150 * MS)
    before = initial_state(host.config)
    host.session.take(CommitFailed("the broker refused it"))
    assert host.step(160 * MS) == [Fail("root/q.0: the broker refused it")]
    assert host.session.report().detail["stable_from"] == before.stable_from
    host.boundary(100, 200)
    assert host.step(2_000 * MS) == []
    assert (host.session.busy, host.session.wake_at) == (False, None)


def test_lateness_is_logged_when_it_begins() -> None:
    host = Host().started()
    lines = [effect for effect in host.step(10_000 * MS) if isinstance(effect, LogLine)]
    assert [line.is_warning for line in lines] == [False, True], "it continues, and is late"
    assert host.session.report().detail["overdue_ms"] > 0
    assert not [effect for effect in host.step(10_001 * MS) if isinstance(effect, LogLine)]


# --- what others say ------------------------------------------------------------------------------


@pytest.mark.parametrize(("placement", "ends"), [(PLACEMENT - 1, False), (PLACEMENT + 1, True)])
def test_a_claim_is_looked_up(placement: int, ends: bool) -> None:
    """Decision 51: a copy that was placed later and has answered has written it."""
    host = Host().started()
    host.state = answered(100, placement)
    host.session.take(IncarnationClaimed(PLACEMENT))  # its own
    host.session.take(IncarnationClaimed(PLACEMENT + 1))
    host.session.take(IncarnationClaimed(PLACEMENT + 1))  # it is verified once at a time
    host.step(0)
    host.session.take(IncarnationClaimed(PLACEMENT + 1))  # before the response is processed
    asked = len(host.asked)
    found = host.step(0)
    assert len(host.asked) == asked, "its number is known by now"
    assert [type(effect) for effect in found] == [Fail if ends else Refute]


def test_a_claim_is_looked_up_again_when_the_broker_was_away() -> None:
    host = Host().started()
    host.is_away = True
    host.session.take(IncarnationClaimed(PLACEMENT + 1))
    host.step(0)
    host.is_away = False
    assert not any(isinstance(effect, Fail | Refute) for effect in host.step(0))
    host.session.take(IncarnationClaimed(PLACEMENT + 1))
    host.step(0)
    assert [type(effect) for effect in host.step(0)] == [Refute]


def test_a_replica_is_what_its_heartbeat_says() -> None:
    host = Host().started()
    beat = Heartbeat("orderer/q.0.a", 0, 0, 0, 0, ready=True, states={"sw.ordered.q.0": "STABLE"})
    upstream = host.session.core._children[0].upstream
    assert host.session.listens_to == ("orderer/q.0.a",)
    for other in (replace(beat, process="orderer/q.9.a"), replace(beat, states={"x": "STABLE"})):
        host.session.take(HeartbeatReceived(other, 5))
        assert upstream.stable(6) == [False]
    host.session.take(HeartbeatReceived(beat, 5))
    assert upstream.stable(6) == [True]


# --- input ----------------------------------------------------------------------------------------


def test_what_cannot_be_read_takes_its_place_and_no_more() -> None:
    host = Host().started().begun()
    host.ends[STABLE] += 1
    host.session.take(Received(STABLE, 1, None))
    host.boundary(0, 500)
    assert host.stable_frontier == Position(500 * MS)


@pytest.mark.parametrize("other", [{"child": 3}, {"replica": 1}, {"inc": 2**62}])
def test_what_its_orderer_cannot_have_written_is_void(other: dict[str, int]) -> None:
    host = Host().started().begun()
    host.boundary(0, 500, **other)
    assert [e.reason for e in host.step(0) if isinstance(e, Skipped)] == [
        "record that its orderer cannot have written"
    ]
    assert host.stable_frontier == Position(0)
    host.boundary(0, 500)
    assert host.stable_frontier == Position(500 * MS), "the next one counts"


def test_a_newcomer_reads_what_its_host_has_read_for_others() -> None:
    """The live consumer is at 40 in the log; this root begins at 0 (rule-12)."""
    host = Host()
    host.ends[STABLE] = 40
    host.perform(host.session.start())
    host.session.take(LiveAt(STABLE, 40))
    host.do(host.session.step(0))
    host.session.take(Received(STABLE, 40, boundary(3_900, 4_000)))
    assert host.stable_frontier == Position(0)
    assert host.session.wanted() == {(line, STABLE): 0 for line in LineName}
    for line in LineName:
        for offset in range(41):
            record = boundary(100 * (offset - 1), 100 * offset) if offset else START
            host.session.take(Replayed(line, STABLE, offset, record))
    assert host.session.wanted() == {}
    host.session.take(Received(STABLE, 41, boundary(4_000, 4_100)))
    assert host.stable_frontier == Position(4_100 * MS)


def test_where_ordered_logs_begin_is_asked_again_when_the_broker_was_away() -> None:
    """A seq is missing at the log's end; the ordered log shows whether it still exists."""
    host = Host()
    host.config = replace(host.config, contents=Aggregates)
    host.session = RootSession(host.config, windowed=True)
    deltas = next(log for log in host.session.inputs if log[1] == 0)
    host.ends |= dict.fromkeys(host.session.inputs, 0)
    host.beginnings |= dict.fromkeys(host.session.inputs, 0)
    host.started()
    for offset, seq in enumerate((0, 2)):
        host.session.take(Received(deltas, offset, delta(seq)))
    host.is_away = True
    host.step(1_000 * MS)
    host.is_away = False
    host.asked.clear()
    host.step(1_500 * MS)
    asked = [request for request in host.asked if isinstance(request, Beginnings)]
    assert [request.logs for request in asked] == [(STABLE,)]


def delta(seq: int) -> DeltaRecord:
    kind = Kind.BOUNDARY if seq else Kind.START
    return DeltaRecord(
        kind, 0, 0, 0 if seq else -1, 100 * MS * max(seq - 1, 0), 100 * MS * seq, seq,
        frontier=Position(0),
    )  # fmt: skip


def test_ends_are_asked_of_all_the_logs_of_a_child() -> None:
    host = Host().started().begun()
    found: list[Effect] = []
    for now in range(100, 1_200, 50):
        found += host.step(now * MS)
    (asked,) = (effect for effect in found if isinstance(effect, FetchEnds))
    assert set(asked.logs) == {STABLE, LIVE}
    assert DeltaLog(0, 0, LineName.STABLE) in host.config.logs
