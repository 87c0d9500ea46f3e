"""The session of a root that is one of two copies of its part (rule-27)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.paper.stage import MS
from tests.unit.sessions.test_root_session import (
    LIVE,
    PLACEMENT,
    STABLE,
    START,
    AwayError,
    Host,
    answered,
    boundary,
)

from slackwater.model.errors import SupersededError
from slackwater.model.records import Heartbeat, OrderedRecord, OrdererState, RootState
from slackwater.protocols.common.line import LineName
from slackwater.protocols.flux.pair import FRESH_FACTOR, SUSPECT_US, UNREADY_FACTOR, PairRole
from slackwater.sessions.effects import Effect, Fail, LogLine, Rebuild, WriteState
from slackwater.sessions.events import (
    CommitFailed,
    CommitSucceeded,
    HeartbeatReceived,
    HeartbeatReturned,
    IncarnationClaimed,
    LiveAt,
    PositionGone,
    Received,
    ResignRequested,
)
from slackwater.sessions.requests import (
    AwaitRead,
    ClaimPart,
    OpenTransactions,
    PrepareTransactions,
    Procedure,
    ReadCopies,
    Request,
    StoreState,
)
from slackwater.sessions.root import RootSession

STATES = ("sw.state.q", 0)
OF_A = replace(answered(0, 1), term=3, copy=0)


class CopyHost(Host):
    """The logs for copy b; copy a answers."""

    def __init__(self, state: RootState | None = OF_A, *, copy: int = 1) -> None:
        super().__init__(state)
        self.config = replace(self.config, copy=copy)
        self.session = RootSession(self.config, windowed=False)
        self.copies: dict[str, RootState] = {}
        self.stored: list[RootState | OrdererState] = []
        self.refused: Callable[[], None] | None = None

    def answer(self, request: Request) -> Any:
        match request:
            case ReadCopies():
                return self.copies
            case AwaitRead(log, offset):
                assert (log, offset) == (STATES, self.ends.get(STATES, 0))
                if self.state is not None:
                    self.session.take(Received(STATES, 0, self.state))
                return None
            case StoreState(_, state, part):
                assert part == 0
                self.stored.append(state)
                return None
        return super().answer(request)

    def perform(self, procedure: Procedure[Any]) -> Any:
        try:
            request = procedure.send(None)
            while True:
                self.asked.append(request)
                self.before.pop(type(request), lambda: None)()
                if isinstance(request, ClaimPart) and self.refused is not None:
                    self.refused()
                    request = procedure.throw(AwayError("fenced"))
                else:
                    request = procedure.send(self.answer(request))
        except StopIteration as ended:
            return ended.value

    def commit(self, state: RootState) -> None:
        """Pass on a state record of the other copy, as the live consumer does."""
        self.state = state
        self.session.take(Received(STATES, 0, state))

    def asked_in(self, now: int) -> list[Request]:
        """Take a turn, and return what it has asked for."""
        self.asked.clear()
        self.step(now)
        return list(self.asked)

    def falls_silent(self) -> list[Effect]:
        """Let the other copy be silent for long enough, and this one take over."""
        self.session.take(HeartbeatReturned(100 * SUSPECT_US))
        return self.step(100 * SUSPECT_US)


def test_its_name_and_its_record_s_name_differ() -> None:
    host = CopyHost().started()
    assert (host.session.fragment, host.config.fragment) == ("root/q.0.b", "root/q.0")
    assert host.session.inputs[STATES] == "states"
    assert host.session.listens_to == ("orderer/q.0.a", "root/q.0.a")


def test_a_copy_follows_what_the_other_one_commits() -> None:
    host = CopyHost().started().begun()
    assert host.session.pair.role is PairRole.FOLLOWING
    host.boundary(0, 500)
    host.commit(replace(answered(300, 1), term=3, copy=0, next_seq=7))
    assert host.session.core.answers.state.stable_from == 300 * MS
    assert host.step(10_000 * MS) != [], "its own record"
    assert not any(isinstance(request, OpenTransactions) for request in host.asked)
    assert host.session.report().detail["answers"] == 0


def test_a_record_that_was_read_already_changes_nothing() -> None:
    host = CopyHost(replace(OF_A, next_seq=9, stable_from=200 * MS, answered_to=200 * MS)).started()
    host.commit(replace(answered(100, 1), term=3, copy=0, next_seq=4))
    assert host.session.core.answers.state.stable_from == 200 * MS


def test_records_of_others_in_the_log_change_nothing() -> None:
    host = CopyHost().started()
    orderer = OrdererState("orderer/q.0.a", 0, 0, 0, 0, 0, ())
    for record in (None, orderer, replace(OF_A, fragment="root/q.1"), b"no record"):
        assert host.session.take(Received(STATES, 0, record)) == 0
    assert host.session.pair.tenure.term == 3


def test_a_take_over_adopts_what_was_answered_last() -> None:
    host = CopyHost().started().begun()
    for start_ms in range(0, 600, 100):
        host.boundary(start_ms, start_ms + 100)

    def commits_once_more() -> None:
        host.state = replace(answered(200, 1), term=3, copy=0, next_seq=9)

    host.before[OpenTransactions] = commits_once_more
    lines = [effect.text for effect in host.falls_silent() if isinstance(effect, LogLine)]
    assert lines == ["takes over: the other copy is silent"]
    assert [(s.term, s.copy, s.vain, s.placement) for s in host.claimed] == [(4, 1, 1, PLACEMENT)]
    (commit,) = host.commits(101 * SUSPECT_US)
    assert commit.transaction.before.stable_from == 200 * MS
    assert (commit.state.term, commit.state.copy, commit.state.vain) == (4, 1, 0)
    assert host.session.report().detail["answers"] == 1


def test_heartbeats_of_the_copy_that_answers_put_a_take_over_off() -> None:
    host = CopyHost().started()
    beat = Heartbeat("root/q.0.a", 7, 0, 0, 1, ready=True, states={})
    for at, detail in ((SUSPECT_US, {"answers": 1, "term": 3}), (SUSPECT_US, {"answers": 0})):
        host.session.take(HeartbeatReceived(replace(beat, detail=detail), at))
    host.session.take(HeartbeatReturned(2 * SUSPECT_US - 1))
    host.step(2 * SUSPECT_US)
    before = host.session.pair.role
    host.session.take(HeartbeatReturned(UNREADY_US + SUSPECT_US))
    host.step(UNREADY_US + 2 * SUSPECT_US)
    assert (before, host.session.pair.role) == (PairRole.FOLLOWING, PairRole.ANSWERING)


UNREADY_US = UNREADY_FACTOR * SUSPECT_US


def test_a_copy_that_takes_over_is_not_silent() -> None:
    """Both copies of a new part start, and the first one waits for its producer."""
    host = CopyHost(None, copy=0)
    host.perform(host.session.start())
    assert host.session.report().detail["answers"] == 0
    assert host.session.report().states == {"sw.results.q.stable": "FOLLOWING"}
    host.session.step(0)
    assert host.session.pair.role is PairRole.TAKING_OVER
    assert host.session.report().detail["answers"] == 1
    assert host.session.state == "STABLE", "a changed state is sent at once"


def test_a_take_over_that_is_fenced_ends_in_following() -> None:
    host = CopyHost().started()

    def takes_over() -> None:
        host.state = replace(OF_A, term=4)

    host.refused = takes_over
    host.falls_silent()
    assert host.step(101 * SUSPECT_US) == [Rebuild("another copy answers, in term 4")]
    assert host.step(102 * SUSPECT_US) == [], "it has ended"


@pytest.mark.parametrize("term", [4, 5])
def test_a_copy_that_reads_a_later_term_than_its_own_ends(term: int) -> None:
    host = CopyHost().started()
    host.falls_silent()
    assert host.session.pair.tenure.term == 4
    host.commit(replace(OF_A, term=term))
    ends = [effect for effect in host.step(101 * SUSPECT_US) if isinstance(effect, Rebuild)]
    assert bool(ends) == (term == 5)


@pytest.mark.parametrize(("term", "ends"), [(5, Rebuild), (4, Fail)])
def test_a_transaction_that_fails_is_looked_after_in_the_log(term: int, ends: type[Effect]) -> None:
    host = CopyHost().started()
    host.falls_silent()
    host.state = replace(OF_A, term=term)
    host.session.take(CommitFailed("fenced"))
    host.step(101 * SUSPECT_US)
    assert [type(effect) for effect in host.step(102 * SUSPECT_US)] == [ends]


def test_a_follower_reports_no_hole() -> None:
    """trace-53: it lacks what the other copy may have read."""
    host = CopyHost().started().begun()
    host.boundary(300, 400)
    host.ends[STABLE] += 1
    assert host.session.core.holes != ()
    assert host.session.report().holes == ()
    host.falls_silent()
    assert host.session.report().holes == host.session.core.holes


def test_a_follower_that_retention_has_overtaken_starts_again() -> None:
    """trace-53."""
    host = CopyHost().started()
    host.session.take(PositionGone(LineName.STABLE, STABLE, 40))
    assert [type(effect) for effect in host.step(1)] == [Rebuild]


def test_a_copy_stays_down_if_its_name_has_a_greater_number() -> None:
    host = CopyHost()
    host.copies = {"root/q.0.b": replace(OF_A, fragment="root/q.0.b", placement=PLACEMENT + 1)}
    with pytest.raises(SupersededError, match=r"root/q\.0\.b has placement 6"):
        host.perform(host.session.start())
    assert host.stored == []


def test_a_greater_number_of_its_own_name_ends_a_copy() -> None:
    host = CopyHost().started()
    own = replace(OF_A, fragment="root/q.0.b", placement=PLACEMENT)
    host.session.take(Received(STATES, 0, own))
    assert not any(isinstance(effect, Fail) for effect in host.step(1))
    host.session.take(Received(STATES, 1, replace(own, placement=PLACEMENT + 1)))
    assert [type(effect) for effect in host.step(2)] == [Fail]


def test_a_claim_of_its_name_is_looked_up_in_its_own_record() -> None:
    host = CopyHost().started()
    host.copies = {"root/q.0.b": replace(OF_A, fragment="root/q.0.b", placement=PLACEMENT + 1)}
    host.session.take(IncarnationClaimed(PLACEMENT + 1))
    host.step(1)
    assert [type(effect) for effect in host.step(2)] == [Fail]


def test_a_later_generation_in_the_log_ends_a_copy() -> None:
    """Its fence is that of the later one, and must not be used again (rule-29)."""
    host = CopyHost().started()
    host.session.take(Received(STATES, 0, replace(OF_A, fragment="root/q.g1.0")))
    reasons = [effect.reason for effect in host.step(1) if isinstance(effect, Fail)]
    assert reasons == ["query q.g1 has replaced q: root/q.0.b stays down"]


def test_its_own_record_has_its_number_at_the_start_and_its_positions_later() -> None:
    host = CopyHost().started().begun()
    (first,) = host.stored
    assert isinstance(first, RootState)
    assert (first.fragment, first.placement) == ("root/q.0.b", PLACEMENT)
    host.boundary(0, 500)
    written = [e.state for e in host.step(2_000 * MS) if isinstance(e, WriteState)]
    assert [(s.fragment, s.placement) for s in written] == [("root/q.0.b", PLACEMENT)]
    assert not any(isinstance(e, WriteState) for e in host.step(2_900 * MS))
    assert any(isinstance(e, WriteState) for e in host.step(3_000 * MS))


def test_a_newcomer_to_a_host_reads_the_state_records_that_it_has_passed() -> None:
    host = CopyHost()
    host.perform(host.session.start())
    host.state = replace(answered(100, 1), term=3, copy=0, next_seq=4)
    host.session.take(LiveAt(STATES, 12))
    host.do(host.session.step(0))
    assert host.session.core.answers.state.stable_from == 100 * MS


def test_a_follower_takes_a_turn_when_the_other_copy_could_be_silent() -> None:
    host = CopyHost().started()
    host.do(host.session.step(5 * MS))
    assert host.session.wake_at is not None
    assert host.session.wake_at <= UNREADY_US
    assert not host.session.busy


def started_after(stable: int, live: int) -> CopyHost:
    """Return copy b, started when the logs had this many records."""
    host = CopyHost()
    host.ends |= {STABLE: stable, LIVE: live}
    return host.started()


def reads_all(host: CopyHost) -> CopyHost:
    """Pass two records of the stable line and one of the live line."""
    assert isinstance(START, OrderedRecord)
    host.session.take(Received(STABLE, 0, START))
    host.session.take(Received(STABLE, 1, boundary(0, 100)))
    host.session.take(Received(LIVE, 0, replace(START, seq=0)))
    return host


def ready() -> CopyHost:
    """Return copy b, which could answer at once."""
    return reads_all(started_after(2, 1))


def test_a_follower_is_ready_when_it_has_read_all() -> None:
    host = started_after(2, 1)
    assert not host.session.report().ready
    reads_all(host)
    assert host.session.report().ready
    assert [type(request) for request in host.asked_in(1)] == [PrepareTransactions]
    assert host.asked_in(2) == [], "it connects once"


def test_a_copy_that_cannot_connect_before_its_take_over_takes_over_all_the_same() -> None:
    host = ready()
    host.is_away = True
    assert [type(request) for request in host.asked_in(1)] == [PrepareTransactions]
    host.is_away = False
    host.falls_silent()
    assert host.session.pair.role is PairRole.ANSWERING


# --- Planned ends (trace-54) ----------------------------------------------------------------------

FOLLOWER = Heartbeat("root/q.0.a", 7, 0, 0, 1, ready=True, states={}, detail={"term": 4})
"""Copy a follows copy b, which answers in term 4."""
NOW = 101 * SUSPECT_US


def answering() -> CopyHost:
    """Return copy b after it has taken over, and answered; it has no work."""
    host = CopyHost().started().begun()
    for start_ms in range(0, 300, 100):
        host.boundary(start_ms, start_ms + 100)
    host.falls_silent()
    for _ in host.commits(NOW):
        host.session.take(CommitSucceeded(NOW))
    host.claimed.clear()
    return host


def test_a_copy_resigns_in_favour_of_one_that_is_ready() -> None:
    host = answering()
    host.session.take(HeartbeatReceived(FOLLOWER, NOW))
    assert host.session.take(ResignRequested(NOW)) == 0
    answered = host.session.core.answers.state
    lines = [effect.text for effect in host.step(NOW) if isinstance(effect, LogLine)]
    (last,) = host.claimed
    assert lines == ["resigns: the other copy takes over"]
    assert (last.term, last.copy, last.resigned, last.placement) == (4, 1, True, PLACEMENT)
    assert (last.next_seq, last.answered_to) == (answered.next_seq, answered.answered_to)
    host.boundary(300, 1_000)
    assert host.commits(NOW + 1) == [], "it answers no more"
    host.commit(replace(last, term=5, copy=0, resigned=False))
    ends = [effect.reason for effect in host.step(NOW + 2) if isinstance(effect, Rebuild)]
    assert ends == ["another copy answers, in term 5"]


@pytest.mark.parametrize(
    "beat",
    [
        None,
        replace(FOLLOWER, ready=False),
        replace(FOLLOWER, detail={"term": 3}),
        replace(FOLLOWER, detail={"term": 4, "answers": 1}),
        FOLLOWER.as_dead(),
    ],
    ids=["unknown", "not ready", "has not read this term", "answers", "dead"],
)
def test_nobody_resigns_without_a_copy_that_could_answer_at_once(beat: Heartbeat | None) -> None:
    host = answering()
    if beat is not None:
        host.session.take(HeartbeatReceived(beat, NOW))
    assert host.session.take(ResignRequested(NOW)) is None
    host.boundary(300, 1_000)
    assert host.commits(NOW + 1) != [], "it answers until it ends"


def test_nobody_resigns_if_the_other_copy_is_silent() -> None:
    host = answering()
    host.session.take(HeartbeatReceived(FOLLOWER, NOW - FRESH_FACTOR * SUSPECT_US))
    assert host.session.take(ResignRequested(NOW)) is None


def test_a_copy_that_follows_has_nothing_to_resign() -> None:
    host = CopyHost().started().begun()
    host.session.take(HeartbeatReceived(replace(FOLLOWER, detail={"term": 3, "answers": 1}), 1))
    assert host.session.take(ResignRequested(1)) is None


def test_the_last_transaction_is_waited_for() -> None:
    host = answering()
    host.session.take(HeartbeatReceived(FOLLOWER, NOW))
    host.boundary(300, 1_000)
    (commit, *_) = host.commits(NOW)
    assert host.session.take(ResignRequested(NOW)) == 0
    host.step(NOW + 1)
    assert host.claimed == []
    assert not host.session.busy
    host.session.take(CommitSucceeded(NOW + 2))
    host.step(NOW + 2)
    (last,) = host.claimed
    assert last.next_seq == commit.state.next_seq


def test_a_copy_that_was_fenced_while_it_resigned_follows() -> None:
    host = answering()
    host.session.take(HeartbeatReceived(FOLLOWER, NOW))

    def takes_over() -> None:
        host.state = replace(OF_A, term=5)

    host.refused = takes_over
    assert host.session.take(ResignRequested(NOW)) == 0
    host.step(NOW)
    assert host.step(NOW + 1) == []
    assert host.session.busy
    assert host.step(NOW + 1) == [Rebuild("its last record is not committed: fenced")]


def test_a_copy_that_has_resigned_in_vain_ends_soon() -> None:
    """The other one has died before it took over."""
    host = answering()
    host.session.take(HeartbeatReceived(FOLLOWER, NOW))
    assert host.session.take(ResignRequested(NOW)) == 0
    host.step(NOW)
    taking_over = replace(FOLLOWER, detail={"term": 4, "answers": 1})
    host.session.take(HeartbeatReceived(taking_over, NOW + SUSPECT_US // 2))
    assert host.step(NOW + SUSPECT_US) == [], "it takes over"
    host.step(NOW + SUSPECT_US // 2 + SUSPECT_US)
    ends = host.step(NOW + SUSPECT_US // 2 + SUSPECT_US)
    assert ends == [Rebuild("has resigned, and the other copy is silent")]


def test_a_report_that_the_other_copy_has_died_ends_the_wait_for_it() -> None:
    host = answering()
    host.session.take(HeartbeatReceived(FOLLOWER, NOW))
    assert host.session.take(ResignRequested(NOW)) == 0
    host.step(NOW)
    host.session.take(HeartbeatReceived(FOLLOWER.as_dead(), NOW))
    host.step(NOW + 1)
    assert [type(effect) for effect in host.step(NOW + 1)] == [Rebuild]


def test_a_copy_takes_over_at_once_from_one_that_has_resigned() -> None:
    host = CopyHost().started().begun()
    host.commit(replace(OF_A, resigned=True))
    lines = [effect.text for effect in host.step(1) if isinstance(effect, LogLine)]
    assert lines == ["takes over: the other copy has resigned"]
    assert [(state.term, state.copy, state.resigned) for state in host.claimed] == [(4, 1, False)]


# --- Reports of death (trace-55) ------------------------------------------------------------------

PRIMARY = Heartbeat(
    "root/q.0.a", 7, 0, 0, 1, ready=True, states={}, detail={"term": 3, "answers": 1}
)


def test_a_copy_that_is_ready_takes_over_when_the_other_one_is_reported_dead() -> None:
    host = ready()
    host.session.take(HeartbeatReceived(PRIMARY, 1))
    host.session.take(HeartbeatReceived(PRIMARY.as_dead(), 2))
    lines = [effect.text for effect in host.step(2) if isinstance(effect, LogLine)]
    assert lines == ["takes over: the process of the other copy has ended"]


@pytest.mark.parametrize(
    "detail",
    [{"term": 2, "answers": 1}, {"term": 3, "answers": 0}],
    ids=["earlier term", "follows"],
)
def test_a_report_of_a_process_that_does_not_answer_changes_nothing(detail: dict[str, int]) -> None:
    host = ready()
    host.session.take(HeartbeatReceived(replace(PRIMARY, detail=detail).as_dead(), 1))
    host.step(1)
    assert host.session.pair.role is PairRole.FOLLOWING


def test_a_copy_that_is_not_ready_waits_although_the_other_one_is_reported_dead() -> None:
    host = CopyHost().started()
    host.session.take(HeartbeatReceived(PRIMARY.as_dead(), 1))
    host.step(1)
    assert host.session.pair.role is PairRole.FOLLOWING


def test_a_report_counts_until_another_term_begins() -> None:
    host = ready()
    host.session.take(HeartbeatReceived(PRIMARY.as_dead(), 1))
    host.commit(replace(OF_A, term=4))
    host.session.take(HeartbeatReceived(PRIMARY.as_dead(), 2))
    host.step(2)
    assert host.session.pair.role is PairRole.FOLLOWING


def test_a_replica_that_is_reported_dead_is_stale_at_once() -> None:
    """trace-34: its last heartbeat would be valid for 120 ms."""
    host = ready()
    orderer = Heartbeat("orderer/q.0.a", 9, 0, 0, 1, ready=True, states={STABLE[0]: "STABLE"})
    upstream = host.session.core._children[0].upstream
    host.session.take(HeartbeatReceived(orderer, 10))
    before = upstream.stable(11)
    host.session.take(HeartbeatReceived(orderer.as_dead(), 10))
    dead = upstream.stable(11)
    host.session.take(HeartbeatReceived(replace(orderer, pid=10), 12))
    assert (before, dead, upstream.stable(13)) == ([True], [False], [True])
