"""Parses the JAAS line of Java's Kafka clients: a login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";

The syntax is that of ``java.io.StreamTokenizer``, which Kafka uses: values are bare or quoted, and
quoted values use C escapes.
"""

from __future__ import annotations

import re
from typing import Final

_HEAD: Final = re.compile(
    r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\s*", re.IGNORECASE
)
_OPTION: Final = re.compile(
    r"""([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([\w.$-]+))\s*""", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return the module's class and its options; ``ValueError`` contains no option value."""
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("it must begin with a login module and `required`")
    options: dict[str, str] = {}
    at = head.end()
    while option := _OPTION.match(text, at):
        name, *values = option.groups()
        options[name] = _ESCAPE.sub(_unescaped, next(v for v in values if v is not None))
        at = option.end()
    if text[at:].strip() != ";":
        raise ValueError(
            f'character {at + 1} is not understood: write name="value" pairs and a semicolon'
        )
    return head[1], options


def _unescaped(match: re.Match[str]) -> str:
    letter = match[1]
    return chr(int(letter, 8)) if letter[0] in "01234567" else _ESCAPES.get(letter, letter)
