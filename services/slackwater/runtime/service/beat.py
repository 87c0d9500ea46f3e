"""The heartbeat of one name, from its owner's last update and the age of that update.

A process has a name. Each fragment of a host and each stream of a proxy, called a *part* of its
process, has a name of its own. The *owner* of a name is the code that updates the reported state;
the sender (``runtime.service.heartbeats``) reads it for each heartbeat. If the owner stops to
update, the state expires.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypedDict, Unpack

from slackwater.model.records import Heartbeat, HeartbeatPart, Hole
from slackwater.runtime.service.cpu import CpuShare

STATES_S_MAX = 1.0
"""Lifetime of reported output states: no consumer must wait for a fragment that hangs while its
process still sends heartbeats."""

CPU_MS = "cpu_ms_per_s"
CPU_WAIT_MS = "cpu_wait_ms_per_s"


class HeartbeatChanges(TypedDict, total=False):
    """The values of a heartbeat that its owner sets; a value that is left out is unchanged."""

    inc: int
    ready: bool
    states: dict[str, str]
    holes: tuple[Hole, ...]
    detail: dict[str, int]


class HeartbeatState:
    """The reported state of one name, a process or a part of one. Thread-safe.

    ``owner_updates``: the owner calls ``update`` continuously. Its output states and details are
    omitted after ``STATES_S_MAX`` without a call. ``on_change`` is called when the state has
    changed, counters excepted.
    """

    def __init__(
        self, process: str, started_at: int, on_change: Callable[[], None], *, owner_updates: bool
    ) -> None:
        self._on_change = on_change
        self._owner_updates = owner_updates
        self._beat = Heartbeat(
            process=process,
            pid=os.getpid(),
            started_at=started_at,
            at=started_at,
            inc=-1,
            ready=False,
            states={},
        )
        self._lasting: dict[str, int] = {}
        self._updated_s = time.monotonic()
        self._lock = threading.Lock()
        self._is_silent = False

    def update(self, **changes: Unpack[HeartbeatChanges]) -> None:
        """Set these values from the next heartbeat on; the others stay."""
        if "states" in changes:
            changes["states"] = dict(changes["states"])
        if "detail" in changes:
            changes["detail"] = dict(changes["detail"])
        with self._lock:
            emitted = self._beat
            self._beat = replace(emitted, **changes)
            self._updated_s = time.monotonic()
            has_changed = replace(self._beat, detail=emitted.detail) != emitted
        if has_changed:
            self._on_change()

    @property
    def is_silent(self) -> bool:
        """Whether heartbeats of this name are suppressed, as those of a paused process."""
        return self._is_silent

    @is_silent.setter
    def is_silent(self, is_silent: bool) -> None:
        self._is_silent = is_silent
        self._on_change()

    def keep_reporting(self, detail: Mapping[str, int]) -> None:
        """Add details that every later heartbeat carries, also while the owner does not update."""
        with self._lock:
            self._lasting |= detail
        self._on_change()

    def to_heartbeat(self, at: int, measured: dict[str, int]) -> Heartbeat:
        """The heartbeat to send at ``at`` (us), with the process's measurements as details."""
        with self._lock:
            beat, age_s = replace(self._beat, at=at), self.update_age_s
            measured = self._lasting | measured
        if self._owner_updates:
            beat = believable(beat, age_s)
        return replace(beat, detail=beat.detail | measured) if measured else beat

    @property
    def update_age_s(self) -> float:
        """Seconds since the owner's last update."""
        return time.monotonic() - self._updated_s


def part_of(beat: Heartbeat) -> HeartbeatPart:
    """The fields of a heartbeat that belong to a part; the rest belongs to its process."""
    return HeartbeatPart(
        beat.process,
        beat.started_at,
        beat.inc,
        beat.ready,
        beat.states,
        beat.holes,
        beat.detail,
    )


def cpu_detail(share: CpuShare) -> dict[str, int]:
    """A process's CPU as heartbeat details, in ms per second: time used, and time without a core.

    The sender measures both itself, so they are reported also while the owner hangs
    (``runtime.service.cpu``).
    """
    return {CPU_MS: round(share.used * 1000), CPU_WAIT_MS: round(share.waited * 1000)}


def cpu_share(beat: Heartbeat) -> CpuShare | None:
    """The inverse of ``cpu_detail``; None in the first second of a process."""
    if CPU_MS not in beat.detail:
        return None
    return CpuShare(beat.detail[CPU_MS] / 1000, beat.detail.get(CPU_WAIT_MS, 0) / 1000)


def believable(beat: Heartbeat, age_s: float) -> Heartbeat:
    """The heartbeat; without states and details if the owner's last update is too old."""
    return beat if age_s <= STATES_S_MAX else replace(beat, states={}, detail={})
