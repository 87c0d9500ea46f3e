"""What to do so that what runs becomes what the record wants. Pure.

A query is named in the record with the state that is wanted, and in the registry with the state
that it has. Each change brings one query nearer to what is wanted, and after at most two changes a
query (applied, then paused) there are none left. A change that has been made is not found again, so
an agent that crashes between two of them goes on where it was.
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
        wanted: the state that the record wants of each query.
        registered: the state that each registered query has.
        stages: how many stages lie before each wanted query's results; 0 for an unknown one.
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
            continue  # a deleted query does not come back: its name is used up
        found.append(Apply(name) if has is None else SetState(name, want))
    return found
