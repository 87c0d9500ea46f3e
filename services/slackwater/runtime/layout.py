"""Which processes and topics a deployment is made of. Pure: names and commands, nothing started.

One proxy a stream, one orderer a (query, child, replica), as many aggregators as the largest number
of replicas, one root a (query, part). Replica r of every child of every query is on aggregator r:
two replicas of one child then never share an aggregator, as trace R19 asks for, and an aggregator
is a JVM, too dear for one fragment alone. A query without a window has nothing to aggregate: its
roots read the ordered logs themselves (R21), and a deployment of such queries starts no Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.runtime.supervisor import BROKER, ProcessSpec
from slackwater.runtime.topics import (
    QueryShape,
    TopicSpec,
    quarantine_topic,
    source_topic,
    topics_for,
)
from slackwater.runtime.truncation import replica_letter

# Proxies first, so that nothing more comes in; then all who only pass on; the broker is last.
_stop_first, _stop_then = 0, 1


@dataclass(frozen=True, slots=True)
class Launch:
    """What the command lines need to know. ``proxy_options`` are added for the stream named."""

    deployment_path: Path
    bootstrap: str
    data_dir: Path
    proxy_options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    aggregator_options: Sequence[str] = ()
    python: str = sys.executable


def process_names(deployment: Deployment, *, broker: bool = True) -> tuple[str, ...]:
    """The names that ``status`` prints, in the order in which the processes are started."""
    names = [*_proxies(deployment), *_orderers(deployment)]
    names += [*_aggregators(deployment), *_roots(deployment)]
    return (BROKER, *names) if broker else tuple(names)


def proxy_specs(deployment: Deployment, launch: Launch) -> list[ProcessSpec]:
    """The proxies, one a stream."""
    return [
        _spec(name, "slackwater.proxy", launch, launch.proxy_options.get(stream, ()), _stop_first)
        for name, stream in _proxies(deployment).items()
    ]


def fragment_specs(deployment: Deployment, launch: Launch) -> list[ProcessSpec]:
    """All others: what starts slowest is started first."""
    aggregators = [
        _spec(
            name,
            "slackwater_spark.app",
            launch,
            ("--fragments", ",".join(fragments), *launch.aggregator_options),
        )
        for name, fragments in _aggregators(deployment).items()
    ]
    orderers = [_spec(name, "slackwater.orderer", launch) for name in _orderers(deployment)]
    roots = [_spec(name, "slackwater.root", launch) for name in _roots(deployment)]
    return [*aggregators, *orderers, *roots]


def topic_specs(deployment: Deployment, partitions_of: Mapping[str, int]) -> tuple[TopicSpec, ...]:
    """All topics; ``partitions_of`` has the streams that are fed by an existing topic."""
    sources = {name for names in sources_of(deployment, partitions_of).values() for name in names}
    wanted = {source_topic(name) for name in sources}
    wanted |= {quarantine_topic(stream) for stream in deployment.streams}
    shapes = [
        QueryShape(
            query.name, query.children, query.replicas, query.parts, query.window is not None
        )
        for query in deployment.queries.values()
    ]
    # A stream behind a topic has a source log for each partition, but one quarantine.
    both = dict.fromkeys([*sorted(sources), *deployment.streams])
    of_streams = ("sw.source.", "sw.quarantine.")
    return tuple(
        spec
        for spec in topics_for(both, shapes)
        if spec.name in wanted or not spec.name.startswith(of_streams)
    )


def sources_of(
    deployment: Deployment, partitions_of: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """The source logs of each stream, by the names that they have in topics."""
    return {
        stream: tuple(f"{stream}.{p}" for p in range(partitions_of[stream]))
        if spec.topic is not None
        else (stream,)
        for stream, spec in deployment.streams.items()
    }


def _proxies(deployment: Deployment) -> dict[str, str]:
    return {f"proxy/{stream}": stream for stream in deployment.streams}


def _orderers(deployment: Deployment) -> list[str]:
    return [f"orderer/{fragment}" for fragment, _ in _fragments(deployment.queries.values())]


def _aggregators(deployment: Deployment) -> dict[str, list[str]]:
    placed: dict[str, list[str]] = {}
    windowed = (query for query in deployment.queries.values() if query.window is not None)
    for fragment, replica in sorted(_fragments(windowed), key=lambda pair: pair[1]):
        placed.setdefault(f"aggregator/{replica}", []).append(fragment)
    return placed


def _roots(deployment: Deployment) -> list[str]:
    return [
        f"root/{query.name}.{part}"
        for query in deployment.queries.values()
        for part in range(query.parts)
    ]


def _fragments(queries: Iterable[QuerySpec]) -> Iterable[tuple[str, int]]:
    for query in queries:
        for child in range(query.children):
            for replica in range(query.replicas):
                yield f"{query.name}.{child}.{replica_letter(replica)}", replica


def _spec(
    process: str,
    module: str,
    launch: Launch,
    options: Sequence[str] = (),
    stop_order: int = _stop_then,
) -> ProcessSpec:
    name = process.partition("/")[2]
    where = ("--bootstrap", launch.bootstrap, "--data-dir", str(launch.data_dir))
    what = ("--deployment", str(launch.deployment_path))
    command = (launch.python, "-m", module, name, *what, *where, *options)
    return ProcessSpec(process, command, stop_order)
