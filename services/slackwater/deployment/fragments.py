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
from itertools import groupby
from types import MappingProxyType
from typing import Final

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.kinds import BROKER, KINDS, PROCESSES, group_of, replica_of
from slackwater.model.names import ProxyName, base_of, earlier_generations, kind_of
from slackwater.model.records import Heartbeat

NO_HEARTBEATS: Final[Mapping[str, Heartbeat]] = MappingProxyType({})


def process_names(
    deployment: Deployment, *, broker: bool = True, paused: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the names that ``status`` prints, in start order.

    A process with parts (the proxy, a host) is replaced by the names of its parts. ``paused``:
    names of queries that exist and do not run.
    """
    seen = dict.fromkeys(seen_in(fragment_names(deployment, paused)).values())
    return (BROKER, *seen) if broker else (*seen,)


def fragment_names(deployment: Deployment, paused: Collection[str] = ()) -> list[str]:
    """Return the full names of all fragments; ``paused`` as in ``process_names``."""
    proxies = [name.process for s in deployment.streams.values() for name in s.proxy_names]
    return [*proxies, *_of_queries(deployment.queries.values(), paused)]


def placed(
    process: str, deployment: Deployment, paused: Collection[str] = ()
) -> dict[str, list[str]]:
    """Return the processes of a kind, and the fragments of queries that each runs.

    Copies are in different processes. The second copy of a part is in the process after that of the
    first one (Flux, section 5.4), so the parts whose first copies one process has are divided.
    """
    found: dict[str, list[str]] = {}
    names = _of_queries(deployment.queries.values(), paused)
    here = (name for name in names if KINDS[kind_of(name)].process == process)
    for kind, of_kind in groupby(here, kind_of):
        copies = {name: replica_of(name) for name in of_kind}
        processes = max(len(found), *(1 + (copy or 0) for copy in copies.values()))
        groups: dict[str, int] = {}
        for name, copy in copies.items():
            at = groups.setdefault(group_of(name), len(groups))
            is_numbered = KINDS[kind].is_shared and copy is not None
            number = copy if is_numbered else (at + (copy or 0)) % processes
            found.setdefault(f"{process}/{number}", []).append(name)
    return found


def seen_of(
    queries: Mapping[str, QuerySpec], latest: Mapping[str, Heartbeat] = NO_HEARTBEATS
) -> dict[str, str]:
    """Return the processes that registered queries need, by the full names of fragments.

    Omits streams that no query reads. Of a stream with several proxies only the first is included,
    since the registry does not have the streams. ``latest`` has the latest heartbeats, see
    ``seen_in``.
    """
    read = (
        name
        for query in queries.values()
        for name in query.sources
        if name not in query.remote_sources
    )
    known = {base_of(name) for name in queries}
    proxies = dict.fromkeys(ProxyName(name).process for name in read if name not in known)
    return seen_in([*proxies, *_of_queries(queries.values())], latest)


def seen_in(
    names: Iterable[str], latest: Mapping[str, Heartbeat] = NO_HEARTBEATS
) -> dict[str, str]:
    """Return the processes whose heartbeats tell of fragments, by the fragments' full names.

    Most have heartbeats of their own. The others are in the process whose heartbeat named them
    last, otherwise in that of their number on a single machine. If there are other processes of
    this kind, as on nodes, that is not known either: the name is then the fragment's.
    """
    numbered = {
        name: f"{row.process}/{replica_of(name)}" if PROCESSES[row.process].is_jvm else name
        for name in names
        for row in [KINDS[kind_of(name)]]
    }
    named = {
        f"{kind_of(process)}/{fragment}": process
        for process, beat in sorted(latest.items(), key=lambda each: each[1].at)
        for fragment in beat.states
    }
    elsewhere = {kind_of(process) for process in latest.keys() - numbered.values()}
    return {
        name: process
        if process == name
        else named.get(name) or (name if kind_of(process) in elsewhere else process)
        for name, process in numbered.items()
    }


def stages(query: QuerySpec, seen: dict[str, str] | None = None) -> tuple[tuple[str, ...], ...]:
    """Return the stages between the source logs and a query's results, with all copies of each.

    While one copy of each stage runs, answers must meet the bound. Proxies are not included: the
    bound holds also while sources are missing, or a query that this one reads (trace-20).
    What reads the answers is not included either, nor what only spares others work.
    ``seen``: the processes of fragments if they are not those of a single machine.
    """
    before = (kind for kind in KINDS.values() if not (kind.reads_answers or kind.spares_work))
    groups = [group for kind in before for group in kind.groups(query) if group]
    of = seen_in(name for group in groups for name in group) | (seen or {})
    return tuple(dict.fromkeys([(BROKER,), *(tuple(of[name] for name in g) for g in groups)]))


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
    """Return the names of each stream's source logs here, as used in topic names."""
    return {
        stream: tuple(f"{stream}.{p}" for p in range(partitions_of[stream]))
        if spec.topic is not None
        else (() if spec.elsewhere else (stream,))
        for stream, spec in deployment.streams.items()
    }


def _of_queries(queries: Iterable[QuerySpec], paused: Collection[str] = ()) -> list[str]:
    """All fragments of queries; those of children that several queries read occur once.

    Those that follow an earlier generation start when that ends (rule-29). A paused generation has
    not ended: its answers go on where they stopped.
    """
    queries = tuple(queries)
    names = [*(query.name for query in queries), *paused]
    later = {query.name for query in queries if earlier_generations(query.name, names)}
    found = (
        name
        for kind in KINDS.values()
        for query in queries
        if not (kind.follows and query.name in later)
        for group in kind.groups(query)
        for name in group
    )
    return [*dict.fromkeys(found)]
