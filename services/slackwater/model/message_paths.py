r"""Paths to the values of a message: names between dots, names in quotes, indexes of arrays.

``meters[0].power`` is the member ``power`` of the first element of the member ``meters``. A name in
double quotes is taken as it is, so ``"particles_2.5um"`` is one name and not two; in it ``\"`` is a
quote and ``\\`` a backslash. Outside quotes a name has no dot, and a bracket begins an index.

Formats with columns have no paths: there a declared name is the column's, and a single name in
quotes is the column of this name, so that one declaration is right for JSON and CSV.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

Step = str | int
"""A member's name, or the index of an element, from 0."""
INDEX_DIGITS_MAX: Final = 6
"""A message of 1 MiB has fewer elements than a number of seven digits."""
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE: Final = re.compile(r"[^.\[]*")
_INDEX: Final = re.compile(rf"\[([0-9]{{1,{INDEX_DIGITS_MAX}}})\]", re.ASCII)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class NoPath(ValueError):
    """Why a text is not a path."""


@lru_cache(maxsize=4_096)
def steps_of(path: str) -> tuple[Step, ...]:
    """Return the steps from a message to the value; ``NoPath`` if the text is not a path."""
    steps: list[Step] = []
    at = 0
    while True:
        name, at = _name(path, at)
        steps.append(name)
        while at < len(path) and path[at] == "[":
            index = _INDEX.match(path, at)
            if index is None:
                raise NoPath(
                    f"{path!r}: brackets hold the index of an element, from 0, as meters[0].power"
                    f"; a name with a bracket is written in double quotes, {_as_name(path)}"
                )
            steps.append(int(index[1]))
            at = index.end()
        if at == len(path):
            return tuple(steps)
        if path[at] != ".":
            raise NoPath(f"{path!r}: a dot or the end is expected at character {at + 1}")
        at += 1


def name_of_column(declared: str) -> str:
    """Return the column that a declared name means in a format without paths."""
    quoted = _QUOTED.fullmatch(declared)
    return declared if quoted is None else _ESCAPE.sub(r"\1", quoted[1])


def path_text(steps: Sequence[Step]) -> str:
    """Return steps as a path, for messages to people."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            is_bare = step and not re.search(r'[.\[]|^"', step)
            text += ("." if text else "") + (step if is_bare else _as_name(step))
    return text


def _name(path: str, at: int) -> tuple[str, int]:
    """Return the name that begins at this place, and the place after it."""
    if path[at : at + 1] == '"':
        quoted = _QUOTED.match(path, at)
        if quoted is None:
            raise NoPath(f"{path!r}: the quote at character {at + 1} is not closed")
        return _ESCAPE.sub(r"\1", quoted[1]), quoted.end()
    bare = _BARE.match(path, at)
    assert bare is not None, "the pattern matches no characters too"
    if not bare[0]:
        right = f"a name with a dot is written in double quotes, {_as_name(path)}"
        raise NoPath(f"{path!r}: an empty name at character {at + 1}; {right}")
    return bare[0], bare.end()


def _as_name(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
