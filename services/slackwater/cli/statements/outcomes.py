"""What became of each statement that changes something, as rows for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.model.deployment import Deployment
from slackwater.model.names import base_of, generation_of
from slackwater.sql.statements import Changing, Create, DropAlert, Section

COLUMNS: Final = ("statement", "name", "status", "generation")
"""``status``: ``accepted``, ``unchanged`` (it runs already as it was stated), ``kept`` (a stream of
this session, until a query reads it), ``deleted``, ``paused`` or ``resumed``. ``generation``: that
of the query, or of the query of the alert; null of a stream."""
DONE: Final[Mapping[Changing, str]] = {"drop": "deleted", "pause": "paused", "resume": "resumed"}
_ONE: Final[Mapping[Section, str]] = {"streams": "STREAM", "queries": "QUERY", "alerts": "ALERT"}
Row = tuple[str, str, str, int | None]


@dataclass(frozen=True, slots=True)
class Stated:
    """A statement; ``query`` is its own, or that of the alert."""

    statement: str
    name: str
    query: str | None

    @classmethod
    def of(cls, statement: Create | DropAlert, *deployments: Deployment) -> Stated:
        """Return that of a statement; the deployments before and after it have its query."""
        if isinstance(statement, DropAlert):
            words, section = "DROP ALERT", "alerts"
        else:
            words, section = f"CREATE {_ONE[statement.section]}", statement.section
        name = statement.name
        query = name if section == "queries" else None
        if section == "alerts":
            queries = [query for each in deployments for query in each.queries.values()]
            of_it = (q.name for q in queries if name in {alert.name for alert in q.alerts})
            query = next(of_it, None)
        return cls(words, name, query)


def kept(streams: Iterable[str]) -> Iterator[Row]:
    """Yield a row for each stream that no query reads yet."""
    yield from (("CREATE STREAM", name, "kept", None) for name in streams)


def outcomes(
    stated: Iterable[Stated],
    accepted: Sequence[str],
    deployment: Deployment,
    running: Mapping[str, int],
) -> Iterator[Row]:
    """Yield a row for each statement, but for streams that no query reads.

    Args:
        stated: the statements that were applied together.
        accepted: the queries that were, by generation.
        deployment: what there is after it.
        running: the generations of the queries that ran before.
    """
    generations = {base_of(name): generation_of(name) for name in accepted}
    read = {source for name in generations for source in deployment.queries[name].sources}
    there = {source for query in deployment.queries.values() for source in query.sources}
    for each in stated:
        if each.query is None:
            if each.name in there:
                yield (
                    each.statement,
                    each.name,
                    "accepted" if each.name in read else "unchanged",
                    None,
                )
        elif each.query in generations:
            yield each.statement, each.name, "accepted", generations[each.query]
        else:
            yield each.statement, each.name, "unchanged", running.get(each.query)
