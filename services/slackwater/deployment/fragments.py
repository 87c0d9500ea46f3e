"""The fragments that follow from a deployment, their stages, and processes of one machine. Pure.

Orderers run once for each (query, child, replica), roots once for each (query, part). Streams,
orderers and roots have names of their own (``proxy/<stream>``, ``orderer/<query>.0.a``), under
which they are shown, killed and paused.

On one machine replica r of every child of every query is in host r and on aggregator r: two
replicas of one child never share a process (trace-19), and an additional query needs no additional
process. Roots are assigned to the hosts round-robin, so the roots of a query's parts, and of a
chain, are in different hosts as far as possible. A query without a window needs no aggregation: its
roots read the ordered logs (trace-21), and a deployment of such queries starts no Spark. Queries
that read the same children (``deployment/sharing.py``) have only one set of orderers and aggregated
fragments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from slackwater.deployment.kinds import AGGREGATOR, BROKER, HOST
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
    return tuple(hosts_of(deployment.queries.values()))


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
    return tuple(name for name in names if not on_nodes or kind_of(name) != AGGREGATOR)


def node_aggregators(names: Iterable[str]) -> list[str]:
    """Return the aggregators of nodes among these processes; those of `up` are numbered."""
    return [n for n in names if kind_of(n) == AGGREGATOR and not own_name(n).isdigit()]


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


def fragments_of(deployment: Deployment, paused: Collection[str] = ()) -> list[str]:
    """Return the names of all orderers and roots.

    ``paused``: names of queries that exist and do not run.
    """
    queries = tuple(deployment.queries.values())
    return [*_orderers(queries), *_roots(queries, paused)]


def aggregators_of(deployment: Deployment) -> dict[str, list[str]]:
    """Return the fragments of each aggregator, by its name."""
    return _aggregators(deployment.queries.values())


def with_query(deployment: Deployment, added: Deployment, name: str) -> Deployment:
    """Return the deployment with one more query: ``name`` of ``added``."""
    return replace(deployment, queries={**deployment.queries, name: added.queries[name]})


def without_queries(deployment: Deployment, names: Iterable[str]) -> Deployment:
    """Return the deployment without these queries."""
    gone = {*names}
    kept = {name: query for name, query in deployment.queries.items() if name not in gone}
    return replace(deployment, queries=kept)


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


def hosts_of(queries: Iterable[QuerySpec], paused: Collection[str] = ()) -> dict[str, list[str]]:
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
