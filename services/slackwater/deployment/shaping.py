"""Validates parts of the file against their shapes, and words errors in terms of the file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slackwater.deployment.bounds import EMPTY, empty_fields
from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import (
    BY_SITE,
    COUNTED,
    NAMED,
    OF_ALL,
    OF_FIELDS,
    FileShape,
    Shape,
)
from slackwater.deployment.yaml_lines import Path as Place

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,62}", re.ASCII)
_NO_PLACES: Final = {"[key]", OF_ALL, OF_FIELDS, COUNTED, NAMED, BY_SITE}
"""Parts of Pydantic's places that are not in the file."""
_ATTRIBUTES: Final = {"from": "from_", "fields": "fields_", "for": "for_"}
"""Attributes of fields whose names are words of Python, or of Pydantic."""
S = TypeVar("S", bound=Shape)


def _explained(details: ErrorDetails, shape: type[Shape]) -> tuple[Place, str]:
    """Return the place inside the shape, and the error in terms of the file."""
    place = tuple(part for part in details["loc"] if part not in _NO_PLACES)
    context, value = details.get("ctx", {}), details["input"]
    match details["type"]:
        case "extra_forbidden":
            return place, f"unknown field{did_you_mean(str(place[-1]), _siblings(shape, place))}"
        case "missing":
            return place, "is required"
        case "value_error":
            return place, str(context["error"])
        case "literal_error":
            shown = "null" if value is None else repr(value)
            return place, f"must be {context['expected']}, not {shown}"
        case "model_type" | "dict_type" | "model_attributes_type":
            return place, "must be a mapping, name: value"
        case "list_type" | "tuple_type":
            return place, "must be a list, [a, b]"
        case "string_type":
            return place, "must be text"
        case "string_unicode":
            return place, "contains a character that is not valid Unicode"
        case "int_parsing" | "int_type":
            return place, f"{value!r} is not a whole number"
        case "too_short" | "string_too_short":
            return place, "must not be empty"
        case "greater_than_equal" | "less_than_equal":
            limit = context.get("ge", context.get("le"))
            word = "at least" if "ge" in context else "at most"
            return place, f"{value} is out of range: must be {word} {limit}"
    return place, details["msg"]


def _siblings(shape: type[Shape], place: Place) -> list[str]:
    """Return the valid fields at the place of an unknown one."""
    for part in place[:-1]:
        info = next((f for n, f in shape.model_fields.items() if part in (n, f.alias)), None)
        inner = [t for t in _types(info.annotation) if issubclass(t, Shape)] if info else []
        if not inner:
            return []
        shape = inner[0]
    return [field.alias or name for name, field in shape.model_fields.items()]


def _types(annotation: Any) -> list[type[Any]]:
    options = getattr(annotation, "__args__", (annotation,))
    return [option for option in options if isinstance(option, type)]


def did_you_mean(written: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """Return the known name that is most similar, as the end of a sentence; else ``""``."""
    close = difflib.get_close_matches(written, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def shaped(shape: type[S], value: Any, place: Place, findings: Findings) -> S | None:
    """Return the part of the file at ``place``; None if invalid, with errors in ``findings``."""
    # Empty fields of a stream or query are reported when it is validated itself.
    empty = [path for path in empty_fields(value) if shape is not FileShape or len(path) == 1]
    for path in empty:
        findings.error((*place, *path), EMPTY)
    try:
        shaped = shape.model_validate(value)
    except ValidationError as error:
        for details in error.errors():
            inside, reason = _explained(details, shape)
            if inside not in empty:
                findings.error((*place, *inside), reason)
        return None
    return None if empty else shaped


def places_of(shape: type[S], value: Any) -> list[tuple[Place, str]]:
    """Return the places of errors of form inside a value, each with Pydantic's kind of error."""
    found: list[tuple[Place, str]] = [(path, "empty") for path in empty_fields(value)]
    try:
        shape.model_validate(value)
    except ValidationError as error:
        found += [(_explained(details, shape)[0], details["type"]) for details in error.errors()]
    return found


def exactly_one(shape: Shape, names: Sequence[str], place: Place, findings: Findings) -> bool:
    """Return whether exactly one of these fields is given; otherwise add an error."""
    given = [name for name in names if getattr(shape, _ATTRIBUTES.get(name, name)) is not None]
    if len(given) != 1:
        wanted = f"{', '.join(names[:-1])} or {names[-1]}"
        found = " and ".join(given) or "none"
        findings.error(place, f"takes exactly one of {wanted}, has {found}")
    return len(given) == 1


def not_yet(place: Place, what: str, findings: Findings) -> None:
    """Refuse a feature of the file's format that this version does not support."""
    findings.error(place, f"this version does not support {what}")


def check_name(name: str, place: Place, findings: Findings) -> None:
    """Check the name of a stream or query."""
    if not _NAME.fullmatch(name):
        findings.error(
            place,
            f"{name!r} is not a valid name: use lower-case letters, digits and -, beginning with a"
            " letter, at most 63 characters",
        )
