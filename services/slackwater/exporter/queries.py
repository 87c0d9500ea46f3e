"""The queries that the exporter reports, from the deployment file and the registry. Pure.

Queries may be applied, changed, paused and deleted while the exporter runs. A query of the file
that is not registered yet is reported, too: a missing registration is a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from slackwater.deployment.fragments import fragment_names
from slackwater.deployment.sharing import share
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.kinds import KINDS
from slackwater.model.names import base_of, generation_of, kind_of
from slackwater.runtime.service.registry import QueryDefinition, streams_of

QUERIES_MAX: Final = 1_000
"""Bound on the queries with metrics, each of which is a thread and a Kafka client."""


def fragments_to_run(deployment: Deployment, found: Mapping[str, QueryDefinition]) -> Sequence[str]:
    """Return the fragments that are to run: those of queries that are not paused or deleted.

    A query's children are known once it is registered: several queries may read the same ones, and
    only the registry shows which do.
    """
    registered = {name: each.spec for name, each in found.items() if each.state == "running"}
    paused = [name for name, each in found.items() if each.state == "paused"]
    declared = {name: query for name, query in deployment.queries.items() if name not in found}
    added = streams_of(each for each in found.values() if each.state != "deleted")
    streams = {**added, **deployment.streams}
    live = share(replace(deployment, streams=streams, queries=declared | registered), registered)
    queries = {name: query for name, query in live.queries.items() if name in registered}
    known = {*fragment_names(replace(live, queries=queries), paused)}
    names = fragment_names(live, paused)
    return [name for name in names if name in known or not KINDS[kind_of(name)].is_shared]


def answering(deployment: Deployment, found: Mapping[str, QueryDefinition]) -> Deployment:
    """Return the queries that have results, under the names in the results.

    Of a query with several generations it is the earliest that is not deleted: the next one answers
    after that has ended (rule-29). Of more than ``QUERIES_MAX`` those of the file come first.
    """
    declared = {name: query for name, query in deployment.queries.items() if name not in found}
    earliest_last = sorted(found.values(), key=lambda each: generation_of(each.name), reverse=True)
    live = {base_of(q.name): q.spec for q in earliest_last if q.state != "deleted"}
    of_file = [name for name in deployment.queries if name in declared or name in live]
    names = list(dict.fromkeys([*of_file, *sorted(live)]))[:QUERIES_MAX]
    queries = {name: _named(name, live.get(name) or declared[name]) for name in names}
    return replace(deployment, queries=queries)


def _named(name: str, query: QuerySpec) -> QuerySpec:
    return query if query.name == name else replace(query, name=name)
