"""``slackwater node list`` and ``drain --wait``: read the controllers' state and print it."""

from __future__ import annotations

import asyncio
from typing import Final

from slackwater.cli.common import emit
from slackwater.cli.controls import Reach
from slackwater.cli.query_changes import request
from slackwater.control.control_object import MoveFragment
from slackwater.control.recorded import fragment_specs, key_in, process_of
from slackwater.controller.links import LinkError, StateFrame
from slackwater.model.errors import CheckFailed, EnvironmentProblem
from slackwater.status.overview import Overview, overview_of

DRAINED_S_MAX: Final = 120.0
NAMED_MAX: Final = 4
"""Maximum fragments named in a line of progress."""
_LOOK_S: Final = 0.3


def print_nodes(reach: Reach) -> None:
    """Print controllers, nodes and fragments.

    Raises:
        CheckFailed: a fragment is not ready on any node, or a node cannot run what is recorded.
        EnvironmentProblem: no controller answers.
    """
    overview = asyncio.run(_overview(reach))
    if not overview.answering:
        reasons = "; ".join(f"{row.address}: {row.problem}" for row in overview.controllers)
        raise EnvironmentProblem(f"no controller answers: {reasons}: {reach.advice}")
    emit("\n".join(overview.lines()))
    if overview.wrong:
        raise CheckFailed("; ".join(overview.wrong))


async def _overview(reach: Reach) -> Overview:
    asked = reach.all("node list")
    try:
        return overview_of(await asked.ask(), has_nodes=reach.has_nodes)
    finally:
        await asked.close()


def wait_drained(reach: Reach, name: str) -> None:
    """Wait until a node has no fragments and all fragments run on other nodes.

    Raises:
        CheckFailed: a proxy cannot leave it, or it takes longer than ``DRAINED_S_MAX``.
    """
    asyncio.run(_wait_drained(reach, name))
    emit(f"node {name} is drained: all fragments run on other nodes")


async def _wait_drained(reach: Reach, name: str) -> None:
    loop = asyncio.get_running_loop()
    until, printed = loop.time() + DRAINED_S_MAX, 0
    while True:
        frame = await _state(reach)
        waiting = [
            spec
            for spec in fragment_specs(frame.state)
            if (entry := frame.state.placement.get((spec.query, spec.fragment))) is None
            or entry.node == name
            or entry.number not in frame.nodes.ready
        ]
        left = [process_of(spec.query, spec.fragment) for spec in waiting]
        if not left:
            return
        if all(spec.bound_node == name for spec in waiting):
            raise CheckFailed(
                f"node {name} keeps {', '.join(left)}: the readings in its spool are on this node;"
                " all others have moved"
            )
        if len(left) != printed:
            printed = len(left)
            are = "fragment is" if printed == 1 else "fragments are"
            emit(f"{printed} {are} to run on other nodes: {', '.join(left[:NAMED_MAX])}")
        if loop.time() > until:
            reasons = [reason for *_, reason in frame.nodes.unplaced]
            raise CheckFailed(
                f"not drained after {DRAINED_S_MAX:g} s: {', '.join([*left, *reasons])}"
            )
        await asyncio.sleep(_LOOK_S)


def move(reach: Reach, fragment: str, node: str) -> None:
    """Place a fragment, as `status` names it, on a node.

    Raises:
        UsageError: it is refused, or there is no such fragment.
        EnvironmentProblem: no controller answers.
    """
    frame = asyncio.run(_state(reach))
    request(reach, MoveFragment(*key_in(frame.state, fragment), node))


async def _state(reach: Reach) -> StateFrame:
    try:
        async with reach.connect("node") as client:
            return await client.state()
    except LinkError as error:
        raise EnvironmentProblem(f"{error}: {reach.advice}") from None
