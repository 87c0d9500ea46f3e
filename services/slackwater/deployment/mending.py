"""Goes on after an error of form, so that all errors of a stream or query are reported together.

A part that is invalid is left out, and a required one is replaced by a value without meaning. What
remains is checked as usual, except at these fields and those that depend on them
(``Findings.ignoring``), so an error has no false ones in its train. The result is used for checks
only: the file has an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic import ValidationError

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import QueryShape, StreamShape
from slackwater.deployment.shaping import S, places_of, shaped
from slackwater.deployment.yaml_lines import Path as Place

_REQUIRED: Final[Mapping[type[Any], Mapping[str, Any]]] = {
    StreamShape: {
        "key": {"value": "key"},
        "time": {"column": "time", "unit": "us"},
        "fields": ["field"],
    },
    QueryShape: {"from": ["nothing"], "bound": "1d"},
}


_NEEDED_BY: Final[Mapping[str, Collection[str]]] = {
    "key": {"topic", "mqtt"},
    "time": {"topic", "mqtt"},
    "fields": {"texts", "missing", "values"},
    "texts": {"fields", "missing", "values"},
    "expect_every": {"sporadic"},
    "sporadic": {"expect_every"},
    "from": {"join", "children"},
    "join": {"from", "where", "select"},
    "window": {"aggregate"},
    "aggregate": {"window"},
    "margin": {"bound"},
}
"""By field, those whose checks depend on it."""
_INPUTS: Final = {"topic", "mqtt", "http", "csv"}
"""What a stream's other fields mean depends on these."""


def shaped_or_mended(
    shape: type[S], value: Any, place: Place, findings: Findings
) -> tuple[S | None, tuple[Place, ...]]:
    """Return the part of the file at ``place``, and what to ignore: its fields that were mended.

    None if too little of it is valid. All errors of form are in ``findings``.
    """
    found = shaped(shape, value, place, findings)
    if found is not None or not isinstance(value, dict):
        return found, ()
    wrong = {
        at[:-1] if kind == "missing" and len(at) > 1 else at for at, kind in places_of(shape, value)
    }
    names = {str(at[0]) for at in wrong if at}
    if () in wrong or names & _INPUTS:
        return None, ()
    try:
        mended = shape.model_validate({**_REQUIRED.get(shape, {}), **_without(value, wrong)})
    except ValidationError:
        return None, ()
    names |= {name for each in names for name in _NEEDED_BY.get(each, ())}
    return mended, tuple((*place, name) for name in sorted(names))


def _without(value: Any, places: Collection[Place]) -> Any:
    """Return the value without what is at these places."""
    if not places:
        return value

    def below(name: str | int) -> set[Place]:
        return {at[1:] for at in places if at[0] == name and len(at) > 1}

    if isinstance(value, dict):
        return {n: _without(inner, below(n)) for n, inner in value.items() if (n,) not in places}
    if isinstance(value, list):
        return [_without(v, below(i)) for i, v in enumerate(value) if (i,) not in places]
    return value
