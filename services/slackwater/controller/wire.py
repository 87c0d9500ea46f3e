"""Values of the controllers as JSON: one codec for frames and for the file.

A value is encoded by its declared type. A class becomes the list of its fields in order, a union of
classes a list that begins with the name of the class, and a map a list of pairs in ascending order.
Equal values therefore have equal bytes. Decoding checks every type, and raises ``WireError`` for a
value of another one.

Rejected: Avro with a schema file. The values are small and few, and all peers have one version,
which ``links`` checks. A second description of each class would have to be kept equal to the class.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import orjson

from slackwater.control.control_object import Operation
from slackwater.control.control_state import ControlState
from slackwater.protocols.iads.messages import OpMsg, StMsg

_OPAQUE: Final = {(OpMsg, "operation"): Operation, (StMsg, "state"): ControlState}
"""Types of the fields that the protocol treats as opaque."""


class WireError(ValueError):
    """The bytes are not a value of the expected type."""


def to_bytes(kind: Any, value: Any) -> bytes:
    """The value's encoding; ``kind`` is its declared type."""
    return orjson.dumps(_plain(kind, value))


def from_bytes(kind: Any, data: bytes) -> Any:
    """The value of this type.

    Raises:
        WireError: the bytes are not such a value.
    """
    try:
        return _value(kind, orjson.loads(data))
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise WireError(f"no JSON: {error}") from None


def _plain(kind: Any, value: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return [type(value).__name__, *_plain(type(value), value)]
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return [_plain(k, v) for k, v in zip(kinds, value, strict=True)]
    if origin is frozenset:
        return [_plain(inner[0], item) for item in sorted(value)]
    if origin is Mapping:
        return [[_plain(inner[0], k), _plain(inner[1], value[k])] for k in sorted(value)]
    if kind in (int, str, bool):
        return value
    return [_plain(k, getattr(value, name)) for name, k in _fields(kind)]


def _value(kind: Any, plain: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (int, str, bool):
        if type(plain) is not kind:
            raise WireError(f"{str(plain)[:40]!r} is no {kind.__name__}")
        return plain
    if not isinstance(plain, list):
        raise WireError(f"{str(plain)[:40]!r} is no list")
    if origin in (Union, types.UnionType):
        chosen = next((k for k in inner if plain and k.__name__ == plain[0]), None)
        if chosen is None:
            raise WireError(f"{str(plain)[:40]!r} is of no known class")
        return _value(chosen, plain[1:])
    if origin is tuple:
        kinds = inner[:1] * len(plain) if inner[-1] is Ellipsis else inner
        return tuple(_each(kinds, plain))
    if origin is frozenset:
        return frozenset(_value(inner[0], item) for item in plain)
    if origin is Mapping:
        return dict(_each(inner, pair) for pair in plain)
    fields = _fields(kind)
    return kind(*_each(tuple(k for _, k in fields), plain))


def _each(kinds: tuple[Any, ...], plain: Any) -> list[Any]:
    if not isinstance(plain, list) or len(plain) != len(kinds):
        raise WireError(f"{str(plain)[:40]!r} does not have {len(kinds)} fields")
    return [_value(kind, item) for kind, item in zip(kinds, plain, strict=True)]


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((name, _OPAQUE.get((kind, name), hint)) for name, hint in hints.items())
