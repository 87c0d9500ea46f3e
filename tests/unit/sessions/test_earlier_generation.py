"""A root of a later generation, while the earlier one answers (rule-29, trace-44)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.paper.stage import MS
from tests.unit.sessions.test_root_session import PLACEMENT, Host, answered

from slackwater.model.errors import SupersededError
from slackwater.model.names import ONLY
from slackwater.model.records import Heartbeat, RootState
from slackwater.protocols.flux.pair import ANSWERS, FOLLOWS, SUSPECT_US, TERM, PairRole
from slackwater.sessions.effects import Fail, Rebuild
from slackwater.sessions.events import (
    EarlierEnded,
    HeartbeatReceived,
    HeartbeatReturned,
    LiveAt,
    PositionGone,
    Received,
    ResignRequested,
)
from slackwater.sessions.requests import (
    AwaitRead,
    OpenTransactions,
    ReadCopies,
    ReadPart,
    Request,
    StoreState,
)
from slackwater.sessions.root import RootSession

STATES = ("sw.state.q.g1", 0)
ORDERED = ("sw.ordered.q.g1.0", 0)
EARLIER = replace(answered(0, PLACEMENT), term=4)
BOTH = pytest.mark.parametrize("copy", [ONLY, 0, 1])
SOON = 200 * SUSPECT_US


class LaterHost(Host):
    """The logs for a root of generation 1, whose predecessor has answered up to 0."""

    def __init__(self, copy: int = ONLY) -> None:
        super().__init__(query="q.g1", others={0: EARLIER})
        self.config = replace(self.config, copy=copy, has_earlier=True)
        self.session = RootSession(self.config, windowed=False)
        self.late: list[RootState] = []
        """State records that are in the log and have not been passed on."""

    def answer(self, request: Request) -> Any:
        match request:
            case AwaitRead():
                self.pass_on()
                return None
            case ReadCopies():
                return {}
            case StoreState():
                return None
        return super().answer(request)

    def commit(self, state: RootState) -> None:
        """Pass on a state record, as the live consumer does."""
        self.others = {0: state}
        self.session.take(Received(STATES, 0, state))

    def pass_on(self) -> None:
        for state in self.late:
            self.session.take(Received(STATES, 0, state))

    @property
    def role(self) -> PairRole:
        return self.session.pair.role

    @property
    def answered(self) -> tuple[int, int, int]:
        state = self.session.core.answers.state
        return state.stable_from, state.next_seq, state.epoch


@BOTH
def test_it_follows_what_the_earlier_generation_commits(copy: int) -> None:
    host = LaterHost(copy).started()
    host.commit(replace(answered(300, PLACEMENT), next_seq=7, epoch=2, term=4))
    assert host.answered == (300 * MS, 7, 2)
    host.step(SOON)
    assert host.role is PairRole.FOLLOWING
    assert not any(isinstance(request, OpenTransactions) for request in host.asked)


@BOTH
def test_silence_and_resignations_of_the_earlier_generation_tell_it_nothing(copy: int) -> None:
    """That may be paused, or about to be restarted, and the change may be cancelled (trace-44)."""
    host = LaterHost(copy).started()
    host.commit(replace(answered(100, PLACEMENT), term=4, copy=0, resigned=True))
    host.session.take(HeartbeatReturned(SOON))
    host.step(SOON)
    assert host.role is PairRole.FOLLOWING
    beat = Heartbeat("root/q.g1.0.a", 1, 1, 1, -1, ready=True, states={}, detail={ANSWERS: 0})
    host.session.take(HeartbeatReceived(beat, SOON))
    host.step(2 * SOON)
    assert host.role is PairRole.FOLLOWING
    assert host.session.take(ResignRequested(SOON)) is None, "nobody has to wait for it"


@pytest.mark.parametrize("copy", [ONLY, 0])
def test_it_takes_over_when_that_has_ended_behind_its_last_answers(copy: int) -> None:
    host = LaterHost(copy).started()
    host.commit(replace(answered(100, PLACEMENT), next_seq=3, term=4))
    host.late = [replace(answered(200, PLACEMENT), next_seq=5, term=4)]
    host.session.take(EarlierEnded())
    host.asked.clear()
    host.step(SOON)
    assert host.role is PairRole.ANSWERING
    assert host.answered == (200 * MS, 5, 0)
    assert not any(isinstance(request, ReadPart) for request in host.asked), "no second reader"
    (claimed,) = host.claimed
    assert (claimed.fragment, claimed.next_seq, claimed.term) == ("root/q.g1.0", 5, 5)


def test_the_second_copy_takes_over_if_the_first_one_does_not() -> None:
    host = LaterHost(1).started()
    host.session.take(EarlierEnded())
    host.step(MS)
    assert host.session.report().detail[ANSWERS] == 0
    host.session.take(HeartbeatReturned(SOON))
    host.step(SOON)
    assert host.role is PairRole.ANSWERING


def test_the_second_copy_follows_the_first_one_from_its_claim_on() -> None:
    host = LaterHost(1).started()
    claim = replace(
        host.session.core.state, fragment="root/q.g1.0", placement=PLACEMENT, term=5, copy=0
    )
    host.session.take(Received(STATES, 1, claim))
    host.step(MS)
    assert (host.session.pair.tenure.term, host.role) == (5, PairRole.FOLLOWING)
    host.commit(replace(answered(900, PLACEMENT), next_seq=9, term=4))
    assert host.answered[0] == 0, "the earlier generation has been fenced"
    host.session.take(HeartbeatReturned(SOON))
    host.step(SOON)
    assert host.role is PairRole.ANSWERING, "that is a copy of it, and silent"


@BOTH
def test_it_reports_that_it_follows_and_could_answer(copy: int) -> None:
    host = LaterHost(copy).started()
    assert not host.session.is_ready, "it has no record of its logs yet"
    for offset, log in enumerate([ORDERED, ("sw.ordered.q.g1.0", 1)]):
        host.session.core.begin_at({host.session._logs.at[log]: offset + 1})
    host.session.core._begun = set(host.config.logs)
    report = host.session.report()
    assert report.ready
    assert [*report.states.values()] == [FOLLOWS]
    assert report.detail[ANSWERS] == 0
    assert report.detail[TERM] == 0
    assert report.holes == ()


def test_what_was_read_before_it_read_is_read_again() -> None:
    """Its host has read the log of state records for other fragments."""
    host = LaterHost().started()
    host.others = {0: replace(answered(300, PLACEMENT), next_seq=7, term=4)}
    host.session.take(LiveAt(STATES, 9))
    host.step(MS)
    assert host.answered == (300 * MS, 7, 0)


def test_what_is_no_record_of_the_earlier_generation_changes_nothing() -> None:
    host = LaterHost(0).started()
    later = replace(answered(500, PLACEMENT), next_seq=7)
    for name in ("root/q.1", "root/q.0.a", "root/q.g1.0.b", "root/q.g1.1"):
        host.session.take(Received(STATES, 0, replace(later, fragment=name)))
    assert host.answered[0] == 0


def test_a_generation_that_has_been_replaced_is_not_followed() -> None:
    host = LaterHost()
    host.config = replace(host.config, fragment="root/q.g7.0", query="q.g7")
    host.session = RootSession(host.config, windowed=False)
    host.others = {0: EARLIER, 3: replace(answered(100, PLACEMENT), fragment="root/q.g3.0")}
    host.started()
    host.session.take(Received(("sw.state.q.g7", 0), 0, replace(answered(500, 1), next_seq=9)))
    assert host.answered[0] == 100 * MS


@BOTH
def test_a_still_later_generation_ends_it(copy: int) -> None:
    host = LaterHost(copy).started()
    later = replace(answered(100, PLACEMENT), fragment="root/q.g2.0")
    host.session.take(Received(STATES, 0, later))
    assert [e for e in host.step(MS) if isinstance(e, Fail)]


def test_a_root_of_its_name_with_a_greater_number_ends_it() -> None:
    host = LaterHost().started()
    other = replace(host.session.core.state, placement=PLACEMENT + 1)
    host.session.take(Received(STATES, 0, other))
    assert [e for e in host.step(MS) if isinstance(e, Fail)]


def test_it_continues_what_another_root_of_its_name_has_answered() -> None:
    """Of a smaller number, on a node that controllers do not reach."""
    host = LaterHost().started()
    other = replace(
        host.session.core.state, placement=PLACEMENT - 1, next_seq=8, stable_from=400 * MS,
        answered_to=400 * MS, term=5,
    )  # fmt: skip
    host.late = [other]
    host.session.take(EarlierEnded())
    host.step(MS)
    assert (host.role, host.answered[0]) == (PairRole.ANSWERING, 400 * MS)
    assert host.session.pair.tenure.term == 6
    host.session.take(Received(STATES, 0, replace(other, placement=PLACEMENT, term=6)))
    assert not [e for e in host.step(2 * MS) if isinstance(e, Fail | Rebuild)], "its own record"


def test_without_its_predecessor_it_takes_over_at_once() -> None:
    host = Host(query="q.g1", others={0: EARLIER}).started()
    assert host.session.pair.role is PairRole.ANSWERING
    assert [state.fragment for state in host.claimed] == ["root/q.g1.0"], "that may be restarted"


def test_a_restart_behind_its_own_answers_follows_nobody() -> None:
    host = LaterHost()
    host.state = replace(answered(100, PLACEMENT - 1), fragment="root/q.g1.0")
    host.started()
    assert host.role is PairRole.ANSWERING


def test_retention_that_has_overtaken_it_rebuilds_it() -> None:
    host = LaterHost().started()
    line = next(iter(host.session.config.logs)).line
    host.session.take(PositionGone(line, ORDERED, 5))
    assert [e for e in host.step(MS) if isinstance(e, Rebuild)]


def test_a_number_that_is_not_greater_stays_down() -> None:
    host = LaterHost()
    host.state = replace(answered(100, PLACEMENT), fragment="root/q.g1.0")
    with pytest.raises(SupersededError):
        host.perform(host.session.start())
