"""Texts as YAML, for whoever writes a deployment file.

All scalars of the file are texts, so a text is in quotes wherever YAML, or a reader of it, could
take it for something else.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*", re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?[a-z]*", re.ASCII)
_NOT_TEXTS: Final = frozenset({"null", "yes", "no", "y", "n", "true", "false", "on", "off"})
_FLAGS: Final = ("true", "false")


def scalar(text: str) -> str:
    """Return a text as YAML, in quotes if it could be read as something else."""
    if _NAME.fullmatch(text) and text.lower() not in _NOT_TEXTS:
        return text
    if text.isprintable() and not set(text) & {"'", "\\"}:
        return f"'{text}'" if '"' in text else f'"{text}"'
    inner = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{inner}"'


def value(text: str) -> str:
    """Return a field's value as YAML: numbers, durations and flags are without quotes."""
    return text if text in _FLAGS or _NUMBER.fullmatch(text) else scalar(text)
