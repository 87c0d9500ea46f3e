"""Decides which copy of a part resigns, so that nodes have equal numbers of answering copies.

The copy that answers computes windows and writes results, and the other one follows. When a node
has died, the copies on other nodes answer. When it is back its copies follow, and without more it
would have no answers to give until another node dies. Moving fragments does not help: the number of
fragments on each node is even already. So one copy *resigns* in favour of its ready follower
(rule-27), which costs no silence.

A part takes part if both copies are ready, on two steady nodes, and one of them answers. One copy
resigns at a time, and only while nothing else changes: no take-over and no start of a fragment is
in progress. Its node must have so many more answering copies, in proportion to its room, that the
other node has fewer also afterwards. Each resignation therefore lowers the ratios of answering
copies to room, compared in descending order, so they come to an end.

A controller may be wrong about what is ready: the copy itself decides by the heartbeats that it
receives, and resigns only if its follower could answer at once.

Pure: no clock. ``placing`` limits the rate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from slackwater.control.control_state import ControlState, PlacementEntry
from slackwater.control.placement import FragmentSpec, NodeReports, Standing


class _Pair(NamedTuple):
    """Where the two copies of a part are."""

    answers: PlacementEntry
    follows: PlacementEntry


def next_resignation(
    state: ControlState, specs: Iterable[FragmentSpec], reports: NodeReports
) -> int | None:
    """The placement number of the copy that is to resign; None if none is, or something changes.

    Args:
        state: the record.
        specs: what is to run; the copies of a part are a group of two, of which one answers.
        reports: the nodes' standings, and which placements are ready and answer.
    """
    placed: defaultdict[tuple[str, str], list[PlacementEntry]] = defaultdict(list)
    for spec in specs:
        entry = state.placement.get((spec.query, spec.fragment))
        if entry is None:
            continue  # no node can take it
        if entry.number not in reports.ready | reports.overdue:
            return None  # it is about to start, which is of more use
        placed[spec.query, spec.group].append(entry)
    found = [each for each in placed.values() if any(e.number in reports.answering for e in each)]
    pairs: list[_Pair] = []
    for entries in found:
        answering = [entry for entry in entries if entry.number in reports.answering]
        others = [entry for entry in entries if entry not in answering]
        if len(answering) != 1 or len(others) > 1:
            return None  # a take-over is in progress
        if others:
            pairs.append(_Pair(*answering, *others))
    load = Counter(pair.answers.node for pair in pairs)

    def gain(pair: _Pair) -> Fraction:
        here, there = pair.answers.node, pair.follows.node
        room, room_there = state.nodes[here].room, state.nodes[there].room
        return Fraction(load[here], room) - Fraction(load[there] + 1, room_there)

    able = [pair for pair in pairs if _is_able(pair, state, reports)]
    best = max(able, key=lambda pair: (gain(pair), -pair.answers.number), default=None)
    return None if best is None or gain(best) <= 0 else best.answers.number


def _is_able(pair: _Pair, state: ControlState, reports: NodeReports) -> bool:
    """Whether both copies are ready, on two nodes that take fragments."""
    nodes = {entry.node for entry in pair}
    return (
        len(nodes) > 1
        and {entry.number for entry in pair} <= reports.ready
        and all(
            reports.standings.get(node) is Standing.STEADY
            and node in state.nodes
            and not state.nodes[node].draining
            and not state.nodes[node].left
            and state.nodes[node].room > 0
            for node in nodes
        )
    )
