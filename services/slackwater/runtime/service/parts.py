"""Parts of a process: their commands, and the details of their heartbeats.

A *part of a process* is a stream that a proxy serves, or a fragment that a host runs. (A query's
*part*, a key-hash share of its results, is something else.) A rehearsal kills and pauses parts as
it does processes, but a signal cannot address a part. Commands can: they are lines ``VERB PART`` on
the process's standard input, such as ``kill proxy/room-1``. A pipe from the parent process needs no
address, no other process can write to it, and it closes with the parent. Other lines are logged and
ignored.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Unpack

from slackwater.runtime.service.beat import HeartbeatChanges
from slackwater.runtime.service.heartbeats import HeartbeatSender

_log = logging.getLogger(__name__)

COMMAND_OF: Final[Mapping[signal.Signals, str]] = {
    signal.SIGKILL: "kill",
    signal.SIGSTOP: "pause",
    signal.SIGCONT: "resume",
}
"""The command to a part that corresponds to each signal to a process."""


FAILURES: Final = "failures"
"""Heartbeat detail of a part: how often it has failed since its process started."""
FAILED_AT: Final = "failed_at"
"""Heartbeat detail of a part: the time of its last failure (us)."""
FAILED_CODE: Final = "failed_code"
"""Heartbeat detail of a part: the exit code that a process of its own would have ended with."""
WATERMARK: Final = "watermark"
"""Heartbeat detail of a proxy that shares a topic: the smallest watermark of its source logs that
have begun (event time, us)."""
READINGS_MIN: Final = 100
"""Readings without a field before it is reported."""
OFFERED: Final = "offered"
"""In the heartbeat: the readings since the start of the proxy."""
HAS: Final = "has."
"""In the heartbeat, before a field: how many of these have it."""
THERE: Final = "there."
"""In the heartbeat, before a name that is in messages, while a field is in none: its rank."""
OFFSET_MS: Final = "offset_ms."
"""In the heartbeat, before a key: by how much the device's clock is ahead."""
UNIT: Final = "unit."
"""In the heartbeat, before the declared unit of times, a dot, and that which they seem to have: how
many of these devices."""
HTTP_AT: Final = "http_at."
"""In the heartbeat of a stream with ``http``, before the address at which its proxy accepts it."""
SKIPPED: Final = "skipped"
"""In the heartbeat: numbers that devices have skipped since the start of the proxy."""
SKIPPED_DEVICES: Final = "skipped_devices"
"""In the heartbeat: how many devices have skipped numbers."""
SKIPPED_BY: Final = "skipped."
"""In the heartbeat, before a key: the numbers that the device has skipped."""
LAST_READING: Final = "last_reading"
"""Heartbeat detail of a proxy: the largest time of its readings (event time, us); none before it
has one."""
COMPLETE_TO: Final = "complete_to"
"""Heartbeat detail of a proxy: the smallest watermark of its source logs that have readings, or of
all of them while none has (event time, us)."""
PARTITION_TO: Final = "partition_to."
"""Heartbeat detail of a proxy that reads several partitions, before the number of one: its
watermark (event time, us)."""
RECEIVER: Final = "receiver."
"""In the heartbeat of a notifier, before a receiver of alerts, a dot, and a figure of it."""
PARTITIONS_SHOWN: Final = 10
"""How many partitions it reports, those that are furthest behind; and the most advanced one."""
PROXIES: Final = "proxies"
"""Heartbeat detail of a proxy that shares a topic: the number of proxies of its stream."""
PARTITIONS: Final = "partitions"
"""Heartbeat detail of a proxy that reads a topic: the number of the stream's source logs."""
MADE_AGAIN: Final = "made_again"
"""Heartbeat detail: partitions that began anew, since their topic was deleted and made again."""
TRUNCATED: Final = "truncated"
"""Heartbeat detail: partitions that ended before a position that had been read."""
ENDED: Final = "ended"
"""Heartbeat detail of a proxy whose input ends: 1 once all of it has been read and sent, else 0."""
INGEST_LINE: Final = "ingest_line"
"""Heartbeat detail of a proxy that reads a file: the lines, or elements, that it has read of it."""
INGEST_LINES: Final = "ingest_lines"
"""Heartbeat detail of a proxy that reads a file: how many it has, if they were counted."""
AWAY_SINCE: Final = "away_since"
"""Heartbeat detail of a proxy whose topic does not exist now: since when (us)."""
HELD_BYTES: Final = "held_bytes"
"""Heartbeat detail of a fragment that ended because it held too much of an input: bytes held."""
HELD_BYTES_MAX: Final = "held_bytes_max"
"""Heartbeat detail: limit of ``HELD_BYTES`` (H of rule-12, divided among the inputs)."""
READS: Final = "reads "
"""Heartbeat detail of an aggregator: begins the name of a removed fragment whose logs it still
reads, since a running Spark query cannot be assigned fewer logs."""
SLOTS: Final = "task_slots"
"""Heartbeat detail of an aggregator of which tasks wait: the task slots that Spark has."""
SLOTS_NEEDED: Final = "task_slots_needed"
"""Heartbeat detail of such an aggregator: the task slots that all its tasks occupy."""
LONG_TURN_MS: Final = "long_turn_ms"
"""Heartbeat detail of a fragment whose turns are too long: its longest turn so far
(``host.longturns``)."""
ENDLESS_TURN: Final = "endless_turn"
"""Heartbeat detail: 1 for a fragment whose turn does not end, and therefore blocks its host."""
OWN_HOST: Final = "own_host"
"""Heartbeat detail: 1 for a fragment that was moved to its own host because of long turns."""

ADD: Final = "add"
"""Command to a host: start running this fragment."""
REMOVE: Final = "remove"
"""Command to a host: stop running this fragment."""

RESIGN: Final = "resign"
"""Command to a host: let the other copy take over from this one, if it could at once (rule-27)."""
LEARN: Final = "learn"
"""Command to a stream of a proxy: read the registry again."""

Commands = Callable[[str, str], Callable[[], None] | None]
"""Maps a verb and a part to an action; None if there is no such verb or part."""


class PartBeat:
    """The heartbeat of a part; for receivers it is that of a process of the part's name.

    A restart of the part begins a new heartbeat with a later start time; failure counts continue.
    ``owner_updates``: see ``HeartbeatSender``.
    """

    def __init__(self, sender: HeartbeatSender, name: str, *, owner_updates: bool = False) -> None:
        self._sender, self._name, self._owner_updates = sender, name, owner_updates
        self._beat = sender.add_part(name, owner_updates=owner_updates)
        self._lasting: dict[str, int] = {}
        self._is_silent = False

    def update(self, **changes: Unpack[HeartbeatChanges]) -> None:
        """Set these values from the next heartbeat on; the others are unchanged."""
        self._beat.update(**changes)

    def begin_again(self, lasting: Mapping[str, int] | None = None) -> None:
        """Restart the part's heartbeat; ``lasting`` stays in its details."""
        self._lasting |= lasting or {}
        self._beat = self._sender.add_part(self._name, owner_updates=self._owner_updates)
        self._beat.is_silent = self._is_silent
        self._beat.keep_reporting(self._lasting)

    def keep_reporting(self, lasting: Mapping[str, int]) -> None:
        """Add details that every later heartbeat carries, from now on and across updates."""
        self._lasting |= lasting
        self._beat.keep_reporting(lasting)

    def hold(self) -> None:
        """Suppress heartbeats: the part is paused."""
        self._is_silent = self._beat.is_silent = True

    def release(self) -> None:
        """Resume heartbeats."""
        self._is_silent = self._beat.is_silent = False

    def stop(self) -> None:
        """Remove the part from its process's heartbeats."""
        self._sender.remove_part(self._name)


def of_parts(verbs: Mapping[str, Mapping[str, Callable[[], None]]]) -> Commands:
    """The commands of a process with a fixed set of parts; ``verbs`` has those of each part."""
    return lambda verb, part: verbs.get(part, {}).get(verb)


def follow(lines: Iterable[bytes], commands: Commands) -> None:
    """Execute each command until the lines end."""
    for line in lines:
        verb, _, part = line.decode(errors="replace").strip().partition(" ")
        act = commands(verb, part)
        if act is None:
            _log.warning("unknown command: %.200r", line)
            continue
        act()


def start_following(lines: Iterable[bytes], commands: Commands) -> None:
    """Run ``follow`` in a daemon thread."""
    threading.Thread(target=follow, args=(lines, commands), name="commands", daemon=True).start()
