"""The driver over orderers' sessions, on a broker in memory: the layer between them and Kafka."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from tests.paper.stage import MS, Settings, Source
from tests.support.live_consumer import hand_over
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX
from tests.unit.machine.test_layout import query

from slackwater.codec import encode_ordered, encode_source
from slackwater.codec.ordered_records import decode_ordered
from slackwater.host import driven as driven_module
from slackwater.host.driven import Driven, SessionEndedError
from slackwater.host.driver import Driver
from slackwater.host.sharedlogs import SharedLogs
from slackwater.host.wake_signal import (
    IDLE_S_MAX,
    PARKED_S_MAX,
    UNSETTLED_S_MAX,
    WakeSignal,
)
from slackwater.model.records import Hole, Kind, OrderedRecord, OrdererState, Position
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.sunion.config import OrdererConfig
from slackwater.runtime.logs.transport import Log, read_to_end
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.runtime.service.state import read_states
from slackwater.sessions.effects import Effect, FetchEnds, FetchPositions
from slackwater.sessions.events import EndsFetched, LiveAt, PassedBy, PositionsFetched, SessionEvent
from slackwater.sessions.orderer import GATHER_US_MAX, OrdererSession

SOURCE = ("sw.source.s1", 0)
TICKS = 30


class Others:
    """Heartbeats: those sent by a session, and those of others."""

    def __init__(self) -> None:
        self.reported: list[dict[str, Any]] = []
        self.holes: set[Hole] = set()
        self.claim: int | None = None
        self.refuted: list[int] = []

    def update(self, **reported: Any) -> None:
        self.reported.append(reported)

    def last_heartbeat(self, *_: Any) -> None: ...

    def claimed(self, *_: Any) -> int | None:
        return self.claim

    def refute(self, _: str, claimed: int) -> None:
        self.claim = None
        self.refuted.append(claimed)

    def hole_in(self, topic: str, partition: int, inc: int) -> bool:
        return Hole(topic, partition, inc) in self.holes


class Process:
    """A driver, and its live consumer. It begins at time 0, where a stopped clock stays."""

    def __init__(self, replicas: int, *, stopped: bool = False) -> None:
        self.broker = MemoryBroker()
        for topic in (SOURCE[0], "sw.state.q", "sw.registry"):
            self.broker.create_topic(topic)
        self.broker.create_topic("sw.ordered.q.0", 2 * replicas)
        self.turns = WakeSignal()
        began_us = time.monotonic_ns() // 1_000
        self.stopped_at_us = began_us if stopped else None
        """Time at which the clock is stopped."""

        def monotonic_us() -> int:
            return self.stopped_at_us or time.monotonic_ns() // 1_000

        self.clock = SystemClock(
            wall_us=lambda: monotonic_us() - began_us, monotonic_us=monotonic_us
        )
        self.driver = Driver(self.turns, self.clock)
        self.others = [Others() for _ in range(replicas)]
        self.driven = [self.hosted(replica, replicas) for replica in range(replicas)]

    def hosted(self, replica: int, replicas: int) -> Driven:
        settings, letter = Settings(), "abc"[replica]
        session = OrdererSession(
            "q",
            OrdererConfig(
                f"orderer/q.0.{letter}", 0, replica, ("s1",), ("s1",), settings.grid,
                settings.schedule(1), replicas=replicas,
            ),
            settings.operators(1),
            sources=[SOURCE],
            own=(("sw.ordered.q.0", 2 * replica), ("sw.ordered.q.0", 2 * replica + 1)),
            start_time=0,
            parts=1,
            save_period_us=10 * MS,
        )  # fmt: skip
        others = cast(Any, self.others[replica])
        return Driven(
            session,
            self.broker,
            others,
            others,
            end_timeout_us=25 * MS,
            wake=self.turns.wake,
            clock=self.clock,
        )

    async def start(self) -> asyncio.Task[None]:
        for driven in self.driven:
            await driven.start()
            self.driver.add(driven)
        return asyncio.create_task(self.driver.run())

    def emit(self) -> None:
        """Write readings of some seconds, passed on as by the live consumer."""
        source = Source("s1")
        for at in range(100, TICKS * 100 + 1, 100):
            source.emit([at - 50], at)
        writer = self.broker.writer(pytest.fail)
        for offset, record in enumerate(source.log):
            writer.append(*SOURCE, encode_source(record))
            for driven in self.driven:
                hand_over(driven, SOURCE, offset, encode_source(record))

    def stable(self, replica: int) -> list[OrderedRecord]:
        log = ("sw.ordered.q.0", 2 * replica)
        return [decode_ordered(raw.value) for raw in read_to_end(self.broker, log)]

    def state(self, replica: int) -> OrdererState | None:
        state = read_states(self.broker, "q", 1).get(f"orderer/q.0.{'abc'[replica]}")
        assert state is None or isinstance(state, OrdererState)
        return state


async def until(holds: Callable[[], object], running: asyncio.Task[None]) -> None:
    """Wait for it, or raise the driver's error."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not holds():
            await asyncio.wait([running], timeout=0.01)
            if running.done():
                running.result()


async def stop(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_two_sessions_in_one_loop_write_the_same_each_into_its_log() -> None:
    process = Process(2)
    running = await process.start()
    process.emit()
    end = TICKS * 100 * MS
    await until(lambda: all(process.stable(r)[-1].bucket_end == end for r in (0, 1)), running)
    contents = [
        [(r.kind, r.bucket_start, r.keys) for r in process.stable(replica)] for replica in (0, 1)
    ]
    assert contents[0] == contents[1]
    assert contents[0][0][0] is Kind.START
    await until(lambda: all((s := process.state(r)) and s.frontier == end for r in (0, 1)), running)
    await stop(running)
    for others in process.others:
        assert others.reported[0]["states"] == {"sw.ordered.q.0": "UP_FAILURE"}, (
            "it reads nothing yet"
        )
        assert others.reported[-1]["ready"]


async def test_a_session_that_finds_another_writer_ends_the_loop() -> None:
    process = Process(1)
    running = await process.start()
    other = OrderedRecord(Kind.START, 0, 0, -1, 0, 0, frontier=Position(0))
    process.broker.writer(pytest.fail).append("sw.ordered.q.0", 0, encode_ordered(other))
    process.emit()
    with pytest.raises(SessionEndedError, match=r"another writer .* orderer/q\.0\.a"):
        await until(lambda: False, running)


@pytest.mark.parametrize("is_true", [False, True])
async def test_a_claim_ends_the_loop_if_it_is_true(is_true: bool) -> None:
    process = Process(1)
    running = await process.start()
    process.broker.writer(pytest.fail).append(
        "sw.ordered.q.0",
        0,
        encode_ordered(OrderedRecord(Kind.START, 0, 0, -1, 0, 0, frontier=Position(0))),
    )
    process.others[0].claim = 1 if is_true else 7
    if is_true:
        with pytest.raises(SessionEndedError, match="runs elsewhere"):
            await until(lambda: False, running)
        return
    await until(lambda: process.others[0].refuted, running)
    await stop(running)
    # It may be checked once more before it is known to be false.
    assert set(process.others[0].refuted) == {7}


async def test_a_hole_ends_the_loop_when_the_state_to_go_on_from_is_in_its_log() -> None:
    process = Process(1)
    definition = QueryDefinition("q", 0, 0, 1, query("q", "s1"))
    Registry(process.broker).publish_queries(definition)
    running = await process.start()
    process.emit()
    await until(lambda: process.state(0) is not None, running)
    process.others[0].holes.add(Hole("sw.ordered.q.0", 0, 0))
    with pytest.raises(SessionEndedError, match=r"a reader reported a hole in sw\.ordered\.q\.0:0"):
        await until(lambda: False, running)
    state = process.state(0)
    assert state is not None
    assert (state.frontier, state.stable_offset) == (0, len(process.stable(0)))


async def test_a_log_that_cannot_be_written_ends_the_loop() -> None:
    process = Process(1)
    running = await process.start()
    process.driven[0]._cannot_write("the broker refuses")
    with pytest.raises(SessionEndedError, match="the broker refuses"):
        await until(lambda: False, running)


async def test_what_is_dropped_writes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A procedure of it may be in another thread at that time: its START would be a zombie's."""
    process = Process(2)
    for driven in process.driven:
        await driven.start()
    written = process.driven[0]._writer
    closed: list[float] = []
    monkeypatch.setattr(written, "close", closed.append)
    process.driven[0].drop()
    assert closed == [0.0], "it waits for nothing"
    unstarted = Process(1).driven[0]
    unstarted.drop()
    with pytest.raises(SessionEndedError, match="has been dropped"):
        unstarted._writer.close()


async def test_input_makes_a_session_due_and_only_the_one_that_it_is_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for longest in ("IDLE_S_MAX", "UNSETTLED_S_MAX"):
        monkeypatch.setattr(driven_module, longest, 1_000.0)
    # A session's first deadline of its own is at 100 ms, before which a busy machine may not come
    # to the input.
    process = Process(2, stopped=True)
    running = await process.start()
    now = process.clock.now_us()
    await until(lambda: all(driven.due_at > now for driven in process.driven), running)
    one, other = process.driven
    before = other.due_at
    source = Source("s1")
    source.emit([50], 400)
    hand_over(one, SOURCE, 0, encode_source(source.log[0]))
    assert (one.due_at, other.due_at) == (process.clock.now_us() + GATHER_US_MAX, before)
    hand_over(one, SOURCE, 1, encode_source(source.log[1]))
    assert (one.due_at, other.due_at) == (0, before), "that one completes a bucket"
    await until(lambda: one.due_at > 0, running)
    assert other.due_at == before
    await stop(running)


@pytest.mark.parametrize("step", ["needs", "take"])
async def test_what_a_session_raises_at_a_record_takes_the_record_from_nobody(step: str) -> None:
    process, received = Process(3), list[int]()
    one, *others = process.driven

    def raises(*_given: Any) -> bool:
        raise RuntimeError("spoilt")

    def receives(_event: SessionEvent) -> int | None:
        received.append(1)
        return None

    setattr(one.session, step, raises)
    for other in others:
        setattr(other.session, "take", receives)  # noqa: B010 -- mypy
    consumer = SimpleNamespace(add=AsyncMock())
    logs = SharedLogs(cast(Any, consumer))
    for driven in process.driven:
        await driven.start()
    logs.join(process.driven)
    await logs.settle()
    hand_over_record = consumer.add.await_args.args[1]
    try:
        hand_over_record(SOURCE, 0, encode_source(Source("s1").log[0]))
    except RuntimeError:
        pytest.fail("it ends whoever hands over")
    assert len(received) == 2
    with pytest.raises(RuntimeError, match="spoilt"):
        one.turn()


def test_a_session_learns_of_a_record_that_it_does_not_need() -> None:
    """Its cursors are attached where the live consumer is (rule-12)."""
    driven, reported = Process(1).driven[0], list[SessionEvent]()
    driven.session = cast(
        Any, SimpleNamespace(needs=lambda _, offset: offset > 7, take=reported.append)
    )
    assert [driven.needs(SOURCE, offset) for offset in (7, 8)] == [False, True]
    assert reported == [PassedBy(SOURCE, 7)]


async def test_one_that_fails_in_its_turn_leaves_the_loop_to_the_others() -> None:
    process = Process(2)
    failed: asyncio.Future[Driven] = asyncio.get_running_loop().create_future()
    process.driver = Driver(process.turns, process.clock, lambda one, _: failed.set_result(one))
    running = await process.start()
    process.driven[0].fail(RuntimeError("spoilt"))
    waited: set[asyncio.Future[Any]] = {running, failed}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    assert not running.done()
    assert failed.result() is process.driven[0]
    process.emit()
    end = TICKS * 100 * MS
    await until(lambda: process.stable(1)[-1].bucket_end == end, running)
    await stop(running)


async def test_what_stands_still_takes_nothing_in_and_no_turn() -> None:
    process = Process(1)
    driven = process.driven[0]
    await driven.start()
    assert driven.needs(SOURCE, 0)
    driven.hold()
    assert not driven.needs(SOURCE, 0)
    stepped: list[int] = []
    step = driven.session.step

    def noted(now: int) -> Sequence[Effect]:
        stepped.append(now)
        return step(now)

    driven.session.step = noted  # type: ignore[method-assign]
    driven.turn()
    assert not stepped
    driven.release()
    assert driven.needs(SOURCE, 0)
    driven.turn()
    assert stepped


async def test_ends_count_for_the_moment_at_which_they_were_asked() -> None:
    """Records appended while the request was pending would count as read (trace-11)."""
    process = Process(1)
    driven = process.driven[0]
    process.stopped_at_us = time.monotonic_ns() // 1_000
    asked_at = process.clock.now_us()

    async def answered(logs: Sequence[Log], **_how: Any) -> dict[Log, int]:
        assert process.stopped_at_us is not None
        process.stopped_at_us += 20 * MS
        return dict.fromkeys(logs, 7)

    reported: list[SessionEvent] = []
    driven.session = cast(Any, SimpleNamespace(take=reported.append))
    driven._ends = cast(Any, SimpleNamespace(end_offsets_async=answered))
    driven._carry_out([FetchEnds((SOURCE,))])
    await asyncio.gather(*driven._tasks)
    assert reported == [EndsFetched({SOURCE: 7}, asked_at)]


async def test_a_session_receives_the_positions_that_it_requested() -> None:
    """The live consumer reads other logs for others."""
    driven, reported = Process(1).driven[0], list[SessionEvent]()

    async def positions(_: Driven) -> dict[Log, int]:
        return {SOURCE: 4, ("sw.source.s2", 0): 9}

    driven.session = cast(Any, SimpleNamespace(take=reported.append))
    driven._positions = positions
    driven._carry_out([FetchPositions((SOURCE,))])
    await asyncio.gather(*driven._tasks)
    assert reported == [PositionsFetched({SOURCE: 4})]


async def test_what_cannot_be_written_makes_a_session_due_that_waits_for_something_else() -> None:
    process = Process(1)
    driven = process.driven[0]
    await driven.start()
    driven.due_at = 10**12
    await asyncio.to_thread(driven._cannot_write, "the broker refuses it")
    await asyncio.sleep(0)
    assert driven.due_at == 0
    async with asyncio.timeout(20):
        await process.turns._woken.wait()
    with pytest.raises(SessionEndedError, match="the broker refuses it"):
        driven.turn()


@pytest.mark.parametrize(
    ("wanted", "undelivered", "wake_at", "state", "longest_s"),
    [
        ({}, 0, 10**12, LineState.STABLE, IDLE_S_MAX),
        ({}, 1, 10**12, LineState.STABLE, UNSETTLED_S_MAX),
        ({}, 0, None, LineState.STABLE, UNSETTLED_S_MAX),
        ({}, 0, 10**12, LineState.UP_FAILURE, UNSETTLED_S_MAX),
        ({SOURCE: 0}, 0, 10**12, LineState.STABLE, PARKED_S_MAX),
    ],
)
def test_only_what_wakes_nobody_is_looked_for(
    wanted: dict[Any, int],
    undelivered: int,
    wake_at: int | None,
    state: LineState,
    longest_s: float,
) -> None:
    driven = Process(1).driven[0]
    session = SimpleNamespace(wanted=lambda: wanted, wake_at=wake_at, state=state.value)
    driven.session, driven._undelivered = cast(Any, session), undelivered
    assert driven._longest_s() == longest_s


async def test_a_parked_cursor_passes_what_a_strangers_transaction_leaves_in_a_source_log() -> None:
    """The marker takes an offset that is invisible to readers, and there will never be a record."""
    process = Process(1)
    running = await process.start()
    source = Source("s1")
    for at in range(100, TICKS * 100 + 1, 100):
        source.emit([at - 50], at)
    writer = process.broker.writer(pytest.fail)
    for n, record in enumerate(source.log):
        writer.append(*SOURCE, encode_source(record))
        if n in {3, 4, len(source.log) - 1}:
            with process.broker.transaction() as strangers:
                strangers.append(*SOURCE, b"stray")
    # The consumer is already at the end, so all records are from the catch-up reader.
    process.driven[0].session.take(LiveAt(SOURCE, process.broker.end_offsets([SOURCE])[SOURCE]))
    await until(lambda: process.stable(0)[-1].bucket_end == TICKS * 100 * MS, running)
    await stop(running)
    core = cast(OrdererSession, process.driven[0].session).core
    assert not any(cursor.gaps for cursor in core.logs.stable), "nothing is lost"


# --- whose turn it is -----------------------------------------------------------------------------


class Due:
    """A session that is always due, and records its turns."""

    def __init__(self, name: str, taken: list[str], enough: asyncio.Event, turns: int) -> None:
        self.name, self.taken, self.enough, self.turns = name, taken, enough, turns
        self.session = SimpleNamespace(fragment=name)
        self.is_root = name.startswith("root/")
        self.turn_at = 0

    def turn(self) -> None:
        self.taken.append(self.name)
        if len(self.taken) >= self.turns:
            self.enough.set()


async def order_of(names: Sequence[str], turns: int) -> list[str]:
    """Return the first turns of a driver with these sessions, all of which are always due."""
    taken: list[str] = []
    enough = asyncio.Event()
    driver = Driver(WakeSignal(), SystemClock(wall_us=lambda: 1), choose=random.Random(7).choice)
    for name in names:
        driver.add(cast(Any, Due(name, taken, enough, turns)))
    task = asyncio.create_task(driver.run())
    await enough.wait()
    task.cancel()
    return taken[:turns]


async def test_roots_and_orderers_take_turns() -> None:
    """A root that reads a long backlog is always due."""
    taken = await order_of(["orderer/q.0.a", "root/q.0", "orderer/r.0.a"], 100)
    assert {name.startswith("root/") for name in taken[::2]} == {taken[0] == "root/q.0"}
    assert taken.count("root/q.0") == 50
    assert set(taken) == {"orderer/q.0.a", "root/q.0", "orderer/r.0.a"}


async def test_no_session_is_always_last() -> None:
    """In a fixed order the same query would be answered last at each bucket's end."""
    names = [f"orderer/q{i}.0.a" for i in range(5)]
    taken = await order_of(names, 500)
    assert min(taken.count(name) for name in names) > 50
    assert len({tuple(taken[i : i + 3]) for i in range(0, 500, 3)}) > 20, "in no fixed order"


@pytest.mark.parametrize(
    ("waited_before_ms", "waited_in_it_ms", "used_ms", "counted_ms"),
    [(0, 0, 200, 200), (150, 0, 200, 200), (150, 80, 120, 120), (0, 80, 20, 120)],
)
def test_a_long_turn_is_not_shortened_by_the_waits_of_earlier_ones(
    waited_before_ms: int, waited_in_it_ms: int, used_ms: int, counted_ms: int
) -> None:
    """A loop that is never idle reads the wait after long turns only; each turn here is 200 ms."""
    now_us, waited_us, used_us, counted = 0, waited_before_ms * MS, 0, []

    def turn() -> None:
        nonlocal now_us, waited_us, used_us
        now_us += 200 * MS
        waited_us += waited_in_it_ms * MS
        used_us += used_ms * MS
        raise SessionEndedError("the only turn")

    async def main() -> None:
        ended = asyncio.Event()
        wait = SimpleNamespace(waited_us=lambda: waited_us, used_us=lambda: used_us)
        driver = Driver(
            WakeSignal(),
            SystemClock(wall_us=lambda: now_us, monotonic_us=lambda: now_us),
            lambda *_: ended.set(),
            lambda _, lasted_us: counted.append(lasted_us),
            wait=cast(Any, wait),
        )
        session = SimpleNamespace(fragment="root/q.0")
        driver.add(cast(Any, SimpleNamespace(turn=turn, turn_at=0, is_root=True, session=session)))
        running = asyncio.create_task(driver.run())
        await ended.wait()
        running.cancel()

    asyncio.run(main())
    assert counted == [counted_ms * MS]
