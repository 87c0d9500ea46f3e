"""Java's .properties files, with the syntax of ``java.util.Properties``.

Kafka's own tools read their settings from such a file, so a file must have the same meaning here,
including escapes, continuation lines and trailing blanks of a value. There is one difference: a
duplicate key is an error here, while Java uses its last value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS: Final = 4
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class PropertiesError(ValueError):
    """A syntax error with its line; contains no value, which may be a secret."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True, slots=True)
class Property:
    """One key with its value; ``line`` is the number of its first line."""

    key: str
    value: str
    line: int

    def __repr__(self) -> str:
        """Without the value, which may be a secret."""
        return f"Property({self.key!r}, line {self.line})"


def parse_properties(text: str) -> dict[str, Property]:
    """Parse a file; return its properties by key. ``PropertiesError`` names the line."""
    found: dict[str, Property] = {}
    for line, logical in _logical_lines(text):
        key, value = _split(logical)
        key = _unescaped(key, line)
        if key in found:
            raise PropertiesError(line, f"{key} is given twice, first in line {found[key].line}")
        found[key] = Property(key, _unescaped(value, line), line)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield logical lines with their numbers, without leading blanks and comments."""
    begun, parts = 0, list[str]()
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            begun = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield begun, "".join([*parts, line])
        parts = []
    if parts:
        yield begun, "".join(parts)


def _split(line: str) -> tuple[str, str]:
    """Split key and value at the first ``=``, ``:`` or blank that is not escaped."""
    end = 0
    while end < len(line) and line[end] not in _BLANKS + "=:":
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return line[:end], value


def _unescaped(text: str, line: int) -> str:
    parts, at = list[str](), 0
    while (escape := text.find("\\", at)) >= 0:
        parts.append(text[at:escape])
        letter = text[escape + 1 : escape + 2]
        at = escape + 2
        if letter == "u":
            digits = text[at : at + _HEX_DIGITS]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise PropertiesError(line, r"\u needs four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            at += _HEX_DIGITS
        else:
            parts.append(_ESCAPES.get(letter, letter))
    return "".join([*parts, text[at:]])
