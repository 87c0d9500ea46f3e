"""How the roots of a later generation learn of the end of the earlier ones (rule-29)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

from slackwater.host.earlier import EarlierGenerations
from slackwater.runtime.service.registry import QueryDefinition, Registry

Found = Mapping[str, QueryDefinition]


def found(**states: str) -> Found:
    """Registered queries; an underscore stands for the dot of a name."""
    entries = {name.replace("_", "."): SimpleNamespace(state=of) for name, of in states.items()}
    return cast(Found, entries)


class Changes:
    """A registry: first what is there, then its changes."""

    def __init__(self, *found: Found) -> None:
        self._first, *self._later = found
        self.released = threading.Event()
        self.closed: list[threading.Event] = []

    def all_queries(self) -> Found:
        return self._first

    def follow_queries(self, closed: threading.Event) -> Iterator[Found]:
        self.closed.append(closed)
        yield self._first
        self.released.wait(60)
        yield from self._later


def of(changes: Changes, query: str) -> EarlierGenerations:
    return EarlierGenerations(cast(Registry, changes), query)


async def test_a_first_generation_and_one_whose_predecessors_have_ended_wait_for_nothing() -> None:
    there = found(q="running")
    changes = Changes(there)
    assert of(changes, "q").have_ended
    assert of(Changes(found(q="deleted", q_g1="running", r="running")), "q.g1").have_ended
    assert of(Changes(found(q="deleted", q_g1="running", q_g2="running")), "q.g1").have_ended
    assert changes.closed == [], "nothing is followed"


async def test_the_end_is_passed_on_in_the_event_loop() -> None:
    changes = Changes(
        found(q="running", q_g1="running"),
        found(q="paused", q_g1="running"),
        found(q="deleted", q_g1="running"),
    )
    earlier, passed = of(changes, "q.g1"), asyncio.Event()
    earlier.when_ended(passed.set)
    await asyncio.sleep(0)
    assert not passed.is_set()
    changes.released.set()
    await asyncio.wait_for(passed.wait(), 60)
    again = asyncio.Event()
    earlier.when_ended(again.set)
    await asyncio.wait_for(again.wait(), 60)


async def test_a_loop_that_has_ended_is_told_nothing() -> None:
    changes = Changes(found(q="running"), found(q="deleted"))
    earlier = of(changes, "q.g1")

    async def waits() -> None:
        earlier.when_ended(lambda: None)

    await asyncio.to_thread(asyncio.run, waits())
    passed = asyncio.Event()
    earlier.when_ended(passed.set)
    changes.released.set()
    await asyncio.wait_for(passed.wait(), 60)


async def test_it_is_followed_until_it_is_closed() -> None:
    changes: Any = Changes(found(q="running"), found(q="running"))
    earlier = of(changes, "q.g1")
    earlier.close()
    assert changes.closed[0].is_set()
