"""Deadlines of registered queries, which a query that is added later must not bring forward.

The first deadline of a query follows from its own bound and from those of all queries that read it
(rule-15), and it holds for all queries that read the same children. A query that is added to the
file, reads a registered one and has a smaller bound would therefore make running queries answer
tentatively earlier, without a change of their own definitions. It is refused, with the numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from slackwater.deployment.sharing import readers_of
from slackwater.model.deployment import Deployment
from slackwater.model.durations import format_duration_us


def first_deadlines(deployment: Deployment, names: Collection[str]) -> dict[str, int]:
    """Return the first deadline (us after the normal time) of these queries of the deployment."""
    return {name: deployment.deadline_us(name) for name in names}


def brought_forward(deployment: Deployment, fixed: Mapping[str, int]) -> Iterator[str]:
    """Yield an error for each query whose fixed first deadline another query would bring forward.

    An error ends with remedies that the file allows; the caller appends ", or" and its own.

    Args:
        deployment: the file, with the children that each query reads.
        fixed: first deadlines (us after the normal time) of registered queries of the file.
    """
    for name, fixed_us in fixed.items():
        wanted_us = deployment.deadline_us(name)
        if wanted_us < fixed_us:
            by = deployment.bound_at(name)
            of = _queries(deployment, name)
            yield (
                f"query {by.name} has a bound of {format_duration_us(by.bound_us)} and reads the"
                f" results of {name}: it would bring the first deadline of {of}, which"
                f" {'is' if of.startswith('query') else 'are'} registered, forward from"
                f" {format_duration_us(fixed_us)} to {format_duration_us(wanted_us)} after the"
                f" normal time; give {by.name} a bound of at least"
                f" {format_duration_us(by.bound_us + fixed_us - wanted_us)}, let it"
                " read a query of another name"
            )


def _queries(deployment: Deployment, name: str) -> str:
    """Name all queries that share this query's deadline."""
    queries = deployment.queries
    readers = readers_of(queries[name].child_query, queries.values())
    others = [each.name for each in readers if each.name != name]
    return f"queries {', '.join([name, *others])}" if others else f"query {name}"
