"""Access control lists: the minimal Kafka rights of each role, derived from a deployment.

Pure: rules are values, which are printed as command lines of Kafka's own tool. All names come from
``Names``, so they contain the prefix of the deployment. A rule has the name of one topic if it is
known, and a prefix of names otherwise: the number of source logs depends on the partitions of the
user's topic in Kafka.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.names import OURS, RESULT_KINDS, Names
from slackwater.runtime.security.credentials import Role

Resource = Literal["topic", "group", "transactional-id"]
Pattern = Literal["literal", "prefixed"]

READ: Final = ("Describe", "Read")
WRITE: Final = ("Describe", "Write")
BOTH: Final = ("Describe", "Read", "Write")


@dataclass(frozen=True, slots=True)
class Rule:
    """Operations on the resource of this name, or on all resources with this prefix."""

    resource: Resource
    name: str
    operations: tuple[str, ...]
    pattern: Pattern = "literal"


def rules(role: Role, deployment: Deployment) -> list[Rule]:
    """Return the rules that the role needs for this deployment."""
    names = deployment.names
    found = [
        Rule("topic", names.registry, READ),
        Rule("topic", names.heartbeats, READ if role is Role.CLIENT else BOTH),
        # The client library looks up the coordinator of a group that it never joins.
        Rule("group", names.assigned_group, READ),
        *_OF_ROLE[role](deployment, names),
    ]
    return _merged(found)


def to_commands(role_rules: Iterable[Rule], principal: str) -> list[str]:
    """Return command lines of Kafka's own tool; the caller sets ``$BOOTSTRAP`` and ``$ADMIN``."""
    return [
        'kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config "$ADMIN" --add'
        f" --allow-principal {shlex.quote(principal)}"
        + "".join(f" --operation {operation}" for operation in rule.operations)
        + f" --{rule.resource} {shlex.quote(rule.name)}"
        + f" --resource-pattern-type {rule.pattern}"
        for rule in role_rules
    ]


def to_json(role: Role, role_rules: Iterable[Rule], principal: str) -> dict[str, Any]:
    """Return the rules as JSON values."""
    return {
        "role": str(role),
        "principal": principal,
        "rules": [
            {
                "resource": rule.resource,
                "name": rule.name,
                "pattern": rule.pattern,
                "operations": list(rule.operations),
            }
            for rule in role_rules
        ],
    }


def _proxy(deployment: Deployment, names: Names) -> list[Rule]:
    found = [rule for stream in deployment.streams for rule in _source(stream, deployment, BOTH)]
    found += [Rule("topic", names.quarantine(stream), WRITE) for stream in deployment.streams]
    # Recorded in the registry: learned values of ``expect_every: auto`` (decision 41), and how many
    # source logs a stream with a topic has, which a proxy creates (rule-30).
    streams = deployment.streams.values()
    if any(stream.learns_gaps or stream.topic is not None for stream in streams):
        found.append(Rule("topic", names.registry, WRITE))
    for stream in streams:
        if stream.topic is not None:
            found.append(Rule("topic", names.source(f"{stream.name}."), ("Create",), "prefixed"))
    return found + _inputs(deployment, READ)


def _host(deployment: Deployment, names: Names) -> list[Rule]:
    found = [
        *(rule for stream in deployment.streams for rule in _source(stream, deployment, READ)),
        *_inputs(deployment, ("Describe",)),
        # A root takes its placement number from this log (rule-27).
        Rule("topic", names.registry, WRITE),
    ]
    for query in deployment.queries.values():
        found += [Rule("topic", topic, BOTH) for topic in _ordered(query, names)]
        found += [Rule("topic", topic, READ) for topic in _deltas(query, names)]
        found += _of_generations(query, names, BOTH, READ)
        found += [Rule("topic", topic, BOTH) for topic in _states(query, names)]
        found += [Rule("topic", names.results(query.name, kind), WRITE) for kind in RESULT_KINDS]
        for upstream in deployment.queries_of(query):
            found += [Rule("topic", names.results(upstream, kind), READ) for kind in RESULT_KINDS]
        found += [
            Rule("transactional-id", names.transactional_id(query.name, part), WRITE)
            for part in range(query.parts)
        ]
    return found


def _aggregator(deployment: Deployment, names: Names) -> list[Rule]:
    found = [Rule("group", names.group("aggregator/"), READ, "prefixed")]
    for query in deployment.queries.values():
        if query.window is None:
            continue
        found += [Rule("topic", topic, READ) for topic in _ordered(query, names)]
        found += [Rule("topic", topic, WRITE) for topic in _deltas(query, names)]
        found += _of_generations(query, names, READ, WRITE)
        found.append(Rule("topic", names.state(query.name), READ))
    return found


def _client(deployment: Deployment, names: Names) -> list[Rule]:
    """Rules for results, and for the quarantine with the readings that are in no result."""
    quarantine = [Rule("topic", names.quarantine(stream), READ) for stream in deployment.streams]
    return _results(deployment, names) + quarantine


def _results(deployment: Deployment, names: Names) -> list[Rule]:
    return [
        Rule("topic", names.results(query, kind), READ)
        for query in deployment.queries
        for kind in RESULT_KINDS
    ]


def _admin(deployment: Deployment, names: Names) -> list[Rule]:
    found = [
        Rule("topic", names.topic(OURS), ("Alter", "Create", "Describe"), "prefixed"),
        *_inputs(deployment, ("Create", "Describe")),
        Rule("topic", names.registry, WRITE),
        *(rule for stream in deployment.streams for rule in _source(stream, deployment, READ)),
        *_results(deployment, names),  # the audit compares them
    ]
    for query in deployment.queries.values():
        logs = (*_ordered(query, names), *_deltas(query, names))
        found += [Rule("topic", topic, ("Delete", "Describe")) for topic in logs]
        found += _of_generations(query, names, ("Delete", "Describe"), ("Delete", "Describe"))
        found += [Rule("topic", topic, READ) for topic in _states(query, names)]
    return found


_OF_ROLE: Final[dict[Role, Callable[[Deployment, Names], list[Rule]]]] = {
    Role.PROXY: _proxy,
    Role.HOST: _host,
    Role.AGGREGATOR: _aggregator,
    Role.CLIENT: _client,
    Role.EXPORTER: _results,
    Role.ADMIN: _admin,
}


def _source(stream: str, deployment: Deployment, operations: tuple[str, ...]) -> list[Rule]:
    """Rules for a stream's source logs: one, or one for each partition of the stream's topic."""
    names = deployment.names
    if deployment.streams[stream].topic is None:
        return [Rule("topic", names.source(stream), operations)]
    return [Rule("topic", names.source(f"{stream}."), operations, "prefixed")]


def _inputs(deployment: Deployment, operations: tuple[str, ...]) -> list[Rule]:
    streams = deployment.streams.values()
    return [Rule("topic", s.topic.name, operations) for s in streams if s.topic is not None]


def _ordered(query: QuerySpec, names: Names) -> Sequence[str]:
    return [names.ordered(query.child_query, child) for child in range(query.children)]


def _deltas(query: QuerySpec, names: Names) -> Sequence[str]:
    if query.window is None:
        return []
    return [names.deltas(query.child_query, part) for part in range(query.parts)]


def _of_generations(
    query: QuerySpec, names: Names, ordered: tuple[str, ...], deltas: tuple[str, ...]
) -> list[Rule]:
    """Rules for the logs of later generations of a query, whose numbers are not known yet.

    No other query has these prefixes, since the names of queries have no dots.
    """
    found = [Rule("topic", names.ordered_of_generations(query.name), ordered, "prefixed")]
    if query.window is not None:
        found.append(Rule("topic", names.deltas_of_generations(query.name), deltas, "prefixed"))
    return found


def _states(query: QuerySpec, names: Names) -> Sequence[str]:
    """State topics of the query's roots, and of its orderers, which may be another query's."""
    return [names.state(name) for name in dict.fromkeys((query.name, query.child_query))]


def _merged(found: Iterable[Rule]) -> list[Rule]:
    """Merge the rules into one for each resource and pattern, sorted."""
    merged: dict[tuple[Resource, str, Pattern], set[str]] = {}
    for rule in found:
        merged.setdefault((rule.resource, rule.name, rule.pattern), set()).update(rule.operations)
    return [
        Rule(resource, name, tuple(sorted(operations)), pattern)
        for (resource, name, pattern), operations in sorted(merged.items())
    ]
