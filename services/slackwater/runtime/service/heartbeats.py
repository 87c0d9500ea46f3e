"""Heartbeats: every process sends its state every 40 or 100 ms, and receives those of all others.

A heartbeat has the state of each output stream, the incarnation of the sender's log, and the holes
that the sender has found in other logs. (In DPC, section 4.3, consumers query their producers. Here
the state is broadcast, so a consumer needs no list of producers.) From heartbeats a writer detects
that it is superseded (rule-6) and that it must send again (rule-11). Both only save time:
correctness does not depend on when they are detected.

The sender is a thread with its own producer: a process that is busy, or waits for the broker, is
still alive, and a false suspicion costs more than a thread. Heartbeats that cannot be sent are
dropped after 3 s; the next one is due within 100 ms.

To send the state of many fragments 25 times a second would be expensive, since every process
decodes all of it. Between two *full* records a process therefore sends *pulses*. A pulse names the
full record that is still valid, and refreshes every name in it. The next record is a full one after
a change, and ``FULL_S`` after the last full one. A reader that lacks the named record waits for the
next full one.

Any principal with write access to the topic can forge heartbeats. Records that do not decode are
skipped and counted. A greater incarnation is a claim: the writer concerned checks it against its
log before it stops, and calls ``refute`` if the claim is false. The heartbeats held are bounded.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from slackwater.codec.state_records import decode_heartbeat, encode_heartbeat
from slackwater.model.errors import MalformedRecordError
from slackwater.model.names import Names
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.cluster import Where, confluent_client
from slackwater.runtime.logs.kafka import client_config
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Log, LogError, PositionGoneError, Reader, Transport
from slackwater.runtime.service.beat import HeartbeatState, cpu_detail, part_of
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.cpu import OwnCpu
from slackwater.runtime.service.heartbeat_view import HeartbeatView
from slackwater.runtime.service.settings import settings

INTERVAL_S = 0.1
REPLICA_INTERVAL_S = 0.04
"""Interval of an orderer that has other replicas: consumers switch away from a silent replica after
three intervals (``protocols.dpc.soutput.upstream``). A single replica has no alternative, and
needs no shorter interval."""

FULL_S: Final = 0.2
"""Interval of full records of a process with parts, changed or not."""


UNREPORTED_S_MAX = 5.0
"""A process with an owner that has not called ``update`` for this long is unhealthy."""

GATHER_MS = 50
"""How long the broker gathers heartbeats for one response to a listener. Every process receives all
heartbeats. With one response for each heartbeat, ten processes spent a third of their CPU on them,
and the broker sent 1,900 responses a second."""


REPLICAS_GATHER_MS = 20
"""``GATHER_MS`` for a root, which chooses between replicas, and for its copy."""

WATCH_GATHER_MS = 100
"""``GATHER_MS`` for the process that starts the others: it knows by itself which of them end."""

PATIENT_GATHER_MS = 200
"""``GATHER_MS`` for a process that looks only for holes in its own logs and for successors. Neither
is urgent, and each response wakes four threads and the broker."""


class HeartbeatSender:
    """Sends a process's heartbeat until it is stopped; never blocks its owner.

    A heartbeat is sent every ``interval_s``, and at once when its content changes (counters
    excepted).

    Args:
        where: the cluster.
        process: the process's name.
        names: the names of the deployment.
        clock: the source of timestamps.
        health_file: touched when the broker has acknowledged a heartbeat of a process that is
            ready, with all of its parts.
        interval_s: seconds between two heartbeats.
        owner_updates: the owner calls ``update`` continuously; its output states and details are
            omitted after ``STATES_S_MAX`` without a call.
        carries: the process has parts with names of their own (``add_part``) and reports nothing
            but them. One record holds the state of all parts, from one thread, through one
            producer.
        cpu: measures the CPU of the process.
        before: called before each heartbeat, in the sender's thread.
    """

    def __init__(
        self,
        where: Where,
        process: str,
        *,
        names: Names,
        clock: SystemClock | None = None,
        health_file: Path | None = None,
        interval_s: float = INTERVAL_S,
        owner_updates: bool = False,
        carries: bool = False,
        cpu: OwnCpu | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._process = process
        self._topic = names.heartbeats
        self._interval_s = interval_s
        self._cpu = cpu or OwnCpu()
        self._before = before
        self._clock = clock or SystemClock()
        self._has_changed = threading.Event()
        self._own = self._beat(process, owner_updates=owner_updates)
        self.update = self._own.update
        self._carries = carries
        self._parts: dict[str, HeartbeatState] = {}
        self._full: Heartbeat | None = None
        """The last full record, while it is valid."""
        self._full_until_s = 0.0
        self._lock = threading.Lock()
        self._health_file = health_file or settings().health_file
        self._stopping = threading.Event()
        self._producer = Producer(
            confluent_client(where)
            | client_config
            | {
                "acks": 1,
                "linger.ms": 0,
                "message.timeout.ms": 3000,
                "queue.buffering.max.messages": 20,
            }
        )
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def _beat(self, name: str, *, owner_updates: bool) -> HeartbeatState:
        return HeartbeatState(
            name, self._clock.now_us(), self._has_changed.set, owner_updates=owner_updates
        )

    def shorten_interval(self, interval_s: float) -> None:
        """Send a heartbeat every ``interval_s`` from now on, unless the interval is shorter."""
        if interval_s < self._interval_s:
            self._interval_s = interval_s
            self._has_changed.set()

    def start(self) -> HeartbeatSender:
        """Start the thread; the first heartbeat is sent at once."""
        self._thread.start()
        return self

    def add_part(self, name: str, *, owner_updates: bool = False) -> HeartbeatState:
        """Add a part that starts now; it replaces an earlier part of the same name."""
        assert self._carries, f"{self._process} is a process of one name"
        beat = self._beat(name, owner_updates=owner_updates)
        with self._lock:
            self._parts[name] = beat
        self._has_changed.set()
        return beat

    def remove_part(self, name: str) -> None:
        """Remove a part: its heartbeats end, like those of a killed process."""
        with self._lock:
            self._parts.pop(name, None)
        self._has_changed.set()

    def stop(self) -> None:
        """Stop sending."""
        self._stopping.set()
        self._has_changed.set()
        if self._thread.ident is not None:
            self._thread.join(2.0)
        self._producer.flush(0.2)
        self._producer.purge()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            self._send()
            # Deadlines are absolute, so that a slow heartbeat does not delay all later ones; those
            # missed during a pause are not sent afterwards.
            due += self._interval_s
            now = time.monotonic()
            due = max(due, now)
            if self._has_changed.wait(due - now):
                self._has_changed.clear()
                self._full = None
                due = time.monotonic()

    def _send(self) -> None:
        self._before()
        beat = self._next_heartbeat()
        if self._carries and not (beat.parts or beat.repeats or beat.ready):
            return  # its parts are not added yet
        is_ready = all(each.ready for each in (self._full or beat).each())
        with contextlib.suppress(BufferError, KafkaException):  # broker unreachable: dropped
            self._producer.produce(
                self._topic,
                encode_heartbeat(beat),
                beat.process.encode(),
                partition=0,
                on_delivery=self._delivered if is_ready else None,
            )
        self._producer.poll(0)

    def _next_heartbeat(self) -> Heartbeat:
        """The next record; each part reports the measurements of the whole process."""
        now = self._clock.now_us()
        if self._full is not None and time.monotonic() < self._full_until_s:
            return replace(self._full, at=now, parts=(), detail={}, repeats=self._full.at)
        share = self._cpu.share()
        measured = SKIPPED.detail() | ({} if share is None else cpu_detail(share))
        states = [beat.to_heartbeat(now, measured) for beat in self._beats()]
        if not self._carries:
            return states[0]
        parts = tuple(map(part_of, states))
        full = replace(self._own.to_heartbeat(now, measured), parts=parts)
        # Half an interval early: otherwise every other full record would be one interval late.
        self._full_until_s = time.monotonic() + FULL_S - self._interval_s / 2
        self._full = full if parts else None
        return full

    def _beats(self) -> list[HeartbeatState]:
        with self._lock:
            if not self._carries:
                return [self._own]
            return [beat for beat in self._parts.values() if not beat.is_silent]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """Touch the health file after an acknowledgement, for a container's health check."""
        # An owner that hangs no longer updates its state: the process is unhealthy.
        fresh = all(beat.update_age_s < UNREPORTED_S_MAX for beat in self._beats())
        if error is None and self._health_file is not None and fresh:
            with contextlib.suppress(OSError):
                self._health_file.touch()


class HeartbeatListener:
    """Receives all heartbeats in its own thread, from the end of the topic.

    ``on_change`` is called in that thread when the state of any output changes; a program with an
    event loop passes a function that uses ``call_soon_threadsafe``. A heartbeat is received up to
    ``gather_ms`` after it was sent.
    """

    def __init__(
        self,
        transport: Transport,
        on_change: Callable[[], None] | None = None,
        *,
        gather_ms: int = GATHER_MS,
    ) -> None:
        self._gather_ms = gather_ms
        self._transport = transport
        self._log = (transport.names.heartbeats, 0)
        self._on_change = on_change
        self._view = HeartbeatView()
        self._last_offset = -1
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> HeartbeatListener:
        """Start the thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def latest(self, process: str) -> Heartbeat | None:
        """The latest heartbeat of a process."""
        with self._lock:
            return self._view.latest(process)

    def stayed_down_with(self, process: str, pid: int) -> int | None:
        """The placement number with which a fragment stayed down; see ``HeartbeatView``."""
        with self._lock:
            return self._view.stayed_down_with(process, pid)

    def all(self) -> dict[str, Heartbeat]:
        """The latest heartbeat of every name."""
        with self._lock:
            return self._view.all()

    def age_ms(self, process: str) -> float | None:
        """Age of the process's latest heartbeat in ms; None without one."""
        with self._lock:
            return self._view.age_ms(process, time.monotonic())

    def last_heartbeat(self, process: str, now_us: int) -> tuple[Heartbeat, int] | None:
        """A process's latest heartbeat and its time (us), on the clock that reads ``now_us``."""
        with self._lock:
            beat = self._view.latest(process)
            age_ms = self._view.age_ms(process, time.monotonic())
        return None if beat is None or age_ms is None else (beat, now_us - round(age_ms * 1000))

    def returned(self, process: str) -> int | None:
        """When the latest heartbeat was sent that has been received of this process, us."""
        with self._lock:
            return self._view.sent_at(process)

    def claimed(self, process: str, inc: int) -> int | None:
        """The incarnation greater than ``inc`` claimed under this name, or None (rule-6)."""
        with self._lock:
            claimed = self._view.claimed(process)
        return claimed if claimed is not None and claimed > inc else None

    def refute(self, process: str, claimed: int) -> None:
        """Discard a claimed incarnation that is in no log, and count it as a skipped record."""
        SKIPPED.note(
            *self._log,
            self._last_offset,
            "an incarnation that is in no log",
            f"{process}: {claimed}",
        )
        with self._lock:
            self._view.refute(process, time.monotonic())

    def hole_in(self, topic: str, partition: int, inc: int) -> bool:
        """Whether a fresh heartbeat reports a hole in this log (rule-11)."""
        with self._lock:
            return self._view.hole_in(topic, partition, inc, time.monotonic())

    def holes(self) -> frozenset[Log]:
        """The logs in which a live and ready reader reports a hole (rule-11)."""
        with self._lock:
            return self._view.holes(time.monotonic())

    def ready(self, process: str) -> bool:
        """Whether the process's latest heartbeat is fresh and reports ready."""
        with self._lock:
            return self._view.ready(process, time.monotonic())

    def wait_for(
        self, holds: Callable[[HeartbeatView], bool], timeout_s: float | None = None
    ) -> bool:
        """Wait until the predicate holds for the view; False if the timeout elapsed first."""
        with self._changed:
            return self._changed.wait_for(lambda: holds(self._view), timeout_s)

    def shorten_gather(self, gather_ms: int) -> None:
        """Receive each heartbeat within ``gather_ms`` from now on, unless it is so already."""
        self._gather_ms = min(gather_ms, self._gather_ms)

    def _run(self) -> None:
        while not self._stopping.is_set():
            gather_ms = self._gather_ms
            reader = self._transport.reader(prefetch_kib_max=512, gather_ms=gather_ms)
            try:
                while gather_ms == self._gather_ms and not self._stopping.is_set():
                    self._listen(reader)
            finally:
                reader.close()

    def _listen(self, reader: Reader) -> None:
        try:
            if not reader.assigned:
                reader.assign(self._transport.end_offsets([self._log], timeout_s=1.0))
            # Longer than the broker takes, so that its response ends the wait, not the time-out.
            records = reader.poll(1000, INTERVAL_S + 2 * self._gather_ms / 1000)
        except PositionGoneError:
            reader.unassign([self._log])  # overtaken by retention: continue at the end
            return
        except LogError:
            self._stopping.wait(INTERVAL_S)
            return
        if not records:
            return
        now_s, has_changed = time.monotonic(), False
        with self._changed:
            for record in records:
                try:
                    beat = decode_heartbeat(record.value, record.offset)
                except MalformedRecordError as error:
                    SKIPPED.note(*record.log, record.offset, "not a heartbeat", error.reason)
                    continue
                has_changed |= self._view.take(beat, now_s, len(record.value))
                self._last_offset = record.offset
            self._changed.notify_all()
        if has_changed and self._on_change is not None:
            self._on_change()
