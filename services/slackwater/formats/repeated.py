"""Names that occur twice where one is meant: columns of a table, members of an object.

One rule for every format: a declared name that occurs twice is refused, with both places. Readers
of the same bytes differ in what they would take (the first column, the last member), so each choice
would be right by chance only. A table is refused as a unit, since all of its rows have the columns;
of objects, the reading is malformed. Names that the stream does not declare may repeat: tables have
several empty headings, and devices send members that nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RepeatedMember:
    """Stands for the value of a member that its object has several times; it is no value.

    ``numbers`` are the places of these members in the object, from 1; ``values`` their values.
    """

    name: str
    numbers: tuple[int, ...]
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{len(self.numbers)} members {self.name!r}, numbers {_listed(self.numbers)}"


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object; a repeated one has a ``RepeatedMember`` as value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        for name, numbers in places_of(name for name, _ in pairs).items():
            if len(numbers) > 1:
                values = tuple(pairs[number - 1][1] for number in numbers)
                found[name] = RepeatedMember(name, tuple(numbers), values)
    return found


def places_of(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of each name, from 1."""
    places: dict[str, list[int]] = {}
    for number, name in enumerate(names, 1):
        places.setdefault(name, []).append(number)
    return places


def repeated_column(name: str, numbers: Sequence[int]) -> str:
    """Return the error of a table with several columns of a declared name, at these numbers."""
    return f"has {len(numbers)} columns {name!r}, numbers {_listed(numbers)}: rename all but one"


def _listed(numbers: Sequence[int]) -> str:
    return " and ".join(map(str, numbers))
