"""``python -m slackwater.root QUERY.PART [--placement N]``: one copy of one root part.

Who keeps many processes (`slackwater up`) gives each start its placement number. A container that
is started again by its engine comes with the same command each time: then the number is taken from
the registry.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import UsageError
from slackwater.primitives.rows import RowContents
from slackwater.protocols.dpc.line import Policy, Schedule
from slackwater.protocols.dpc.root import RootConfig
from slackwater.protocols.dpc.upstream import only_stale_us_max, stale_us_max
from slackwater.root.shell import RootShell
from slackwater.runtime.entry import Context
from slackwater.runtime.faust_worker import run_fragment
from slackwater.runtime.registry import AwaitedClock, Registry

empty_wait_us_max: Final = 100_000
"""An idle query writes ten boundaries a second, not a hundred."""


def main(context: Context) -> None:
    """Run the fragment until it is told to stop."""
    query, part = parse_name(context.name)
    deployment, transport = context.load_deployment(), context.transport()
    registry = Registry(transport)
    definition = registry.wait_for_query(query)
    clock = AwaitedClock(registry)
    spec = definition.spec
    lateness = deployment.lateness_us(spec)
    config = RootConfig(
        fragment=context.process,
        query=query,
        part=part,
        placement=context.placement or registry.take_placement(context.process),
        children=tuple(deployment.child_streams(spec, child) for child in range(spec.children)),
        replicas=spec.replicas,
        fields=deployment.output_fields(spec),
        grid=definition.grid,
        schedule=Schedule(
            lambda e: clock.normal_time_us(e, lateness), deployment.deadline_us(spec, 2)
        ),
        policy=Policy(spec.failure_policy, spec.stabilization_policy),
        stale_us=stale_us_max if spec.replicas > 1 else only_stale_us_max,
        e0=definition.e0_us,
        **({} if spec.window is not None else _of_rows(deployment, spec, part)),
    )
    shell = RootShell(
        transport,
        config,
        spec.aggregate,
        end_timeout_us=spec.margin_us // 2,
        observe=clock.observe if deployment.clock == "data" else None,
    )
    run_fragment(
        context.process,
        context.bootstrap,
        shell.live_offsets,
        shell.on_record,
        shell.run,
        context.stopping,
    )


def _of_rows(deployment: Deployment, spec: QuerySpec, part: int) -> dict[str, Any]:
    """A query without a window: rows, and buckets so short that empty ones are told in runs."""
    wait_us = min(empty_wait_us_max, deployment.deadline_us(spec, 2) // 2)
    contents = partial(RowContents, part=part, parts=spec.parts)
    return {"contents": contents, "empty_wait_us": max(wait_us, 0)}


def parse_name(name: str) -> tuple[str, int]:
    """``climate.0`` -> query, part."""
    query, _, part = name.rpartition(".")
    if not query or not part.isdigit():
        raise UsageError(f"{name}: a root is named QUERY.PART, as in climate.0")
    return query, int(part)
