"""The registry of a run, and the definitions of queries that are to be registered.

The definitions are the product's (``Registration``): also where a query starts that has joined the
children of another one, and why it cannot be registered (trace-50). What is a model is where the
product reads: the logs of a run, and the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from slackwater.control.applied import AppliedQuery, Start
from slackwater.control.plan import State
from slackwater.control.recorded import deployment_of
from slackwater.model.deployment import BUCKET_OF_WINDOWS_US, Deployment, QuerySpec
from slackwater.model.errors import SlackwaterError
from slackwater.model.names import Names, earlier_generations, generation_of
from slackwater.model.records import RootState
from slackwater.primitives.eventclock import EventClock
from slackwater.protocols.dpc.soutput.config import start_of_generation
from slackwater.registration.registration import Registration
from slackwater.registration.starts import Starts, why_other_children
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition

if TYPE_CHECKING:
    from tests.simulator.joined.world import JoinedWorld


class Registry:
    """The entries of queries in the registry's log: the last one of each name."""

    def __init__(self, world: JoinedWorld) -> None:
        self._world = world
        self.entries: dict[str, QueryDefinition] = {}

    @property
    def states(self) -> dict[str, State]:
        """The state of each registered query."""
        return {name: entry.state for name, entry in self.entries.items()}

    def why_other_children(self, name: str, applied: Mapping[str, AppliedQuery]) -> str:
        """Return why a recorded query cannot have its children; empty if it can."""
        query = applied[name].deployment.queries[name]
        return why_other_children(query, applied, self.entries)

    def define(
        self, names: Iterable[str], applied: Mapping[str, AppliedQuery]
    ) -> tuple[list[QueryDefinition], dict[str, str]]:
        """Return the definitions of those whose start is known, and why others have none.

        ``applied``: all recorded queries.
        """
        names, all_ = [*names], deployment_of(applied)
        try:
            return self._define([applied[name] for name in names], all_), {}
        except SlackwaterError as error:
            if len(names) < 2:
                return [], {names[0]: str(error)}
        found, problems = list[QueryDefinition](), dict[str, str]()
        for name in names:  # one that cannot be registered does not delay the others
            defined, why = self.define([name], applied)
            found += defined
            problems |= why
        return found, problems

    def _define(self, new: list[AppliedQuery], all_: Deployment) -> list[QueryDefinition]:
        registration = _Registration(self._world, all_.connected(*(each.query for each in new)))
        speed = self._world.config.w_us / BUCKET_OF_WINDOWS_US
        return registration.define({each.query: each.start for each in new}, None, speed=speed)


class _Logs:
    """What registration reads of the logs of a run."""

    names = Names()

    def __init__(self, world: JoinedWorld) -> None:
        self._world = world

    def beginning_offsets(self, logs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The offsets of the first records."""
        return {at: self._world.log_at(at).beginning for at in logs}


class _Starts(Starts):
    """The product's, with the state records and the entries of a run."""

    def __init__(self, world: JoinedWorld, deployment: Deployment) -> None:
        super().__init__(cast(Any, _Logs(world)), deployment, dict, SystemClock(), {})
        self._world = world

    def of(self, query: QuerySpec, event_clock: EventClock | None, start: Start) -> int | None:
        if not generation_of(query.name):
            return super().of(query, event_clock, start)
        entries = self._world.registry.entries
        for earlier in earlier_generations(query.name, entries):
            answered, e0_us = self._answered(entries[earlier]), entries[earlier].e0_us
            if answered is not None:
                looks_back_us = self._world.query_of(earlier).config.join_us
                return start_of_generation(answered, e0_us, looks_back_us)
            if not generation_of(earlier):
                return e0_us
        return None

    def _states(self, query: QueryDefinition) -> list[RootState | None]:
        return self._world.query_of(query.name).root_states()


class _Registration(Registration):
    """The product's; no stream of it reads a topic."""

    def __init__(self, world: JoinedWorld, deployment: Deployment) -> None:
        super().__init__(cast(Any, None), deployment, Path("simulated"))
        self._world = world

    @property
    def _starts(self) -> Starts:
        return _Starts(self._world, self._deployment)

    def _all_registered(self) -> Mapping[str, QueryDefinition]:
        return self._world.registry.entries

    def _taken_in(self, query: QuerySpec) -> dict[str, int]:
        return {}
