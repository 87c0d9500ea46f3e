"""Writes the names of streams, queries and columns, in double quotes where they need them."""

from __future__ import annotations

import re
from typing import Final

from slackwater.primitives.expression_text import RESERVED_WORDS

PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYWORDS: Final = frozenset(
    RESERVED_WORDS
    | {"IF", "TABLE", "STREAM", "QUERY", "AS", "SELECT", "FROM", "WHERE", "GROUP", "EMIT", "WITH"}
    | {"JOIN", "WITHIN", "UNION", "TUMBLE", "HOP", "HAVING", "WINDOW", "ORDER", "LIMIT"}
)
"""Words that are quoted as the name of a stream, a query or a column, although few need it."""


def identifier(name: str) -> str:
    """Return a name as statements have it."""
    is_plain = PLAIN_NAME.fullmatch(name) and name.upper() not in _KEYWORDS
    return name if is_plain else quoted(name)


def quoted(text: str) -> str:
    """Return a name in double quotes."""
    return '"' + text.replace('"', '""') + '"'
