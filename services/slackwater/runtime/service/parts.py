"""Parts of a process: what others tell them to do, and what their heartbeats tell of failures.

A rehearsal kills and pauses the parts of a process as it does processes, and no signal can name a
part. So there are commands: lines on the process's standard input, ``VERB PART``, such as ``kill
proxy/room-1``. A pipe from the parent needs no address, nobody else can write to it, and it ends
with the parent. What does not fit is logged and skipped.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from slackwater.model.records import Hole
from slackwater.runtime.service.heartbeats import HeartbeatSender

_log = logging.getLogger(__name__)

COMMAND_OF: Final[Mapping[signal.Signals, str]] = {
    signal.SIGKILL: "kill",
    signal.SIGSTOP: "pause",
    signal.SIGCONT: "resume",
}
"""What does to a part what the signal does to a process."""


FAILURES: Final = "failures"
"""In a part's heartbeat: how often it has failed since its process started,"""
FAILED_AT: Final = "failed_at"
"""when that was last (us),"""
FAILED_CODE: Final = "failed_code"
"""and the exit code that a process of its own would have ended with."""
HELD_BYTES: Final = "held_bytes"
"""In that of a fragment that has ended because it kept too much of an input: how much that was,"""
HELD_BYTES_MAX: Final = "held_bytes_max"
"""and how much it may keep (H of rule-12, shared out over its inputs)."""
LONG_TURN_MS: Final = "long_turn_ms"
"""In that of a fragment whose turns are too long (``runtime.host.longturns``): the longest so
far."""
ENDLESS_TURN: Final = "endless_turn"
"""1 in that of a fragment whose turn does not end, so that its host obeys no command."""
OWN_HOST: Final = "own_host"
"""1 in that of a fragment that was given a host of its own for this."""

ADD: Final = "add"
"""A command to a host: run this fragment, too,"""
REMOVE: Final = "remove"
"""and: run it no more."""

Commands = Callable[[str, str], Callable[[], None] | None]
"""What a verb does to a part; None if there is no such verb or part."""


class PartBeat:
    """What is told of a part: to others, the heartbeat of a process of its own.

    It begins anew when the part does, with a later start; its failures are counted over all of
    that. ``owner_speaks``: see ``HeartbeatSender``.
    """

    def __init__(self, sender: HeartbeatSender, name: str, *, owner_speaks: bool = False) -> None:
        self._sender, self._name, self._owner_speaks = sender, name, owner_speaks
        self._beat = sender.add_part(name, owner_speaks=owner_speaks)
        self._lasting: dict[str, int] = {}
        self._is_silent = False

    def update(
        self,
        *,
        inc: int | None = None,
        ready: bool | None = None,
        states: dict[str, str] | None = None,
        holes: tuple[Hole, ...] | None = None,
        detail: dict[str, int] | None = None,
    ) -> None:
        """Tell this from now on; what is not given stays."""
        self._beat.update(inc=inc, ready=ready, states=states, holes=holes, detail=detail)

    def begin_again(self, lasting: Mapping[str, int] | None = None) -> None:
        """The part begins anew; ``lasting`` stays in its details from now on."""
        self._lasting |= lasting or {}
        self._beat = self._sender.add_part(self._name, owner_speaks=self._owner_speaks)
        self._beat.is_silent = self._is_silent
        self._beat.keep_reporting(self._lasting)

    def keep_reporting(self, lasting: Mapping[str, int]) -> None:
        """Tell this from now on, over all that is updated later, and at once."""
        self._lasting |= lasting
        self._beat.keep_reporting(lasting)

    def hold(self) -> None:
        """Fall silent, as a paused process does."""
        self._is_silent = self._beat.is_silent = True

    def release(self) -> None:
        """Speak again."""
        self._is_silent = self._beat.is_silent = False

    def stop(self) -> None:
        """Tell no more."""
        self._sender.remove_part(self._name)


def of_parts(verbs: Mapping[str, Mapping[str, Callable[[], None]]]) -> Commands:
    """The commands of a process whose parts stay; ``verbs`` are those of each part."""
    return lambda verb, part: verbs.get(part, {}).get(verb)


def follow(lines: Iterable[bytes], commands: Commands) -> None:
    """Carry out each command until the lines end."""
    for line in lines:
        verb, _, part = line.decode(errors="replace").strip().partition(" ")
        act = commands(verb, part)
        if act is None:
            _log.warning("no command: %.200r", line)
            continue
        act()


def start_following(lines: Iterable[bytes], commands: Commands) -> None:
    """The same in a thread."""
    threading.Thread(target=follow, args=(lines, commands), name="commands", daemon=True).start()
