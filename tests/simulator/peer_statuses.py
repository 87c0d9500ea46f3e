"""The catch-up lease: the orderers' statuses in their heartbeats (dpc-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.heartbeats import DELAY_US, beat_of

from slackwater.model.records import Heartbeat
from slackwater.sessions.events import HeartbeatReceived

if TYPE_CHECKING:
    from tests.simulator.orderers import SimOrderer
    from tests.simulator.queries import SimQuery

    from slackwater.protocols.dpc.reconcile.staggering import PeerStatus


class PeerStatuses:
    """The last two different statuses of each orderer; the others receive them after a delay."""

    def __init__(self, query: SimQuery) -> None:
        self._query = query
        self._world = query.world
        self._delay_us = query.config.paced(DELAY_US)
        self._sent: dict[str, list[tuple[int, Heartbeat]]] = {}
        self._by: dict[str, SimOrderer] = {}

    def emit(self, orderer: SimOrderer, status: PeerStatus) -> None:
        """Send an orderer's status: its request and its grant."""
        detail = status.counters()
        if not self._world.is_present(orderer):
            return
        if self._by.get(orderer.name) is not orderer:
            self._by[orderer.name], self._sent[orderer.name] = orderer, []
        answer = self._sent[orderer.name]
        if not answer or answer[-1][1].detail != detail:
            answer.append((self._world.scheduler.now, beat_of(orderer.name, detail)))
            del answer[:-20]

    def deliver(self, orderer: SimOrderer) -> None:
        """Deliver the received statuses of its peers to an orderer."""
        now = self._world.scheduler.now
        for replica in range(self._query.config.replicas):
            name = self._query.orderer_name(orderer.child, replica)
            if replica == orderer.replica:
                continue
            sent = reversed(self._sent.get(name, ()))
            known = next((beat for at, beat in sent if at <= now - self._delay_us), None)
            if known is not None:
                stopped = self._by[name].stopped_at
                received_at = now if stopped is None else min(now, stopped + self._delay_us)
                orderer.session.take(HeartbeatReceived(known, received_at))
