"""A copy of a merger: the product's session, with the model of Kafka as its host.

Its faults are no outages: whatever happens to mergers, no answer may be tentative or late for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tests.simulator.log_reader import LogReader
from tests.simulator.procedures import perform

from slackwater.model.names import MergerName, part_names
from slackwater.model.records import Heartbeat
from slackwater.sessions.effects import Append, Effect, Fail, Rebuild
from slackwater.sessions.events import (
    HeartbeatReceived,
    RecordDelivered,
)
from slackwater.sessions.merger import STALLED_US, MergerConfig, MergerSession
from slackwater.sessions.requests import Log as At

if TYPE_CHECKING:
    from tests.simulator.queries import SimQuery


class SimMerger(LogReader):
    """One copy of the merger of ``child``."""

    session: MergerSession

    def __init__(self, query: SimQuery, child: int, copy: int) -> None:
        super().__init__(query.world, MergerName(query.name, child, copy).process)
        self.query, self.child, self.copy = query, child, copy
        config = query.config
        self.session = MergerSession(
            MergerConfig(
                query=query.name,
                child=child,
                copy=copy,
                parts=config.parts,
                replicas=config.replicas,
                fields=config.fields,
                grid=config.grid,
                start_time=query.start_time_us,
                ahead_buckets_max=config.ahead_buckets_max,
                children_of=config.children_of,
                stalled_us=config.paced(STALLED_US),
                kept_keys_min=0,
                keeps_all=config.sites,
                **query.contents_of_part(0),
            )
        )
        self.logs = {at: self.world.log_at(at) for at in self.session.inputs}

    def start(self) -> None:
        perform(self, self.session.start(), self.begin)

    # The loop.

    def _read_heartbeats(self) -> None:
        for part in range(self.query.config.parts):
            roots = [root for (of, _), root in self.query.roots.items() if of == part]
            answered = [root.core.answers.state.stable_from for root in roots if root.core]
            if answered and self.has_broker:
                name = part_names(self.query.name, part)[0].process
                detail = {"stable_from": max(answered)}
                beat = Heartbeat(name, 0, 0, self.now, -1, ready=True, states={}, detail=detail)
                self.session.take(HeartbeatReceived(beat, self.now))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(at, record):
                    self.producer.send(self.world.log_at(at), record, partial(self._delivered, at))
                case Fail(reason) | Rebuild(reason):
                    self.world.note(self.name, reason)
                    self.world.scheduler.after(0, partial(self.world.rebuild, self))
                    return

    def _delivered(self, at: At, offset: int) -> None:
        def act() -> None:
            self.session.take(RecordDelivered(at, offset))
            self.turn_in(0)

        self._run(act)
