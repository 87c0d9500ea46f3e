"""With machines: what runs at the end is what is placed, and no fragment starts over and over.

Two halves of a split network place the same fragment. Each start of one ends the other's, so they
must not start alternately: the one with the greater placement number runs (trace-17, trace-41).
"""

from __future__ import annotations

from collections import Counter

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts
from tests.simulator.history import History

from slackwater.model.names import base_of, generation_of

STARTS_MAX = 6
"""Starts of a fragment, on all nodes, for each fault."""


def check(facts: Facts) -> None:
    """Check what ran at the end, and how often it was started."""
    history = facts.history
    machines = facts.config.machines
    if machines is None:
        return
    if facts.config.name != "q":
        return  # all queries are checked together
    _recorded(history)
    placed = {name: node for (name, _), node in history.placed.items()}
    running = dict(history.running)
    twice = [name for name, count in Counter(n for n, _ in history.running).items() if count > 1]
    for name in history.to_run:
        if name in twice or len([1 for n, _ in history.placed if n == name]) != 1:
            raise Violation("placed", history.ended_at, f"{name}: {history.placed}")
        if running.get(name) != placed[name]:
            text = f"{name} is placed on {placed[name]}, and runs on {running.get(name)}"
            raise Violation("placed", history.ended_at, text)
    for name, node in [*history.running, *history.alive]:
        if name not in history.to_run or placed.get(name) != node:
            text = f"{name} is left on {node}, and placed on {placed.get(name)}"
            raise Violation("placed", history.ended_at, text)
    if history.not_ready:
        raise Violation("placed", history.ended_at, f"not ready: {history.not_ready}")
    faults = sum(note.process == "machines" for note in history.notes)
    faults += sum(note.what in {"paused", "away"} for note in history.notes)
    starts = Counter(n.process for n in history.notes if n.what.startswith("started on "))
    name, most = max(starts.items(), key=lambda item: item[1])
    if most > STARTS_MAX * (1 + faults):
        raise Violation("placed", history.ended_at, f"{name} was started {most} times")


def _recorded(history: History) -> None:
    """Check that confirmed operations are in the record, and in the registry in Kafka.

    Of a query's generations the last one is there alone. No operation of these is overridden by
    another one: each has a name of its own, and the same definition from every client.
    """
    for query in {base_of(name) for name in history.accepted}:
        last = max((n for n in history.accepted if base_of(n) == query), key=generation_of)
        there = [name for name in history.recorded if base_of(name) == query]
        if there != [name for name in [last] if name not in history.deleted]:
            text = f"recorded are {there} of {query}, and {last} was accepted last"
            raise Violation("placed", history.ended_at, text)
    if history.tombstones:
        text = f"the tombstones of {history.tombstones} have not been dropped"
        raise Violation("placed", history.ended_at, text)
    for name, state in history.registered.items():
        wanted = "running" if name in history.recorded else "deleted"
        if state != wanted:
            text = f"{name} is registered as {state}, and not as {wanted}"
            raise Violation("placed", history.ended_at, text)
