"""What ``slackwater node list`` and ``drain --wait`` ask of the controllers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final

from slackwater.cli.common import emit
from slackwater.cli.controls import Reach
from slackwater.controller.links import LinkError, StateFrame
from slackwater.model.errors import CheckFailed, EnvironmentProblem
from slackwater.node.recorded import fragment_specs, not_applied, process_of
from slackwater.protocols.iads.control_state import Wanted
from slackwater.protocols.iads.placement import Standing

DRAINED_S_MAX: Final = 120.0
_LOOK_S: Final = 0.3


def print_nodes(reach: Reach) -> None:
    """Print controllers, nodes and fragments.

    Raises:
        CheckFailed: a fragment runs nowhere, or a node cannot carry out what is recorded.
    """
    frame = asyncio.run(_state(reach))
    emit(
        f"controllers: {', '.join(frame.members)} (view {frame.view_number} at {frame.controller})"
    )
    standings, clocks = dict(frame.nodes.standings), dict(frame.nodes.clocks)
    by_node: defaultdict[str, list[str]] = defaultdict(list)
    missing = []
    deleted = {*frame.state.queries_wanted(Wanted.DELETED)}
    for spec in fragment_specs(frame.state):
        name = process_of(spec.query, spec.fragment)
        entry = frame.state.placement.get((spec.query, spec.fragment))
        if entry is None:
            missing.append(f"{name} is placed nowhere")
            continue
        if entry.number in frame.nodes.ready:
            if spec.query not in deleted:  # else it has ended
                by_node[entry.node].append(name)
        elif entry.number in frame.nodes.fenced:
            by_node[entry.node].append(f"{name} (down)")
            missing.append(
                f"{name} stays down on {entry.node}: another copy has a greater placement number"
            )
        else:
            by_node[entry.node].append(f"{name} (starts)")
            missing.append(f"{name} is not ready on {entry.node}")
    for name in frame.state.live_nodes():
        node = frame.state.nodes[name]
        standing = standings.get(name, Standing.SUSPECTED.value)
        draining = ", drains" if node.draining else ""
        labels = "".join(f" {key}={value}" for key, value in node.labels)
        clock = f", clock {clocks[name]}" if name in clocks else ""
        emit(f"node {name}: {standing}{draining}, room for {node.room}{labels}{clock}")
        for fragment in sorted(by_node[name]):
            emit(f"  {fragment}")
    for query in frame.state.live_queries():
        if frame.state.queries[query].wanted == Wanted.PAUSED.value:
            emit(f"query {query} is paused")
    reasons = [f"query {name}: {reason}" for name, reason in not_applied(frame.state).items()]
    reasons += [f"node {name}: {reason}" for name, reason in frame.nodes.problems]
    reasons += [f"{process_of(q, f)}: {reason}" for q, f, reason in frame.nodes.unplaced]
    reasons += [frame.nodes.refusal] if frame.nodes.refusal else []
    if reasons or missing:
        raise CheckFailed("; ".join([*missing, *reasons]))


def wait_drained(reach: Reach, name: str) -> None:
    """Wait until nothing is placed on a node and what was there runs elsewhere.

    Raises:
        CheckFailed: it takes longer than ``DRAINED_S_MAX``.
    """
    asyncio.run(_wait_drained(reach, name))
    emit(f"node {name} runs nothing that is needed")


async def _wait_drained(reach: Reach, name: str) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + DRAINED_S_MAX
    while True:
        frame = await _state(reach)
        left = [
            process_of(spec.query, spec.fragment)
            for spec in fragment_specs(frame.state)
            if (entry := frame.state.placement.get((spec.query, spec.fragment))) is None
            or entry.node == name
            or entry.number not in frame.nodes.ready
        ]
        if not left:
            return
        if loop.time() > until:
            reasons = [reason for *_, reason in frame.nodes.unplaced]
            raise CheckFailed(
                f"not drained after {DRAINED_S_MAX:g} s: {', '.join([*left, *reasons])}"
            )
        await asyncio.sleep(_LOOK_S)


async def _state(reach: Reach) -> StateFrame:
    try:
        async with reach.connect("node") as client:
            return await client.state()
    except LinkError as error:
        raise EnvironmentProblem(f"{error}: {reach.advice}") from None
