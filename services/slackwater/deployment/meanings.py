"""Checks of the texts that a stream declares as missing values or as numbers."""

from __future__ import annotations

from typing import Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import StreamShape
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.meanings import as_number, in_small_letters

_ALWAYS: Final = ("", "nan", "null")


def check_meanings(
    shape: StreamShape, place: Place, findings: Findings
) -> tuple[tuple[str, ...], tuple[tuple[str, float], ...]]:
    """Return the texts that are missing values, and those that are numbers, with these."""
    found: dict[str, str] = {}

    def once(text: str, where: Place) -> None:
        known = found.setdefault(in_small_letters(text), text)
        if known is not text:
            reason = f"{text!r} is declared twice: the case of letters makes no difference"
            findings.error((*place, *where), reason)

    missing = tuple(text.strip() for text in shape.missing)
    for i, text in enumerate(missing):
        once(text, ("missing", i))
    values: list[tuple[str, float]] = []
    for declared, written in shape.values.items():
        text, where = declared.strip(), ("values", declared)
        once(text, where)
        number = as_number(written)
        if in_small_letters(text) in _ALWAYS:
            findings.error((*place, *where), f"{text!r} is a missing value in every stream")
        elif as_number(text) is not None:
            findings.error((*place, *where), f"{text!r} is a number already")
        elif number is None:
            findings.error((*place, *where), f"{written!r} is not a number, as in true: 1")
        else:
            values.append((text, number))
    return missing, tuple(values)
