"""A fragment whose turns are too long is moved to a host of its own.

Its host measures turns, holds the fragment back and tells of it in the fragment's heartbeat
(``runtime.host.longturns``). Whoever keeps the hosts reads that here, starts a host for this
fragment alone, and lets the first one drop it. Nothing is handed over between the two: a fragment
begins from its logs, as after any death, and its START tells the first life's records from the
second's (rule-6), so it does not matter which of the two is quicker.

It is not moved back: what made its turns long is in it or in its input, and a move costs its own
query a gap of some seconds. Own hosts are bounded, for each is a process; what is beyond the bound
stays held back in its first host.

A host whose turn does not end obeys no command. It is killed, the last resort, and its next life is
without the fragment.

A heartbeat is evidence only if it has the pid of the process that serves the fragment now: it may
be of the life before the move. Whoever may write to the topic may speak in anybody's name; moves
are bounded, and there is no kill without one, so that this has a bound, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from slackwater.model.errors import EnvironmentProblem
from slackwater.model.records import Heartbeat
from slackwater.runtime.local.layout import HOST, Launch, host_spec
from slackwater.runtime.local.supervisor import Supervisor
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.parts import ENDLESS_TURN, LONG_TURN_MS

OWN_HOSTS_MAX: Final = 4
"""Processes beside those of the deployment, of 100 MB each, with one fragment each."""
LOOK_S: Final = 0.1


class OwnHosts:
    """See above. For the supervisor's event loop.

    Args:
        supervisor: keeps the hosts.
        listener: hears their fragments.
        launch: how hosts are started.
    """

    def __init__(self, supervisor: Supervisor, listener: HeartbeatListener, launch: Launch) -> None:
        self._supervisor = supervisor
        self._listener = listener
        self._launch = launch
        self._moved: list[str] = []
        self._left: set[str] = set()
        """Those that stay where they are."""

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look(self._listener.all())

    async def look(self, latest: Mapping[str, Heartbeat]) -> None:
        """Move whoever is told to be too slow."""
        pids = self._supervisor.pids()
        for part, beat in latest.items():
            if not {LONG_TURN_MS, ENDLESS_TURN} & beat.detail.keys():
                continue
            process = self._supervisor.process_of(part)
            if process is None or not self._is_shared(process) or pids.get(process) != beat.pid:
                continue
            is_moved = part not in self._left and await self._move(part, process, _why(beat))
            if is_moved and ENDLESS_TURN in beat.detail:
                self._supervisor.kill(process)

    def _is_shared(self, process: str) -> bool:
        return process.startswith(f"{HOST}/") and len(self._supervisor.parts(process)) > 1

    async def _move(self, part: str, process: str, why: str) -> bool:
        if len(self._moved) >= OWN_HOSTS_MAX:
            self._left.add(part)
            reported = f"{why}; {OWN_HOSTS_MAX} hosts of their own are all there may be: held back"
            self._supervisor.record(part, reported)
            return False
        self._supervisor.record(part, why)
        kept = [each for each in self._supervisor.parts(process) if each != part]
        own = host_spec(f"{HOST}/own-{len(self._moved)}", (part,), self._launch, "--own")
        try:
            await self._supervisor.move(part, host_spec(process, kept, self._launch), own)
        except (EnvironmentProblem, OSError) as error:
            self._left.add(part)
            self._supervisor.record(part, f"cannot be moved: {error}")
            return False
        self._moved.append(part)
        return True


def _why(beat: Heartbeat) -> str:
    if ENDLESS_TURN in beat.detail:
        return "its turn does not end"
    return f"its turns take up to {beat.detail[LONG_TURN_MS]} ms"
