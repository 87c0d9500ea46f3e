"""Changes of a query's definition, as generations. Pure.

A changed query is applied as its next generation, ``climate.g1``, beside the earlier one. When the
new generation is ready, the earlier one is deleted, and the roots of the new one start. A change
therefore needs no operation of its own. Until then it can be cancelled: the new generation is
deleted (rule-29).

A query that has been deleted and is applied again continues its results in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from slackwater.control.control_state import ControlState
from slackwater.control.readers import why_not_read_on
from slackwater.control.recorded import parsed
from slackwater.deployment.sharing import without_sharing
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.names import (
    base_of,
    earlier_generations,
    generation_name,
    generation_of,
    latest_generation,
)


def replacements(live: Collection[str]) -> list[tuple[str, str]]:
    """The changes in progress: (the generation that is to end, its successor), by name."""
    return [
        (earlier, name)
        for name in sorted(live)
        for earlier in reversed(earlier_generations(name, live))
    ]


def is_changing(query: str, live: Collection[str]) -> bool:
    """Whether a query has several generations, of which the later ones do not answer yet."""
    return sum(base_of(name) == query for name in live) > 1


def as_generation(
    deployment: Deployment, query: str, recorded: ControlState
) -> tuple[Deployment, str]:
    """A deployment in which a query has the name of its next generation, and that name.

    The number is greater than those of all earlier generations, also of deleted ones whose
    tombstones have been dropped, since their topics may still exist. Numbers need not be
    contiguous.
    """
    latest = latest_generation(query, recorded.queries)
    number = max(generation_of(latest or query) + 1, recorded.generation_unused, 1)
    name = generation_name(query, number)
    queries = {n: q for n, q in deployment.queries.items() if n != query}
    declared = without_sharing(deployment.queries[query])
    had_alerts = not declared.alerts and _has_alerts(query, recorded)
    queries[name] = replace(declared, name=name, had_alerts=had_alerts)
    return replace(deployment, queries=queries), name


def _has_alerts(query: str, recorded: ControlState) -> bool:
    """Whether the latest generation has or had alerts. Those of a deleted query have been ended."""
    latest = latest_generation(query, recorded.live_queries())
    if latest is None:
        return False
    found = parsed(latest, recorded.queries[latest].definition)
    return not isinstance(found, str) and found.deployment.queries[latest].delivers


def why_no_change(
    changed: QuerySpec,
    added: Deployment,
    running: Deployment,
    paused: Collection[str],
    ended: Mapping[str, QuerySpec | None],
) -> Iterator[str]:
    """Yield the reasons against a new generation of a query.

    Args:
        changed: the new generation.
        added: has the new generation, and all that it reads.
        running: the queries that run, paused ones too.
        paused: the names of the paused ones.
        ended: the deleted ones; None if only the name is known.
    """
    name, query = changed.name, base_of(changed.name)
    if changed.spans_sites:
        yield (
            f"query {query} has children at sites with a Kafka of their own, and cannot be changed"
            " in this version: give the new query another name, here and at the sites"
        )
    earlier = earlier_generations(name, running.queries)
    continued = earlier or earlier_generations(name, ended)
    if not continued:
        yield f"there is no query {query} that generation {generation_of(name)} could continue"
        return
    if len(earlier) > 1:
        yield (
            f"query {query} is being changed: wait until generation {generation_of(earlier[0])}"
            f" answers, or cancel that change with `slackwater query delete {earlier[0]}`"
        )
    if {*earlier}.intersection(paused):
        yield (
            f"query {query} is paused: resume it before it is changed"
            f" (`slackwater query resume {base_of(query)}`)"
        )
    present = running.queries[earlier[0]] if earlier else ended[continued[0]]
    if present is not None:
        yield from why_not_continued(changed, present)
    if earlier:
        yield from why_not_read_on(changed, added, running)


def why_not_continued(changed: QuerySpec, present: QuerySpec) -> Iterator[str]:
    """Yield the reasons why one generation cannot continue the results of another (rule-29)."""
    for what, fixed in (("window", "window"), ("number of parts", "parts")):
        if getattr(changed, fixed) != getattr(present, fixed):
            yield (
                f"query {base_of(changed.name)}: the {what} of a query cannot be changed, since its"
                " results continue: give the new query another name"
            )
