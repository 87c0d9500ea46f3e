"""Statements as values, and the places of what they declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from slackwater.deployment.yaml_lines import Path as Place

ExpressionTokens = Mapping[int, Sequence[tuple[int, int]]]
Changing = Literal["drop", "pause", "resume"]
Section = Literal["streams", "queries", "alerts"]


@dataclass(frozen=True, slots=True)
class Create:
    """CREATE STREAM, QUERY or ALERT.

    ``content`` is what the deployment file has under the name; ``spots`` has the places in the text
    of what is in it. ``tokens``: by the place of an expression, of each of its tokens the place in
    the expression and in the text. ``is_broken``: the statement has an error, and the content is of
    no use.
    """

    section: Section
    name: str
    at: int
    content: Any = None
    spots: Mapping[Place, int] = field(default_factory=dict)
    tokens: ExpressionTokens = field(default_factory=dict)
    replaces: bool = False
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """SET: a field of the deployment file beside its streams and queries."""

    name: str
    at: int
    content: Any
    spots: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class ChangeQuery:
    """DROP, PAUSE or RESUME QUERY."""

    change: Changing
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class DropAlert:
    """DROP ALERT."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS, QUERIES or ALERTS."""

    section: Section
    at: int


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """SHOW CREATE STREAM, QUERY or ALERT."""

    section: Section
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE: the columns of a query's results, or the fields of a stream."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN CREATE QUERY."""

    create: Create
    at: int


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT of a query's results.

    ``columns`` with their places; none: all. ``where`` with its place. ``changes``: every answer as
    it comes; otherwise the exact ones that are there.
    """

    query: str
    at: int
    columns: tuple[tuple[str, int], ...] = ()
    where: tuple[str, int] | None = None
    changes: bool = False
    tokens: ExpressionTokens = field(default_factory=dict)


def place_of(at: int, position: int | None, tokens: ExpressionTokens) -> int:
    """Return the place in the text of a character of the expression at ``at``, counted from 1."""
    if position is None:
        return at
    places = [(inside, place) for inside, place in tokens.get(at, ()) if inside < position]
    inside, place = places[-1] if places else (0, at)
    return place + position - 1 - inside


Statement = (
    Create | Setting | ChangeQuery | DropAlert | Show | ShowCreate | Describe | Explain | Select
)
