"""One Faust app per start of a fragment, told exactly where to begin.

Faust is the loop around a core: its agent hands over every record of some topics, its worker owns
the event loop and the signals. What it would otherwise do is not wanted here. Positions live in
state records (rule 5), so its commits are never read; there is no manual assignment in Faust, so a
fragment reads whole topics as the only member of a group that nobody used before. A fresh group
per start also avoids the wait for a dead member's session after a kill (10 s and more); the
offsets to begin at are committed to it from outside before the worker starts.

This is the only module that imports Faust; what a fragment does with a record is its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiokafka
import faust
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from faust.transport.drivers import aiokafka as driver

from slackwater.runtime.connecting import knock_first
from slackwater.runtime.entry import exit_code_of, leave
from slackwater.runtime.transport import Isolation, Log, LogError

_log = logging.getLogger(__name__)

FETCH_MAX_WAIT_MS = 100
POLL_RECORDS_MAX = 128
RETRY_BACKOFF_MS = 200
BUFFER_RECORDS_MAX = 256
BEGIN_S_MAX = 60.0

_COORDINATOR_ERRORS = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.REQUEST_TIMED_OUT,
}


class Positions:
    """How far Faust's consumer has read, beyond its last record (R11).

    In a log of transactions the markers take offsets and are never handed over: only the client's
    own position passes them. Asked for in the consumer's event loop, where it cannot change while
    it is looked at.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._consumer: aiokafka.AIOKafkaConsumer | None = None
        self._handed: dict[Log, int] = {}

    def belong_to(
        self, loop: asyncio.AbstractEventLoop, consumer: aiokafka.AIOKafkaConsumer
    ) -> None:
        """The consumer and the loop it lives in; both made anew, nothing is handed over yet."""
        self._loop, self._consumer = loop, consumer
        self._handed.clear()

    def note(self, records: Mapping[Any, Sequence[Any]]) -> None:
        """These records are on their way to the agent."""
        for partition, messages in records.items():
            if messages:
                self._handed[partition.topic, partition.partition] = messages[-1].offset

    async def ask(self) -> dict[Log, tuple[int, int]]:
        """Per log its position, and the last record below it that was handed over (-1: none)."""
        if self._loop is None:
            return {}
        asked = asyncio.run_coroutine_threadsafe(self._look(), self._loop)
        return await asyncio.wrap_future(asked)

    async def _look(self) -> dict[Log, tuple[int, int]]:
        subscription = None if self._consumer is None else self._consumer._subscription.subscription
        if subscription is None or subscription.assignment is None:
            return {}
        states = {tp: subscription.assignment.state_value(tp) for tp in subscription.assignment.tps}
        return {
            (tp.topic, tp.partition): (
                state.position,
                self._handed.get((tp.topic, tp.partition), -1),
            )
            for tp, state in states.items()
            if state is not None and state.has_valid_position
        }


class _Thread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread, with what Faust has no setting for."""

    isolation: Isolation = "read_uncommitted"
    positions: Positions | None = None

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Read when the consumer starts, which it has not yet. By default a fetch waits 1.5 s.
        consumer._isolation_level = self.isolation
        consumer._fetch_max_wait_ms = FETCH_MAX_WAIT_MS
        consumer._retry_backoff_ms = RETRY_BACKOFF_MS
        if self.positions is not None:
            self.positions.belong_to(self.thread_loop, consumer)
        return consumer

    async def _fetch_records(self, *args: Any, **kwargs: Any) -> Any:
        records = await super()._fetch_records(*args, **kwargs)
        if self.positions is not None:
            self.positions.note(records)
        return records


class _Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class _Worker(faust.Worker):
    def install_signal_handlers(self) -> None:
        """None: the process has its own (``slackwater.runtime.entry``)."""


class _Transport(driver.Transport):
    Consumer = _Consumer


def run_fragment(
    name: str,
    bootstrap: str,
    offsets: Mapping[Log, int],
    on_record: Callable[[Log, int, bytes], None],
    run: Callable[[], Awaitable[None]],
    stopping: threading.Event,
    *,
    isolation: Isolation = "read_uncommitted",
    positions: Positions | None = None,
) -> None:
    """Read all of the topics in ``offsets`` from there on, until ``stopping`` is set.

    ``offsets`` must name every partition of each topic. ``on_record`` is called in the event loop
    for each record in the order of its log; ``run`` is a coroutine that runs beside it, and whose
    end, by an error above all, ends the process. ``positions`` will know how far the consumer has
    read. Does not return.
    """
    group = f"sw-{name.replace('/', '-')}-{os.getpid()}-{os.urandom(4).hex()}"
    topics = sorted({topic for topic, _ in offsets})
    _begin_at(bootstrap, group, offsets)
    _Thread.isolation = isolation
    _Thread.positions = positions
    knock_first()
    app = _app(group, bootstrap)
    _attach(app, topics, on_record, run, stopping)
    worker = _Worker(app, loglevel="WARNING", redirect_stdouts=False, override_logging=False)
    worker.execute_from_commandline()


def _begin_at(bootstrap: str, group: str, offsets: Mapping[Log, int]) -> None:
    """Commit the offsets to begin at to the new, empty group; a starting broker is waited for."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [TopicPartition(topic, p, offset) for (topic, p), offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(group, wanted)]
    give_up_at = time.monotonic() + BEGIN_S_MAX
    while True:
        error = _commit(admin, request)
        if error is None:
            return
        if error.code() not in _COORDINATOR_ERRORS or time.monotonic() > give_up_at:
            raise LogError(f"the offsets to begin at were refused: {error.str()}")
        time.sleep(0.05)


def _commit(admin: AdminClient, request: list[ConsumerGroupTopicPartitions]) -> KafkaError | None:
    try:
        (future,) = admin.alter_consumer_group_offsets(request).values()
        partitions = future.result(10).topic_partitions
    except KafkaException as error:
        refused: KafkaError = error.args[0]
        return refused
    return next((p.error for p in partitions if p.error is not None), None)


def _app(group: str, bootstrap: str) -> faust.App:
    app = faust.App(
        group,
        broker=[f"kafka://{server}" for server in bootstrap.split(",")],
        store="memory://",
        value_serializer="raw",
        key_serializer="raw",
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        web_enabled=False,
        # Its commits are never read; make as few as it allows.
        broker_commit_interval=3600.0,
        broker_commit_every=1_000_000_000,
        broker_commit_livelock_soft_timeout=1e9,
        stream_processing_timeout=1e9,
        broker_max_poll_records=POLL_RECORDS_MAX,
        broker_max_poll_interval=3600.0,
        stream_buffer_maxsize=BUFFER_RECORDS_MAX,
        stream_wait_empty=False,
        consumer_auto_offset_reset="none",
        consumer_max_fetch_size=16 * 1024 * 1024 + 64 * 1024,
        broker_session_timeout=30.0,
        broker_request_timeout=60.0,
        producer_request_timeout=60.0,
        logging_config=None,
    )
    app.transport = _Transport([app.conf.broker[0]], app, loop=app.loop)
    # Faust makes folders for tables, in whatever directory the user is in. There are no tables.
    app._create_directories = lambda: None  # type: ignore[method-assign]
    return app


def _attach(
    app: faust.App,
    topics: Sequence[str],
    on_record: Callable[[Log, int, bytes], None],
    run: Callable[[], Awaitable[None]],
    stopping: threading.Event,
) -> None:
    # No acks: nothing is ever committed, and Faust would keep each record's offset until then, and
    # sort the gaps that commit markers leave anew at each of them.
    channel = app.topic(*topics, value_serializer="raw", key_serializer="raw", acks=False)

    @app.agent(channel, concurrency=1)
    async def read(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            try:
                on_record((message.topic, message.partition), message.offset, message.value or b"")
            except Exception as error:  # noqa: BLE001 -- Faust would log it and read on
                leave(exit_code_of(error))

    async def beside() -> None:
        try:
            await run()
        except Exception as error:  # noqa: BLE001 -- Faust would log it and live on
            leave(exit_code_of(error))

    async def told_to_stop() -> None:
        await asyncio.to_thread(stopping.wait)
        leave(0)  # nothing of value is left behind: a stop is a crash that was asked for

    app.task(beside)
    app.task(told_to_stop)
