"""Builds the session of a merger: one copy of the merger of one child of a query."""

from __future__ import annotations

from slackwater.host.driven import SLOW_HEARTBEAT_PERIOD_US
from slackwater.host.fragment import Fragment
from slackwater.host.known import RegistryView
from slackwater.host.root import contents_of_windows
from slackwater.model.errors import UsageError
from slackwater.model.names import MergerName
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.sessions.merger import MergerConfig, MergerSession


def make(name: str, known: RegistryView, transport: KafkaTransport) -> Fragment:
    """Make the merger ``name`` (QUERY.CHILD.COPY); waits for its query.

    Raises:
        UsageError: the query has been deleted, or has no mergers.
    """
    of = MergerName.parse(name)
    deployment, definition = known.deployment_of(of.query), known.present_query(of.query)
    if definition.state == "deleted":
        raise UsageError(f"query {of.query} has been deleted: there is no merger {name}")
    spec, names = definition.spec, transport.names
    if not spec.mergers:
        raise UsageError(f"query {of.query} has no mergers: there is no merger {name}")
    fields = deployment.output_fields(spec)
    session = MergerSession(
        MergerConfig(
            query=of.query,
            child=of.child,
            copy=of.copy,
            parts=spec.parts,
            replicas=spec.replicas,
            fields=fields,
            grid=definition.grid,
            start_time=definition.e0_us,
            topics=names,
            children_of=spec.children_of,
            keeps_all=spec.uplink is not None,
            **contents_of_windows(spec, fields),
        )
    )
    own = {names.registry, names.state(of.query)}
    own |= {names.merged(of.query, part) for part in range(spec.parts)}
    return Fragment(
        session,
        spec.margin_us // 2,
        frozenset(own.union(topic for topic, _ in session.inputs)),
        heartbeat_period_us=SLOW_HEARTBEAT_PERIOD_US,
    )
