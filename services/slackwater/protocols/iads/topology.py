"""Which members form a view: a set in which every two reach each other, the same for all of them.

Each process reports the processes from which it receives heartbeats, and passes on the newest
reports of the others. A link counts if both of its ends report it. From the same reports every
process computes the same groups: names in ascending order, each group takes every later process
that reaches all of its members. A cut of one link of three so leaves a group of two and a group of
one; without this rule the two ends would wait for each other's agreement for ever.

Pure functions over values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MEMBERS_MAX = 16
"""Names that a group may have; reports grow with the square of it."""


class Process(NamedTuple):
    """One life of a member: a restart has the same name and a greater incarnation."""

    name: str
    incarnation: int


class ReachReport(NamedTuple):
    """From whom a process receives heartbeats; a greater ``seq`` replaces a smaller one."""

    seq: int
    reaches: frozenset[Process]


Reports = Mapping[Process, ReachReport]


def group_of(me: Process, reports: Reports) -> frozenset[Process]:
    """The group to which ``me`` belongs, from the reports that it holds, its own among them."""
    left = sorted(_component(me, reports))
    while True:
        group: list[Process] = []
        for process in left:
            if all(_linked(process, other, reports) for other in group):
                group.append(process)
        if me in group:
            return frozenset(group)
        left = [process for process in left if process not in group]


def _component(me: Process, reports: Reports) -> set[Process]:
    found, edge = {me}, [me]
    while edge:
        at = edge.pop()
        new = {p for p in reports if p not in found and _linked(at, p, reports)}
        found |= new
        edge += new
    return found


def _linked(one: Process, other: Process, reports: Reports) -> bool:
    return (
        one in reports
        and other in reports
        and other in reports[one].reaches
        and one in reports[other].reaches
    )
