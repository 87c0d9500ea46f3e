"""Computes the processes and topics of a deployment. Pure: returns names and commands.

A deployment has one proxy for all streams, and additional proxies for streams that declare several.
It has as many hosts and aggregators as the largest number of replicas. Hosts run the orderers, one
for each (query, child, replica), and the roots, one for each (query, part). Streams, orderers and
roots have names of their own (``proxy/<stream>``, ``orderer/<query>.0.a``), under which they are
shown, killed and paused.

Replica r of every child of every query is in host r and on aggregator r: two replicas of one child
never share a process (trace-19), and an additional query needs no additional process. Roots are
assigned to the hosts round-robin, so the roots of a query's parts, and of a chain, are in different
hosts as far as possible. A query without a window needs no aggregation: its roots read the ordered
logs (trace-21), and a deployment of such queries starts no Spark. Queries that read the same
children (``deployment/sharing.py``) have only one set of orderers and aggregated fragments.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.names import (
    OrdererName,
    ProxyName,
    RootName,
    aggregator_process,
    base_of,
    earlier_generations,
    kind_of,
    own_name,
)
from slackwater.runtime.local.launchers import ProcessSpec
from slackwater.runtime.local.supervisor import BROKER
from slackwater.runtime.logs.topics import QueryTopics, TopicLayout, topics_for

# Proxies stop first, so that no more input arrives; then the other processes; the broker is last.
_stop_first, _stop_then = 0, 1

PROXY: Final = "proxy"
"""Name of the process that serves all streams."""
HOST: Final = "host"
"""Kind of the processes that run orderers and roots."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters of the command lines; ``proxy_options`` are for proxies only, and so on."""

    deployment_path: Path
    bootstrap: str
    data_dir: Path
    proxy_options: Sequence[str] = ()
    aggregator_options: Sequence[str] = ()
    python: str = sys.executable
    kafka_config: Path | None = None
    host_options: Sequence[str] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of the processes; unlike arguments, it is not visible to other users.

        The first variable is empty if there is no file, so that a process does not use an inherited
        one for another cluster. The second is empty since the inherited health file belongs to the
        process that starts these.
        """
        return {
            "SLACKWATER_KAFKA_CONFIG": str(self.kafka_config or ""),
            "SLACKWATER_HEALTH_FILE": "",
        }


def process_names(
    deployment: Deployment, *, broker: bool = True, paused: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the names that ``status`` prints, in start order.

    A process with parts (the proxy, a host) is replaced by the names of its parts. ``paused``:
    names of queries that exist and do not run.
    """
    proxies = [name for stream in deployment.streams.values() for name in stream.proxy_names]
    names = _names(proxies, deployment.queries.values(), paused)
    return (BROKER, *names) if broker else names


def host_names(deployment: Deployment) -> tuple[str, ...]:
    """Return the names of the processes that run orderers and roots."""
    return tuple(_hosts(deployment.queries.values()))


def expected_names(queries: Mapping[str, QuerySpec], latest: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the processes that registered queries need; omits streams that no query reads.

    Of a stream with several proxies only the first is included, since the registry does not have
    the streams. ``latest`` has the names in the latest heartbeats. If one of them is the aggregator
    of a node, aggregators are omitted, since their number depends on the placement.
    """
    read = (name for query in queries.values() for name in query.sources)
    known = {base_of(name) for name in queries}
    streams = dict.fromkeys(name for name in read if name not in known)
    return as_on_nodes(_names(map(ProxyName, streams), queries.values()), latest)


def as_on_nodes(names: Iterable[str], latest: Iterable[str]) -> tuple[str, ...]:
    """Leave out the aggregators of `up` if one of a node is in ``latest``, the heartbeats."""
    on_nodes = bool(node_aggregators(latest))
    return tuple(name for name in names if not on_nodes or kind_of(name) != "aggregator")


def node_aggregators(names: Iterable[str]) -> list[str]:
    """Return the aggregators of nodes among these processes; those of `up` are numbered."""
    return [n for n in names if kind_of(n) == "aggregator" and not own_name(n).isdigit()]


def stages(query: QuerySpec) -> tuple[tuple[str, ...], ...]:
    """Return the stages between the source logs and a query's results, with all copies of each.

    While one copy of each stage runs, answers must meet the bound. Proxies are not included: the
    bound holds also while sources are missing, or a query that this one reads (trace-20).
    """
    children = range(query.children)
    orderers = [[of.process for of in _replicas(query, child)] for child in children]
    aggregators = [aggregator_process(replica) for replica in range(query.replicas)]
    roots = [[RootName(query.name, part).process] for part in range(query.parts)]
    windowed = [aggregators] if query.window is not None else []
    return tuple(map(tuple, [[BROKER], *orderers, *windowed, *roots]))


def proxy_specs(deployment: Deployment, launch: Launch) -> list[ProcessSpec]:
    """Return the proxy, which serves all streams, and those that share topics with it.

    Process n serves the share n of each stream with more than n proxies.
    """
    served: dict[int, list[ProxyName]] = {}
    for stream in deployment.streams.values():
        for name in stream.proxy_names:
            served.setdefault(name.share, []).append(name)
    return [_proxy(share, names, deployment, launch) for share, names in sorted(served.items())]


def _proxy(
    share: int, served: Sequence[ProxyName], deployment: Deployment, launch: Launch
) -> ProcessSpec:
    streams = {name.stream for name in served}
    options = _of_streams(launch.proxy_options, deployment, streams)
    return proxy_spec(f"{PROXY}/{share}" if share else PROXY, served, launch, *options)


def proxy_spec(
    process: str, served: Sequence[ProxyName], launch: Launch, *options: str
) -> ProcessSpec:
    """Return a process that serves these streams."""
    return ProcessSpec(
        process,
        _command("slackwater.proxy", tuple(map(str, served)), launch, ("--commands", *options)),
        _stop_first,
        env=launch.environment,
        parts=tuple(name.process for name in served),
    )


def _of_streams(
    options: Sequence[str], deployment: Deployment, streams: Collection[str]
) -> list[str]:
    """Return a proxy's options without those that name another stream (``--input room-1=F``)."""
    elsewhere = deployment.streams.keys() - streams
    kept: list[str] = []
    for option in options:
        if option.partition("=")[0] in elsewhere and kept:
            kept.pop()
        else:
            kept.append(option)
    return kept


def fragment_specs(
    deployment: Deployment, launch: Launch, paused: Collection[str] = ()
) -> list[ProcessSpec]:
    """Return the aggregators and hosts; aggregators are first, since they start slowest.

    ``paused``: names of queries that exist and do not run.
    """
    aggregators = [
        aggregator_spec(name, fragments, launch)
        for name, fragments in aggregators_of(deployment).items()
    ]
    hosts = [
        host_spec(name, fragments, launch)
        for name, fragments in _hosts(deployment.queries.values(), paused).items()
    ]
    return [*aggregators, *hosts]


def aggregators_of(deployment: Deployment) -> dict[str, list[str]]:
    """Return the fragments of each aggregator, by its name."""
    return _aggregators(deployment.queries.values())


def fragments_of(deployment: Deployment, paused: Collection[str] = ()) -> list[str]:
    """Return the names of all orderers and roots.

    ``paused``: names of queries that exist and do not run.
    """
    queries = tuple(deployment.queries.values())
    return [*_orderers(queries), *_roots(queries, paused)]


def aggregator_spec(name: str, fragments: Sequence[str], launch: Launch) -> ProcessSpec:
    """Return an aggregator with these fragments; commands can change them."""
    options = ("--fragments", ",".join(fragments), "--commands", *launch.aggregator_options)
    spec = _spec(name, "slackwater_spark.app", launch, options)
    return replace(spec, fragments=tuple(fragments), takes_commands=True)


def differ_in_fragments(one: ProcessSpec, other: ProcessSpec) -> bool:
    """Return whether two processes differ in their fragments only, which commands can change."""
    if not (one.takes_commands and other.takes_commands):
        return False
    named = (",".join(spec.fragments) for spec in (one, other))
    commands = [
        ["" if word == fragments else word for word in spec.command]
        for spec, fragments in zip((one, other), named, strict=True)
    ]
    return commands[0] == commands[1]


def host_spec(name: str, fragments: Sequence[str], launch: Launch, *options: str) -> ProcessSpec:
    """Return a host with these fragments; commands can change them."""
    options = ("--fragments", ",".join(fragments), "--commands", *launch.host_options, *options)
    spec = _spec(name, "slackwater.host", launch, options, tuple(fragments))
    return replace(spec, takes_commands=True)


def topic_specs(
    deployment: Deployment, partitions_of: Mapping[str, int]
) -> tuple[TopicLayout, ...]:
    """Return all topics; ``partitions_of`` has the streams that are fed by an existing topic."""
    sources = {log for logs in sources_of(deployment, partitions_of).values() for log in logs}
    names = deployment.names
    wanted = {names.source(log) for log in sources}
    wanted |= {names.quarantine(stream) for stream in deployment.streams}
    shapes = [
        QueryTopics(
            query.name,
            query.children,
            query.replicas,
            query.parts,
            query.window is not None,
            query.has_children,
        )
        for query in deployment.queries.values()
    ]
    # A stream fed by a topic has a source log for each partition, but one quarantine topic.
    both = dict.fromkeys([*sorted(sources), *deployment.streams])
    of_streams = (names.source(""), names.quarantine(""))
    return tuple(
        spec
        for spec in topics_for(both, shapes, names)
        if spec.name in wanted or not spec.name.startswith(of_streams)
    )


def sources_of(
    deployment: Deployment, partitions_of: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Return the names of each stream's source logs, as used in topic names."""
    return {
        stream: tuple(f"{stream}.{p}" for p in range(partitions_of[stream]))
        if spec.topic is not None
        else (stream,)
        for stream, spec in deployment.streams.items()
    }


def _names(
    proxies: Iterable[ProxyName], queries: Iterable[QuerySpec], paused: Collection[str] = ()
) -> tuple[str, ...]:
    queries = tuple(queries)
    stages_ = (
        [name.process for name in proxies],
        _orderers(queries),
        _aggregators(queries),
        _roots(queries, paused),
    )
    return tuple(name for names in stages_ for name in names)


def _orderers(queries: Iterable[QuerySpec]) -> list[str]:
    return [of.process for of in _fragments(queries)]


def _aggregators(queries: Iterable[QuerySpec]) -> dict[str, list[str]]:
    placed: dict[str, list[str]] = {}
    windowed = (query for query in queries if query.window is not None)
    for of in sorted(_fragments(windowed), key=lambda of: of.replica):
        placed.setdefault(aggregator_process(of.replica), []).append(str(of))
    return placed


def _roots(queries: Iterable[QuerySpec], paused: Collection[str] = ()) -> list[str]:
    """All roots; those of a new generation start when the earlier generation ends (rule-29).

    A paused generation has not ended: its answers go on where they stopped.
    """
    queries = tuple(queries)
    names = [*(query.name for query in queries), *paused]
    return [
        RootName(query.name, part).process
        for query in queries
        if not earlier_generations(query.name, names)
        for part in range(query.parts)
    ]


def _hosts(queries: Iterable[QuerySpec], paused: Collection[str] = ()) -> dict[str, list[str]]:
    """Return the fragments of each host, by its name."""
    queries = tuple(queries)
    placed: dict[str, list[str]] = {}
    for of in sorted(_fragments(queries), key=lambda of: of.replica):
        placed.setdefault(f"{HOST}/{of.replica}", []).append(of.process)
    hosts = list(placed.values())
    for at, root in enumerate(_roots(queries, paused)):
        hosts[at % len(hosts)].append(root)
    return placed


def _fragments(queries: Iterable[QuerySpec]) -> Iterable[OrdererName]:
    """All orderers; those of children that several queries read occur once."""
    of_children = {query.child_query: query for query in reversed(tuple(queries))}
    for query in reversed(of_children.values()):
        for child in range(query.children):
            yield from _replicas(query, child)


def _replicas(query: QuerySpec, child: int) -> list[OrdererName]:
    return [OrdererName(query.child_query, child, replica) for replica in range(query.replicas)]


def _spec(
    process: str,
    module: str,
    launch: Launch,
    options: Sequence[str] = (),
    parts: tuple[str, ...] = (),
) -> ProcessSpec:
    name = own_name(process)
    command = _command(module, (name,), launch, options)
    return ProcessSpec(process, command, _stop_then, env=launch.environment, parts=parts)


def _command(
    module: str, names: Sequence[str], launch: Launch, options: Sequence[str]
) -> tuple[str, ...]:
    where = ("--bootstrap", launch.bootstrap, "--data-dir", str(launch.data_dir))
    what = ("--deployment", str(launch.deployment_path))
    return (launch.python, "-m", module, *names, *what, *where, *options)
