"""Commands that change queries at run time: requests to the controller of `slackwater up`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from slackwater.cli.common import emit, warn
from slackwater.cli.controls import Reach
from slackwater.cli.show import registered
from slackwater.codec.results import format_time
from slackwater.controller.client import ControlClient
from slackwater.controller.links import LinkError
from slackwater.deployment.parse import check_deployment
from slackwater.deployment.sharing import without_sharing
from slackwater.model.deployment import Deployment
from slackwater.model.errors import CheckFailed, EnvironmentProblem, UsageError
from slackwater.model.names import Names, kind_of
from slackwater.node.applied import AppliedQuery, Start, from_text, to_text
from slackwater.primitives.windows import Grid
from slackwater.protocols.iads.control_object import ApplyQuery, Operation
from slackwater.protocols.iads.control_state import ControlState
from slackwater.runtime.local.layout import expected_names
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.runtime.service.settings import settings

READY_S_MAX = 60.0
_LOOK_S = 0.2


def parse_start(text: str) -> Start:
    """The start of a query: ``now``, ``beginning``, or a time with or without an offset (UTC)."""
    if text == "now":
        return "now"
    if text == "beginning":
        return "beginning"
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--from {text}: choose now, beginning or a time such as 2026-05-01T12:00:00Z"
        ) from None
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000_000)


def queries_of(file: Path, only: Sequence[str]) -> tuple[Deployment, list[str]]:
    """Return the deployment of a file, and the names of the queries to apply in their order."""
    micro_batch = settings().aggregator_mode == "micro-batch"
    checked = check_deployment(file, micro_batch=micro_batch)
    for warning in checked.warnings:
        warn(f"warning: {warning}")
    deployment = checked.deployment
    if unknown := [name for name in only if name not in deployment.queries]:
        there = ", ".join(deployment.queries)
        raise UsageError(f"{file} has no query {unknown[0]}, only {there}")
    return deployment, [q.name for q in deployment.in_order() if not only or q.name in only]


def apply_queries(
    reach: Reach, deployment: Deployment, names: Sequence[str], start: Start
) -> list[str]:
    """Request those of the queries that do not run yet; returns their names."""
    return asyncio.run(_apply(reach, deployment, names, start))


async def _apply(
    reach: Reach, deployment: Deployment, names: Sequence[str], start: Start
) -> list[str]:
    accepted = []
    try:
        async with reach.connect("query apply") as client:
            recorded = (await client.state()).state
            for name in names:
                if _runs(recorded, deployment, name):
                    emit(f"query {name} runs already")
                    continue
                begins = _start_on_nodes(deployment, name, start) if reach.has_nodes else start
                text = to_text(AppliedQuery(name, deployment, begins))
                await _request(client, ApplyQuery(name, text))
                emit(f"query {name} is accepted")
                accepted.append(name)
    except LinkError as error:
        raise EnvironmentProblem(f"{error}: {reach.advice}") from None
    return accepted


def _start_on_nodes(deployment: Deployment, name: str, start: Start) -> Start:
    """The start as a time: whichever nodes register the query then register the same one."""
    if start != "now":
        return start
    query = deployment.queries[name]
    grid = Grid(query.bucket_us(), query.units(query.bucket_us()))
    return grid.window_end(grid.last_window_holding(SystemClock().now_us()))


def _runs(recorded: ControlState, deployment: Deployment, name: str) -> bool:
    if name not in recorded.live_queries():
        return False
    try:
        applied = from_text(name, recorded.queries[name].definition)
    except ValueError:
        return False
    spec = applied.deployment.queries[name]
    return without_sharing(spec) == without_sharing(deployment.queries[name])


def request(reach: Reach, operation: Operation) -> None:
    """Request one operation of a controller.

    Raises:
        UsageError: it is refused.
        EnvironmentProblem: no controller answers.
    """
    asyncio.run(_request_alone(reach, operation))


async def _request_alone(reach: Reach, operation: Operation) -> None:
    try:
        async with reach.connect("query") as client:
            await _request(client, operation)
    except LinkError as error:
        raise EnvironmentProblem(f"{error}: {reach.advice}") from None


async def _request(client: ControlClient, operation: Operation) -> None:
    response = (await client.request(operation)).response
    if response.refusal:
        there = f"; there are: {', '.join(response.known)}" if response.known else ""
        raise UsageError(f"{response.refusal}{there}")


def wait_ready(cluster: Cluster, topics: Names, names: Sequence[str]) -> None:
    """Wait until these queries run, and print the start of their event time.

    Raises:
        CheckFailed: one is not ready in time.
    """
    listener = HeartbeatListener(KafkaTransport(cluster, topics)).start()
    found: dict[str, QueryDefinition] = {}
    ready: set[str] = set()

    def all_ready() -> bool:
        found.update({n: q for n, q in registered(cluster, topics).items() if n in names})
        expected = expected_names(
            {name: query.spec for name, query in found.items()}, listener.all()
        )
        ready.update(name for name in expected if listener.ready(name))
        fragments = {name for name in expected if kind_of(name) != "proxy"}
        return found.keys() >= {*names} and ready >= fragments

    try:
        for _ in range(int(READY_S_MAX / _LOOK_S)):
            if all_ready():
                break
            listener.wait_for(lambda _view: False, _LOOK_S)
        else:
            raise CheckFailed(
                f"not ready after {READY_S_MAX:g} s: `slackwater status` shows what is missing"
            )
    finally:
        listener.stop()
    for name in names:
        emit(f"query {name} runs; its event time starts at {format_time(found[name].e0_us)}")
