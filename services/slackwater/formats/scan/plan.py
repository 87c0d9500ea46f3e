"""The names to find in a stream's messages, laid out in memory for the compiled scanner.

The wanted names are numbered, outer ones before inner ones, in the most common order of a message:
key, time, fields. Each has the number of the object that contains it (-1: the message) and a
*leaf*: the meaning of its value, or ``INNER`` for an object that contains wanted names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from slackwater.model.deployment import StreamSpec
from slackwater.model.meanings import meanings_of
from slackwater.model.message_paths import Step, path_text, steps_of

INNER, KEY, TIME, FIELD = -1, 0, 1, 2
"""Leaves; the field i has the leaf ``FIELD + i``."""
ISO: Final = -1
"""Unit of times that are texts."""
NAMES_MAX: Final = 64
PATH_MAX: Final = 16
# Of the plan, in words of eight bytes: sizes, and addresses of arrays with a word per name.
NAMES, FIELDS, NEEDED, UNIT, HAS_KEY, TEXT, STARTS, FIRST, MASK, PARENT, LEAF, STACK, POWERS = (
    range(0, 104, 8)
)
# And what booleans mean: whether true (bit 0) and false (bit 1) mean a number, and the two numbers.
BOOLEANS, TRUE_IS, FALSE_IS = range(104, 128, 8)
_PLAN_WORDS: Final = 16
_UNITS: Final = {"s": 6, "ms": 3, "us": 0, "ns": -3, "iso": ISO, None: 0}


class UnsupportedSpec(Exception):
    """Raised for a declaration that the scanner does not support."""


class Plan:
    """The wanted names of a stream; ``address`` is that of the plan in memory."""

    def __init__(self, spec: StreamSpec, powers_address: int) -> None:
        if spec.time.format is not None:
            raise UnsupportedSpec("times in a format of their own")
        if spec.time.zone is not None:
            raise UnsupportedSpec("local times of a zone")
        if any(field.is_text for field in spec.fields):
            raise UnsupportedSpec("texts")
        self.fields = len(spec.fields)
        if len(spec.key.parts) > 1 or len(spec.time.parts) > 1:
            raise UnsupportedSpec("a key or a time of several parts")
        self.has_key = bool(spec.key.parts)
        self.has_time = bool(spec.time.parts)
        self._names: list[bytes] = []
        self._parents: list[int] = []
        self._leaves: list[int] = []
        for path, leaf in _paths(spec):
            self._add(path, leaf)
        if len(self._names) > NAMES_MAX:
            raise UnsupportedSpec(f"more than {NAMES_MAX} names")
        self._lay_out(_UNITS[spec.time.unit], powers_address)
        meanings = meanings_of(spec)
        for bit, (value, slot) in enumerate(((True, TRUE_IS), (False, FALSE_IS))):
            number = meanings.of_boolean(value)
            if number is not None:
                self._plan[BOOLEANS // 8] |= 1 << bit
                self._plan.view(np.float64)[slot // 8] = number

    @property
    def address(self) -> int:
        """Address of the plan."""
        return int(self._plan.ctypes.data)

    def _add(self, path: Sequence[Step], leaf: int) -> None:
        names = [step for step in path if isinstance(step, str)]
        if len(names) < len(path):
            raise UnsupportedSpec(f"{path_text(path)} is an element of an array")
        if len(path) > PATH_MAX:
            raise UnsupportedSpec(f"a path of more than {PATH_MAX} names")
        if not all(map(_is_plain, names)):
            raise UnsupportedSpec(f"{path_text(path)} has a character that JSON escapes")
        parent = -1
        for depth, name in enumerate(names):
            is_last = depth == len(path) - 1
            known = self._find(parent, name.encode())
            if known is None:
                known = len(self._names)
                self._names.append(name.encode())
                self._parents.append(parent)
                self._leaves.append(leaf if is_last else INNER)
            elif is_last or self._leaves[known] != INNER:
                raise UnsupportedSpec(f"{path_text(path)} is wanted twice, or inside another")
            parent = known

    def _find(self, parent: int, name: bytes) -> int | None:
        found = (i for i, known in enumerate(self._names) if known == name)
        return next((i for i in found if self._parents[i] == parent), None)

    def _lay_out(self, unit: int, powers_address: int) -> None:
        # A name is compared with its closing quote, up to eight bytes at once.
        quoted = [name + b'"' for name in self._names]
        needed = sum(1 << i for i, leaf in enumerate(self._leaves) if leaf in (KEY, TIME))
        self._arrays: dict[int, Any] = {
            TEXT: np.frombuffer(b"".join(self._names) + bytes(8), np.uint8),
            STARTS: np.cumsum([0, *map(len, self._names)]).astype(np.int64),
            FIRST: np.array([int.from_bytes(q[:8], "little") for q in quoted], np.uint64),
            MASK: np.array([2 ** (8 * min(8, len(q))) - 1 for q in quoted], np.uint64),
            PARENT: np.array(self._parents, np.int64),
            LEAF: np.array(self._leaves, np.int64),
            STACK: np.zeros(PATH_MAX, np.int64),
        }
        self._plan = np.zeros(_PLAN_WORDS, np.int64)
        self._plan.view(np.uint64)[NEEDED // 8] = needed
        sizes = {NAMES: len(self._names), FIELDS: self.fields, UNIT: unit, HAS_KEY: self.has_key}
        addresses = {slot: array.ctypes.data for slot, array in self._arrays.items()}
        for slot, word in (sizes | addresses | {POWERS: powers_address}).items():
            self._plan[slot // 8] = word


def _is_plain(name: str) -> bool:
    """Return whether the name is written without escapes: the scanner compares bytes."""
    return name.isprintable() and '"' not in name and "\\" not in name


def _paths(spec: StreamSpec) -> list[tuple[Sequence[Step], int]]:
    found: list[tuple[Sequence[Step], int]] = []
    found += [(steps_of(part), KEY) for part in spec.key.parts]
    found += [(steps_of(part), TIME) for part in spec.time.parts]
    if any(path[0] == "boundary" for path, leaf in found if leaf == TIME):
        raise UnsupportedSpec("a time that a boundary message has too")
    return found + [(steps_of(f.source), FIELD + i) for i, f in enumerate(spec.fields)]
