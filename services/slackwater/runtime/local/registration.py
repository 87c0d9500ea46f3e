"""Registration: creates the topics, the event clock and the queries of a deployment in Kafka.

`slackwater up` registers for the processes that it starts; under Compose, systemd or Kubernetes the
one-shot command `slackwater topics` and the registrar do. Registration is idempotent: existing
topics and entries are kept, so a second start uses the E0 and the w that the first one fixed
(trace-24, trace-27).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Set
from pathlib import Path

from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.primitives.eventclock import DataClock, EventClock, WallClock
from slackwater.runtime.local.beginning import beginning
from slackwater.runtime.local.layout import sources_of, topic_specs
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import ensure_inputs, ensure_topics, partition_counts
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, Registry

_log = logging.getLogger(__name__)

APPEARS_S_MAX = 2.0
"""How long after it was made a topic may not be shown yet."""


class Registration:
    """Of one deployment, in one Kafka."""

    def __init__(
        self,
        transport: KafkaTransport,
        deployment: Deployment,
        deployment_path: Path,
        *,
        data_dir: Path | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        """With ``data_dir`` its Kafka is the embedded one there."""
        self._data_dir = data_dir
        self._transport = transport
        self._deployment = deployment
        self._path = deployment_path
        self._clock = clock or SystemClock()
        self._partitions_of: dict[str, int] | None = None

    @property
    def partitions_of(self) -> dict[str, int]:
        """How many partitions the users' topics have, by stream; asked once."""
        if self._partitions_of is None:
            topics = self._input_topics
            found = self._found(set(topics.values()))
            self._partitions_of = {name: found[topic] for name, topic in topics.items()}
        return self._partitions_of

    def _found(self, topics: Set[str]) -> dict[str, int]:
        """Their partitions. A topic that was just made is shown by the brokers a little later."""
        give_up = time.monotonic() + APPEARS_S_MAX
        while True:
            found = partition_counts(self._transport.cluster, topics)
            missing = sorted(topics - found.keys())
            if not missing:
                return found
            if time.monotonic() > give_up:
                raise EnvironmentProblem(self._missing_inputs(missing))
            time.sleep(0.1)

    @property
    def _input_topics(self) -> dict[str, str]:
        streams = self._deployment.streams.items()
        return {name: stream.topic.name for name, stream in streams if stream.topic is not None}

    def _missing_inputs(self, missing: list[str]) -> str:
        bootstrap = self._transport.bootstrap
        some, do = ("topic", "does") if len(missing) == 1 else ("topics", "do")
        return (
            f"{some} {', '.join(missing)} of {self._path} {do} not exist on {bootstrap}: make what"
            f" is missing with `slackwater topics --deployment {self._path} --bootstrap {bootstrap}"
            " --inputs PARTITIONS`, or as you make topics there"
        )

    def make_topics(self, *, input_partitions: int | None = None, within_s: float = 30.0) -> None:
        """Create what is missing; ``input_partitions``: users' topics too, with so many."""
        cluster = self._transport.cluster
        if input_partitions is not None:
            ensure_inputs(cluster, self._input_topics.values(), input_partitions, within_s)
        ensure_topics(cluster, topic_specs(self._deployment, self.partitions_of), within_s)

    @property
    def _elsewhere(self) -> str:
        """How to begin without what is registered: it is where the topics are."""
        if self._data_dir is not None:
            return f"begin anew with another --data-dir (it is registered in {self._data_dir})"
        return (
            "begin anew with another prefix in the file (it is registered in topics of"
            f" {self._transport.bootstrap}, so another --data-dir does not help)"
        )

    def publish_clock(self) -> EventClock:
        """The clock that is published already, else that of the deployment file."""
        wanted = WallClock() if self._deployment.clock == "wall" else DataClock()
        registry = Registry(self._transport)
        if hidden := registry.restore():
            _log.warning("the registry's entries were hidden by records that are none: %s", hidden)
        published = registry.clock()
        if published is None:
            registry.publish_clock(wanted)
            return wanted
        if published.to_json() != wanted.to_json():
            raise UsageError(
                f"{self._path} says clock: {self._deployment.clock}, but what is registered runs"
                f" with another event clock ({published.to_json()['kind']}): {self._elsewhere}"
            )
        return published

    def missing(self) -> list[str]:
        """The queries to be registered; ``DeploymentError`` where a registered one has changed."""
        found = Registry(self._transport).queries()
        for name, query in self._deployment.queries.items():
            if name in found and found[name].spec != query:
                raise DeploymentError(
                    f"{self._path}: query {name} is registered with another"
                    f" definition: give the new one another name, or {self._elsewhere}"
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
            start_time_us = None
            if not set(unknown).intersection(deployment.queries_of(query)):
                streams = deployment.source_streams(query)
                start_time_us = beginning(
                    self._transport,
                    (source for stream in streams for source in sources[stream]),
                    event_clock.event(self._clock.now_us()),
                    deployment.lateness_us(query),
                )
            if start_time_us is None:
                unknown.append(query.name)
            else:
                definitions.append(
                    QueryDefinition(query.name, 0, start_time_us, query.bucket_us(), query)
                )
        if definitions:
            Registry(self._transport).publish_queries(*definitions)
        return unknown
