"""A host on a broker in memory: its fragments share the logs that are read, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from tests.paper.stage import MS, Settings, Source
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.codec import encode_source
from slackwater.codec.ordered_records import decode_ordered
from slackwater.codec.result_batches import ResultStream
from slackwater.codec.results import ResultHead, ResultRows, encode_boundary, encode_rows
from slackwater.host.app import commands_of
from slackwater.host.decoding import decode
from slackwater.host.faust_worker import Receive
from slackwater.host.fragment import Fragment
from slackwater.host.host import IN_FLIGHT_BYTES_MAX, PREFETCH_KIB_MAX, Host, HostShared
from slackwater.host.longturns import ENDLESS_LOOKS
from slackwater.host.threads import in_thread
from slackwater.host.wake_signal import WakeSignal
from slackwater.model.errors import EnvironmentProblem, HeldTooMuchError
from slackwater.model.records import Kind, OrderedRecord
from slackwater.primitives.aggregates import AggregateColumns
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import StableWindow
from slackwater.protocols.dpc.sunion.config import OrdererConfig
from slackwater.runtime.logs.transport import (
    Isolation,
    Log,
    LogError,
    PositionGoneError,
    read_to_end,
)
from slackwater.runtime.service.back_off import BackOff
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.parts import (
    ENDLESS_TURN,
    FAILED_CODE,
    FAILURES,
    HELD_BYTES,
    HELD_BYTES_MAX,
    LONG_TURN_MS,
)
from slackwater.sessions.effects import Rebuild
from slackwater.sessions.events import (
    LiveAt,
    Received,
    RecordDelivered,
    ResignRequested,
    SessionEvent,
)
from slackwater.sessions.orderer import OrdererSession

# Waits are for conditions, so a busy machine causes no failure.

SOURCE = ("sw.source.s1", 0)
TICK_MS = 100
STABLE_RESULTS, TENTATIVE_RESULTS = ("sw.results.up.stable", 0), ("sw.results.up.tentative", 0)
RESULTS = ResultStream("up", 0, ("v",), ("count",), TICK_MS * MS)


class Consumer:
    """Reads the broker in memory like the live consumer: in the event loop, log by log."""

    def __init__(self, broker: MemoryBroker) -> None:
        isolations: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
        self._readers = {each: broker.reader(isolation=each) for each in isolations}
        self._receive: Receive | None = None
        self.begun: list[dict[Log, int]] = []
        self.handed: dict[Log, list[int]] = {}

    async def add(
        self,
        offsets: Mapping[Log, int],
        receive: Receive,
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> None:
        await asyncio.sleep(0)
        self._receive = receive
        self.begun.append(dict(offsets))
        self._readers[isolation].assign(offsets)

    async def remove(self, logs: Iterable[Log]) -> None:
        await asyncio.sleep(0)
        left = list(logs)
        for reader in self._readers.values():
            reader.unassign(left)

    async def positions(self) -> dict[Log, tuple[int, int]]:
        return {
            log: (reader.position(log), self.handed.get(log, [-1])[-1])
            for reader in self._readers.values()
            for log in reader.assigned
        }

    @property
    def reads(self) -> set[Log]:
        return {log for reader in self._readers.values() for log in reader.assigned}

    async def run(self) -> None:
        while True:
            for raw in [raw for reader in self._readers.values() for raw in reader.poll(10)]:
                self.handed.setdefault(raw.log, []).append(raw.offset)
                assert self._receive is not None
                self._receive(raw.log, raw.offset, raw.value)
            await asyncio.sleep(0.002)


class Beat:
    """The heartbeats of a fragment, over its lives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.to_heartbeat: dict[str, Any] = {}
        self.lasting: dict[str, int] = {}
        self.lives = 1
        self.is_silent = self.has_ended = False
        self.course: list[str] = []

    def update(self, **reported: Any) -> None:
        self.to_heartbeat |= {key: value for key, value in reported.items() if value is not None}

    def begin_again(self, lasting: Mapping[str, int] | None = None) -> None:
        self.lasting |= lasting or {}
        self.to_heartbeat = {}
        self.lives += 1

    def keep_reporting(self, lasting: Mapping[str, int]) -> None:
        self.lasting |= lasting

    def hold(self) -> None:
        self.is_silent = True

    def release(self) -> None:
        self.is_silent = False

    def stop(self) -> None:
        self.has_ended = True
        self.course.append("ended")


class NoPeers:
    """No peers send heartbeats."""

    def last_heartbeat(self, *_: Any) -> None: ...

    def claimed(self, *_: Any) -> None: ...

    def hole_in(self, *_: Any) -> bool:
        return False


class World:
    """A broker, a stream with readings, and a host of orderers ``orderer/q<n>.0.a`` over it."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        for topic in (SOURCE[0], STABLE_RESULTS[0], TENTATIVE_RESULTS[0]):
            self.broker.create_topic(topic)
        began_us = time.monotonic_ns() // 1_000
        self.slept_us = 0
        """Time that passes without a waiting task."""

        def monotonic_us() -> int:
            return time.monotonic_ns() // 1_000 + self.slept_us

        self.clock = SystemClock(
            wall_us=lambda: monotonic_us() - began_us, monotonic_us=monotonic_us
        )
        self.source = Source("s1")
        self.sent = 0
        self.beats: dict[str, Beat] = {}
        self.made: list[str] = []
        self.before_making: Callable[[str], None] = lambda name: None
        self.spoil: Callable[[OrdererSession], None] = lambda session: None
        self.consumer = Consumer(self.broker)
        self.is_chain = False
        self.ahead_bytes_max = 256 << 20
        shared = HostShared(
            transport=self.broker,
            producer=self.broker.producer(in_flight_bytes_max=1 << 20),
            listener=cast(Any, NoPeers()),
            sender=cast(Any, self._begin_beat),
            make=self._make,
            clock=self.clock,
        )
        self.host = Host(shared, self.consumer, WakeSignal())

    def _beat(self, name: str) -> Beat:
        return self.beats.setdefault(name, Beat(name))

    def _begin_beat(self, name: str) -> Beat:
        self._beat(name).course.append("began")
        return self._beat(name)

    def _make(self, name: str) -> Fragment:
        if self.is_chain:
            return self._make_chained(name)
        self.made.append(name)
        self.before_making(name)
        query = name.partition("/")[2].partition(".")[0]
        settings = Settings()
        session = OrdererSession(
            query,
            OrdererConfig(
                name, 0, 0, ("s1",), ("s1",), Grid(TICK_MS * MS, settings.grid.window),
                settings.schedule(1), ahead_bytes_max=self.ahead_bytes_max,
            ),
            settings.operators(1),
            sources=[SOURCE],
            own=((f"sw.ordered.{query}.0", 0), (f"sw.ordered.{query}.0", 1)),
            start_time=0,
            parts=1,
            save_period_us=20 * MS,
        )  # fmt: skip
        self.spoil(session)
        return Fragment(session, 25 * MS)

    def _make_chained(self, name: str) -> Fragment:
        """Create an orderer over the results of another query."""
        self.made.append(name)
        query = name.partition("/")[2].partition(".")[0]
        settings = replace(Settings(), before=2, stages=4, reads=("v_count",))
        config = OrdererConfig(
            name, 0, 0, (RESULTS.name, f"{RESULTS.name}/tentative"), ("up", "up"),
            settings.grid, settings.schedule(1), results={0: TICK_MS * MS - 1},
        )  # fmt: skip
        session = OrdererSession(
            query,
            config,
            settings.operators(2),
            sources=[STABLE_RESULTS, TENTATIVE_RESULTS],
            own=((f"sw.ordered.{query}.0", 0), (f"sw.ordered.{query}.0", 1)),
            start_time=0,
            parts=1,
            results={0: RESULTS, 1: RESULTS},
            save_period_us=20 * MS,
        )
        return Fragment(session, 25 * MS)

    def answer(self, windows: int) -> None:
        """Write stable answers of the other query, each in a transaction, with its markers."""
        for _ in range(windows):
            start = self.sent * TICK_MS * MS
            self.sent += 1
            with self.broker.transaction() as transaction:
                for key, value in self._window(start):
                    transaction.append(*STABLE_RESULTS, value, key)

    def _window(self, start: int) -> list[tuple[bytes | None, bytes]]:
        figures, end = AggregateColumns(*(np.ones((1, 1)),) * 5), start + TICK_MS * MS
        seq = 2 * start // (TICK_MS * MS)
        head = ResultHead("up", 0)
        answer: StableWindow[Any] = StableWindow(seq, seq + 1, 0, start, end, 0, 1, None, ())
        rows = ResultRows(
            head=head, window=answer, keys=["k"], fields=("v",), figures=figures,
            aggregate=("count",), emitted_at=0,
        )  # fmt: skip
        return [*encode_rows(rows), (None, encode_boundary(head, answer, 0))]

    def take_on(self, *queries: str) -> None:
        for query in queries:
            if (f"sw.state.{query}", 0) not in self.broker._logs:
                self.broker.create_topic(f"sw.state.{query}")
                self.broker.create_topic(f"sw.ordered.{query}.0", 2)
            self._beat(f"orderer/{query}.0.a")
            self.host.take_on(f"orderer/{query}.0.a")

    def emit(self, ticks: int) -> None:
        """Write readings of this many more buckets."""
        writer = self.broker.writer(pytest.fail)
        first = len(self.source.log)
        for _ in range(ticks):
            self.sent += 1
            self.source.emit([self.sent * TICK_MS - 50], self.sent * TICK_MS)
        for record in self.source.log[first:] if self.sent > ticks else self.source.log:
            writer.append(*SOURCE, encode_source(record))

    def stable(self, query: str) -> list[OrderedRecord]:
        log = (f"sw.ordered.{query}.0", 0)
        return [decode_ordered(raw.value) for raw in read_to_end(self.broker, log)]

    def buckets(self, query: str) -> dict[int, int]:
        """Return the numbers of readings in the buckets that readers accept (rule-10)."""
        found: dict[int, int] = {}
        inc = -1
        for offset, record in enumerate(self.stable(query)):
            if record.kind is Kind.START:
                inc = max(inc, offset)
            elif record.inc >= inc and record.bucket_start not in found:
                found[record.bucket_start] = record.readings
        return found

    async def answered(self, *queries: str) -> None:
        """Return whether all readings are ordered, by each of these."""
        end = self.sent * TICK_MS * MS

        def is_ordered(query: str) -> bool:
            written = self.stable(query)
            return bool(written) and written[-1].bucket_end >= end

        await until(lambda: all(map(is_ordered, queries)))

    def expected(self) -> dict[int, int]:
        return {i * TICK_MS * MS: 1 for i in range(self.sent)}


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    world = World()
    tasks = [asyncio.create_task(world.host.run()), asyncio.create_task(world.consumer.run())]
    try:
        yield world
        for task in tasks:
            assert not task.done(), task
    finally:
        for name in world.host.fragments:
            await world.host.remove(name)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not holds():  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.005)


async def test_each_log_is_read_once_and_each_record_decoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[int] = []

    def counted(form: Any, log: Log, offset: int, value: bytes) -> Any:
        decoded.append(offset)
        return decode(form, log, offset, value)

    monkeypatch.setattr("slackwater.host.decoding.decode", counted)
    async with running() as world:
        world.take_on("q1", "q2", "q3")
        await until(lambda: world.consumer.reads == {SOURCE})
        world.emit(20)
        await world.answered("q1", "q2", "q3")
        for query in ("q1", "q2", "q3"):
            assert world.buckets(query) == world.expected()
        records = len(world.source.log)
        assert world.consumer.handed[SOURCE] == list(range(records))
        assert decoded == list(range(records)), "once for all three"
        assert world.consumer.begun == [{SOURCE: 0}]


async def test_those_who_begin_together_have_nothing_to_catch_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log is read from the smallest of their positions; no cursor is parked."""
    monkeypatch.setattr("slackwater.host.host.JOIN_S", WAIT_S_MAX)  # however busy the machine is
    reported: list[str] = []

    def slow(name: str) -> None:
        """Make the third one, in its thread, once both others wait for it, or have read."""
        if name == "orderer/q3.0.a":
            host, consumer = world.host, world.consumer
            eventually(
                lambda: len(host._joining) == 2 or any(consumer.handed.values()), "both join"
            )

    def spoil(session: OrdererSession) -> None:
        complete = session.take

        def take(event: SessionEvent) -> int | None:
            if isinstance(event, LiveAt):
                reported.append(session.fragment)
            return complete(event)

        session.take = take  # type: ignore[method-assign]

    async with running() as world:
        world.emit(20)
        world.spoil, world.before_making = spoil, slow
        world.take_on("q1", "q2", "q3")
        await world.answered("q1", "q2", "q3")
        assert reported == []
        assert world.buckets("q3") == world.expected()


async def test_a_newcomer_reads_what_was_before_it_and_takes_nothing_from_the_others() -> None:
    async with running() as world:
        world.take_on("q1")
        world.emit(20)
        await world.answered("q1")
        world.take_on("q2")
        await until(lambda: world.beats["orderer/q2.0.a"].to_heartbeat.get("ready"))
        world.emit(20)
        await world.answered("q1", "q2")
        assert world.buckets("q2") == world.buckets("q1") == world.expected()
        assert world.consumer.handed[SOURCE] == list(range(len(world.source.log))), "read once"


async def test_a_fragment_that_is_removed_leaves_the_others_and_its_logs() -> None:
    async with running() as world:
        world.take_on("q1", "q2")
        world.emit(10)
        await world.answered("q1", "q2")
        await world.host.remove("orderer/q2.0.a")
        assert world.beats["orderer/q2.0.a"].has_ended
        written = len(world.stable("q2"))
        world.emit(10)
        await world.answered("q1")
        assert world.buckets("q1") == world.expected()
        assert len(world.stable("q2")) == written
        await world.host.remove("orderer/q1.0.a")
        await until(lambda: not world.consumer.reads)
        assert world.host.fragments == ()


def resigning(world: World, name: str, ends_after: int) -> list[str]:
    """Let a fragment resign, and end by itself at a later turn; note what happens."""
    happened: list[str] = []

    def spoil(session: OrdererSession) -> None:
        if session.fragment == name:
            happened.append("life")
            complete, others = session.step, session.take

            def take(event: SessionEvent) -> int | None:
                if not isinstance(event, ResignRequested):
                    return others(event)
                happened.append("resigns")
                return 0

            def step(now: int) -> Any:
                effects = complete(now)
                if "resigns" not in happened:
                    return effects
                happened.append("turn")
                is_last = happened.count("turn") == ends_after
                return [*effects, *([Rebuild("another one has taken over")] if is_last else [])]

            session.take, session.step = take, step  # type: ignore[method-assign]

    world.spoil = spoil
    return happened


@pytest.fixture
def _resigns_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fragment whose end is not noticed would not be removed."""
    monkeypatch.setattr("slackwater.host.host.RESIGN_S_MAX", 10 * WAIT_S_MAX)


@pytest.mark.usefixtures("_resigns_without_a_limit")
async def test_a_fragment_that_is_removed_is_waited_for_until_another_one_has_taken_over() -> None:
    name = "orderer/q2.0.a"
    async with running() as world:
        happened = resigning(world, name, ends_after=3)
        world.take_on("q1", "q2")
        world.emit(3)
        await world.answered("q1", "q2")
        (driven,) = (d for d in world.host.driver._driven if d.session.fragment == name)
        removed = world.host.remove(name)
        while not removed.done():
            driven.make_due_soon()
            world.host.turns.wake()
            await asyncio.sleep(0.001)
        assert happened[:5] == ["life", "resigns", "turn", "turn", "turn"]
        assert world.beats[name].has_ended


async def test_a_fragment_is_told_to_resign_and_runs_on_in_its_host() -> None:
    """So that nodes answer equally many parts; it is built again, and follows (rule-27)."""
    name = "orderer/q2.0.a"
    async with running() as world:
        happened = resigning(world, name, ends_after=2)
        world.take_on("q1", "q2")
        world.emit(3)
        await world.answered("q1", "q2")
        command = commands_of(world.host, asyncio.get_running_loop())
        act = command("resign", name)
        assert act is not None
        act()
        await until(lambda: happened.count("life") == 2)
        assert happened[:4] == ["life", "resigns", "turn", "turn"]
        assert name in world.host.fragments
        assert world.beats["orderer/q1.0.a"].lives == 1


@pytest.mark.usefixtures("_resigns_without_a_limit")
async def test_a_process_that_ends_lets_all_its_fragments_resign_first() -> None:
    name = "orderer/q2.0.a"
    async with running() as world:
        happened = resigning(world, name, ends_after=1)
        world.take_on("q1", "q2")
        world.emit(3)
        await world.answered("q1", "q2")
        await world.host.resign()
        assert happened == ["life", "resigns", "turn"]


@pytest.mark.usefixtures("_resigns_without_a_limit")
async def test_a_process_that_ends_waits_for_a_fragment_that_is_being_removed() -> None:
    """A node removes the last fragment of a host, and ends the host at once."""
    name = "orderer/q2.0.a"
    async with running() as world:
        happened = resigning(world, name, ends_after=1)
        world.take_on("q1", "q2")
        world.emit(3)
        await world.answered("q1", "q2")
        removed = world.host.remove(name)
        await world.host.resign()
        assert removed.done()
        assert happened == ["life", "resigns", "turn"]


async def test_a_fragment_that_nobody_takes_over_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slackwater.host.host.RESIGN_S_MAX", 0.05)
    name = "orderer/q2.0.a"
    async with running() as world:
        happened = resigning(world, name, ends_after=0)
        world.take_on("q1", "q2")
        world.emit(3)
        await world.answered("q1", "q2")
        await world.host.remove(name)
        assert happened[:2] == ["life", "resigns"]
        assert world.beats[name].has_ended


async def test_a_paused_fragment_is_removed_without_a_word() -> None:
    name = "orderer/q2.0.a"
    async with running() as world:
        happened = resigning(world, name, ends_after=1)
        world.take_on("q1", "q2")
        world.emit(3)
        await world.answered("q1", "q2")
        world.host.pause(name)
        await world.host.remove(name)
        assert happened == ["life"]


async def test_a_log_that_could_not_be_removed_is_removed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Although no fragment is added or removed any more."""
    monkeypatch.setattr("slackwater.host.host.REMOVE_AGAIN_S", 0.0)
    asked: list[set[Log]] = []
    async with running() as world:
        remove = world.consumer.remove

        async def refuses(logs: Iterable[Log]) -> None:
            asked.append(set(logs))
            if len(asked) < 3:
                raise LogError("the broker is away")
            await remove(asked[-1])

        world.consumer.remove = refuses  # type: ignore[method-assign]
        world.take_on("q1")
        world.emit(5)
        await world.answered("q1")
        await world.host.remove("orderer/q1.0.a")
        await until(lambda: not world.consumer.reads)
        assert asked == [{SOURCE}] * 3


STEPS = ("needs", Received, "step", "report", LiveAt, "start", "wanted", RecordDelivered)
"""Methods of a session, and events that it takes."""


@pytest.mark.parametrize("step", STEPS)
async def test_a_fragment_that_raises_at_any_step_is_built_anew_and_harms_nobody(
    step: str | type[SessionEvent],
) -> None:
    """Once: it continues at its position. ``LiveAt`` is passed, since another one reads."""
    raised: list[object] = []

    def spoil(session: OrdererSession) -> None:
        if session.fragment != "orderer/q2.0.a" or raised:
            return
        method = step if isinstance(step, str) else "take"
        complete = getattr(session, method)

        def spoilt(*given: Any) -> Any:
            is_due = isinstance(step, str) or isinstance(given[0], step)
            if is_due and world.sent >= 5 and not raised:
                raised.append(step)
                raise RuntimeError(f"spoilt at {step}")
            return complete(*given)

        setattr(session, method, spoilt)

    async with running() as world:
        world.spoil = spoil
        world.take_on("q1")
        world.emit(5)
        await world.answered("q1")
        world.take_on("q2")
        await until(lambda: raised or world.beats["orderer/q2.0.a"].to_heartbeat.get("ready"))
        world.emit(15)
        await world.answered("q1", "q2")
        assert raised == [step]
        assert world.buckets("q1") == world.buckets("q2") == world.expected()
        failed = world.beats["orderer/q2.0.a"]
        assert failed.lasting[FAILURES] == 1
        assert world.beats["orderer/q1.0.a"].lives == 1
        assert sum(record.kind is Kind.START for record in world.stable("q1")) == 1
        assert world.consumer.handed[SOURCE] == list(range(len(world.source.log)))


async def test_one_that_keeps_too_much_is_built_anew_alone_and_tells_how_much_it_was() -> None:
    """The first life releases nothing; the second is correct (rule-12)."""
    ended: list[HeldTooMuchError] = []

    def spoil(session: OrdererSession) -> None:
        if session.fragment != "orderer/q2.0.a" or world.made.count("orderer/q2.0.a") > 1:
            return
        complete = session.step

        def step(now: int) -> Any:
            for cursor in (*session.core.logs.stable, *session.core.logs.live):
                cursor.pass_to = lambda start: None  # type: ignore[method-assign]
            try:
                return complete(now)
            except HeldTooMuchError as error:
                ended.append(error)
                raise

        session.step = step  # type: ignore[method-assign]

    async with running() as world:
        world.ahead_bytes_max = 500
        world.spoil = spoil
        world.take_on("q1", "q2")
        async with asyncio.timeout(WAIT_S_MAX):
            while not ended:
                world.emit(1)
                await asyncio.sleep(0.005)
        await world.answered("q1", "q2")
        assert world.buckets("q1") == world.buckets("q2") == world.expected()
        leaked, well = world.beats["orderer/q2.0.a"], world.beats["orderer/q1.0.a"]
        reported = {
            name: leaked.lasting.get(name) for name in (FAILURES, HELD_BYTES, HELD_BYTES_MAX)
        }
        (error,) = ended
        assert reported == {FAILURES: 1, HELD_BYTES: error.held, HELD_BYTES_MAX: 500}
        assert (leaked.lives, well.lives) == (2, 1)


class NoWait:
    """The wait of a thread that always has its core."""

    def used_us(self) -> int:
        return 0

    def waited_us(self) -> int:
        return 0


def sleeping(world: World, fragment: str) -> list[int]:
    """Each step takes 200 ms; return the times at which steps ended.

    These 200 ms pass on the world's clock alone. The host subtracts from a turn what its thread has
    waited for a core, up to the turn's length: the real waits of earlier turns, on a busy machine.
    """
    ended: list[int] = []
    world.host.driver._wait = cast(Any, NoWait())

    def spoil(session: OrdererSession) -> None:
        if session.fragment == fragment:
            complete = session.step

            def slow(now: int) -> Any:
                world.slept_us += 200 * MS
                ended.append(world.clock.monotonic_us())
                return complete(now)

            session.step = slow  # type: ignore[method-assign]

    world.spoil = spoil
    return ended


async def found(world: World, fragment: str) -> None:
    """Its host reports that its turns are too long."""
    while LONG_TURN_MS not in world.beats[fragment].lasting:
        world.emit(1)
        await asyncio.sleep(0.005)


async def test_a_fragment_with_too_long_turns_is_reported_and_has_a_twentieth_of_the_time() -> None:
    async with running() as world:
        steps = sleeping(world, "orderer/q2.0.a")
        world.take_on("q1", "q2")
        async with asyncio.timeout(WAIT_S_MAX):
            await found(world, "orderer/q2.0.a")
        assert world.beats["orderer/q2.0.a"].lasting[LONG_TURN_MS] >= 200
        taken = len(steps)
        for _ in range(10):
            world.emit(1)
            await world.answered("q1")
        # On a slow machine it may have had another turn, but not before its time.
        assert all(b - a >= 19 * 200 * MS for a, b in pairwise(steps[taken - 1 :]))
        assert LONG_TURN_MS not in world.beats["orderer/q1.0.a"].lasting
        world.slept_us += 20 * 200 * MS
        await until(lambda: len(steps) > taken)
        await world.host.remove("orderer/q2.0.a")
        await world.answered("q1")
        assert world.buckets("q1") == world.expected()


async def test_a_fragment_that_is_alone_in_its_host_delays_nobody_and_is_not_held_back() -> None:
    async with running() as world:
        steps = sleeping(world, "orderer/q2.0.a")
        world.take_on("q2")
        async with asyncio.timeout(WAIT_S_MAX):
            await found(world, "orderer/q2.0.a")
        taken = len(steps)
        world.emit(10)
        await world.answered("q2")
        await until(lambda: len(steps) > taken + 2)
        assert min(b - a for a, b in pairwise(steps[taken - 1 :])) < 19 * 200 * MS
        assert world.buckets("q2") == world.expected()


async def test_a_turn_that_does_not_end_is_reported_while_the_loop_is_stuck_in_it() -> None:
    name, seen = "orderer/q2.0.a", []
    stuck, goes_on = threading.Event(), threading.Event()

    def look() -> None:
        """The heartbeats' thread."""
        assert stuck.wait(WAIT_S_MAX)
        for _ in range(ENDLESS_LOOKS + 1):
            seen.append(world.beats[name].lasting.get(ENDLESS_TURN))
            world.host.look()
        seen.append(world.beats[name].lasting.get(ENDLESS_TURN))
        goes_on.set()

    def spoil(session: OrdererSession) -> None:
        if session.fragment == name:
            complete = session.step

            def step(now: int) -> Any:
                stuck.set()
                assert goes_on.wait(WAIT_S_MAX)
                return complete(now)

            session.step = step  # type: ignore[method-assign]

    async with running() as world:
        world.spoil = spoil
        thread = threading.Thread(target=look)
        thread.start()
        world.take_on("q1", "q2")
        world.emit(3)
        await world.answered("q1", "q2")
        thread.join()
        assert seen == [None] * (ENDLESS_LOOKS + 1) + [1]
        assert ENDLESS_TURN not in world.beats["orderer/q1.0.a"].lasting


async def test_a_fragment_that_is_removed_and_added_at_once_begins_behind_its_end() -> None:
    name = "orderer/q2.0.a"

    def begun(lives: int) -> bool:
        return world.made.count(name) >= lives

    async with running() as world:
        world.take_on("q1", "q2")
        await until(partial(begun, 1))
        command = commands_of(world.host, asyncio.get_running_loop())
        for round_ in range(20):
            world.emit(3)
            if round_ % 2:  # every second time at the start
                await until(lambda: world.beats[name].to_heartbeat.get("ready"))
            for verb in ("remove", "add"):
                act = command(verb, name)
                assert act is not None
                act()
            await until(partial(begun, round_ + 2))
        world.emit(3)
        await world.answered("q1", "q2")
        assert world.buckets("q1") == world.buckets("q2") == world.expected()
        assert world.beats["orderer/q1.0.a"].lives == 1
        assert world.consumer.handed[SOURCE] == list(range(len(world.source.log)))
        assert world.beats[name].course == ["began", "ended"] * 20 + ["began"]


async def test_commands_that_fit_nothing_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as world:
        world.take_on("q1")
        command = commands_of(world.host, asyncio.get_running_loop())
        for verb, name in (("eat", "orderer/q1.0.a"), ("add", "orderer/q1"), ("add", "proxy/s1")):
            assert command(verb, name) is None
        with caplog.at_level(logging.WARNING):
            for verb, name in (("add", "orderer/q1.0.a"), ("kill", "orderer/q2.0.a")):
                act = command(verb, name)
                assert act is not None
                act()
            await until(lambda: len(caplog.records) == 2)
        assert world.host.fragments == ("orderer/q1.0.a",)
        world.emit(3)
        await world.answered("q1")


async def test_one_that_raises_each_time_is_retried_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_topic(name: str) -> None:
        if name == "orderer/q2.0.a":
            raise EnvironmentProblem("there is no such topic")

    async with running() as world:
        world.before_making = no_topic
        world.take_on("q1", "q2")
        await until(lambda: world.beats["orderer/q2.0.a"].lasting.get(FAILURES) == 2)
        assert world.beats["orderer/q2.0.a"].lasting[FAILED_CODE] == 3
        assert not world.beats["orderer/q2.0.a"].to_heartbeat.get("ready")
        world.emit(10)
        await world.answered("q1")
        assert world.buckets("q1") == world.expected()
        world.before_making = lambda name: None
        await world.answered("q2")
        assert world.buckets("q2") == world.expected()


async def test_repeated_failures_wait_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would occupy the loop, and restart hundreds of times a second."""
    waits: list[float] = []
    after_death = BackOff.after_death

    def noted(back_off: BackOff, _now_s: float) -> float:
        waits.append(after_death(back_off, 0.0))
        return 0.0

    def fails(name: str) -> None:
        raise EnvironmentProblem("there is no such topic")

    monkeypatch.setattr(BackOff, "after_death", noted)
    async with running() as world:
        world.before_making = fails
        world.take_on("q1")
        await until(lambda: len(waits) >= 4)
    assert waits[:4] == [0.0, 0.5, 1.0, 2.0]


async def test_each_life_has_a_session_and_an_incarnation_of_its_own() -> None:
    sessions: list[OrdererSession] = []
    async with running() as world:
        world.spoil = sessions.append
        world.take_on("q1")
        world.emit(3)
        await world.answered("q1")
        beat = world.beats["orderer/q1.0.a"]
        first = beat.to_heartbeat["inc"]
        world.host.kill("orderer/q1.0.a")
        await until(lambda: beat.lives > 1 and "inc" in beat.to_heartbeat)
        assert len(sessions) == 2
        assert beat.to_heartbeat["inc"] > first
        await until(lambda: beat.to_heartbeat.get("ready"))
        assert [driven.session for driven in world.host.driver._driven] == sessions[1:]
        assert world.host.fragments == ("orderer/q1.0.a",)


async def test_fragments_share_the_memory_of_their_host() -> None:
    """For data in flight to the broker, and for prefetched data."""
    asked: list[int] = []
    async with running() as world:
        complete = world.broker.reader

        def reader(*, prefetch_kib_max: int = 0, **how: Any) -> Any:
            asked.extend([prefetch_kib_max] if prefetch_kib_max else [])
            return complete(**how)

        world.broker.reader = reader  # type: ignore[method-assign]
        world.take_on(*(f"q{n}" for n in range(8)))
        await until(lambda: all(beat.to_heartbeat.get("ready") for beat in world.beats.values()))
        driven = world.host.driver._driven
        assert len(driven) == 8
        bounds = [each._writer.in_flight_bytes_max for each in driven]
        assert 0 < sum(bounds) <= IN_FLIGHT_BYTES_MAX
        parked = [each._parked._readers.values() for each in driven]
        for catch_up in (catch_up for readers in parked for catch_up in readers):
            catch_up.want({SOURCE: 0})  # it is created on demand
        assert len(asked) == 2 * len(driven)
        assert 0 < sum(asked) <= PREFETCH_KIB_MAX


async def test_one_that_is_paused_while_it_waits_for_others_is_handed_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slackwater.host.host.JOIN_S", WAIT_S_MAX)
    goes_on = threading.Event()

    def waits(name: str) -> None:
        if name == "orderer/q2.0.a":
            assert goes_on.wait(WAIT_S_MAX)

    async with running() as world:
        world.before_making = waits
        world.take_on("q1", "q2")
        await until(lambda: world.host._joining)
        (paused,) = world.host._joining
        world.host.pause("orderer/q1.0.a")
        goes_on.set()
        await until(lambda: world.beats["orderer/q2.0.a"].to_heartbeat.get("ready"))
        assert not world.host.logs.reads(paused)
        world.emit(5)
        await world.answered("q2")
        world.host.resume("orderer/q1.0.a")
        await world.answered("q1")
        assert world.buckets("q1") == world.buckets("q2") == world.expected()


async def test_what_was_made_for_nobody_is_given_back() -> None:
    """Its fragment was dropped while it was being created, in a thread that cannot be stopped."""
    goes_on, given_back = threading.Event(), list[str]()

    def make() -> str:
        assert goes_on.wait(WAIT_S_MAX)
        return "made"

    before = set(threading.enumerate())
    waiting = asyncio.create_task(in_thread(make, given_back.append))
    await until(lambda: set(threading.enumerate()) - before)
    (thread,) = set(threading.enumerate()) - before
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    goes_on.set()
    await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)
    assert given_back == ["made"]


async def test_what_is_made_in_the_moment_of_the_drop_is_given_back_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result is there, and the caller is cancelled before it has its turn."""
    loop, given_back = asyncio.get_running_loop(), list[str]()
    create = loop.create_future

    def cancelling() -> asyncio.Future[Any]:
        result = create()
        result.add_done_callback(lambda _: waiting.cancel())
        return result

    monkeypatch.setattr(loop, "create_future", cancelling)
    waiting = asyncio.create_task(in_thread(lambda: "made", given_back.append))
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert given_back == ["made"]


async def test_a_fragment_killed_twenty_times_loses_and_doubles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slackwater.runtime.service.back_off.BackOff.after_death", lambda *_: 0.0)
    name = "orderer/q2.0.a"

    def lives(count: int) -> bool:
        return world.beats[name].lives == count

    async with running() as world:
        world.take_on("q1", "q2")
        for killed in range(1, 21):
            world.emit(3)
            await until(partial(lives, killed))
            if killed % 2:  # every second time at the start
                await until(lambda: world.beats[name].to_heartbeat.get("ready"))
            world.host.kill(name)
        await until(lambda: world.beats[name].lives == 21)
        world.emit(3)
        await world.answered("q1", "q2")
        assert world.buckets("q1") == world.buckets("q2") == world.expected()
        assert FAILURES not in world.beats[name].lasting, "it did not fail"
        assert world.beats["orderer/q1.0.a"].lives == 1
        assert world.consumer.handed[SOURCE] == list(range(len(world.source.log)))


async def test_a_kill_between_two_lives_is_answered_by_a_later_start() -> None:
    """A rehearsal waits for a heartbeat of a life that began after the kill."""

    def fails(name: str) -> None:
        raise EnvironmentProblem("there is no such topic")

    async with running() as world:
        world.before_making = fails
        world.take_on("q1")
        beat = world.beats["orderer/q1.0.a"]
        await until(lambda: beat.lasting.get(FAILURES) == 2)  # and waits half a second
        lives = beat.lives
        world.host.kill("orderer/q1.0.a")
        assert beat.lives == lives + 1
        world.before_making = lambda name: None
        world.emit(3)
        await world.answered("q1")


async def test_results_of_a_query_reach_all_that_read_them_over_kills_and_pauses() -> None:
    """Rows in transactions; fragments that join later, or restart, read the earlier ones."""
    async with running() as world:
        world.is_chain = True
        world.take_on("q1")
        world.answer(10)
        await world.answered("q1")
        world.take_on("q2")
        world.answer(10)
        await world.answered("q1", "q2")
        world.host.kill("orderer/q2.0.a")
        world.host.pause("orderer/q1.0.a")
        world.answer(10)
        await world.answered("q2")
        world.host.resume("orderer/q1.0.a")
        world.answer(10)
        await world.answered("q1", "q2")
        assert world.buckets("q1") == world.buckets("q2") == world.expected()
        assert world.beats["orderer/q1.0.a"].lives == 1


async def test_a_fragment_that_stands_still_keeps_nobody_waiting_and_goes_on() -> None:
    async with running() as world:
        world.take_on("q1", "q2")
        world.emit(5)
        await world.answered("q1", "q2")
        reported = world.beats["orderer/q2.0.a"]
        world.host.pause("orderer/q2.0.a")
        assert reported.is_silent
        written = len(world.stable("q2"))
        world.emit(20)
        await world.answered("q1")
        assert len(world.stable("q2")) == written
        world.host.resume("orderer/q2.0.a")
        assert world.beats["orderer/q2.0.a"].is_silent is False
        await world.answered("q2")
        assert world.buckets("q2") == world.expected()
        assert reported.lives == 1


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 30])
async def test_a_pause_while_a_fragment_begins_loses_nothing(turns: int) -> None:
    async with running() as world:
        world.take_on("q1")
        world.emit(5)
        await world.answered("q1")
        world.take_on("q2")
        for pause in range(3):
            await asyncio.sleep(0.001 * turns * (pause + 1))
            world.host.pause("orderer/q2.0.a")
            world.emit(3)
            await world.answered("q1")
            world.host.resume("orderer/q2.0.a")
        world.emit(3)
        await world.answered("q1", "q2")
        assert world.buckets("q2") == world.buckets("q1") == world.expected()
        assert world.beats["orderer/q2.0.a"].lives == 1


async def test_nothing_is_read_for_those_who_stand_still() -> None:
    """Alone it continues at its position; it then reads the missed records from the broker."""
    async with running() as world:
        world.take_on("q1")
        world.emit(5)
        await world.answered("q1")
        read = len(world.consumer.handed[SOURCE])
        world.host.pause("orderer/q1.0.a")
        await until(lambda: not world.consumer.reads)
        world.emit(20)
        await asyncio.sleep(0.05)
        assert len(world.consumer.handed[SOURCE]) == read
        for _ in range(2):  # once suffices
            world.host.resume("orderer/q1.0.a")
        await world.answered("q1")
        assert world.buckets("q1") == world.expected()
        assert world.beats["orderer/q1.0.a"].lives == 1
        assert world.consumer.begun[-1] == {SOURCE: read}


async def test_a_fragment_that_is_killed_while_it_stands_still_may_stand_still_again() -> None:
    async with running() as world:
        world.take_on("q1")
        world.emit(5)
        await world.answered("q1")
        world.host.pause("orderer/q1.0.a")
        world.host.kill("orderer/q1.0.a")
        world.host.pause("orderer/q1.0.a")
        world.emit(5)
        await until(lambda: world.beats["orderer/q1.0.a"].lives == 2)
        made = len(world.made)
        await asyncio.sleep(0.1)
        assert len(world.made) == made == 1, "the next life does not start"
        world.host.resume("orderer/q1.0.a")
        await world.answered("q1")
        assert world.buckets("q1") == world.expected()


async def test_retention_that_was_quicker_than_the_consumer_is_for_those_who_read_the_log() -> None:
    async with running() as world:
        world.take_on("q1")
        world.emit(5)
        await world.answered("q1")
        world.host.logs.gone(PositionGoneError("sw.source.other", 0, 3))
        assert world.beats["orderer/q1.0.a"].lives == 1
        world.host.logs.gone(PositionGoneError(*SOURCE, 3))
        await until(lambda: world.beats["orderer/q1.0.a"].lives == 2)
        world.emit(5)
        await world.answered("q1")
        assert world.buckets("q1") == world.expected()
