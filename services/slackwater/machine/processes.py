"""The processes of one machine, and what is kept for them while they run.

It is the same for `slackwater up` and for a node: one supervisor, the heartbeats of all processes,
and the watches of logs, of long turns and of memory.
"""

from __future__ import annotations

import asyncio

from slackwater.machine.background import Background
from slackwater.machine.deaths import DeathReports
from slackwater.machine.draining import Draining
from slackwater.machine.layout import Launch
from slackwater.machine.ownhosts import OwnHosts
from slackwater.machine.supervisor import Supervisor
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.heartbeats import WATCH_GATHER_MS, HeartbeatListener


class Processes:
    """The supervisor of a machine, with its connections to Kafka; for one event loop.

    Args:
        supervisor: keeps the processes running.
        transport: to the logs of the deployment.
        launch: the parameters of their command lines.
    """

    def __init__(self, supervisor: Supervisor, transport: KafkaTransport, launch: Launch) -> None:
        self.supervisor, self.transport, self.launch = supervisor, transport, launch
        self.listener = HeartbeatListener(transport, gather_ms=WATCH_GATHER_MS)
        self._deaths = DeathReports(transport, self.listener)
        supervisor.on_death = self._died

    def watch(self, background: Background) -> None:
        """Receive heartbeats, and watch the processes until ``background`` ends."""
        self.listener.start()
        self._deaths.connect()
        kept = (self.supervisor, self.listener, self.launch)
        background.run("watch of the logs", self.supervisor.watch_logs)
        background.run("watch of long turns", OwnHosts(*kept).run)
        background.run("watch of the hosts' memory", Draining(*kept).run)

    async def stop(self) -> None:
        """Stop all processes, and the receipt of heartbeats."""
        await self.supervisor.stop_all()
        await asyncio.to_thread(self.listener.stop)

    def _died(self, process: str, pid: int) -> None:
        self._deaths.report(process, self.supervisor.parts(process), pid)

    def is_ready(self, name: str) -> bool:
        """Whether a part reports ready, by the heartbeat of the process that serves it now."""
        beat = self.latest(name)
        return beat is not None and beat.ready

    def latest(self, name: str) -> Heartbeat | None:
        """The latest heartbeat of a part, of the process that serves it now."""
        beat = self.listener.latest(name)
        return beat if beat is not None and beat.pid == self.pid_of(name) else None

    def stayed_down_with(self, name: str) -> int | None:
        """The placement number with which a fragment stayed down here last."""
        pid = self.pid_of(name)
        return None if pid is None else self.listener.stayed_down_with(name, pid)

    def pid_of(self, name: str) -> int | None:
        """The process that serves a fragment or a proxy; None if none does."""
        process = self.supervisor.process_of(name)
        return None if process is None else self.supervisor.pids().get(process)
