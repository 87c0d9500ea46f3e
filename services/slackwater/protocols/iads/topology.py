"""Chooses the members of a view: a group of processes in which every two reach each other.

Each process reports the processes from which it receives heartbeats, and passes on the newest
reports of the others. A link counts if both of its ends report it. From the same reports every
process computes the same groups. Processes are taken in ascending order of names; each joins the
first group whose members it all reaches, or begins a new one. If one of the three links between
three processes is cut, they form a group of two and a group of one. With all three in one group,
the ends of the cut link would wait forever for each other's agreement.

Pure functions over values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MEMBERS_MAX = 16
"""Most names in a group; the size of the reports grows with its square."""


class Process(NamedTuple):
    """One incarnation of a member: after a restart the name is the same, the number greater."""

    name: str
    incarnation: int


class ReachReport(NamedTuple):
    """The processes from which one receives heartbeats; the greatest ``seq`` is the newest."""

    seq: int
    reaches: frozenset[Process]


Reports = Mapping[Process, ReachReport]


def group_of(me: Process, reports: Reports) -> frozenset[Process]:
    """The group to which ``me`` belongs, from the reports that it has, including its own."""
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
