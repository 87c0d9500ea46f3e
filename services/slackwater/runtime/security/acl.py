"""Access control lists: the minimal Kafka rights of each role, derived from a deployment.

Pure: rules are values, which are printed as command lines of Kafka's own tool. All names come from
``Names``, so they contain the prefix of the deployment. A rule has the name of one topic if it is
known, and a prefix of names otherwise: the number of source logs depends on the partitions of the
user's topic in Kafka.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.kinds import KINDS, Access, Operation, Resource
from slackwater.model.names import AGGREGATOR, OURS, RESULT_KINDS
from slackwater.runtime.security.credentials import Role

ResourceType = Literal["topic", "group", "transactional-id"]
Pattern = Literal["literal", "prefixed"]

READ: Final = ("Describe", "Read")
_OF_OTHERS: Final[Mapping[Role, Access]] = {
    # The quarantine has the readings that are in no result.
    Role.CLIENT: {"Read": ("results", "quarantine", "alerts")},
    Role.EXPORTER: {"Read": ("results",)},
    Role.GATEWAY: {"Read": ("results", "quarantine", "alerts")},
    Role.NOTIFIER: {"Read": ("alerts",)},
    # It reads its own last record, and writes nothing else.
    Role.UPLINK: {"Read": ("merged",), "Write": ("merged",)},
    Role.ADMIN: {
        "Alter": ("own",),
        "Create": ("own", "input"),
        "Delete": ("ordered", "deltas", "merged", "panes"),
        "Describe": ("input",),
        # The audit compares results. Who deletes a query ends its alerts.
        "Read": ("source", "results", "state", "child state", "alerts"),
        "Write": ("registry", "alerts", "alert fence"),
    },
}
"""What roles need that run no fragments."""
_READERS: Final = frozenset({Role.CLIENT, Role.GATEWAY})
"""The roles that write nothing."""
AT_SITES: Final = frozenset({Role.UPLINK})
"""The roles of programs at sites, which connect to the centre; they have no heartbeats there."""
_TYPES: Final[Mapping[Resource, ResourceType]] = {
    "group": "group",
    "fence": "transactional-id",
    "alert fence": "transactional-id",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """Operations on the resource of this name, or on all resources with this prefix."""

    resource: ResourceType
    name: str
    operations: tuple[Operation, ...]
    pattern: Pattern = "literal"


def rules(role: Role, deployment: Deployment) -> list[Rule]:
    """Return the rules that the role needs for this deployment."""
    names, queries = deployment.names, [*deployment.queries.values()]
    if role in AT_SITES:
        queries = [query for query in queries if query.has_remote]
    of_role = (kind for kind in KINDS.values() if kind.process == role)
    needed = [(kind.access, [*filter(kind.groups, queries)]) for kind in of_role]
    needed.append((_OF_OTHERS.get(role, {}), queries))
    beats = Rule("topic", names.heartbeats, READ if role in _READERS else (*READ, "Write"))
    found = [
        Rule("topic", names.registry, READ),
        *([] if role in AT_SITES else [beats]),
        # The client library looks up the coordinator of a group that it never joins.
        Rule("group", names.assigned_group, READ),
        *(
            rule
            for access, of in needed
            for operation, resources in access.items()
            for resource in resources
            for rule in _rules(resource, operation, deployment, of)
        ),
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


def _rules(
    resource: Resource, operation: Operation, of: Deployment, queries: Sequence[QuerySpec]
) -> Iterator[Rule]:
    operations = tuple({operation} if operation == "Create" else {"Describe", operation})
    type_ = _TYPES.get(resource, "topic")
    for name in _names(of, queries).get(resource, ()):
        yield Rule(type_, name, operations)
    for name in _prefixes(of, queries).get(resource, ()):
        yield Rule(type_, name, operations, "prefixed")


def _names(of: Deployment, queries: Sequence[QuerySpec]) -> dict[Resource, list[str]]:
    """Return the names of all resources of these queries and of all streams, as far as known."""
    names, streams = of.names, [s for s in of.streams.values() if not s.elsewhere]
    fed = [stream.topic.name for stream in streams if stream.topic is not None]
    learns = fed or any(stream.learns_gaps for stream in streams)
    parts = [(query, part) for query in queries for part in range(query.parts)]
    read = [name for query in queries for name in of.queries_of(query)]
    return {
        "registry": [names.registry],
        "learned": [names.registry] if learns else [],
        "input": fed,
        "source": [names.source(s.name) for s in streams if s.topic is None],
        "quarantine": [names.quarantine(stream.name) for stream in streams],
        "ordered": [names.ordered(q.child_query, c) for q in queries for c in range(q.children)],
        "deltas": [names.deltas(q.child_query, part) for q, part in parts if q.window is not None],
        "merged": [names.merged(q.name, part) for q, part in parts if q.mergers],
        "panes": [names.panes(q.name) for q in queries if q.window is not None],
        "state": [names.state(query.name) for query in queries],
        "child state": [names.state(query.child_query) for query in queries],
        "fence": [names.transactional_id(query.name, part) for query, part in parts],
        "alert fence": [names.delivery_id(query.name) for query in queries if query.delivers],
        "alerts": [names.alerts(query.name) for query in queries if query.delivers],
        "results": [names.results(q.name, kind) for q in queries for kind in RESULT_KINDS],
        "results read": [names.results(name, kind) for name in read for kind in RESULT_KINDS],
    }


def _prefixes(of: Deployment, queries: Sequence[QuerySpec]) -> dict[Resource, list[str]]:
    """Return the prefixes of names that are not known yet.

    A topic's partitions have a source log each. No other query has the prefixes of a query's later
    generations, since the names of queries have no dots.
    """
    names = of.names
    added = [names.source(f"{s.name}.") for s in of.streams.values() if s.topic is not None]
    windowed = [query for query in queries if query.window is not None]
    return {
        "own": [names.topic(OURS)],
        "group": [names.group(f"{AGGREGATOR}/")],
        "source": added,
        "added": added,
        "ordered": [names.ordered_of_generations(query.name) for query in queries],
        "deltas": [names.deltas_of_generations(query.name) for query in windowed],
        "merged": [names.merged_of_generations(query.name) for query in windowed],
        "panes": [names.panes_of_generations(query.name) for query in windowed],
    }


def _merged(found: Iterable[Rule]) -> list[Rule]:
    """Merge the rules into one for each resource and pattern, sorted."""
    merged: dict[tuple[ResourceType, str, Pattern], set[Operation]] = {}
    for rule in found:
        merged.setdefault((rule.resource, rule.name, rule.pattern), set()).update(rule.operations)
    return [
        Rule(resource, name, tuple(sorted(operations)), pattern)
        for (resource, name, pattern), operations in sorted(merged.items())
    ]
