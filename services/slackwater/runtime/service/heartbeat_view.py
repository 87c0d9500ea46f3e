"""The latest heartbeats of all processes, as one process has received them.

Pure: heartbeats and the times of their receipt are arguments. The bytes held are bounded, and with
them the names, since any principal with write access to the topic can forge heartbeats.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from slackwater.model.names import part_names
from slackwater.model.records import Heartbeat, Hole
from slackwater.protocols.flux.pair import ANSWERS, TERM
from slackwater.runtime.logs.transport import Log

STALE_S = 1.0
"""A heartbeat older than this is stale and is ignored."""

HEARTBEAT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bound on the heartbeats held; the least recently received is dropped first."""

FAILED_PLACEMENT: Final = "failed_placement"
"""Heartbeat detail of a fragment that has stayed down: its placement number at that start."""

STAYED_DOWN_MAX: Final = 10_000
"""Fragments of which the numbers are kept with which they stayed down, at most."""

REFUTED_S: Final = 5.0
"""How long claims of a greater incarnation of a name are ignored after one was refuted."""


@dataclass(slots=True)
class LastHeartbeat:
    """A process's latest heartbeat, and when it was received (monotonic seconds)."""

    beat: Heartbeat
    received_s: float
    sent_at: int = 0
    """When its last record was sent, a pulse too, in us on the clock of its process."""
    inc_max: int = -1
    """The greatest incarnation claimed under this name."""
    bytes_held: int = 0
    refuted_s: float = -math.inf
    """When a claim of a greater incarnation was last found to be false."""


class _FullRecord(NamedTuple):
    """A full record of a process with parts: the heartbeat of each part, and its size."""

    at: int
    beats: tuple[Heartbeat, ...]
    nbytes: int


class HeartbeatView:
    """The latest heartbeat of every name. Pure: heartbeats and time are arguments."""

    def __init__(self, bytes_max: int = HEARTBEAT_BYTES_MAX) -> None:
        self._last_heartbeats: OrderedDict[str, LastHeartbeat] = OrderedDict()
        # Hosts of two nodes may have one name.
        self._full_records: OrderedDict[tuple[str, int, int], _FullRecord] = OrderedDict()
        self._stayed_down: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._full_bytes = 0
        self._bytes_max = bytes_max
        self._bytes_held = 0

    def take(self, beat: Heartbeat, now_s: float, nbytes: int = 0) -> bool:
        """Process a record of ``nbytes``; returns whether the state of an output changed."""
        if beat.repeats:
            self._repeat(beat, now_s)
            return False
        full = tuple(beat.each())
        news = [self.observe(each, now_s, nbytes // len(full)) for each in full]
        if beat.parts:
            self._keep(_sender(beat), _FullRecord(beat.at, full, nbytes))
        return any(news)

    def _keep(self, sender: tuple[str, int, int], full: _FullRecord) -> None:
        old = self._full_records.pop(sender, None)
        self._full_records[sender] = full
        self._full_bytes += full.nbytes - (0 if old is None else old.nbytes)
        while self._full_bytes > self._bytes_max and len(self._full_records) > 1:
            self._full_bytes -= self._full_records.popitem(last=False)[1].nbytes

    def _repeat(self, pulse: Heartbeat, now_s: float) -> None:
        full = self._full_records.get(_sender(pulse))
        if full is None or full.at != pulse.repeats:
            return
        for beat in full.beats:
            last = self._last_heartbeats.get(beat.process)
            # Another process may have taken over the part meanwhile.
            if last is not None and last.beat is beat:
                last.received_s, last.sent_at = now_s, pulse.at

    def observe(self, beat: Heartbeat, now_s: float, nbytes: int = 0) -> bool:
        """Process one heartbeat of ``nbytes``; returns whether the state of an output changed.

        Two processes may send under one name, a zombie and its successor. The process that was
        started later takes precedence while its heartbeats arrive. A fragment that stays down has
        none over the copy that runs elsewhere (trace-41). The report that a process has ended
        concerns this process alone, and holds against its heartbeats that arrive later, until it is
        stale: a false report is forgotten after ``STALE_S`` (trace-55).
        """
        if _stays_down(beat):
            self._stayed_down.pop((beat.process, beat.pid), None)
            self._stayed_down[beat.process, beat.pid] = beat.detail[FAILED_PLACEMENT]
            if len(self._stayed_down) > STAYED_DOWN_MAX:
                self._stayed_down.popitem(last=False)
        known = self._last_heartbeats.get(beat.process)
        if known is None:
            self._remember(LastHeartbeat(beat, now_s, beat.at, beat.inc, nbytes))
            return True
        inc_max = known.inc_max
        if now_s - known.refuted_s > REFUTED_S:
            inc_max = max(beat.inc, inc_max)
        if not self._supersedes(beat, known, now_s):
            self._last_heartbeats[beat.process] = replace(known, inc_max=inc_max)
            return False
        new = replace(
            known,
            beat=beat,
            received_s=now_s,
            sent_at=beat.at,
            inc_max=inc_max,
            bytes_held=nbytes,
        )
        self._remember(new)
        return known.beat.states != beat.states

    def _remember(self, last: LastHeartbeat) -> None:
        old = self._last_heartbeats.pop(last.beat.process, None)
        self._last_heartbeats[last.beat.process] = last
        self._bytes_held += last.bytes_held - (0 if old is None else old.bytes_held)
        while self._bytes_held > self._bytes_max and len(self._last_heartbeats) > 1:
            _, forgotten = self._last_heartbeats.popitem(last=False)
            self._bytes_held -= forgotten.bytes_held

    @staticmethod
    def _supersedes(beat: Heartbeat, known: LastHeartbeat, now_s: float) -> bool:
        is_same = (beat.started_at, beat.pid) == (known.beat.started_at, known.beat.pid)
        if beat.is_dead and not is_same:
            return False
        if now_s - known.received_s > STALE_S:
            return True
        if known.beat.is_dead and is_same:
            return False
        if _stays_down(beat) != _stays_down(known.beat):
            return _stays_down(known.beat)
        return (beat.started_at, beat.pid) >= (known.beat.started_at, known.beat.pid)

    def stayed_down_with(self, process: str, pid: int) -> int | None:
        """The placement number with which a fragment of this operating-system process stayed down.

        None if it has not, as far as its heartbeats have been received.
        """
        return self._stayed_down.get((process, pid))

    def latest(self, process: str) -> Heartbeat | None:
        """The latest heartbeat of a process."""
        last = self._last_heartbeats.get(process)
        return None if last is None else last.beat

    def all(self) -> dict[str, Heartbeat]:
        """The latest heartbeat of every name."""
        return {name: last.beat for name, last in sorted(self._last_heartbeats.items())}

    def age_ms(self, process: str, now_s: float) -> float | None:
        """Age of the process's latest heartbeat in ms; None without one."""
        last = self._last_heartbeats.get(process)
        return None if last is None else (now_s - last.received_s) * 1000

    def sent_at(self, process: str) -> int | None:
        """When the process's latest record was sent, a pulse too, us; None without one."""
        last = self._last_heartbeats.get(process)
        return None if last is None else last.sent_at

    def superseded(self, process: str, inc: int) -> bool:
        """Whether a greater incarnation of this fragment has been claimed (rule-6)."""
        claimed = self.claimed(process)
        return claimed is not None and claimed > inc

    def claimed(self, process: str) -> int | None:
        """The greatest incarnation claimed under this name; None without a heartbeat."""
        last = self._last_heartbeats.get(process)
        return None if last is None else last.inc_max

    def refute(self, process: str, now_s: float) -> None:
        """Discard the claimed incarnation; later claims are ignored for ``REFUTED_S``."""
        last = self._last_heartbeats.get(process)
        if last is not None:
            self._last_heartbeats[process] = replace(last, inc_max=-1, refuted_s=now_s)

    def hole_in(self, topic: str, partition: int, inc: int, now_s: float) -> bool:
        """Whether a fresh heartbeat reports a hole in this log (rule-11)."""
        hole = Hole(topic, partition, inc)
        return any(
            hole in last.beat.holes and now_s - last.received_s <= STALE_S
            for last in self._last_heartbeats.values()
        )

    def holes(self, now_s: float) -> frozenset[Log]:
        """The logs in which a live and ready reader reports a hole (rule-11)."""
        return frozenset(
            (hole.topic, hole.partition)
            for last in self._last_heartbeats.values()
            if last.beat.holes and last.beat.ready and now_s - last.received_s <= STALE_S
            for hole in last.beat.holes
        )

    def ready(self, process: str, now_s: float) -> bool:
        """Whether the process's latest heartbeat is fresh and reports ready."""
        last = self._last_heartbeats.get(process)
        return last is not None and last.beat.ready and now_s - last.received_s <= STALE_S


def answering(latest: Callable[[str], Heartbeat | None], query: str, part: int) -> Heartbeat | None:
    """The latest heartbeat of the root that answers a part; of two copies that of the last term.

    Before the first term it is that of any copy.
    """
    found = [beat for of in part_names(query, part) if (beat := latest(of.process)) is not None]
    return max(
        found,
        key=lambda beat: (beat.detail.get(ANSWERS, 1), beat.detail.get(TERM, 0)),
        default=None,
    )


def _sender(beat: Heartbeat) -> tuple[str, int, int]:
    """A life of a process, on any node."""
    return beat.process, beat.pid, beat.started_at


def _stays_down(beat: Heartbeat) -> bool:
    return not beat.ready and FAILED_PLACEMENT in beat.detail
