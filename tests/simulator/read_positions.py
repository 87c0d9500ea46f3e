"""The roots' read positions in the replicas' stable logs, from their heartbeats (trace-33)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulator.heartbeats import DELAY_US, beat_of

from slackwater.model.records import Heartbeat
from slackwater.protocols.dpc.reconcile.downstream import read_position_key
from slackwater.sessions.events import HeartbeatReceived

if TYPE_CHECKING:
    from tests.simulator.orderers import SimOrderer
    from tests.simulator.queries import SimQuery
    from tests.simulator.roots import SimRoot

    from slackwater.protocols.dpc.soutput.core import RootCore

PERIOD_US = 50_000
"""A root's heartbeat period."""


class _SentPosition(NamedTuple):
    at: int
    beat: Heartbeat


class ReadPositions:
    """The last reports of each root; the orderers receive them after a delay."""

    def __init__(self, query: SimQuery) -> None:
        self._query = query
        self._world = query.world
        self._delay_us = query.config.paced(DELAY_US)
        self._period_us = query.config.paced(PERIOD_US)
        self._sent: dict[int, list[_SentPosition]] = {}
        self._by: dict[int, SimRoot] = {}

    def emit(self, root: SimRoot, core: RootCore) -> None:
        """Send a root's positions."""
        now = self._world.scheduler.now
        if not self._world.is_present(root):
            return
        if self._by.get(root.part) is not root:
            self._by[root.part], self._sent[root.part] = root, []
        answer = self._sent[root.part]
        wait_us = answer[-1].at + self._period_us - now if answer else 0
        if wait_us <= 0:
            detail = {read_position_key(*of): to for of, to in core.read_to.items()}
            answer.append(_SentPosition(now, beat_of(root.name, detail)))
            del answer[:-4]
        else:
            root.turn_in(wait_us)

    def deliver(self, orderer: SimOrderer) -> None:
        """Deliver the received positions of the roots to an orderer."""
        now = self._world.scheduler.now
        for part, answer in self._sent.items():
            known = [each.beat for each in answer if each.at <= now - self._delay_us]
            if known:
                stopped = self._by[part].stopped_at
                received_at = now if stopped is None else min(now, stopped + self._delay_us)
                orderer.session.take(HeartbeatReceived(known[-1], received_at + orderer.now - now))
