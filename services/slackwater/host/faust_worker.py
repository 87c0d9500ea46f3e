"""Runs the live consumer of a process under Faust: a Faust worker, consumer thread and agent.

Faust runs the event loop, reads in its consumer thread, and passes each record to the receiver of
its log. A Faust *agent*, a coroutine over a channel, does the latter. Faust's other functions are
switched off: consumer groups, commits, tables and producers. Positions are kept in state records
(rule-5), so the consumer is assigned the logs and offsets that fragments request
(``runtime.logs.assigned``). Logs are added and removed while others are read.

An event of the agent's channel is one fetch, not one record, because the overhead of a Faust event
exceeds the time in which a session takes a record.

This is the only module that imports Faust.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import faust
from faust.app.base import BootStrategy
from faust.transport.drivers import aiokafka as driver
from mode import Service

from slackwater.runtime.logs.assigned import AssignedConsumer, Begin, RecordBatch
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.connecting import probe_before_connect
from slackwater.runtime.logs.receiving import receive_in_chunks
from slackwater.runtime.logs.transport import Isolation, Log, PositionGoneError
from slackwater.runtime.service.entry import exit_code_of, leave

GONE_AGAIN_S: Final = 0.01
FETCHES_MAX: Final = 2
"""Fetches that wait for the Faust agent; further ones wait in the clients."""

Receive = Callable[[Log, int, bytes], None]
"""Receives a record (log, offset, value). Called in the event loop."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Reader:
    receive: Receive
    since: int
    isolation: Isolation


class LiveConsumer:
    """The live consumer of a process: logs are added and removed while the others are read.

    Each isolation level has a client of its own; all are in one thread. A log that slackwater
    writes without transactions is therefore not delayed by an open transaction of another program
    in it. The methods are called in the app's event loop, while it runs.

    Args:
        name: name of the process.
        cluster: the Kafka cluster.
        on_error: called in the event loop with the error that ended reading, or that a receiver
            raised.
    """

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._cluster = cluster
        self._on_error = on_error
        self.on_gone: Callable[[PositionGoneError], None] | None = None
        """Called in the event loop when retention has removed the position in a log; the other
        logs are still read. If None, this is an error."""
        self.before_stop: Callable[[], Awaitable[None]] = _nothing
        """Run in the event loop when a stop is requested; the process ends after it."""
        self._readers: dict[Log, _Reader] = {}
        self._beginnings = itertools.count()
        self._clients: dict[Isolation, asyncio.Future[AssignedConsumer]] = {}
        self._opened: asyncio.Queue[AssignedConsumer] = asyncio.Queue()
        self.app: Any = _app(name, cluster, self)
        self._channel: Any = self.app.channel(maxsize=FETCHES_MAX)
        _attach(self.app, self._channel, self)

    async def add(
        self,
        offsets: Mapping[Log, int],
        receive: Receive,
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> None:
        """Read these logs also, from these offsets; a log that is already read restarts there.

        ``receive`` is called once for each record, in log order. Waits for a broker that starts.
        """
        for log in offsets:
            known = self._readers.get(log)
            if known is not None and known.isolation != isolation:
                raise ValueError(f"{log[0]}:{log[1]} is read under {known.isolation}: remove it")
        since = next(self._beginnings)
        self._readers |= {log: _Reader(receive, since, isolation) for log in offsets}
        await self._change(isolation, {log: Begin(at, since) for log, at in offsets.items()})

    async def remove(self, logs: Iterable[Log]) -> None:
        """Stop reading these logs; their records are not passed on from this call on.

        If the call fails, the client may continue to fetch them until they are removed again.
        """
        leaving: dict[Isolation, dict[Log, _Reader]] = {}
        for log in logs:
            if (known := self._readers.get(log)) is not None:
                left = self._readers[log] = replace(known, since=next(self._beginnings))
                leaving.setdefault(known.isolation, {})[log] = left
        for isolation, readers in leaving.items():
            if isolation in self._clients:
                await self._change(isolation, {}, list(readers))
            for log, left in readers.items():
                if self._readers.get(log) is left:
                    del self._readers[log]

    async def positions(self) -> dict[Log, tuple[int, int]]:
        """Return per log the position and the offset of the last record passed on (-1: none)."""
        found: dict[Log, tuple[int, int]] = {}
        for opening in list(self._clients.values()):
            client = await asyncio.shield(opening)
            found |= await self._in_thread(_call(client.positions))
        return found

    async def _change(
        self, isolation: Isolation, begin: Mapping[Log, Begin], leave: Sequence[Log] = ()
    ) -> None:
        client = await self._client(isolation)
        await self._in_thread(_call(lambda: client.change(begin, leave)))

    async def _client(self, isolation: Isolation) -> AssignedConsumer:
        """Return the client of this isolation level; the first call opens it."""
        opening = self._clients.get(isolation)
        if opening is None:
            opening = self._clients[isolation] = asyncio.ensure_future(self._open(isolation))
        return await asyncio.shield(opening)

    async def _open(self, isolation: Isolation) -> AssignedConsumer:
        try:
            client = await self._in_thread(AssignedConsumer.open(self._cluster, isolation))
        except BaseException:
            del self._clients[isolation]  # the next call opens a client
            raise
        self._opened.put_nowait(client)
        return client

    async def _in_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of Faust's consumer thread, where the clients are."""
        loop = self.app.consumer._thread.thread_loop
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    async def pump(self) -> None:
        """Pass the clients' fetched records to the Faust agent, without end."""
        async with asyncio.TaskGroup() as pumps:
            while True:
                pumps.create_task(self._pump(await self._opened.get()))

    async def _pump(self, client: AssignedConsumer) -> None:
        try:
            while True:
                try:
                    batches = await self._in_thread(client.take())
                except PositionGoneError as gone:
                    if self.on_gone is None:
                        raise
                    self.on_gone(gone)
                    await asyncio.sleep(GONE_AGAIN_S)  # raised again until the log is removed
                    continue
                if batches:
                    await self._channel.put(batches)
        except Exception as error:  # noqa: BLE001 -- Faust would log it and stop reading
            self._on_error(error)

    def hand_over(self, batches: Iterable[RecordBatch]) -> None:
        """Pass records to the receivers of their logs."""
        try:
            for log, since, records in batches:
                for record in records:
                    reader = self._readers.get(log)
                    if reader is None or reader.since != since:
                        break  # fetched before the log was removed or restarted
                    reader.receive(log, record.offset, record.value or b"")
        except Exception as error:  # noqa: BLE001 -- Faust would log it and continue
            self._on_error(error)

    async def close_clients(self) -> None:
        """Close the clients. Called in the consumer thread's event loop before it ends."""
        for opening in self._clients.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result().close()


async def _nothing() -> None:
    """Have nothing to do before the process ends."""


async def _call(function: Callable[[], T]) -> T:
    return function()


class _Thread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread, which serves the live consumer's clients."""

    transport: Any

    async def on_start(self) -> None:
        """Open no client: the first log that is added opens one."""

    async def on_thread_stop(self) -> None:
        await super().on_thread_stop()
        await self.transport.live.close_clients()

    @Service.task
    async def _thread_keepalive(self) -> None:
        """Do nothing, since callers wake this event loop; Faust's version polls."""

    async def _keepalive2(self) -> None:
        """Do nothing, since callers wake the app's event loop; Faust's version polls."""


class _Consumer(driver.Consumer):
    """Faust's consumer; passes whole fetches to the Faust agent."""

    transport: Any

    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def _drain_messages(self, fetcher: Any) -> None:
        self.app.flow_control.resume()
        await self.transport.live.pump()

    async def verify_all_partitions_active(self) -> None:
        """Do nothing: Faust's version checks that commits are not late."""


class _Transport(driver.Transport):
    Consumer = _Consumer

    def __init__(self, app: faust.App, live: LiveConsumer) -> None:
        super().__init__([app.conf.broker[0]], app)
        self.live = live


class _Boot(BootStrategy):
    """The services that are started, in order: without producer and tables."""

    app: Any

    def server(self) -> Sequence[Any]:
        return [self.app.consumer, self.app.agents, self.app._fetcher]


class _Worker(faust.Worker):
    def install_signal_handlers(self) -> None:
        """Install none: ``slackwater.runtime.service.entry`` has done so."""


def run_consumer(
    name: str,
    cluster: Cluster,
    run: Callable[[LiveConsumer], Awaitable[None]],
    stopping: threading.Event,
) -> None:
    """Run a live consumer and ``run`` until ``stopping`` is set. Does not return.

    The process ends when ``run`` raises, and when the consumer as a whole fails.
    """
    live = LiveConsumer(name, cluster, _end)
    probe_before_connect()
    receive_in_chunks()

    async def beside() -> None:
        try:
            await run(live)
        except Exception as error:  # noqa: BLE001 -- Faust would log it and continue
            _end(error)

    async def stop_requested() -> None:
        await asyncio.to_thread(stopping.wait)
        try:
            await live.before_stop()
        finally:
            leave(0)  # all state is in Kafka, so a stop may be like a crash

    live.app.task(beside)
    live.app.task(stop_requested)
    worker = _Worker(live.app, loglevel="WARNING", redirect_stdouts=False, override_logging=False)
    worker.execute_from_commandline()


def _end(error: Exception) -> None:
    leave(exit_code_of(error))


def _app(name: str, cluster: Cluster, live: LiveConsumer) -> faust.App:
    app = faust.App(
        name.replace("/", "-"),
        broker=[f"kafka://{server}" for server in cluster.bootstrap.split(",")],
        store="memory://",
        value_serializer="raw",
        key_serializer="raw",
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        web_enabled=False,
        # Faust's commit loop has nothing to commit; run it as rarely as possible.
        broker_commit_interval=3600.0,
        broker_commit_livelock_soft_timeout=1e9,
        stream_processing_timeout=1e9,
        stream_wait_empty=False,
        logging_config=None,
    )
    app.transport = _Transport(app, live)
    app.boot_strategy = _Boot(app)
    # Faust would create a directory for tables in the current one. There are no tables.
    app._create_directories = lambda: None  # type: ignore[method-assign]
    return app


def _attach(app: faust.App, channel: Any, live: LiveConsumer) -> None:
    @app.agent(channel, concurrency=1)
    async def hand_over(stream: Any) -> None:
        async for batches in stream:
            live.hand_over(batches)
