"""The changes that lead from the registered queries to the recorded ones. Pure.

The record has the wanted state of a query, the registry in Kafka its present state. Each query
needs at most two changes (applied, then paused). The changes are computed from these two states
alone, so an agent that restarts between two changes continues with the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["running", "paused", "deleted"]


@dataclass(frozen=True, slots=True)
class Apply:
    """Register a query and start its fragments."""

    query: str


@dataclass(frozen=True, slots=True)
class SetState:
    """Pause, resume or delete a registered query."""

    query: str
    state: State


def changes(
    wanted: Mapping[str, State], registered: Mapping[str, State], stages: Mapping[str, int]
) -> list[Apply | SetState]:
    """Return the changes that can be made now, in their order.

    A query is applied after those that it reads, and deleted before them.

    Args:
        wanted: wanted state by query, from the record.
        registered: present state by registered query.
        stages: number of stages before the query's results; 0 if unknown.
    """
    by_stage = sorted(wanted, key=lambda name: (stages.get(name, 0), name))
    found: list[Apply | SetState] = [
        SetState(name, "deleted")
        for name in reversed(by_stage)
        if wanted[name] == "deleted" and registered.get(name, "deleted") != "deleted"
    ]
    for name in by_stage:
        want, has = wanted[name], registered.get(name)
        if want == "deleted" or has in {want, "deleted"}:
            continue  # a deleted query is applied again as its next generation, which has a name
        found.append(Apply(name) if has is None else SetState(name, want))
    return found
