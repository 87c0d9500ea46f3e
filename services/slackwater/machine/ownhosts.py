"""Own hosts: moves a fragment whose turns are too long to a host of its own.

The host measures turns, delays the fragment and reports it in the fragment's heartbeat
(``host.longturns``). The supervisor reads that here, starts a host for this fragment alone,
and removes the fragment from the first host. No state is transferred: the fragment starts from its
logs, as after any failure. Its START separates the records of its two incarnations, so the order of
stop and start does not matter (rule-6).

A fragment is not moved back: the cause of long turns is in the fragment or in its input, and a move
interrupts its query for some seconds. The number of own hosts is bounded, since each is a process;
further fragments stay delayed in their first host.

A host in which a turn does not end executes no command. It is killed, and restarts without the
fragment.

A heartbeat counts only if it has the pid of the process that runs the fragment now: it may date
from before the move. Any principal with write access to the topic can forge heartbeats. The damage
is bounded, since moves are bounded and a host is killed only with a move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch, host_spec
from slackwater.machine.supervisor import Supervisor
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.kinds import HOST
from slackwater.model.records import Heartbeat
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.parts import ENDLESS_TURN, LONG_TURN_MS

OWN_HOSTS_MAX: Final = 4
"""Bound on additional processes, of 100 MB each, with one fragment each."""
LOOK_S: Final = 0.1


class OwnHosts:
    """Moves slow fragments to hosts of their own; for the supervisor's event loop.

    Args:
        supervisor: keeps the hosts running.
        listener: receives the heartbeats of their fragments.
        launch: how hosts are started.
    """

    def __init__(self, supervisor: Supervisor, listener: HeartbeatListener, launch: Launch) -> None:
        self._supervisor = supervisor
        self._listener = listener
        self._launch = launch
        self._moved: list[str] = []
        self._left: set[str] = set()
        """Fragments that stay in their first host."""

    async def run(self) -> None:
        """Check every ``LOOK_S``, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look(self._listener.all())

    async def look(self, latest: Mapping[str, Heartbeat]) -> None:
        """Move each fragment whose heartbeat reports long turns."""
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
            reported = f"{why}; all {OWN_HOSTS_MAX} own hosts are in use, so it stays held back"
            self._supervisor.record(part, reported)
            return False
        self._supervisor.record(part, why)

        def kept(parts: Sequence[str]) -> ProcessSpec:
            return host_spec(process, parts, self._launch)

        own = host_spec(f"{HOST}/own-{len(self._moved)}", (part,), self._launch, "--own")
        try:
            await self._supervisor.move(part, kept, own)
        except (EnvironmentProblem, OSError) as error:
            self._left.add(part)
            self._supervisor.record(part, f"cannot be moved: {error}")
            return False
        self._moved.append(part)
        return True


def _why(beat: Heartbeat) -> str:
    if ENDLESS_TURN in beat.detail:
        return "a turn does not end"
    return f"turns take up to {beat.detail[LONG_TURN_MS]} ms"
