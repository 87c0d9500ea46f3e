"""What a deployment needs in Kafka before its processes can work: topics, the clock, the queries.

`slackwater up` does this for the processes that it starts itself; where something else starts them
(Compose, systemd, Kubernetes) the one-shot command `slackwater topics` and the registrar do it.
Everything may be repeated: what is there is left as it is, so a second start goes on with the E0
and the w that the first one fixed (R24, R27).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError, UsageError
from slackwater.primitives.eventclock import DataClock, EventClock, WallClock
from slackwater.runtime.beginning import beginning
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.layout import sources_of, topic_specs
from slackwater.runtime.registry import QueryDefinition, Registry
from slackwater.runtime.topics import ensure_inputs, ensure_topics, partition_count


class Registration:
    """Of one deployment, in one Kafka."""

    def __init__(
        self,
        transport: KafkaTransport,
        deployment: Deployment,
        deployment_path: Path,
        *,
        clock: SystemClock | None = None,
    ) -> None:
        self._transport = transport
        self._deployment = deployment
        self._path = deployment_path
        self._clock = clock or SystemClock()
        self._partitions_of: dict[str, int] | None = None

    @property
    def partitions_of(self) -> dict[str, int]:
        """How many partitions the users' topics have, by stream; asked once."""
        if self._partitions_of is None:
            self._partitions_of = {
                name: partition_count(self._transport.bootstrap, stream.topic.name)
                for name, stream in self._deployment.streams.items()
                if stream.topic is not None
            }
        return self._partitions_of

    def make_topics(self, *, input_partitions: int | None = None, within_s: float = 30.0) -> None:
        """Create what is missing; ``input_partitions``: users' topics too, with so many."""
        bootstrap = self._transport.bootstrap
        if input_partitions is not None:
            streams = self._deployment.streams.values()
            inputs = [stream.topic.name for stream in streams if stream.topic is not None]
            ensure_inputs(bootstrap, inputs, input_partitions, within_s)
        ensure_topics(bootstrap, topic_specs(self._deployment, self.partitions_of), within_s)

    def publish_clock(self) -> EventClock:
        """The clock that is published already, else that of the deployment file."""
        wanted = WallClock() if self._deployment.clock == "wall" else DataClock()
        registry = Registry(self._transport)
        published = registry.clock()
        if published is None:
            registry.publish_clock(wanted)
            return wanted
        if published.to_json() != wanted.to_json():
            raise UsageError(
                f"this data directory runs with another event clock ({published.to_json()['kind']})"
                f" than the deployment file says ({self._deployment.clock}): choose another one"
            )
        return published

    def missing(self) -> list[str]:
        """The queries to be registered; ``DeploymentError`` where a registered one has changed."""
        found = Registry(self._transport).queries()
        for name, query in self._deployment.queries.items():
            if name in found and found[name].spec != query:
                raise DeploymentError(
                    f"{self._path}: query {name} is registered with another"
                    " definition: give the new one another name, or use another data directory"
                )
        return [name for name in self._deployment.queries if name not in found]

    def register(self, names: Iterable[str], event_clock: EventClock) -> list[str]:
        """Register the queries whose beginning is known; the names of the others.

        A query that reads others begins where the streams behind them do, and comes after them.
        """
        deployment, wanted = self._deployment, set(names)
        sources = sources_of(deployment, self.partitions_of)
        definitions: list[QueryDefinition] = []
        unknown: list[str] = []
        for query in deployment.in_order():
            if query.name not in wanted:
                continue
            e0_us = None
            if not set(unknown).intersection(deployment.queries_of(query)):
                streams = deployment.source_streams(query)
                e0_us = beginning(
                    self._transport,
                    (source for stream in streams for source in sources[stream]),
                    event_clock.event(self._clock.now_us()),
                    deployment.lateness_us(query),
                )
            if e0_us is None:
                unknown.append(query.name)
            else:
                definitions.append(QueryDefinition(query.name, 0, e0_us, query.bucket_us(), query))
        if definitions:
            Registry(self._transport).publish_queries(*definitions)
        return unknown
