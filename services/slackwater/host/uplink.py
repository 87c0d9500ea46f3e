"""Builds the session of an uplink: one copy, for one query at a site.

It reads the site's Kafka as any fragment of a host does, and writes to the centre's through a
producer of its own. Records are compressed: the link may be thin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slackwater.deployment.sites import why_other
from slackwater.host.driven import SLOW_HEARTBEAT_PERIOD_US
from slackwater.host.fragment import Fragment
from slackwater.host.known import RegistryView
from slackwater.model.errors import UsageError
from slackwater.model.kinds import UPLINKS
from slackwater.model.names import UplinkName
from slackwater.protocols.fargo.key_lists import lists_us
from slackwater.runtime.logs.cluster import find_centre
from slackwater.runtime.logs.kafka import KafkaTransport, client_config
from slackwater.runtime.logs.kafka_writer import LogProducer, LogWriter
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.sessions.uplink import UplinkConfig, UplinkSession

IN_FLIGHT_BYTES_MAX: Final = 32 * 1024 * 1024
COMPRESSION: Final = "gzip"
"""The one that all readers have: zstd and lz4 need libraries that not each installation has."""


def make(name: str, known: RegistryView, transport: KafkaTransport) -> Fragment:
    """Make the uplink ``name`` (QUERY.0.COPY); waits for its query.

    Raises:
        UsageError: the query has been deleted, or is not one at a site; or the file with the
            credentials for the centre is invalid.
    """
    of = UplinkName.parse(name)
    definition = known.present_query(of.query)
    spec, names = definition.spec, transport.names
    if definition.state == "deleted":
        raise UsageError(f"query {of.query} has been deleted: there is no uplink {name}")
    if spec.uplink is None or spec.window is None:
        raise UsageError(f"query {of.query} is at no site: there is no uplink {name}")
    # The address may have been changed in the file since the query was registered.
    declared = known.deployment.queries.get(of.query)
    link = spec.uplink if declared is None or declared.uplink is None else declared.uplink
    session = UplinkSession(
        UplinkConfig(
            query=of.query,
            copy=of.copy,
            copies=UPLINKS,
            children=spec.uplink.children,
            parts=spec.parts,
            replicas=spec.replicas,
            why_other=_other_than(definition),
            topics=names,
            lists_us=lists_us(spec.window),
        )
    )
    centre = KafkaTransport(find_centre(link), names)
    own = {names.registry}
    return Fragment(
        session,
        spec.margin_us // 2,
        frozenset(own.union(topic for topic, _ in session.inputs)),
        heartbeat_period_us=SLOW_HEARTBEAT_PERIOD_US,
        write=lambda on_fatal: _writer(centre, on_fatal),
        centre=centre,
    )


def _writer(centre: KafkaTransport, on_fatal: Callable[[str], None]) -> LogWriter:
    config = {**client_config, "compression.type": COMPRESSION}
    producer = LogProducer(centre.cluster, config, in_flight_bytes_max=IN_FLIGHT_BYTES_MAX)
    return producer.sole_writer(on_fatal)


def _other_than(mine: QueryDefinition) -> Callable[[QueryDefinition | None], str]:
    """Return what says why the centre's definition is of another query; empty if it is not."""

    def why(found: QueryDefinition | None) -> str:
        if found is None:
            return f"the centre has no query {mine.name} yet"
        if found.state == "deleted":
            return f"query {mine.name} has been deleted at the centre"
        differing = why_other(mine.spec, found.spec) or _why_other_panes(mine, found)
        return f"query {mine.name} is another one at the centre: {differing}" if differing else ""

    return why


def _why_other_panes(mine: QueryDefinition, at_centre: QueryDefinition) -> str:
    """Return why the site does not have the panes that the centre begins with; empty if it has.

    A centre that has been registered anew begins later, with panes that the site has. A site whose
    Kafka has been lost begins later, behind what the centre has.
    """
    is_edge = mine.grid.pane_start(at_centre.e0_us) == at_centre.e0_us
    if at_centre.w_us != mine.w_us or not is_edge:
        return "it has other panes there"
    if at_centre.e0_us < mine.e0_us and mine.lost_until_us is None:
        return "it starts earlier there, with panes that the site does not have"
    return ""
