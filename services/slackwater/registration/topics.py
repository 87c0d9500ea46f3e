"""The topics of a deployment."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.deployment.fragments import sources_of
from slackwater.model.deployment import Deployment
from slackwater.runtime.logs.topics import QueryTopics, TopicLayout, topics_for


def topic_specs(
    deployment: Deployment, partitions_of: Mapping[str, int]
) -> tuple[TopicLayout, ...]:
    """Return all topics; ``partitions_of`` has the streams that are fed by an existing topic."""
    sources = {log for logs in sources_of(deployment, partitions_of).values() for log in logs}
    names = deployment.names
    wanted = {names.source(log) for log in sources}
    here = [name for name, stream in deployment.streams.items() if not stream.elsewhere]
    wanted |= {names.quarantine(stream) for stream in here}
    shapes = [
        QueryTopics(
            query.name,
            query.children,
            query.replicas,
            query.parts,
            query.window is not None,
            query.has_children,
            query.delivers,
            query.mergers > 0,
        )
        for query in deployment.queries.values()
    ]
    # A stream fed by a topic has a source log for each partition, but one quarantine topic.
    both = dict.fromkeys([*sorted(sources), *here])
    of_streams = (names.source(""), names.quarantine(""))
    return tuple(
        spec
        for spec in topics_for(both, shapes, names)
        if spec.name in wanted or not spec.name.startswith(of_streams)
    )
