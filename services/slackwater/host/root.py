"""Builds the session of a root, one copy of a query's part, from its fragment name.

Each start takes a placement number from the registry's log, greater than all earlier ones on any
machine (decision 32). On a node a root has the number of the replicated record (decision 151).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from slackwater.host.committer import PartCommitter
from slackwater.host.fragment import Fragment
from slackwater.host.known import RegistryView
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import UsageError
from slackwater.model.names import RESULT_KINDS, ROOT, RootName
from slackwater.primitives.aggregates import figures_of, others_of, states_of
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.having import Having
from slackwater.primitives.rows import RowContents
from slackwater.protocols.common.line import Policy, Schedule
from slackwater.protocols.dpc.soutput.config import RootConfig
from slackwater.protocols.dpc.soutput.upstream import ONLY_STALE_US_MAX, STALE_US_MAX
from slackwater.protocols.fargo.parent import wait_us
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.normaltime import NormalTime
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.runtime.service.settings import settings
from slackwater.runtime.service.state import read_copies, read_root_state
from slackwater.sessions.root import RootSession

LIVE_BUCKETS_MAX: Final = 640
"""Tentative answers in one transaction of a query without a window (64 with windows). Each of its
buckets of 10 ms is answered like a window, so the same event time has more answers."""
HEARTBEAT_PERIOD_US: Final = 50_000
EMPTY_WAIT_US_MAX: Final = 100_000
"""How long empty buckets are collected into one boundary: without readings a query writes 10
boundaries a second instead of 100."""


def make(name: str, known: RegistryView, transport: KafkaTransport) -> Fragment:
    """Make the root ``name`` (QUERY.PART or QUERY.PART.COPY) with its placement number.

    Waits for its query.

    Raises:
        UsageError: the query has been deleted.
    """
    of = RootName.parse(name)
    deployment, definition = known.deployment_of(of.query), known.present_query(of.query)
    if definition.state == "deleted":
        raise UsageError(f"query {of.query} has been deleted: there is no root {name}")
    spec = definition.spec

    def answered_with() -> int:
        answered = read_root_state(transport, of.query, of.part)
        copies = read_copies(transport, of.query, of.part)
        return max((state.placement for state in (answered, *copies.values()) if state), default=-1)

    placement = known.placement(of.process, answered_with)
    logs = known.query(spec.child_query).logs_of_children
    time = known.normal_time(spec, awaits_begin=definition.awaits_begin)
    earlier = known.earlier(of.query)
    has_earlier = not earlier.have_ended
    config = RootConfig(
        fragment=RootName(of.query, of.part).process,
        query=of.query,
        part=of.part,
        copy=of.copy,
        placement=placement,
        children=tuple(map(logs.streams_of, range(spec.children))),
        replicas=spec.replicas,
        topics=transport.names,
        fields=deployment.output_fields(spec),
        grid=definition.grid,
        schedule=Schedule(time.of, deployment.deadline_us(spec, ROOT)),
        policy=Policy(spec.failure_policy, spec.stabilization_policy),
        stale_us=STALE_US_MAX if spec.replicas > 1 else ONLY_STALE_US_MAX,
        start_time=definition.e0_us,
        bound_us=deployment.bound_us(spec),
        children_of=spec.children_of,
        is_history=known.follows_data,
        reread_us_max=round(settings().reread_s_max * 1e6),
        is_recorded=known.has_recorded_placements,
        remote=frozenset(filter(spec.is_remote, range(spec.children))),
        has_earlier=has_earlier,
        merged_wait_us=wait_us(deployment.deadline_us(spec, ROOT)) if spec.mergers else None,
        **(
            contents_of_windows(spec, deployment.output_fields(spec))
            if spec.window is not None
            else _of_rows(deployment, definition, of.part)
        ),
    )
    session = RootSession(config, windowed=spec.window is not None)
    names = transport.names
    own = {names.state(of.query), names.registry}
    own |= {names.results(of.query, kind) for kind in RESULT_KINDS}
    own |= {names.panes(of.query)} if spec.window is not None else set()
    own |= {names.ordered(spec.child_query, child) for child in range(spec.children)}
    return Fragment(
        session,
        spec.margin_us // 2,
        frozenset(own.union(topic for topic, _ in session.inputs)),
        heartbeat_period_us=HEARTBEAT_PERIOD_US,
        observe=time.observe if known.follows_data else None,
        committer=PartCommitter(transport.cluster, names, config, spec.aggregate, spec.of_fields),
        close=partial(_leave, known, of.query, time),
        earlier=earlier if has_earlier else None,
    )


def _leave(known: RegistryView, query: str, time: NormalTime) -> None:
    known.leave_time(query, time)
    known.leave_earlier(query)


def contents_of_windows(spec: QuerySpec, fields: tuple[str, ...]) -> dict[str, Any]:
    """Settings of a root with windows: contents are what its aggregates need."""
    others, states = others_of(spec.aggregate), states_of(spec.aggregate)
    having = None
    if spec.having is not None:
        having = Having.of(spec.having, fields, spec.aggregate, spec.shown(fields)).kept
    figures = figures_of(spec.aggregate)
    contents = partial(Aggregates, others=others, states=states, having=having, figures=figures)
    return {"contents": contents}


def _of_rows(deployment: Deployment, definition: QueryDefinition, part: int) -> dict[str, Any]:
    """Settings of a root without a window: contents are rows, and empty buckets are collected."""
    spec = definition.spec
    wait_us = min(EMPTY_WAIT_US_MAX, deployment.deadline_us(spec, ROOT) // 2)
    contents = partial(RowContents, part=part, parts=spec.parts, key_hash=definition.divided_by)
    return {
        "contents": contents,
        "empty_wait_us": max(wait_us, 0),
        "live_windows_max": LIVE_BUCKETS_MAX,
    }
