"""Tells which parts have both of their copies in one process, or on one node (rule-27).

Two copies are to fail at different times. Where there is only one process, or one node, both run
there: after the end of a fragment that is better than one copy, and after that of the process or
the node it is not what ``copies: 2`` is for. So a query with such parts has a remark. It is no
failure, and the exit code does not change.

The heartbeat of a fragment does not name its process. But the fragments of a process are the parts
of one record, and have its operating-system process id *and* its time. The id alone tells nothing:
in containers many processes have the same.

Pure: heartbeats and the controllers' reports are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from slackwater.model.names import RootName, root_of, some_of
from slackwater.model.records import Heartbeat
from slackwater.protocols.flux.pair import DISAGREES
from slackwater.status.overview import Overview
from slackwater.status.queries import QueryRow


def in_one_process(
    rows: Iterable[QueryRow], beats: Mapping[str, Heartbeat]
) -> tuple[QueryRow, ...]:
    """Return the rows, with a remark on the parts whose two copies run in one process.

    ``beats`` has the recent heartbeats, by fragment.
    """
    senders = {name: f"{beat.pid} {beat.at}" for name, beat in beats.items()}
    places = dict.fromkeys(_in_one(senders), "in one process")
    return tuple(_remarked(row, places) for row in rows)


def on_one_node(rows: Iterable[QueryRow], overview: Overview | None) -> tuple[QueryRow, ...]:
    """Return the rows, with a remark on the parts whose two copies are placed on one node.

    It replaces what is said of processes, which follows from it.
    """
    nodes = {row.name: row.node for row in overview.fragments if row.node} if overview else {}
    places = {part: f"on node {node}" for part, node in _in_one(nodes).items()}
    return tuple(_remarked(row, places) for row in rows)


def disagreements(beats: Mapping[str, Heartbeat]) -> list[str]:
    """Return a sentence for each part whose copies have held different panes (trace-57)."""
    found = []
    for name, beat in sorted(beats.items()):
        root = root_of(name)
        if root is not None and (times := beat.detail.get(DISAGREES)):
            often = "once" if times == 1 else f"{times} times"
            found.append(
                f"the copies of part {root.part} of {root.query} had different panes, {often}:"
                " one of them is wrong; its log has the times and digests"
            )
    return found


def _in_one(places: Mapping[str, str]) -> dict[RootName, str]:
    """Return the parts both of whose copies are in one place, with the place, in order."""
    copies = sorted(
        (root, place) for name, place in places.items() if (root := root_of(name)) is not None
    )
    return {
        RootName(one.query, one.part): place
        for (one, place), (other, there) in pairwise(copies)
        if (one.query, one.part, place) == (other.query, other.part, there)
    }


def _remarked(row: QueryRow, places: Mapping[RootName, str]) -> QueryRow:
    mine = {str(part.part): place for part, place in places.items() if part.query == row.name}
    remarks = []
    for place in dict.fromkeys(mine.values()):
        parts = [part for part, at in mine.items() if at == place]
        of = f"part{'s' * (len(parts) > 1)} {some_of(parts)}"
        remarks.append(f"its copies are not apart: both of {of} run {place}")
    return replace(row, remarks=tuple(remarks)) if remarks else row
