"""The proxy of a stream that reads a topic: the product's own input, in virtual time.

``TopicInput`` is the product's, with its watch of the topic's id, its positions and its source
logs. Models are what it uses: the client that fetches, the transport, the writer, and the thread
that requests end offsets. START is in the log at once (a process that dies between two STARTs is
not modelled); all other records arrive after a delay. The loop around the input is that of the
product's ``serving`` and ``shell``: what a failure ends is the serving of the stream, not the
process, so what is remembered of the topic is lost by a kill only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from tests.simulator.config import FIELDS
from tests.simulator.process import Process
from tests.simulator.topics import InputTopic, ObservedTopics

from slackwater.codec import decode_source, encode_source
from slackwater.model.deployment import (
    Deployment,
    FieldSpec,
    KeySpec,
    StreamSpec,
    TimeSpec,
    TopicSpec,
)
from slackwater.model.errors import EnvironmentProblem, SlackwaterError
from slackwater.model.names import Names, ProxyName
from slackwater.model.records import Hole, Kind, SourceRecord
from slackwater.primitives.eventclock import WallClock
from slackwater.proxy.quarantine import Quarantine
from slackwater.proxy.serving import AWAY_LOOK_S
from slackwater.proxy.shell import HINT_EVERY_US, InputContext, SupersededWriter
from slackwater.proxy.topic import input as topic_input
from slackwater.proxy.topic import source_logs, watched
from slackwater.proxy.topic.client import NO_EPOCHS, Fetched, Notice
from slackwater.proxy.topic.watched import TopicAwayError, TopicChangedError
from slackwater.proxy.topicmemory import TopicMemory
from slackwater.runtime.logs.described import LOOK_EVERY_S
from slackwater.runtime.logs.transport import Log, NoAnswerError, PositionGoneError, RawRecord
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.parts import WATERMARK

if TYPE_CHECKING:
    from tests.simulator.world import World

TURN_US: Final = 300
"""Least time between two steps."""
FETCHED_MAX: Final = 30
"""Maximum messages of one partition in a read; a backlog takes several."""
IN_FLIGHT_BYTES_MAX: Final = 1 << 20
_TRUNCATED: Final = (
    "Partition log truncation detected at offset {} (leader epoch {}): broker end offset is {}"
)


def spec_of(world: World, stream: str) -> StreamSpec:
    """Return the declaration of a stream that reads a topic."""
    return StreamSpec(
        stream,
        KeySpec(field="k"),
        TimeSpec(("t",), unit="us"),
        tuple(FieldSpec(name, name) for name in FIELDS),
        topic=TopicSpec(stream, proxies=world.config.shares.get(stream, 1)),
        disorder_us=world.config.disorder_of(stream),
    )


class SimTopicProxy(Process):
    """One incarnation of the proxy of a stream that reads a topic."""

    def __init__(self, world: World, of: ProxyName) -> None:
        super().__init__(world, of.process)
        self.of, self.stream = of, of.stream
        stream = of.stream
        self.topic = world.topics[stream]
        self._spec = spec_of(world, stream)
        self._memory = TopicMemory()
        every_us = world.config.paced(round(LOOK_EVERY_S * 1e6))
        self._topics = ObservedTopics(world.topics, world.scheduler, every_us)
        self._transport = SimTransport(world)
        self._context: InputContext | None = None
        self._input: topic_input.TopicInput | None = None
        self._hint_at = 0
        self._has_begun = False

    def start(self) -> None:
        """Take the first turn."""
        self.turn()

    def turn(self) -> None:
        """Open the input, or let it take a step."""
        silent_until = self.world.spools[self.stream].silent_until
        if self.world.scheduler.now < silent_until:
            self.turn_in(silent_until - self.world.scheduler.now)
            return
        config = self.world.config
        try:
            with self._in_virtual_time():
                wait_us = self._serve()
        except TopicChangedError:
            self._close()
            self.turn_in(TURN_US)
        except TopicAwayError:
            self._close()
            self.turn_in(config.paced(round(AWAY_LOOK_S * 1e6)))
        except SupersededWriter:
            self.world.restart(self)
        except (SlackwaterError, EnvironmentProblem):
            self._close()
            self.turn_in(self.world.scheduler.between(*config.restart_us))
        else:
            self.turn_in(max(TURN_US, wait_us))

    def _serve(self) -> int:
        """Do what is due; return the time to the next step."""
        if self._input is None:
            self._open()
        source, context = self._input, self._context
        assert source is not None
        assert context is not None
        for log in source.logs:
            if log.is_superseded():
                raise SupersededWriter
            if self.world.heartbeats.is_hole(Hole(log.topic, 0, log.inc)):
                raise SlackwaterError(f"a reader has reported a hole in {log.topic}")
            log.core.read_by(self.world.grids_of(self.stream), None)
        now = self.now
        wake = source.step(now)
        if now >= self._hint_at:
            self._hint_at = now + self.world.config.paced(HINT_EVERY_US)
            known = {log.name: log.hint for log in source.logs if log.hint is not None}
            context.spool.keep_hints(known)
        return wake - now

    def _open(self) -> None:
        writer = SimWriter(self)
        context = self._context = InputContext(
            spec=self._spec,
            name=self.of,
            deployment=Deployment("wall", {self.stream: self._spec}, {}),
            transport=cast(Any, self._transport),
            cluster="",
            writer=writer,
            quarantine=Quarantine(writer, self.stream, Names()),
            spool=cast(Any, Hints(self.world.hints_of(self.of))),
            clock=SystemClock(wall_us=lambda: self.now, monotonic_us=lambda: self.now),
            stop=threading.Event(),
            topics=self._topics,
            topic_memory=self._memory,
            watermark_elsewhere=self._watermark_elsewhere,
        )
        context.start_clock(WallClock())
        assert self._spec.topic is not None
        source = topic_input.TopicInput(context, self._spec.topic)
        try:
            source.begin()
        except BaseException:
            source.close()
            raise
        self._input = source
        if not self._has_begun:
            self._has_begun = True
            logs = {int(log.name.rpartition(".")[2]): log.topic for log in source.logs}
            unread = [number for number, log in logs.items() if not self._has_record(log)]
            has_begun = self._has_record(f"sw.source.{self.stream}.0")
            self.topic.begin(unread, logs.keys(), source._count, has_begun=has_begun)
        self.world.served(self)

    def _watermark_elsewhere(self) -> int | None:
        """Return the smallest watermark of the stream's other proxies, as heartbeats report it."""
        others = [
            self.world.proxies.get(str(name))
            for name in self.world.config.proxy_names(self.stream)
            if name != self.of
        ]
        found = [
            at
            for other in others
            if isinstance(other, SimTopicProxy)
            if (at := other.reported) is not None
        ]
        return min(found) if found and len(found) == len(others) else None

    @property
    def is_up_to_date(self) -> bool:
        """Whether it reads the topic as it is now, with all its partitions."""
        source, is_here = self._input, self.world.is_present(self)
        if source is None or not is_here or not self.world.broker.up:
            return False
        state = self.topic.state()
        return source._watched.state == state and source._count >= state.partitions

    @property
    def reported(self) -> int | None:
        """The watermark that its heartbeat reports."""
        source = self._input
        return None if source is None else source.detail().get(WATERMARK)

    def _has_record(self, name: str) -> bool:
        """Whether a log has a record that counts besides START: none of an earlier writer."""
        log, inc = self.world.broker.log(name), -1
        for at, record in log.read(log.beginning, 99):
            if isinstance(record, SourceRecord):
                if record.kind is not Kind.START and record.inc == inc:
                    return True
                inc = at if record.kind is Kind.START else inc
        return log.beginning > 0

    def _close(self) -> None:
        """End the serving of the stream; its writer waits for the records in flight."""
        if self._input is not None:
            self._input.close()
        self._input = self._context = None
        if self.world.broker.up:
            self.producer.flush()

    @contextmanager
    def _in_virtual_time(self) -> Iterator[None]:
        """Let the product's input use the models."""
        models: list[tuple[Any, str, object]] = [
            (topic_input, "open_client", lambda *_: SimClient(self)),
            (topic_input, "ThreadPoolExecutor", lambda *_, **__: Asking(self)),
            (topic_input, "wait", lambda *_: None),
            (watched, "ThreadPoolExecutor", lambda *_, **__: Asking(self)),
            (watched, "RECOUNT_EVERY_US", self.world.config.paced(watched.RECOUNT_EVERY_US)),
            (source_logs, "ensure_topics", lambda *_: None),
            (source_logs, "Registry", lambda _: SimRegistry(self.world)),
        ]
        real = [(where, name, getattr(where, name)) for where, name, _ in models]
        for where, name, model in models:
            setattr(where, name, model)
        try:
            yield
        finally:
            for where, name, before in real:
                setattr(where, name, before)


class Asking:
    """The thread that requests end offsets: the answer is of a time between request and arrival."""

    def __init__(self, process: SimTopicProxy) -> None:
        self._process = process

    def submit(self, act: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Call it a little later."""
        done: Future[Any] = Future()
        process, between = self._process, self._process.world.scheduler.between

        def answer() -> None:
            try:
                found = act(*arguments)
            except (SlackwaterError, EnvironmentProblem) as error:
                failed = error
                process.later(between(100, 1_000), lambda: arrive(done.set_exception, failed))
            else:
                process.later(between(100, 1_000), lambda: arrive(done.set_result, found))

        def arrive(put: Callable[[Any], None], what: object) -> None:
            put(what)
            process.turn_in(0)

        process.later(between(100, 1_000), answer)
        return done

    def shutdown(self, **_: object) -> None:
        """Do nothing: answers to an input that has ended are not used."""


class SimClient:
    """Fetches by the topic's id, which it learns from metadata; reads on at the same offset.

    Of a leader that is new to it, it asks where the epoch of its position ends.
    """

    def __init__(self, process: SimTopicProxy) -> None:
        self._process, self._topic = process, process.topic
        self._positions: dict[int, int] = {}
        self._metadata = 0
        self._id: str | None = None
        self._epochs: dict[int, int] = {}
        """Of each partition the leader epoch of its position, where known."""
        self._leaders: dict[int, int] = {}
        """Of each partition the epoch of the leader that was asked last."""

    def assign(self, positions: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS) -> None:
        """Read these partitions from these offsets."""
        self._positions, self._epochs = dict(positions), dict(epochs)

    def read(self, wait_s: float) -> list[Fetched | Notice]:
        """Return some messages of each partition."""
        try:
            state = self._topic.state()
        except NoAnswerError:
            return []
        if state is None or state.id != self._id:
            self._metadata += 1
            self._id = None if state is None else state.id
            self._leaders = {}
        between = self._process.world.scheduler.between
        read = [self._read(number, between(1, FETCHED_MAX)) for number in self._positions]
        return [one for one in read if one is not None]

    def _read(self, number: int, count: int) -> Fetched | Notice | None:
        position = self._positions[number]
        try:
            log = self._topic.log(number)
        except EnvironmentProblem:
            return Notice(number, "missing", 0, "no such partition")
        leader, epoch = self._topic.leader_epoch(number), self._epochs.get(number)
        if self._leaders.get(number) != leader:
            self._leaders[number] = leader
            end = position if epoch is None else self._topic.end_of_epoch(number, epoch)
            if end < position:
                return Notice(number, "gone", 0, _TRUNCATED.format(position, epoch, end))
        if not log.beginning <= position <= log.end:
            return Notice(number, "gone", 0, "offset out of range")
        found = log.read(position, count)
        if not found:
            return None
        self._positions[number] = found[-1][0] + 1
        offsets = np.array([offset for offset, _ in found], np.int64)
        epoch = self._epochs[number] = self._topic.epoch_of(number, found[-1][0])
        return Fetched(number, offsets, [value or b"" for _, value in found], epoch=epoch)

    def release(self) -> None:
        """Do nothing."""

    def metadata_count(self) -> int:
        """Return how often it has asked for the topic."""
        return self._metadata

    def pause(self) -> None:
        """Do nothing: the input does not read while it is paused."""

    def resume(self, timeout_s: float) -> Mapping[int, int] | None:
        """Return the end offsets."""
        try:
            return {number: self._topic.log(number).end for number in self._positions}
        except (NoAnswerError, EnvironmentProblem):
            return None

    def close(self) -> None:
        """Do nothing."""


class SimRegistry:
    """The registry's entries of the streams' source logs."""

    def __init__(self, world: World) -> None:
        self._world = world

    def partitions(self, stream: str) -> int | None:
        """Return the recorded number of a stream's source logs."""
        return self._world.partitions.get(stream)

    def wait_for_partitions(self, stream: str, timeout_s: float) -> int:
        """Return the recorded number; the stream begins anew if the first proxy has not begun."""
        found = self.partitions(stream)
        if found is None:
            raise NoAnswerError(f"the partitions of {stream} are not recorded yet")
        return found

    def publish_partitions(self, stream: str, partitions: int) -> None:
        """Record it."""
        self._world.partitions[stream] = partitions

    def topics(self) -> Mapping[str, str]:
        """Return no ids of slackwater's own topics."""
        return {}


class Hints:
    """The file that keeps the progress of source logs, which survives a kill."""

    bytes_held = 0

    def __init__(self, kept: dict[str, Any]) -> None:
        self._kept = kept

    def hints(self) -> dict[str, Any]:
        """Return the progress by log."""
        return dict(self._kept)

    def keep_hints(self, hints: Mapping[str, Any]) -> None:
        """Store the progress."""
        self._kept.update(hints)


class SimWriter:
    """Sends records by the process's producer; quarantine entries are in their topic at once."""

    in_flight_bytes_max = IN_FLIGHT_BYTES_MAX

    def __init__(self, process: SimTopicProxy) -> None:
        self._process = process
        self._waiting: list[tuple[str, bytes]] = []
        self.in_flight_bytes = 0

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None = None,
        on_delivery: Callable[[int], None] | None = None,
    ) -> None:
        """Append a record."""
        assert value is not None, "a proxy writes no tombstone"
        process, broker = self._process, self._process.world.broker
        if not topic.startswith("sw.source."):
            self._waiting.append((process.stream, value))
            self._write()
            return
        record, log = decode_source(value), broker.log(topic)
        if record.kind is Kind.START:
            if not broker.up:
                raise NoAnswerError("the broker is away")
            process.producer.flush()
            offset = log.append(record)
            assert on_delivery is not None
            on_delivery(offset)
            return
        self.in_flight_bytes += len(value)

        def delivered(offset: int) -> None:
            self.in_flight_bytes -= len(value)
            if on_delivery is not None:
                on_delivery(offset)

        process.producer.send(log, record, delivered)

    def _write(self) -> None:
        if self._process.world.broker.up:
            for stream, value in self._waiting:
                self._process.world.history.quarantined.setdefault(stream, []).append(value)
            self._waiting.clear()

    def await_delivered(self, timeout_s: float | None = None) -> None:
        """Raise ``NoAnswerError`` if quarantine entries have to wait for the broker."""
        self._write()
        if self._waiting:
            raise NoAnswerError("the broker is away")

    def delivered_to(self, topic: str, partition: int) -> int | None:
        """Return None: it is not used."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Do nothing."""


class SimTransport:
    """Reads the source logs as bytes, and the extents of topics."""

    names = Names()

    def __init__(self, world: World) -> None:
        self._world = world

    def beginning_offsets(self, logs: Iterable[Log], **_: object) -> dict[Log, int]:
        """Return the first offset of each log."""
        return {log: self._log(log).beginning for log in logs}

    def end_offsets(self, logs: Iterable[Log], **_: object) -> dict[Log, int]:
        """Return the end offset of each log."""
        return {log: self._log(log).end for log in logs}

    def reader(self, **_: object) -> SimReader:
        """Return a reader of source logs."""
        return SimReader(self)

    def read(self, at: Log, offset: int, count: int) -> list[RawRecord]:
        """Return records of a source log."""
        log = self._log(at)
        if not log.beginning <= offset <= log.end:
            raise PositionGoneError(*at, offset)
        return [RawRecord(*at, o, 0, None, _bytes(value)) for o, value in log.read(offset, count)]

    def _log(self, at: Log) -> Any:
        if not self._world.broker.up:
            raise NoAnswerError("the broker is away")
        topic, partition = at
        theirs: InputTopic | None = self._world.topics.get(topic)
        return self._world.broker.log(topic) if theirs is None else theirs.log(partition)


class SimReader:
    """Reads one source log."""

    def __init__(self, transport: SimTransport) -> None:
        self._transport = transport
        self._positions: dict[Log, int] = {}

    def assign(self, positions: Mapping[Log, int]) -> None:
        """Read these logs from these offsets."""
        self._positions |= positions

    def poll(self, records_max: int = 1000, timeout_s: float = 0.0) -> list[RawRecord]:
        """Return available records."""
        found: list[RawRecord] = []
        for log, position in self._positions.items():
            some = self._transport.read(log, position, records_max)
            self._positions[log] = position + len(some)
            found += some
        return found

    def position(self, log: Log) -> int:
        """Return the offset of the next record."""
        return self._positions[log]

    def close(self) -> None:
        """Do nothing."""


def _bytes(value: object) -> bytes:
    return encode_source(value) if isinstance(value, SourceRecord) else b"no record"
