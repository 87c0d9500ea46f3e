"""The topics of a deployment: which there are, how they are made, what their clients need.

The list is data (schemas/topics.toml), because code, compose files and tests must agree on it and
a limit that differs between broker, producer and consumer loses a record only on the day that one
is large (R32). What a deployment needs is a pure function of its streams and the shapes of its
queries. Creation is explicit and may be repeated: an existing topic is left as it is, unless its
number of partitions contradicts the deployment, which nothing could mend later. A compacted topic
may get more of them: what is in it is found by its key.
"""

import re
import time
import tomllib
from collections.abc import Iterable, Mapping, Set
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.paths import schemas_dir

HEARTBEATS = "sw.heartbeats"
REGISTRY = "sw.registry"
ResultKind = Literal["stable", "tentative", "corrections"]
RESULT_KINDS: tuple[ResultKind, ...] = ("stable", "tentative", "corrections")
Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QueryShape:
    """The numbers of a query that its topics follow from."""

    name: str
    children: int = 1
    replicas: int = 2
    parts: int = 1
    windowed: bool = True

    def __post_init__(self) -> None:
        assert min(self.children, self.replicas, self.parts) >= 1


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it is to be created."""

    name: str
    partitions: int
    config: Mapping[str, str]

    @property
    def by_key(self) -> bool:
        """Is a record found by its key, in whatever partition it is?"""
        return self.config.get("cleanup.policy") == "compact"


def source_topic(stream: str) -> str:
    """The source log of a stream; `lab.0` is partition 0 of the existing topic behind `lab`."""
    return f"sw.source.{stream}"


def quarantine_topic(stream: str) -> str:
    """Where a stream's unusable readings are kept."""
    return f"sw.quarantine.{stream}"


def ordered_topic(query: str, child: int) -> str:
    """The logs of a child's orderers."""
    return f"sw.ordered.{query}.{child}"


def deltas_topic(query: str, part: int) -> str:
    """The logs of a part's deltas, of all children and replicas."""
    return f"sw.deltas.{query}.{part}"


def state_topic(query: str) -> str:
    """The state records of a query's fragments."""
    return f"sw.state.{query}"


def results_topic(query: str, kind: ResultKind) -> str:
    """One of a query's three result topics."""
    return f"sw.results.{query}.{kind}"


def ordered_partition(replica: int, *, live: bool) -> int:
    """The partition of a replica's stable or live log."""
    return 2 * replica + live


def deltas_partition(child: int, replica: int, replicas: int, *, live: bool) -> int:
    """The partition of the deltas made from one ordered log."""
    assert replica < replicas
    return (child * replicas + replica) * 2 + live


def topics_for(streams: Iterable[str], queries: Iterable[QueryShape]) -> tuple[TopicSpec, ...]:
    """All topics that these streams and queries need, in the order of the file."""
    streams, queries = tuple(streams), tuple(queries)
    specs: list[TopicSpec] = []
    for template in _file()["topic"]:
        words = set(re.findall(r"<(\w+)>", template["name"]))
        if "stream" in words:
            specs += [_spec(template, {"stream": stream}, None) for stream in streams]
        elif "query" in words:
            for query in queries:
                if template.get("windowed", False) and not query.windowed:
                    continue
                specs += [_spec(template, names, query) for names in _names(words, query)]
        else:
            specs.append(_spec(template, {}, None))
    return tuple(specs)


def record_bytes_max() -> int:
    """The largest record that an internal topic carries."""
    return int(_file()["limits"]["record_bytes_max"])


def piece_bytes_max() -> int:
    """Where the content of a bucket is cut into pieces."""
    return int(_file()["limits"]["piece_bytes_max"])


def confluent_producer(bootstrap: str, **extra: str | float | bool) -> Config:
    """Settings of a confluent-kafka Producer; extra ones as `linger_ms=5`."""
    return _confluent(bootstrap, "producer", extra)


def confluent_consumer(bootstrap: str, **extra: str | float | bool) -> Config:
    """Settings of a confluent-kafka Consumer that is assigned, not subscribed.

    librdkafka wants a group id even so; nothing is ever committed to it.
    """
    return _confluent(bootstrap, "consumer", {"group_id": "slackwater-assigned"} | extra)


def aiokafka_producer(bootstrap: str, **extra: object) -> Config:
    """Keyword arguments of an AIOKafkaProducer."""
    return {"bootstrap_servers": bootstrap} | _clients("aiokafka", "producer") | extra


def aiokafka_consumer(bootstrap: str, **extra: object) -> Config:
    """Keyword arguments of an AIOKafkaConsumer."""
    return {"bootstrap_servers": bootstrap} | _clients("aiokafka", "consumer") | extra


def faust_settings() -> Config:
    """The part of a Faust app's settings that follows from the record size."""
    return _clients("faust")


def spark_options(bootstrap: str, end: Literal["source", "sink"]) -> dict[str, str]:
    """Options of Spark's Kafka source or sink."""
    return {"kafka.bootstrap.servers": bootstrap} | _clients("spark", end)


def ensure_topics(bootstrap: str, specs: Iterable[TopicSpec], timeout_s: float = 30.0) -> None:
    """Create what is missing; may be repeated, also by several processes at once."""
    admin, wanted = _admin(bootstrap), {spec.name: spec for spec in specs}
    existing = _partition_counts(admin, bootstrap, timeout_s)
    missing = [spec for name, spec in wanted.items() if name not in existing]
    if missing:
        futures = admin.create_topics([_new_topic(spec) for spec in missing])
        for name, future in futures.items():
            _wait_created(name, future, timeout_s)
        # The controller has made them; a broker learns of them and of their leaders later, on a
        # busy machine by seconds, and a client that asks meanwhile may get stuck. Another process
        # may have been quicker, and may have wanted something else.
        existing = _wait_seen(admin, bootstrap, wanted.keys(), timeout_s)
    for name, spec in wanted.items():
        if existing[name] != spec.partitions and not spec.by_key:
            raise EnvironmentProblem(
                f"topic {name} has {existing[name]} partitions, this deployment needs"
                f" {spec.partitions}: it was made for other numbers of children, replicas or parts"
            )
    for name, spec in wanted.items():
        if existing[name] < spec.partitions:
            _wait_grown(admin, bootstrap, spec, timeout_s)


def ensure_inputs(
    bootstrap: str, names: Iterable[str], partitions: int, timeout_s: float = 30.0
) -> None:
    """Create users' topics that are missing; one that is there is the user's, and is left alone."""
    existing = _partition_counts(_admin(bootstrap), bootstrap, timeout_s)
    missing = [TopicSpec(name, partitions, {}) for name in names if name not in existing]
    ensure_topics(bootstrap, missing, timeout_s)


def partition_count(bootstrap: str, topic: str, timeout_s: float = 10.0) -> int:
    """How many partitions an existing topic has; a missing one is the user's to create."""
    counts = _partition_counts(_admin(bootstrap), bootstrap, timeout_s)
    if topic not in counts:
        raise EnvironmentProblem(f"topic {topic} does not exist on {bootstrap}")
    return counts[topic]


def delete_records(
    bootstrap: str, before: Mapping[tuple[str, int], int], timeout_s: float = 10.0
) -> dict[tuple[str, int], int]:
    """Truncate logs up to, not including, the given offsets; gives the new beginnings."""
    if not before:
        return {}
    wanted = [TopicPartition(topic, part, offset) for (topic, part), offset in before.items()]
    begins: dict[tuple[str, int], int] = {}
    admin = _admin(bootstrap)  # must live as long as its futures
    for where, future in admin.delete_records(wanted).items():
        try:
            result = future.result(timeout_s)
        except KafkaException as error:
            raise EnvironmentProblem(
                f"topic {where.topic} cannot be truncated: {_reason(error)}"
            ) from error
        except TimeoutError as error:
            raise EnvironmentProblem(
                f"topic {where.topic} cannot be truncated: no answer in {timeout_s:g} s"
            ) from error
        begins[where.topic, where.partition] = result.low_watermark
    return begins


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads((schemas_dir() / "topics.toml").read_text())


def _clients(*path: str) -> Config:
    table: Config = _file()["clients"]
    for step in path:
        table = table[step]
    return dict(table)


def _confluent(bootstrap: str, kind: str, extra: Mapping[str, str | float | bool]) -> Config:
    dotted = {name.replace("_", "."): value for name, value in extra.items()}
    return {"bootstrap.servers": bootstrap} | _clients("confluent", kind) | dotted


def _names(words: set[str], query: QueryShape) -> list[dict[str, str]]:
    of_query = {"query": query.name}
    if "child" in words:
        return [of_query | {"child": str(child)} for child in range(query.children)]
    if "part" in words:
        return [of_query | {"part": str(part)} for part in range(query.parts)]
    return [of_query]


def _spec(
    template: Mapping[str, Any], names: Mapping[str, str], query: QueryShape | None
) -> TopicSpec:
    name: str = template["name"]
    for word, value in names.items():
        name = name.replace(f"<{word}>", value)
    assert "<" not in name, f"unknown word in {name}"
    config = {key: str(value) for key, value in template["config"].items()}
    return TopicSpec(name, _product(template["partitions"], query), config)


def _product(expression: str, query: QueryShape | None) -> int:
    result = 1
    for factor in expression.split("*"):
        word = factor.strip()
        result *= int(word) if word.isdecimal() else int(getattr(query, word))
    return result


def _admin(bootstrap: str) -> AdminClient:
    # Its errors come back as exceptions; the library's own lines on stderr would say them twice.
    return AdminClient(
        {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 2}
    )


def _partition_counts(
    admin: AdminClient, bootstrap: str, timeout_s: float, *, led: bool = False
) -> dict[str, int]:
    """Partitions by topic; ``led``: only of topics whose partitions all have a leader."""
    try:
        topics = admin.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise EnvironmentProblem(
            f"no broker answers on {bootstrap} within {timeout_s:.0f} s: {_reason(error)}"
        ) from error
    # A topic in the making is listed with an error and no partitions.
    return {
        name: len(topic.partitions)
        for name, topic in topics.items()
        if topic.error is None
        and not (led and any(part.leader < 0 for part in topic.partitions.values()))
    }


def _new_topic(spec: TopicSpec) -> NewTopic:
    # -1: as many replicas as the cluster's own default says, one here, three in production.
    return NewTopic(spec.name, spec.partitions, -1, config=dict(spec.config))


def _wait_created(name: str, future: Future[None], timeout_s: float) -> None:
    try:
        future.result(timeout_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise EnvironmentProblem(f"topic {name} cannot be created: {_reason(error)}") from error
    except TimeoutError as error:
        raise EnvironmentProblem(
            f"topic {name} was not created within {timeout_s:.0f} s"
        ) from error


def _wait_grown(admin: AdminClient, bootstrap: str, spec: TopicSpec, timeout_s: float) -> None:
    asked = admin.create_partitions([NewPartitions(spec.name, spec.partitions)])
    try:
        asked[spec.name].result(timeout_s)
    except KafkaException as error:
        # So it answers when somebody else has been quicker.
        if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
            raise EnvironmentProblem(
                f"topic {spec.name} cannot be extended: {_reason(error)}"
            ) from error
    deadline = time.monotonic() + timeout_s
    while _partition_counts(admin, bootstrap, timeout_s, led=True).get(spec.name, 0) < (
        spec.partitions
    ):
        if time.monotonic() > deadline:
            raise EnvironmentProblem(f"topic {spec.name} was extended but nothing shows it")
        time.sleep(0.02)


def _wait_seen(
    admin: AdminClient, bootstrap: str, names: Set[str], timeout_s: float
) -> dict[str, int]:
    deadline = time.monotonic() + timeout_s
    while True:
        counts = _partition_counts(admin, bootstrap, timeout_s, led=True)
        unseen = names - counts.keys()
        if not unseen:
            return counts
        if time.monotonic() > deadline:
            raise EnvironmentProblem(f"topic {min(unseen)} was created but does not appear")
        time.sleep(0.02)  # the client library offers nothing to wait on


def _reason(error: KafkaException) -> str:
    return str(error.args[0].str())
