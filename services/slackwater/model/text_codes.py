"""Texts as numbers: what a source log has of a field that only ``where`` compares.

A log's columns are doubles. A text becomes 52 bits of its BLAKE2b digest, a whole number that a
double has exactly. It is the same in all processes and after every restart. It needs no dictionary,
which would have to be bounded, stored and agreed on, and is as long as any other value. Two texts
are equal if their codes are: that two different ones share a code has the probability 2**-52.

A code has no order and no other use than this comparison.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from slackwater.model.deployment import Deployment, QuerySpec, StreamSpec
from slackwater.model.row_fields import joined_fields

_BITS: Final = 52


@lru_cache(maxsize=4_096)
def text_code(text: str) -> float:
    """Return the number that stands for a text."""
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return float(int.from_bytes(digest, "big") >> (64 - _BITS))


def text_names(stream: StreamSpec) -> tuple[str, ...]:
    """Return the names of a stream's fields that are texts."""
    return tuple(field.name for field in stream.fields if field.is_text)


def text_fields(deployment: Deployment, query: QuerySpec) -> frozenset[str]:
    """Return those of the query's input fields that are texts; results of queries have none."""
    streams = deployment.streams
    texts = {name: text_names(streams[name]) for name in query.sources if name in streams}
    if query.join is not None:
        left, right = texts.get(query.join.left, ()), texts.get(query.join.right, ())
        return frozenset(joined_fields(left, right))
    return frozenset(name for names in texts.values() for name in names)
