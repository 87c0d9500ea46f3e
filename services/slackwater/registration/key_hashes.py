"""By which hash the keys of a query are divided into parts (trace-56, decision 202)."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.model.deployment import QuerySpec
from slackwater.model.names import earlier_generations
from slackwater.primitives.keyparts import XXHASH64, KeyHash
from slackwater.runtime.service.registry import QueryDefinition


def key_hash_of(query: QuerySpec, registered: Mapping[str, QueryDefinition]) -> KeyHash | None:
    """Return the ``key_hash`` with which a query is registered.

    That of its earlier generation, also if this is deleted. None where there is no choice: Spark
    divides the keys of a query with a window, and one part has all keys.
    """
    if query.window is not None or query.parts == 1:
        return None
    for earlier in earlier_generations(query.name, registered):
        return registered[earlier].divided_by
    return XXHASH64
