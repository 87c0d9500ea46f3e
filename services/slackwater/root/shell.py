"""The root's shell: delta logs in, fenced transactions out. It holds no rule.

Kafka's transactional id of the part is the fence (rule 27): starting the producer ends whatever
an older copy had open, and that copy's next commit fails. Results, UNDO, REC_DONE and the state
record of one step leave in one transaction, through aiokafka, whose fencing takes 15 ms where
librdkafka's takes a second. A transaction that fails ends the process; the next one finds in the
log what was committed (rule 24).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiokafka import AIOKafkaProducer

from slackwater.model.errors import SlackwaterError
from slackwater.model.records import Kind, RootState
from slackwater.protocols.dpc.answers import GapNote
from slackwater.protocols.dpc.downstream import word_of
from slackwater.protocols.dpc.line import LineName
from slackwater.protocols.dpc.root import (
    Commit,
    Effect,
    FetchEnds,
    FetchOrdered,
    RootConfig,
    RootCore,
    initial_state,
    stays_down,
)
from slackwater.protocols.dpc.states import LineState
from slackwater.protocols.dpc.upstream import Switched
from slackwater.root.inputs import inputs_of
from slackwater.root.results import ResultsWriter
from slackwater.root.transactions import Transactions, follow_closely
from slackwater.runtime.catchup import CatchUpReader, Gone
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.connecting import knock_first
from slackwater.runtime.heartbeats import (
    HeartbeatListener,
    HeartbeatSender,
    gather_ms,
    replicas_gather_ms,
)
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.state import read_root_state
from slackwater.runtime.topics import (
    aiokafka_producer,
    ordered_partition,
    ordered_topic,
    results_topic,
)
from slackwater.runtime.transport import Log, NoAnswerError, extents
from slackwater.runtime.turns import Turns

_log = logging.getLogger(__name__)

CATCH_UP_RECORDS_MAX = 50
CATCH_UP_PREFETCH_KIB = 8 * 1024
BROKER_S_MAX = 30.0
"""For a batch of a transaction, or a producer's start. A broker that was killed is back sooner;
what takes longer hangs in the client (seen on a machine ten times overloaded), and a restart mends
it."""
TRANSACTION_S_MAX = 600
"""For a whole one; the broker keeps this bound, and allows 900 by default. Rows of ten figures are
written at 100,000 a second here, and a part has 5,000,000 keys at most (``KeyTable``). A copy that
is gone for good keeps its part's readers waiting so long; one that starts again fences it at once.
"""
HEARTBEAT_PERIOD_US = 50_000
BATCH_BYTES_MAX = 1 << 20


class SupersededError(SlackwaterError):
    """Another copy has a greater placement number: this one stays down (R17)."""


class RootShell:
    """One copy of one part on one broker.

    Args:
        transport: where the logs are.
        config: what the core is told.
        aggregate: which figures the results carry; none without a window, whose root passes the
            orderers' rows on (R21).
        end_timeout_us: how long the broker may take to name an end (half a margin, R11).
        observe: told of (frontier, now), where the event clock follows the data (R12).
    """

    def __init__(
        self,
        transport: KafkaTransport,
        config: RootConfig,
        aggregate: tuple[str, ...],
        *,
        end_timeout_us: int,
        observe: Callable[[int, int], None] | None = None,
    ) -> None:
        self._observe = observe
        self._transport = transport
        self._config = config
        self._clock = SystemClock()
        self._end_timeout_s = end_timeout_us / 1e6
        self._inputs = inputs_of(config, windowed=bool(aggregate))
        self._logs = self._inputs.logs
        self._partition = {log: at for at, log in self._logs.items()}
        self._heartbeats = HeartbeatSender(
            transport.bootstrap, config.fragment, owner_speaks=True
        ).start()
        self._turns = Turns()
        self._said_at = 0
        self._switches = 0
        self._gaps = 0
        self._producer = asyncio.run(self._check_and_fence())
        self._core = self._restore()
        self._results = ResultsWriter(
            config.query, config.part, config.fields, aggregate, self._core.keys
        )
        self._listener = HeartbeatListener(
            transport,
            self._turns.wake_from_thread,
            gather_ms=replicas_gather_ms if config.replicas > 1 else gather_ms,
        ).start()
        self._catch_up = [
            CatchUpReader(transport, prefetch_kib_max=CATCH_UP_PREFETCH_KIB) for _ in LineName
        ]
        self._failed: BaseException | None = None
        # The loop itself holds its tasks weakly: one that nobody else holds may vanish half done.
        self._tasks: set[asyncio.Task[None]] = set()

    # Start and take-over: rule 27.

    def _state(self) -> RootState | None:
        return read_root_state(self._transport, self._config.query, self._config.part)

    async def _check_and_fence(self) -> dict[str, Any]:
        """Only a greater placement number may fence (R17)."""
        found = await asyncio.to_thread(self._state)
        if found is not None and stays_down(found, self._config.placement):
            raise SupersededError(
                f"{self._config.fragment} was placed under number {found.placement}; "
                f"number {self._config.placement} stays down"
            )
        settings: dict[str, Any] = {
            "transactional_id": f"sw.{self._config.query}.{self._config.part}",
            "max_batch_size": BATCH_BYTES_MAX,
            "transaction_timeout_ms": TRANSACTION_S_MAX * 1000,
        }
        knock_first()  # this producer is before Faust
        producer = AIOKafkaProducer(**aiokafka_producer(self._transport.bootstrap, **settings))
        async with self._within_bound("a producer does not start"):
            await producer.start()
            await producer.stop()
        return settings

    def _restore(self) -> RootCore:
        self._restored = self._state()
        state = self._restored or initial_state(self._config)
        ends = self._transport.end_offsets(self._logs)
        core = RootCore(
            self._config, state, mute_until={self._logs[log]: end for log, end in ends.items()}
        )
        beginnings = self._transport.beginning_offsets(self._logs)
        core.begin_at({self._logs[log]: at for log, at in beginnings.items()})
        _log.info(
            "placement %d goes on: S=%d T=%d seq=%d",
            self._config.placement,
            state.stable_from,
            state.answered_to,
            state.next_seq,
        )
        return core

    @property
    def live_offsets(self) -> dict[Log, int]:
        """Where the live consumer begins."""
        return {self._partition[log]: at for log, at in self._core.live_offsets.items()}

    # The loop.

    def on_record(self, log: Log, offset: int, value: bytes) -> None:
        """A record from the live consumer."""
        of = self._logs[log]
        record = self._inputs.decode(of, log, offset, value)
        self._core.receive(of, offset, record)
        if self._observe is not None and record.kind is not Kind.START:
            self._observe(record.bucket_end, self._clock.now_us())
        # A replica that comes back says seconds of buckets at once, and the others' live ones stand
        # among them: a turn for each record would keep them waiting for half a second.
        if not self._core.awaits_commit:
            self._turns.wake()

    async def run(self) -> None:
        """Step the core for ever."""
        follow_closely()
        settings = aiokafka_producer(self._transport.bootstrap, **self._producer)
        producer = AIOKafkaProducer(**settings)
        async with self._within_bound("a producer does not start"):
            await producer.start()
        if await asyncio.to_thread(self._state) != self._restored:
            # Another copy was placed meanwhile and has committed. This producer has just fenced
            # it off, and must not answer from the older state: it starts again, from the newer.
            raise SupersededError(f"{self._config.fragment} was answered by another copy meanwhile")
        transactions = Transactions(producer, self._results, self._config.fragment)
        # An error ends the process there and then. The producer is not stopped first: it would wait
        # until it is rid of its batches, and what it could not write is why it ends.
        while True:
            read = self._read_parked()
            now = self._clock.now_us()
            self._look_at_replicas(now)
            for effect in self._core.step(now):
                self._do(effect, transactions)
            self._say(now)
            if self._failed is not None:
                raise self._failed
            if read or self._core.busy:
                await asyncio.sleep(0)
            else:
                await self._turns.wait(now, self._core.wake_at, parked=bool(self._core.wanted()))

    def _read_parked(self) -> bool:
        """Feed the parked cursors, at most one small batch each line."""
        wanted = self._core.wanted()
        read = False
        for line in LineName:
            positions = {self._partition[log]: at for (of, log), at in wanted.items() if of is line}
            found = self._catch_up[line].read(positions, CATCH_UP_RECORDS_MAX)
            if isinstance(found, Gone):
                self._core.position_gone(line, self._logs[found.log], found.beginning)
                continue
            for raw in found:
                log = self._logs[raw.log]
                record = self._inputs.decode(log, raw.log, raw.offset, raw.value)
                self._core.catch_up(line, log, raw.offset, record)
                read = True
        return read

    def _look_at_replicas(self, now: int) -> None:
        """What the replicas said last, and when (Table II)."""
        for child in range(len(self._config.children)):
            topic = ordered_topic(self._config.query, child)
            for replica in range(self._config.replicas):
                name = f"orderer/{self._config.query}.{child}.{chr(ord('a') + replica)}"
                heard = self._listener.heard(name, now)
                if heard is not None and topic in heard[0].states:
                    beat, heard_at = heard
                    self._core.replica_says(child, replica, LineState(beat.states[topic]), heard_at)

    # Effects.

    def _do(self, effect: Effect, transactions: Transactions) -> None:
        loop = asyncio.get_running_loop()
        match effect:
            case Commit():
                task = loop.create_task(self._commit(effect, transactions))
            case FetchEnds():
                task = loop.create_task(self._fetch_ends(effect))
            case Switched():
                self._tell(effect)
                return
            case FetchOrdered():
                task = loop.create_task(self._fetch_ordered(effect))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()
        self._turns.wake()

    def _tell(self, switch: Switched) -> None:
        """In words that a measurement can read: section 5.1's two times, in ms."""
        self._switches += 1
        _log.info(
            "switched from replica %d of child %d: heard %.1f ms before it was given up, "
            "answered %.1f ms after",
            switch.replica,
            switch.child,
            (switch.detected_at - switch.heard_at) / 1000,
            (switch.answered_at - switch.detected_at) / 1000,
        )

    async def _commit(self, commit: Commit, transactions: Transactions) -> None:
        """One transaction, each step within a bound: what came of it is in the log (rule 24)."""
        transaction = commit.transaction
        records = transaction.after.next_seq - transaction.before.next_seq
        loop, what = asyncio.get_running_loop(), f"a transaction of {records} records stands still"
        async with self._within_bound(what) as bound:
            await transactions.write(
                commit,
                self._clock.now_us(),
                progress=lambda: bound.reschedule(loop.time() + BROKER_S_MAX),
            )
        self._gaps += sum(isinstance(effect, GapNote) for effect in commit.transaction.effects)
        self._core.committed()

    @contextlib.asynccontextmanager
    async def _within_bound(self, what: str) -> AsyncIterator[asyncio.Timeout]:
        try:
            async with asyncio.timeout(BROKER_S_MAX) as bound:
                yield bound
        except TimeoutError as error:
            message = f"{self._config.fragment}: {what}: no answer in {BROKER_S_MAX:g} s"
            raise NoAnswerError(message) from error

    async def _fetch_ends(self, effect: FetchEnds) -> None:
        asked_at = self._clock.now_us()
        logs = {self._partition[log]: log for log in effect.logs}
        ends = await self._transport.end_offsets_async(logs, timeout_s=self._end_timeout_s)
        self._core.ends(
            {log: None if ends is None else ends[at] for at, log in logs.items()}, asked_at
        )

    async def _fetch_ordered(self, effect: FetchOrdered) -> None:
        """No answer is no answer: the core asks again."""
        logs = {
            (
                ordered_topic(self._config.query, log.child),
                ordered_partition(log.replica, live=bool(log.line)),
            ): log
            for log in effect.logs
        }
        try:
            spans = await asyncio.to_thread(extents, self._transport, logs)
        except NoAnswerError:
            spans = {}
        self._core.ordered({logs[at]: span for at, span in spans.items()})

    def _say(self, now: int) -> None:
        if now - self._said_at < HEARTBEAT_PERIOD_US:
            return
        self._said_at = now
        core = self._core
        answered = core.answers.state
        self._heartbeats.update(
            inc=self._config.placement,
            ready=core.connected,
            states={
                results_topic(self._config.query, "stable"): (
                    "UP_FAILURE" if core.mute else core.line.state.value
                )
            },
            holes=core.holes,
            detail={
                "stable_from": answered.stable_from,
                "answered_to": answered.answered_to,
                "epoch": answered.epoch,
                "seq": answered.next_seq,
                "keys": len(core.keys),
                "switches": self._switches,
                "gaps": self._gaps,
                **{word_of(*of): to for of, to in core.read_to.items()},
            },
        )
        if self._listener.superseded(self._config.fragment, self._config.placement):
            raise SupersededError(f"{self._config.fragment} runs elsewhere: this copy ends")
