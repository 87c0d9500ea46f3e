"""A copy that follows holds deltas undecoded (rule-38): its session, with a host in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tests.paper.stage import MS
from tests.unit.sessions.test_root_copies import CopyHost
from tests.unit.sessions.test_root_session import LIVE, STABLE, START, answered, boundary

from slackwater.model.names import ONLY
from slackwater.model.records import LogPosition, LogState, Position, RootState
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import HELD_READ_US_MAX
from slackwater.protocols.dpc.soutput.heads import RECORD_US
from slackwater.protocols.flux.holding import may_begin
from slackwater.protocols.flux.pair import SUSPECT_US, PairRole
from slackwater.sessions.events import PassedBy, Received, Replayed
from slackwater.sessions.root import RootSession

WINDOW_MS = 100
FOREVER = 1 << 62


def at(offset: int, frontier_ms: int) -> LogPosition:
    return LogPosition(offset, offset, 0, Position(frontier_ms * MS))


def of_a(to_ms: int, offset: int, *, seq: int, tentative_to_ms: int = 0) -> RootState:
    """Return a's state record that has answered up to there, with the stable log's position."""
    state = replace(answered(to_ms, 1), term=3, copy=0, next_seq=seq)
    place, start = at(offset, to_ms), at(1, 0)
    logs = (LogState(0, 0, 0, place, place, offset), LogState(0, 0, 1, start, start, 1))
    return replace(state, logs=logs, answered_to=max(to_ms, tentative_to_ms) * MS)


class Follower(CopyHost):
    """Copy b, which never checks; of window n the record has offset n + 1."""

    def __init__(self, *, compare_us: int = FOREVER) -> None:
        super().__init__()
        self.config = replace(self.config, compare_period_us=compare_us)
        self.session = RootSession(self.config, windowed=False)
        self.started().begun()
        self.session.take(Received(LIVE, 0, START))

    def passes(self, windows: range) -> int:
        """Let the live consumer pass records on; return how many of them the session has taken."""
        taken = 0
        for window in windows:
            record = boundary(window * WINDOW_MS, (window + 1) * WINDOW_MS)
            offset, self.ends[STABLE] = self.ends[STABLE], self.ends[STABLE] + 1
            if self.session.needs(STABLE, offset):
                self.session.take(Received(STABLE, offset, record))
                taken += 1
            else:
                self.session.take(PassedBy(STABLE, offset))
        return taken

    def reads(self, line: LineName) -> int:
        """Read what is wanted for a line, to the end; return how many records that were."""
        count = 0
        while (offset := self.session.wanted().get((line, STABLE))) is not None:
            window = offset - 1
            record = boundary(window * WINDOW_MS, (window + 1) * WINDOW_MS)
            self.session.take(Replayed(line, STABLE, offset, record))
            count += 1
        return count

    @property
    def holds(self) -> bool:
        return self.session.core.resting.holding.is_active


def test_it_holds_from_a_state_record_on() -> None:
    host = Follower()
    assert host.passes(range(3)) == 3
    host.commit(of_a(200, 3, seq=2))
    assert host.holds
    assert host.passes(range(3, 6)) == 0
    assert host.session.wanted() == {}


def test_what_is_answered_is_skipped_and_the_rest_is_read_at_the_take_over() -> None:
    host = Follower()
    host.passes(range(3))
    host.commit(of_a(200, 3, seq=2))
    host.passes(range(3, 8))
    host.commit(of_a(600, 7, seq=6))
    assert host.stable_frontier == Position(600 * MS)
    assert host.session.wanted() == {}, "it holds on"
    host.state = of_a(600, 7, seq=6)
    host.falls_silent()
    assert host.session.pair.role is PairRole.ANSWERING
    assert [host.reads(line) for line in (LineName.LIVE, LineName.STABLE)] == [2, 2]
    assert host.stable_frontier == Position(800 * MS)
    (commit,) = host.commits(101 * SUSPECT_US)
    first = commit.transaction.effects[0]
    assert (first.seq, commit.transaction.after.stable_from) == (6, 800 * MS)


def test_what_it_has_read_beyond_s_stays() -> None:
    host = Follower()
    host.passes(range(5))
    host.commit(of_a(200, 3, seq=2))
    assert host.stable_frontier == Position(500 * MS)
    assert host.session.core.resting.holding.records == 0
    host.commit(of_a(400, 5, seq=4))
    assert host.stable_frontier == Position(500 * MS)


def test_its_own_record_and_contiguous_seq_go_on_with_the_positions() -> None:
    host = Follower()
    host.passes(range(3))
    host.commit(of_a(200, 3, seq=2))
    host.passes(range(3, 8))
    host.commit(of_a(600, 7, seq=6))
    own = host.session.core.state
    assert (own.logs[0].stable.offset, own.logs[0].contiguous_seq) == (7, 7)
    assert own.logs[0].live.offset == 7


def test_tentative_answers_make_it_read() -> None:
    host = Follower()
    host.passes(range(3))
    host.commit(of_a(200, 3, seq=2))
    host.passes(range(3, 6))
    host.commit(of_a(200, 3, seq=3, tentative_to_ms=400))
    assert not host.holds
    assert host.reads(LineName.STABLE) == 3
    assert host.stable_frontier == Position(600 * MS)


def test_it_reads_what_would_take_too_long_at_a_take_over() -> None:
    host = Follower()
    host.passes(range(3))
    host.commit(of_a(200, 3, seq=2))
    most = HELD_READ_US_MAX // round(RECORD_US)
    host.passes(range(3, 3 + most))
    host.step(1)
    assert host.holds
    host.passes(range(3 + most, 5 + most))
    host.step(2)
    assert not host.holds


def test_it_answers_nothing_tentatively_before_it_has_read_what_it_holds() -> None:
    host = Follower()
    host.passes(range(3))
    host.commit(of_a(300, 4, seq=3))
    host.passes(range(3, 5))
    host.state = of_a(300, 4, seq=3)
    host.falls_silent()
    assert host.session.core.suppress_tentative
    assert host.session.state == "UP_FAILURE"
    host.reads(LineName.LIVE)
    assert not host.session.core.suppress_tentative


def test_while_it_holds_a_state_record_needs_no_turn() -> None:
    host = Follower()
    host.passes(range(3))
    at_states = ("sw.state.q", 0)
    assert host.session.take(Received(at_states, 0, of_a(200, 3, seq=2))) is None
    assert host.session.is_ready
    assert host.session.take(Received(at_states, 1, of_a(200, 3, seq=3, tentative_to_ms=300))) == 0


def test_a_resignation_needs_a_turn() -> None:
    host = Follower()
    host.passes(range(3))
    last = replace(of_a(200, 3, seq=2), resigned=True)
    assert host.session.take(Received(("sw.state.q", 0), 0, last)) == 0


def test_what_is_compared_is_read() -> None:
    host = Follower(compare_us=0)
    host.passes(range(3))
    host.commit(of_a(200, 3, seq=2))
    assert host.passes(range(3, 6)) == 3


def test_in_each_period_the_panes_after_one_s_are_compared() -> None:
    config = replace(Follower(compare_us=4_000_000).config)
    every = [
        [n for n in range(400) if replace(config, part=part).is_compared(n * WINDOW_MS * MS)]
        for part in range(8)
    ]
    for of_part in every:
        assert [later - n for n, later in pairwise(of_part)] == [40] * 9
    assert len({of_part[0] for of_part in every}) > 4, "not at the same time"


def test_of_a_long_window_all_panes_are_compared() -> None:
    config = replace(Follower(compare_us=100_000).config)
    assert all(config.is_compared(n * WINDOW_MS * MS) for n in range(50))


def test_a_part_with_one_copy_compares_nothing() -> None:
    config = replace(Follower(compare_us=0).config, copy=ONLY)
    assert not config.is_compared(0)


def test_what_takes_longer_than_half_of_the_limit_is_not_begun() -> None:
    state = of_a(200, 3, seq=2)
    assert may_begin(state, 50, 100)
    assert not may_begin(state, 51, 100)
    assert not may_begin(replace(state, answered_to=300 * MS), 0, 100)
