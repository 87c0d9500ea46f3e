"""An orderer's session alone: no loop, no broker, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.paper.stage import MS, Settings, Source

from slackwater.model.errors import SlackwaterError, SupersededError
from slackwater.model.records import (
    Heartbeat,
    Kind,
    OrderedRecord,
    OrdererState,
    Position,
    RootState,
    SourceRecord,
)
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.sunion.config import OrdererConfig
from slackwater.sessions.effects import Append, Effect, Fail, Perform, Refute, WriteState
from slackwater.sessions.events import (
    HeartbeatReceived,
    HoleReported,
    IncarnationClaimed,
    LiveAt,
    PassedBy,
    Received,
    RecordDelivered,
    Replayed,
)
from slackwater.sessions.orderer import SAVE_PERIOD_US, OrdererSession
from slackwater.sessions.requests import (
    BeginIncarnation,
    Beginnings,
    Ends,
    FindIncarnation,
    FindReaders,
    Log,
    Ordered,
    Procedure,
    ReadOrdered,
    ReadStates,
    Request,
    State,
    StoreState,
)

S1: Log = ("sw.source.s1", 0)
STABLE: Log = ("sw.ordered.q.0", 0)
LIVE: Log = ("sw.ordered.q.0", 1)
S = 1_000_000


class Away(SlackwaterError):
    """The broker does not respond."""


class Host:
    """Responds from lists, and records the requests."""

    def __init__(
        self, readers: Sequence[str] = (), replica: int = 0, lag_us: int = 0, **config: Any
    ) -> None:
        self.logs: dict[Log, list[Any]] = {S1: [], STABLE: [], LIVE: []}
        self.beginnings = dict.fromkeys(self.logs, 0)
        self.states: dict[str, State] = {}
        self.joined: list[str] = []
        self.asked: list[Request] = []
        self.begun: list[int] = []
        self.is_away = False
        settings = Settings()
        self.session = OrdererSession(
            "q",
            OrdererConfig(
                f"orderer/q.0.{'ab'[replica]}", 0, replica, ("s1",), ("s1",), settings.grid,
                settings.schedule(1), replicas=2, **config,
            ),
            settings.operators(1),
            sources=[S1],
            own=(STABLE, LIVE),
            start_time=0,
            parts=1,
            readers=readers,
            lag_us=lag_us,
        )  # fmt: skip

    def started(self) -> Host:
        self.do(self.perform(self.session.start()), deliver=True)
        return self

    def perform(self, procedure: Procedure[Any]) -> Any:
        answer: Any = None
        try:
            request = procedure.send(None)
            while True:
                self.asked.append(request)
                if self.is_away:
                    request = procedure.throw(Away("no answer"))
                else:
                    answer = self.answer(request)
                    request = procedure.send(answer)
        except StopIteration as ended:
            return ended.value

    def answer(self, request: Request) -> Any:
        match request:
            case Beginnings(logs):
                return {log: self.beginnings[log] for log in logs}
            case Ends(logs):
                return {log: len(self.logs[log]) for log in logs}
            case ReadStates(query, _, fits):
                found = {n: s for n, s in self.states.items() if f"/{query}." in n}
                return {name: state for name, state in found.items() if fits(state)}
            case ReadOrdered(log, start, end):
                return self.ordered(log, start or 0, end)
            case FindReaders(query):
                return self.joined or [query]
            case FindIncarnation(_, inc):
                return inc in self.begun
            case BeginIncarnation(log, read_from, make_start):
                return self.append(log, make_start(self.ordered(log, read_from)))
            case StoreState(_, state):
                self.states[state.fragment] = state
        return None

    def ordered(self, log: Log, start: int, end: int | None = None) -> list[Ordered]:
        some = enumerate(self.logs[log][start:end], start)
        return [(offset, record) for offset, record in some if isinstance(record, OrderedRecord)]

    def append(self, log: Log, record: object) -> int:
        self.logs[log].append(record)
        return len(self.logs[log]) - 1

    def do(self, effects: Sequence[Effect], *, deliver: bool) -> list[Log]:
        """Execute effects; return the logs with undelivered records."""
        unreported = []
        for effect in effects:
            match effect:
                case Append(log, record):
                    offset = self.append(log, record)
                    if deliver:
                        self.session.take(RecordDelivered(log, offset))
                    else:
                        unreported.append(log)
                case Perform(procedure):
                    self.perform(procedure)
        return unreported

    def receive_heartbeats(self, source: Source) -> None:
        """Pass on the available records, as the live consumer does."""
        for offset in range(len(self.logs[S1]), len(source.log)):
            self.logs[S1].append(source.log[offset])
            self.session.take(Received(S1, offset, source.log[offset]))


def root_state(stable_from: int, query: str = "q") -> RootState:
    positions = (Position(stable_from),)
    return RootState(f"root/{query}.0", 1, 5, 0, stable_from, stable_from, positions, ())


def of(kind: type[Any], effects: Sequence[Effect]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def emitted(source: Source, up_to_ms: int) -> Source:
    for at in range(100, up_to_ms + 1, 100):
        source.emit([at - 50], at)
    return source


# --- start ----------------------------------------------------------------------------------------


def test_start_is_written_before_the_ends_are_asked_that_it_is_mute_until() -> None:
    """A reading in the log at the time of START must be read before any tentative output."""
    host = Host()
    late = emitted(Source("s1"), 300).log

    def answer(request: Request, of_all: Callable[[Request], Any] = host.answer) -> Any:
        found = of_all(request)
        if isinstance(request, BeginIncarnation):
            host.logs[S1] += late  # while START was in flight
        return found

    host.answer = answer  # type: ignore[method-assign]
    host.started()
    kinds = [type(request) for request in host.asked]
    assert kinds.index(ReadStates) < kinds.index(BeginIncarnation) < len(kinds) - 1
    assert isinstance(host.asked[-1], Ends)
    assert host.session.core.suppress_tentative, "it has read nothing yet"
    for offset, record in enumerate(late):
        host.session.take(Received(S1, offset, record))
    assert not host.session.core.suppress_tentative


def test_both_logs_begin_with_start_and_the_stable_one_s_offset_is_its_number() -> None:
    host = Host()
    host.logs[STABLE] = [b"of nobody", b"of nobody"]
    host.started()
    start, again = host.logs[STABLE][-1], host.logs[LIVE][-1]
    assert (start.kind, start.inc, again.kind, again.inc) == (Kind.START, -1, Kind.START, 2)
    assert start.frontier == again.frontier == Position(0)
    assert host.session.inc == 2


def test_a_state_beyond_the_logs_is_not_its_own() -> None:
    host = Host().started()
    state = host.session.core.snapshot(1, 1)
    (stream,) = state.streams
    excess = replace(stream, next=replace(stream.next, offset=10**9))
    for streams, frontier in ((state.streams, 500 * MS), ((excess,), 0)):
        again = Host()
        again.states["orderer/q.0.a"] = replace(state, frontier=500 * MS, streams=streams)
        again.started()
        assert again.logs[STABLE][-1].frontier == Position(frontier)


def start_of(placement: int) -> OrderedRecord:
    return OrderedRecord(Kind.START, 0, 0, -1, 0, 0, frontier=Position(0), placement=placement)


@pytest.mark.parametrize(("own", "other"), [(5, 7), (0, 1), (7, 2**62)])
def test_an_orderer_stays_down_if_it_was_placed_elsewhere_later(own: int, other: int) -> None:
    host = Host(placement=own)
    host.logs[STABLE] = [start_of(other), start_of(own)]
    with pytest.raises(SupersededError, match="stays down") as stays_down:
        host.started()
    assert stays_down.value.placement == own
    assert len(host.logs[STABLE]) == 2, "it has written nothing"


@pytest.mark.parametrize(("own", "other"), [(7, 5), (7, 7), (7, -1), (-1, 7), (-1, -1)])
def test_an_orderer_takes_over_from_one_that_was_not_placed_later(own: int, other: int) -> None:
    """Equal: a restart. -1: not placed by controllers; the last START takes over."""
    host = Host(placement=own)
    host.logs[STABLE] = [start_of(other)]
    try:
        host.started()
    except SupersededError as error:
        raise AssertionError("it takes over") from error
    assert host.logs[STABLE][-1].placement == own


def test_the_placement_number_is_in_the_state_record() -> None:
    """Retention may have removed START."""
    state = Host(placement=7).started().session.core.snapshot(1, 1)
    host = Host(placement=5)
    host.states["orderer/q.0.a"] = state
    with pytest.raises(SupersededError, match="number 7"):
        host.started()


def test_behind_a_hole_the_state_record_has_the_number_too() -> None:
    host = Host(placement=7).started()
    again = host.perform(host.session._start.after_results(host.session.core.snapshot(1, 1)))
    assert again.placement == 7


# --- state records --------------------------------------------------------------------------------


def test_a_state_record_waits_until_what_it_counts_is_in_the_logs() -> None:
    host, source = Host().started(), emitted(Source("s1"), 300)
    host.receive_heartbeats(source)
    now = 10 * S
    written = host.session.step(now)
    unreported = host.do(written, deliver=False)
    assert unreported == [STABLE] * 3
    for later in range(1, 4):
        assert of(WriteState, host.session.step(now + later * SAVE_PERIOD_US)) == []
    for offset in range(1, 4):
        host.session.take(RecordDelivered(STABLE, offset))
    (write,) = of(WriteState, host.session.step(now + 4 * SAVE_PERIOD_US))
    assert (write.query, write.state.frontier, write.state.last_id) == ("q", 300 * MS, 2)


def test_a_state_record_points_into_both_logs_though_nothing_is_delivered_yet() -> None:
    """If the live log was read from too late, a successor would repeat earlier output."""
    host = Host()
    host.logs[STABLE] = [b"of nobody"] * 1_000
    host.do(host.perform(host.session.start()), deliver=False)
    host.session.step(10 * S)
    host.session.step(10 * S + SAVE_PERIOD_US)
    host.session.take(RecordDelivered(LIVE, 0))
    (write,) = of(WriteState, host.session.step(10 * S + 2 * SAVE_PERIOD_US))
    assert (write.state.stable_offset, write.state.live_offset) == (1_000, 0)


# --- who else writes ------------------------------------------------------------------------------


def begun(host: Host) -> Host:
    """Return a session with three buckets in flight, after an unknown record at offset 1."""
    host.receive_heartbeats(emitted(Source("s1"), 300))
    host.do(host.session.step(10 * S), deliver=False)
    return host


@pytest.mark.parametrize("is_writer", [False, True])
def test_it_ends_for_another_writer_and_for_nothing_else(is_writer: bool) -> None:
    """Decision 13's step in the offsets: the records in between are read before deciding."""
    host = Host().started()
    start = OrderedRecord(Kind.START, 0, 0, -1, 0, 0, frontier=Position(0))
    host.append(STABLE, start if is_writer else b"hello")
    begun(host).session.step(10 * S + SAVE_PERIOD_US)  # a state record waits
    for offset in (2, 3, 4):
        host.session.take(RecordDelivered(STABLE, offset))
    assert host.session.busy, "it is read at once"
    effects = host.session.step(10 * S + SAVE_PERIOD_US + 1)
    assert of(WriteState, effects) == [], "later deliveries do not count yet"
    host.do(effects, deliver=True)
    assert isinstance(host.asked[-1], ReadOrdered)
    effects = host.session.step(10 * S + 2 * SAVE_PERIOD_US)
    assert bool(of(Fail, effects)) == is_writer
    if not is_writer:
        (write,) = of(WriteState, host.session.step(10 * S + 3 * SAVE_PERIOD_US))
        assert write.state.frontier == 300 * MS


def test_it_looks_again_when_the_broker_gave_no_answer() -> None:
    host = Host().started()
    host.append(STABLE, b"hello")
    begun(host)
    host.session.take(RecordDelivered(STABLE, 2))
    host.is_away = True
    host.do(host.session.step(10 * S + 1), deliver=True)
    is_again = host.session.busy
    host.is_away = False
    host.do(host.session.step(10 * S + 2), deliver=True)
    assert [is_again, host.session.busy] == [True, False]
    assert host.asked[-1] == host.asked[-2]


@pytest.mark.parametrize("is_true", [False, True])
def test_a_greater_incarnation_is_looked_up(is_true: bool) -> None:
    host = Host().started()
    host.begun = [7] if is_true else []
    host.session.take(IncarnationClaimed(0))
    assert not host.session.busy, "its own"
    for _ in range(2):
        host.session.take(IncarnationClaimed(7))
    performs = of(Perform, host.session.step(S))
    assert len(performs) == 1, "once, until there is a response"
    host.do(performs, deliver=True)
    assert isinstance(host.asked[-1], FindIncarnation)
    host.session.take(IncarnationClaimed(7))  # received before the response is processed
    effects = host.session.step(S + 1)
    assert of(Perform, effects) == [], "its incarnation is known by now"
    if is_true:
        assert len(of(Fail, effects)) == 1
        return
    assert of(Refute, effects) == [Refute(7)]
    host.session.take(IncarnationClaimed(7))
    assert len(of(Perform, host.session.step(S + 2))) == 1, "it may have begun since"


def test_a_claim_without_an_answer_is_looked_up_when_it_is_made_again() -> None:
    host = Host().started()
    host.is_away = True
    for _ in range(2):
        host.session.take(IncarnationClaimed(7))
        effects = host.session.step(S)
        assert len(of(Perform, effects)) == 1
        assert of(Fail, effects) == []
        host.do(effects, deliver=True)


# --- holes ----------------------------------------------------------------------------------------


def test_behind_a_hole_it_writes_nothing_but_where_its_successor_begins() -> None:
    host = begun(Host().started())
    for offset in (1, 2, 3):
        host.session.take(RecordDelivered(STABLE, offset))
    hole = host.session.hole
    assert (hole.topic, hole.partition, hole.inc) == (*STABLE, 0)
    host.receive_heartbeats(emitted(Source("s1"), 600))
    for _ in range(2):
        host.session.take(HoleReported())
    effects = host.session.step(20 * S)
    assert [type(effect) for effect in effects] == [Perform]
    host.do(effects, deliver=True)
    state = host.states["orderer/q.0.a"]
    assert isinstance(state, OrdererState)
    assert state.frontier == 0, "the end of the results"
    assert state.stable_offset == len(host.logs[STABLE])
    (fail,) = host.session.step(21 * S)
    assert isinstance(fail, Fail)
    assert host.session.wake_at is None


def test_behind_a_hole_ids_go_on_behind_those_that_lie_before_the_results_end() -> None:
    """Records of the own log below the frontier have taken ids, whether or not they were read."""
    host = begun(Host().started())
    for offset in (1, 2, 3):
        host.session.take(RecordDelivered(STABLE, offset))
    host.states["root/q.0"] = root_state(200 * MS)
    host.session.take(HoleReported())
    host.do(host.session.step(20 * S), deliver=True)
    state = host.states["orderer/q.0.a"]
    assert isinstance(state, OrdererState)
    assert (state.frontier, state.last_id) == (200 * MS, 1)


def test_behind_a_hole_it_goes_on_where_the_results_of_all_readers_end() -> None:
    goes_on_where_all_results_end(begun(Host(("q", "r")).started()))


def test_behind_a_hole_the_results_of_a_query_count_that_has_joined_since() -> None:
    host = begun(Host(("q",)).started())
    host.joined = ["r"]
    goes_on_where_all_results_end(host)


def goes_on_where_all_results_end(host: Host) -> None:
    for offset in (1, 2, 3):
        host.session.take(RecordDelivered(STABLE, offset))
    host.states["root/q.0"] = root_state(200 * MS)
    host.states["root/r.0"] = root_state(100 * MS, "r")
    host.session.take(HoleReported())
    host.do(host.session.step(20 * S), deliver=True)
    state = host.states["orderer/q.0.a"]
    assert isinstance(state, OrdererState)
    assert (state.frontier, state.last_id) == (100 * MS, 0)


def test_without_an_answer_there_is_no_going_on_behind_a_hole() -> None:
    host = begun(Host().started())
    host.is_away = True
    host.session.take(HoleReported())
    (perform,) = host.session.step(20 * S)
    with pytest.raises(Away):
        host.do([perform], deliver=True)


# --- what comes in --------------------------------------------------------------------------------


def test_a_record_that_does_not_decode_takes_its_offset_only() -> None:
    host, source = Host().started(), emitted(Source("s1"), 100)
    host.session.take(Received(S1, 0, source.log[0]))
    host.session.take(Received(S1, 1, None))
    assert host.session.needs(S1, 2)
    assert [cursor.offset for cursor in host.session.core.logs.stable] == [2]


def test_the_others_words_reach_the_core() -> None:
    host = Host().started()
    assert host.session.listens_to == ("orderer/q.0.b", "root/q.0", "root/q.0.a", "root/q.0.b")
    unknown = Heartbeat("nobody", 0, 0, 0, -1, ready=True, states={})
    peer = replace(
        unknown,
        process="orderer/q.0.b",
        detail={"turn_asks": 1, "turn_holds": 1, "turn_grants": -1, "turn_progress": 5},
    )
    root = replace(unknown, process="root/q.0", detail={"read_0.a": 7 * MS})
    for beat in (unknown, peer, root, replace(root, detail={})):
        host.session.take(HeartbeatReceived(beat, 3 * S))
    report = host.session.report()
    assert report.detail["stable_to"] == 0
    assert host.session.state == report.states[STABLE[0]]


def test_a_complete_bucket_waits_only_for_a_replica_that_works() -> None:
    """The roots' heartbeats say that time passes; the first replica's have ended at 4 s."""
    host, source = Host(replica=1, lag_us=100 * MS).started(), emitted(Source("s1"), 1_000)
    turns = {"turn_asks": 0, "turn_holds": 0, "turn_grants": -1, "turn_progress": 0}
    first = Heartbeat("orderer/q.0.a", 0, 0, 0, -1, ready=True, states={}, detail=turns)
    root = Heartbeat("root/q.0", 0, 0, 0, -1, ready=True, states={})
    waits = []
    for number, (beat, at) in enumerate(
        [
            (root, 3 * S),
            (first, 4 * S),
            (root, 4 * S + 119 * MS),
            (root, 4 * S + 120 * MS),
            (first, 5 * S),
        ]
    ):
        host.session.take(HeartbeatReceived(beat, at))
        host.logs[S1].append(source.log[number])
        waits.append(host.session.take(Received(S1, number, source.log[number])))
        host.do(host.session.step(at), deliver=True)
    assert waits[1:] == [100 * MS, 100 * MS, 0, 100 * MS]


@pytest.mark.parametrize("behind", ["q", "r"])
def test_the_roots_of_all_readers_are_waited_for(behind: str) -> None:
    host = Host(("q", "r")).started()
    assert {"root/q.0", "root/r.0"} <= {*host.session.listens_to}
    for query in ("q", "r"):
        read = {"read_0.a": 0 if query == behind else 10 * S}
        beat = Heartbeat(f"root/{query}.0", 0, 0, 0, -1, ready=True, states={}, detail=read)
        host.session.take(HeartbeatReceived(beat, 3 * S))
    assert host.session.core.downstream.is_awaited(3 * S, 10 * S)


def test_of_two_copies_of_a_part_the_one_that_answers_is_waited_for() -> None:
    """The other one may have read less, and nobody waits for it."""
    host = Host().started()
    for copy, answers, read_to in (("b", 1, 10 * S), ("a", 0, 0)):
        detail = {"read_0.a": read_to, "answers": answers}
        beat = Heartbeat(f"root/q.0.{copy}", 0, 0, 0, -1, ready=True, states={}, detail=detail)
        host.session.take(HeartbeatReceived(beat, 3 * S))
    assert not host.session.core.downstream.is_awaited(3 * S, 10 * S)


def test_a_parked_cursor_is_attached_behind_the_records_that_were_passed_by() -> None:
    host, source = Host().started(), emitted(Source("s1"), 300)
    host.session.take(LiveAt(S1, 1))
    assert not host.session.needs(S1, 1)
    host.session.take(PassedBy(S1, 1))
    assert not host.session.needs(S1, 2), "a question, which changes nothing"
    for offset, attached in ((0, False), (1, True)):
        record = source.log[offset]
        for line in LineName:
            host.session.take(Replayed(line, S1, offset, record))
        assert (host.session.wanted() == {}) == attached


def test_a_newcomer_to_a_host_has_its_cursors_parked_where_it_begins() -> None:
    """The consumer is at 301; earlier records are neither skipped nor lost."""
    host, source = Host().started(), emitted(Source("s1"), 30_000)
    host.session.take(LiveAt(S1, 301))
    assert host.session.wanted() == {(line, S1): 0 for line in LineName}
    boundary = SourceRecord(Kind.BOUNDARY, "s1", 0, 300, 299, 40 * S, 0, 0)
    host.session.take(Received(S1, 301, boundary))
    assert [c.offset for c in host.session.core.logs.stable] == [0]
    for line in LineName:
        for offset, record in enumerate(source.log):
            host.session.take(Replayed(line, S1, offset, record))
    assert not any(gaps for c in host.session.core.logs.stable for gaps in [c.gaps])
    assert [c.offset for c in host.session.core.logs.stable] == [301]
