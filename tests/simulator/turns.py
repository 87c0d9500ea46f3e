"""Whose turn it is to catch up: what orderers say of it in their heartbeats (D12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.heartbeats import DELAY_US, beat_of

from slackwater.model.records import Heartbeat

if TYPE_CHECKING:
    from tests.simulator.orderers import SimOrderer
    from tests.simulator.queries import SimQuery

    from slackwater.protocols.dpc.staggering import Word


class TurnWords:
    """The last two different words of each orderer; the others know them some time later."""

    def __init__(self, query: SimQuery) -> None:
        self._query = query
        self._world = query.world
        self._delay_us = query.config.paced(DELAY_US)
        self._said: dict[str, list[tuple[int, Heartbeat]]] = {}
        self._by: dict[str, SimOrderer] = {}

    def say(self, orderer: SimOrderer, word: Word) -> None:
        """An orderer says what it wants and whom it lets go first."""
        detail = word.counters()
        if not self._world.is_present(orderer):
            return
        if self._by.get(orderer.name) is not orderer:
            self._by[orderer.name], self._said[orderer.name] = orderer, []
        said = self._said[orderer.name]
        if not said or said[-1][1].detail != detail:
            said.append((self._world.scheduler.now, beat_of(orderer.name, detail)))
            del said[:-20]

    def tell(self, orderer: SimOrderer) -> None:
        """What the orderer has heard of its peers."""
        now = self._world.scheduler.now
        for replica in range(self._query.config.replicas):
            name = self._query.orderer_name(orderer.child, replica)
            known = [beat for at, beat in self._said.get(name, []) if at <= now - self._delay_us]
            if replica != orderer.replica and known:
                stopped = self._by[name].stopped_at
                heard_at = now if stopped is None else min(now, stopped + self._delay_us)
                orderer.session.heard(known[-1], heard_at)
