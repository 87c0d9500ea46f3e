"""The topics of a deployment: their list, their creation, and the settings of their clients.

The list is data (schemas/topics.toml), because code, compose files and tests must agree on it: if a
size limit differs between broker, producer and consumer, large records are lost, and no test with
small ones detects it (trace-32). The topics that a deployment needs are a pure function of its
streams and queries.
Creation is explicit and repeatable: an existing topic is not changed. If its number of partitions
contradicts the deployment, this is an error, because it cannot be corrected later. Only compacted
topics may get more partitions, since their records are found by key.
"""

import re
import time
import tomllib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from slackwater.codec.paths import schemas_dir
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import UNPREFIXED, Names, base_of
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.cluster import Where, cluster_of, confluent_client

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QueryTopics:
    """The numbers of a query that determine its topics."""

    name: str
    children: int = 1
    replicas: int = 2
    parts: int = 1
    windowed: bool = True
    has_children: bool = True
    """False if the query reads another query's children, with their ordered logs and deltas."""
    alerting: bool = False
    """Whether it has alerts."""
    merging: bool = False
    """Whether it has mergers."""

    def __post_init__(self) -> None:
        assert min(self.children, self.replicas, self.parts) >= 1


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """One topic with its settings."""

    name: str
    partitions: int
    config: Mapping[str, str]

    @property
    def by_key(self) -> bool:
        """Whether readers find a record by its key, in any partition (a compacted topic)."""
        return self.config.get("cleanup.policy") == "compact"


def ordered_partition(replica: int, *, live: bool) -> int:
    """Return the partition of a replica's stable or live log."""
    return 2 * replica + live


def deltas_partition(child: int, replica: int, replicas: int, *, live: bool) -> int:
    """Return the partition of the deltas made from one ordered log."""
    assert replica < replicas
    return (child * replicas + replica) * 2 + live


def topics_for(
    streams: Iterable[str], queries: Iterable[QueryTopics], names: Names = UNPREFIXED
) -> tuple[TopicLayout, ...]:
    """Return all topics that these streams and queries need, in the order of the file.

    Generations of a query have result and state topics in common.
    """
    streams, queries = tuple(streams), tuple(queries)
    specs: list[TopicLayout] = []
    for template in _file()["topic"]:
        placeholders = set(re.findall(r"<(\w+)>", template["name"]))
        if "stream" in placeholders:
            specs += [_spec(template, names, {"stream": stream}, None) for stream in streams]
        elif "query" in placeholders:
            for query in queries:
                if template.get("windowed", False) and not query.windowed:
                    continue
                if template.get("of_children", False) and not query.has_children:
                    continue
                if template.get("alerting", False) and not query.alerting:
                    continue
                if template.get("merging", False) and not query.merging:
                    continue
                of = _values(
                    placeholders, query, of_generations=template.get("of_generations", False)
                )
                specs += [_spec(template, names, values, query) for values in of]
        else:
            specs.append(_spec(template, names, {}, None))
    return tuple({spec.name: spec for spec in specs}.values())


def piece_bytes_max() -> int:
    """Return the size at which the contents of a bucket are cut into pieces."""
    return int(_file()["limits"]["piece_bytes_max"])


def confluent_producer(where: Where, **extra: str | float | bool) -> Config:
    """Return the settings of a confluent-kafka Producer; additional ones as `linger_ms=5`."""
    return _confluent(where, "producer", extra)


def confluent_consumer(where: Where, **extra: str | float | bool) -> Config:
    """Return the settings of a confluent-kafka Consumer with explicit assignment.

    librdkafka requires a group id even so; nothing is committed to the group.
    """
    return _confluent(where, "consumer", {"group_id": UNPREFIXED.assigned_group} | extra)


def aiokafka_producer(where: Where, **extra: object) -> Config:
    """Return the keyword arguments of an AIOKafkaProducer."""
    return _aiokafka(where, "producer", extra)


def aiokafka_consumer(where: Where, **extra: object) -> Config:
    """Return the keyword arguments of an AIOKafkaConsumer."""
    return _aiokafka(where, "consumer", extra)


def spark_options(where: Where, end: Literal["source", "sink"]) -> dict[str, str]:
    """Return the options of Spark's Kafka source or sink; they contain no secret."""
    cluster = cluster_of(where)
    address = {"kafka.bootstrap.servers": cluster.bootstrap}
    return address | _clients("spark", end) | cluster.security.spark()


def ensure_topics(where: Where, specs: Iterable[TopicLayout], timeout_s: float = 30.0) -> None:
    """Create missing topics; repeatable, also by several processes at once."""
    admin, wanted = Admin(where), {spec.name: spec for spec in specs}
    existing = _partition_counts(admin, where, timeout_s)
    missing = [spec for name, spec in wanted.items() if name not in existing]
    if missing:
        _create(admin, missing, timeout_s)
        # Brokers receive new topics and their leaders after the controller does, seconds later on a
        # busy machine, and a client that requests a topic before may block. The counts are read
        # again, since another process may have created a topic with another number of partitions.
        existing = _wait_seen(admin, where, wanted.keys(), timeout_s)
    for name, spec in wanted.items():
        if existing[name] != spec.partitions and not spec.by_key:
            raise EnvironmentProblem(
                f"topic {name} has {existing[name]} partitions, this deployment needs"
                f" {spec.partitions}: it was made for other numbers of children, replicas or"
                " parts. Use those numbers, or give the query another name"
            )
    for name, spec in wanted.items():
        if existing[name] < spec.partitions:
            _grow(admin, where, spec, timeout_s)


def ensure_inputs(where: Where, partitions_of: Mapping[str, int], timeout_s: float = 30.0) -> None:
    """Create missing input topics, by name; existing ones are not changed."""
    existing = _partition_counts(Admin(where), where, timeout_s)
    missing = [
        TopicLayout(name, n, {}) for name, n in partitions_of.items() if name not in existing
    ]
    ensure_topics(where, missing, timeout_s)


def delete_topics(where: Where, topics: Iterable[str], timeout_s: float = 30.0) -> list[str]:
    """Delete these topics, as far as they exist; returns those that were deleted.

    Raises:
        EnvironmentProblem: the broker does not answer, or refuses.
    """
    admin = Admin(where)
    existing = sorted({*topics} & _partition_counts(admin, where, timeout_s).keys())
    if not existing:
        return []
    answers = admin.ask(lambda client: client.delete_topics(existing), timeout_s)
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART  # another process was first
    refused = {name: e.str() for name, e in answers.refused.items() if e.code() != unknown}
    for name, reason in (refused | answers.missing).items():
        raise EnvironmentProblem(f"topic {name} cannot be deleted: {reason}")
    return existing


def own_topics(where: Where, names: Names, timeout_s: float = 30.0) -> list[str]:
    """Return all topics with names of this deployment; ``EnvironmentProblem`` without an answer."""
    return [
        topic for topic in _partition_counts(Admin(where), where, timeout_s) if names.is_ours(topic)
    ]


def partition_count(where: Where, topic: str, timeout_s: float = 10.0) -> int:
    """Return the number of partitions of a topic; ``EnvironmentProblem`` if it does not exist."""
    counts = partition_counts(where, [topic], timeout_s)
    if topic not in counts:
        raise EnvironmentProblem(f"topic {topic} does not exist on {where}")
    return counts[topic]


def partition_counts(
    where: Where, topics: Iterable[str], timeout_s: float = 10.0
) -> dict[str, int]:
    """Return the number of partitions of each topic; omits topics that do not exist."""
    counts = _partition_counts(Admin(where), where, timeout_s)
    return {topic: counts[topic] for topic in topics if topic in counts}


def retention_ms(where: Where, topics: Iterable[str], timeout_s: float = 10.0) -> dict[str, int]:
    """Return how long topics keep their records, by name; -1: without end.

    Topics for which there is no answer are omitted.
    """
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    if not resources:
        return {}
    answers = Admin(where).ask(lambda client: client.describe_configs(resources), timeout_s)
    return {it.name: int(of["retention.ms"].value) for it, of in answers.given.items()}


def delete_records(
    where: Where, before: Mapping[tuple[str, int], int], timeout_s: float = 10.0
) -> dict[tuple[str, int], int]:
    """Truncate logs up to, not including, the given offsets; return the new beginnings."""
    if not before:
        return {}
    wanted = [TopicPartition(topic, part, offset) for (topic, part), offset in before.items()]
    answers = Admin(where).ask(
        lambda client: {
            (log.topic, log.partition): cut for log, cut in client.delete_records(wanted).items()
        },
        timeout_s,
    )
    for (topic, _), error in answers.refused.items():
        raise EnvironmentProblem(f"topic {topic} cannot be truncated: {error.str()}")
    for (topic, _), why in answers.missing.items():
        raise EnvironmentProblem(f"topic {topic} cannot be truncated: {why} in {timeout_s:g} s")
    return {log: result.low_watermark for log, result in answers.given.items()}


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads((schemas_dir() / "topics.toml").read_text())


def _clients(*path: str) -> Config:
    table: Config = _file()["clients"]
    for step in path:
        table = table[step]
    return dict(table)


def _confluent(where: Where, kind: str, extra: Mapping[str, str | float | bool]) -> Config:
    dotted = {name.replace("_", "."): value for name, value in extra.items()}
    return confluent_client(where) | _clients("confluent", kind) | dotted


def _aiokafka(where: Where, kind: str, extra: Config) -> Config:
    cluster = cluster_of(where)
    address = {"bootstrap_servers": cluster.bootstrap}
    return address | cluster.security.aiokafka() | _clients("aiokafka", kind) | extra


def _values(
    placeholders: set[str], query: QueryTopics, *, of_generations: bool
) -> list[dict[str, str]]:
    """Return the values of a template; ``of_generations``: all of a query have one topic."""
    of_query = {"query": base_of(query.name) if of_generations else query.name}
    if "child" in placeholders:
        return [of_query | {"child": str(child)} for child in range(query.children)]
    if "part" in placeholders:
        return [of_query | {"part": str(part)} for part in range(query.parts)]
    return [of_query]


def _spec(
    template: Mapping[str, Any], names: Names, values: Mapping[str, str], query: QueryTopics | None
) -> TopicLayout:
    name: str = names.topic(template["name"])
    for placeholder, value in values.items():
        name = name.replace(f"<{placeholder}>", value)
    assert "<" not in name, f"unknown placeholder in {name}"
    config = {key: str(value) for key, value in template["config"].items()}
    return TopicLayout(name, _product(template["partitions"], query), config)


def _product(expression: str, query: QueryTopics | None) -> int:
    result = 1
    for factor in expression.split("*"):
        factor = factor.strip()  # noqa: PLW2901 -- the same factor
        result *= int(factor) if factor.isdecimal() else int(getattr(query, factor))
    return result


def _partition_counts(
    admin: Admin, where: Where, timeout_s: float, *, led: bool = False
) -> dict[str, int]:
    """Return partition counts by topic; ``led``: only of topics whose partitions have leaders."""
    try:
        topics = admin.list_topics(timeout_s)
    except KafkaException as error:
        raise EnvironmentProblem(
            f"no broker answers on {where} within {timeout_s:.0f} s: {_reason(error)}"
        ) from error
    # A topic that is being created is listed with an error and without partitions.
    return {
        name: len(topic.partitions)
        for name, topic in topics.items()
        if topic.error is None
        and not (led and any(part.leader < 0 for part in topic.partitions.values()))
    }


def _new_topic(spec: TopicLayout) -> NewTopic:
    # -1: the cluster's default replication factor, 1 embedded, 3 in production.
    return NewTopic(spec.name, spec.partitions, -1, config=dict(spec.config))


def _create(admin: Admin, specs: Iterable[TopicLayout], timeout_s: float) -> None:
    new = [_new_topic(spec) for spec in specs]
    answers = admin.ask(lambda client: client.create_topics(new), timeout_s)
    for name, error in answers.refused.items():
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise EnvironmentProblem(f"topic {name} cannot be created: {error.str()}")
    for name, why in answers.missing.items():
        raise EnvironmentProblem(f"topic {name} was not created within {timeout_s:.0f} s: {why}")


def _grow(admin: Admin, where: Where, spec: TopicLayout, timeout_s: float) -> None:
    new = [NewPartitions(spec.name, spec.partitions)]
    answers = admin.ask(lambda client: client.create_partitions(new), timeout_s)
    for error in answers.refused.values():
        # The answer if another process was faster, or to a repeated request.
        if error.code() != KafkaError.INVALID_PARTITIONS:
            raise EnvironmentProblem(f"topic {spec.name} cannot be extended: {error.str()}")
    for why in answers.missing.values():
        raise EnvironmentProblem(
            f"topic {spec.name} was not extended within {timeout_s:.0f} s: {why}"
        )
    deadline = time.monotonic() + timeout_s
    while _partition_counts(admin, where, timeout_s, led=True).get(spec.name, 0) < (
        spec.partitions
    ):
        if time.monotonic() > deadline:
            raise EnvironmentProblem(f"topic {spec.name} was extended, but has no more partitions")
        time.sleep(0.02)


def _wait_seen(admin: Admin, where: Where, names: Set[str], timeout_s: float) -> dict[str, int]:
    deadline = time.monotonic() + timeout_s
    while True:
        counts = _partition_counts(admin, where, timeout_s, led=True)
        unseen = names - counts.keys()
        if not unseen:
            return counts
        if time.monotonic() > deadline:
            raise EnvironmentProblem(f"topic {min(unseen)} was created but does not appear")
        time.sleep(0.02)  # polling, since the client library has no event for it


def _reason(error: KafkaException) -> str:
    return str(error.args[0].str())
