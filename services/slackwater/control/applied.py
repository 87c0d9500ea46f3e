"""The text of a query in the replicated record: the query with all that its fragments need.

No user's deployment file is needed to run it. The text is JSON of the typed values, so equal
queries have equal texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from slackwater.model.deployment import Deployment
from slackwater.runtime.service.registry_entries import check_stands_alone

Start = int | Literal["now", "beginning"]


@dataclass(frozen=True, slots=True)
class AppliedQuery:
    """A query, and a deployment that has the query and all that it reads.

    ``start`` determines its start time: us since the epoch (event time), ``now`` for the next
    window, or ``beginning`` for the first reading that the source logs hold.
    """

    query: str
    deployment: Deployment
    start: Start = "now"


_APPLIED: Final = TypeAdapter(AppliedQuery)


def to_text(applied: AppliedQuery) -> str:
    """The text of a query, without streams and queries that it does not need."""
    needed = applied.deployment.connected(applied.query)
    return _APPLIED.dump_json(AppliedQuery(applied.query, needed, applied.start)).decode()


def from_text(name: str, text: str) -> AppliedQuery:
    """The query of a text.

    Raises:
        ValueError: it is not the text of a query of this name.
    """
    try:
        applied = _APPLIED.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if applied.query != name:
        raise ValueError(f"it is query {applied.query}")
    check_stands_alone(name, applied.deployment)
    return applied
