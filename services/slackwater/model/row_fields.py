"""The fields of a row, and of a windowed query the aggregates of each, in order.

A query has one list of aggregates for all fields, or one for each (``aggregate: {temperature:
[avg], humidity: [max]}``). Its children compute what all of them need, for all fields; only the
rows differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

OfFields: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]


def shown_of(
    fields: Iterable[str], aggregates: Sequence[str], of_fields: OfFields = ()
) -> OfFields:
    """Return the fields of a row with the aggregates of each.

    Args:
        fields: all fields.
        aggregates: the names of all aggregates.
        of_fields: what was declared by field; empty: each of ``fields`` has all aggregates.
    """
    return of_fields or tuple((field, tuple(aggregates)) for field in fields)


def columns_of_results(shown: OfFields) -> tuple[str, ...]:
    """Return the names of the columns that readers of a query see, such as ``temperature_avg``."""
    return tuple(f"{field}_{aggregate}" for field, names in shown for aggregate in names)


def described(aggregates: Sequence[str], of_fields: OfFields) -> list[str]:
    """Return the aggregates as people read them: ``avg``, or by field ``avg(temperature)``."""
    if not of_fields:
        return list(aggregates)
    return [f"{name}({field})" for field, names in of_fields for name in names]


def joined_fields(left: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
    """The fields of a joined row."""
    return (*(f"left_{name}" for name in left), *(f"right_{name}" for name in right))
