"""Heartbeats: what every process says every 100 ms, and what the others make of it.

A heartbeat carries the state of each output stream (DPC, section 4.3, where consumers ask their
producers for it; here all say it, so that a consumer need not know who its producers are), the
incarnation of the sender's log, and the holes it sees in the logs of others. From it a writer
learns that it has been superseded (rule 6) and that it must send again (rule 11); both are
convenience, nothing depends on when they are learnt.

The sender is a thread with a producer of its own: a process that is busy, or waits for the broker,
is alive all the same, and a false suspicion costs more than a thread. Heartbeats that cannot be
sent are forgotten after 3 s; they say what was, and what is will be said in 100 ms.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from slackwater.codec.records import decode_heartbeat, encode_heartbeat
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import Heartbeat, Hole
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.kafka import client_config
from slackwater.runtime.settings import settings
from slackwater.runtime.topics import HEARTBEATS
from slackwater.runtime.transport import LogError, PositionGoneError, Reader, Transport

interval_s = 0.1
replica_interval_s = 0.04
"""One of several orderers speaks more often: when it falls silent its consumers turn to another one
after three of these (``protocols.dpc.upstream``). Nobody can turn away from the only one."""

stale_s = 1.0
"""After this long without its heartbeat a process's last word counts for nothing."""

states_s_max = 1.0
"""What a fragment said of its outputs is true for so long: one that hangs must not be waited for,
though its heart beats."""

unsaid_s_max = 5.0
"""An owner that has said nothing new for so long is not healthy, though its heart beats."""

gather_ms = 50
"""The broker answers a listener this often. Everybody hears everybody: to be told of each heartbeat
by itself took a third of what ten processes do, and 1,900 answers a second of the broker."""

replicas_gather_ms = 20
"""The same for a consumer that chooses between replicas."""

_LOG = (HEARTBEATS, 0)


class HeartbeatSender:
    """Sends this process's heartbeat until it is stopped; never blocks its owner.

    One goes out every ``interval_s``, and at once when the state of an output changes.
    ``owner_speaks``: the owner calls ``update`` all the time; what it said of its outputs is left
    out when it has not for ``states_s_max``.
    """

    def __init__(
        self,
        bootstrap: str,
        process: str,
        *,
        clock: SystemClock | None = None,
        health_file: Path | None = None,
        interval_s: float = interval_s,
        owner_speaks: bool = False,
    ) -> None:
        self._interval_s = interval_s
        self._owner_speaks = owner_speaks
        self._clock = clock or SystemClock()
        now = self._clock.now_us()
        self._beat = Heartbeat(
            process=process, pid=os.getpid(), started_at=now, at=now, inc=-1, ready=False, states={}
        )
        self._health_file = health_file or settings().health_file
        self._updated_s = time.monotonic()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._news = threading.Event()
        self._producer = Producer(
            client_config
            | {
                "bootstrap.servers": bootstrap,
                "acks": 1,
                "linger.ms": 0,
                "message.timeout.ms": 3000,
                "queue.buffering.max.messages": 20,
            }
        )
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> HeartbeatSender:
        """Begin; the first heartbeat goes out at once."""
        self._thread.start()
        return self

    def update(
        self,
        *,
        inc: int | None = None,
        ready: bool | None = None,
        states: dict[str, str] | None = None,
        holes: tuple[Hole, ...] | None = None,
        detail: dict[str, int] | None = None,
    ) -> None:
        """Say this from the next heartbeat on; what is not given stays. From any thread."""
        with self._lock:
            said = self._beat
            self._beat = replace(
                said,
                inc=said.inc if inc is None else inc,
                ready=said.ready if ready is None else ready,
                states=said.states if states is None else dict(states),
                holes=said.holes if holes is None else holes,
                detail=said.detail if detail is None else dict(detail),
            )
            self._updated_s = time.monotonic()
            if self._beat.states != said.states:
                self._news.set()

    def stop(self) -> None:
        """Send no more."""
        self._stopping.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(2.0)
        self._producer.flush(0.2)
        self._producer.purge()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            self._send()
            # On absolute deadlines, so that a slow one does not move all that follow; those that
            # were slept through (a pause) are not made up for.
            due += self._interval_s
            now = time.monotonic()
            due = max(due, now)
            if self._news.wait(due - now):
                self._news.clear()
                due = time.monotonic()

    def _send(self) -> None:
        with self._lock:
            beat = replace(self._beat, at=self._clock.now_us())
            unsaid_s = time.monotonic() - self._updated_s
        if self._owner_speaks:
            beat = believable(beat, unsaid_s)
        with contextlib.suppress(BufferError, KafkaException):  # the broker is away: forgotten
            self._producer.produce(
                HEARTBEATS,
                encode_heartbeat(beat),
                beat.process.encode(),
                partition=0,
                on_delivery=self._delivered if beat.ready else None,
            )
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """The broker has it. For whoever looks at a file only (a container's health check)."""
        # What its owner says is no news for ever: an owner that hangs is not at work.
        fresh = time.monotonic() - self._updated_s < unsaid_s_max
        if error is None and self._health_file is not None and fresh:
            with contextlib.suppress(OSError):
                self._health_file.touch()


def believable(beat: Heartbeat, unsaid_s: float) -> Heartbeat:
    """What is left of a heartbeat whose owner last spoke ``unsaid_s`` ago."""
    return beat if unsaid_s <= states_s_max else replace(beat, states={}, detail={})


@dataclass(frozen=True, slots=True)
class Heard:
    """A process's latest heartbeat, and when it was heard (monotonic seconds)."""

    beat: Heartbeat
    heard_s: float


class HeartbeatView:
    """What has been heard of whom. Pure: heartbeats and time come in."""

    def __init__(self) -> None:
        self._heard: dict[str, Heard] = {}
        self._inc_max: dict[str, int] = {}

    def hear(self, beat: Heartbeat, now_s: float) -> bool:
        """Take a heartbeat in; says whether it is news of somebody's outputs.

        Two processes may speak under one name, a zombie and its successor: the one that was
        started later counts, as long as it goes on speaking.
        """
        self._inc_max[beat.process] = max(beat.inc, self._inc_max.get(beat.process, -1))
        known = self._heard.get(beat.process)
        if known is not None and not self._supersedes(beat, known, now_s):
            return False
        self._heard[beat.process] = Heard(beat, now_s)
        return known is None or known.beat.states != beat.states

    @staticmethod
    def _supersedes(beat: Heartbeat, known: Heard, now_s: float) -> bool:
        newer = (beat.started_at, beat.pid) >= (known.beat.started_at, known.beat.pid)
        return newer or now_s - known.heard_s > stale_s

    def latest(self, process: str) -> Heartbeat | None:
        """The latest heartbeat of a process."""
        heard = self._heard.get(process)
        return None if heard is None else heard.beat

    def all(self) -> dict[str, Heartbeat]:
        """The latest heartbeat of everybody, by name."""
        return {name: heard.beat for name, heard in sorted(self._heard.items())}

    def age_ms(self, process: str, now_s: float) -> float | None:
        """How long ago the process was last heard; None if never."""
        heard = self._heard.get(process)
        return None if heard is None else (now_s - heard.heard_s) * 1000

    def superseded(self, process: str, inc: int) -> bool:
        """Whether somebody speaks for this fragment under a greater incarnation (rule 6)."""
        return self._inc_max.get(process, -1) > inc

    def hole_in(self, topic: str, partition: int, inc: int, now_s: float) -> bool:
        """Whether somebody who was heard lately sees a hole in this log of ours (rule 11)."""
        hole = Hole(topic, partition, inc)
        return any(
            hole in heard.beat.holes and now_s - heard.heard_s <= stale_s
            for heard in self._heard.values()
        )

    def ready(self, process: str, now_s: float) -> bool:
        """Whether the process was heard lately and said that it does its work."""
        heard = self._heard.get(process)
        return heard is not None and heard.beat.ready and now_s - heard.heard_s <= stale_s


class HeartbeatListener:
    """Listens to all heartbeats in a thread of its own, from now on.

    ``on_change`` is called in that thread when an output of somebody has changed its state; an
    event loop passes a function that uses ``call_soon_threadsafe``. Heartbeats are heard up to
    ``gather_ms`` after they were sent.
    """

    def __init__(
        self,
        transport: Transport,
        on_change: Callable[[], None] | None = None,
        *,
        gather_ms: int = gather_ms,
    ) -> None:
        self._gather_ms = gather_ms
        self._transport = transport
        self._on_change = on_change
        self._view = HeartbeatView()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> HeartbeatListener:
        """Begin to listen."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Listen no more."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def latest(self, process: str) -> Heartbeat | None:
        """The latest heartbeat of a process."""
        with self._lock:
            return self._view.latest(process)

    def all(self) -> dict[str, Heartbeat]:
        """The latest heartbeat of everybody, by name."""
        with self._lock:
            return self._view.all()

    def age_ms(self, process: str) -> float | None:
        """How long ago the process was last heard; None if never."""
        with self._lock:
            return self._view.age_ms(process, time.monotonic())

    def heard(self, process: str, now_us: int) -> tuple[Heartbeat, int] | None:
        """The latest heartbeat of a process, and when (us) by a clock that shows ``now_us``."""
        with self._lock:
            beat = self._view.latest(process)
            age_ms = self._view.age_ms(process, time.monotonic())
        return None if beat is None or age_ms is None else (beat, now_us - round(age_ms * 1000))

    def superseded(self, process: str, inc: int) -> bool:
        """Whether somebody speaks for this fragment under a greater incarnation (rule 6)."""
        with self._lock:
            return self._view.superseded(process, inc)

    def hole_in(self, topic: str, partition: int, inc: int) -> bool:
        """Whether somebody sees a hole in this log of ours (rule 11)."""
        with self._lock:
            return self._view.hole_in(topic, partition, inc, time.monotonic())

    def ready(self, process: str) -> bool:
        """Whether the process was heard lately and said that it does its work."""
        with self._lock:
            return self._view.ready(process, time.monotonic())

    def wait_for(
        self, holds: Callable[[HeartbeatView], bool], timeout_s: float | None = None
    ) -> bool:
        """Wait until this holds of what has been heard; whether it came to."""
        with self._changed:
            return self._changed.wait_for(lambda: holds(self._view), timeout_s)

    def _run(self) -> None:
        reader = self._transport.reader(prefetch_kib_max=512, gather_ms=self._gather_ms)
        try:
            while not self._stopping.is_set():
                self._listen(reader)
        finally:
            reader.close()

    def _listen(self, reader: Reader) -> None:
        try:
            if not reader.assigned:
                reader.assign(self._transport.end_offsets([_LOG], timeout_s=1.0))
            records = reader.poll(1000, interval_s)
        except PositionGoneError:
            reader.unassign([_LOG])  # heard too slowly: go on with what is said now
            return
        except LogError:
            self._stopping.wait(interval_s)
            return
        if not records:
            return
        now_s, news = time.monotonic(), False
        with self._changed:
            for record in records:
                try:
                    beat = decode_heartbeat(record.value, record.offset)
                    news |= self._view.hear(beat, now_s)
                except MalformedRecordError:
                    continue  # not one of ours: says nothing about anybody
            self._changed.notify_all()
        if news and self._on_change is not None:
            self._on_change()
