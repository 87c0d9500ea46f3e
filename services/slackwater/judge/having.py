"""Which rows a batch computation expects of a query with ``having``, and of which it cannot say.

A condition on figures is exact, and figures are not: two sums in different orders differ in their
last bits, and an estimate lies within a percent. A key whose figures are that close to where the
condition changes may have a row or none. Each figure is therefore tried at both ends of what
rounding allows (``Spread``); if all agree, the row is required or forbidden. A row that is there
must in any case satisfy the condition by its own figures.

SQLite computes the condition, as it does ``where`` (``oracle``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product
from typing import Final, TypeAlias

from slackwater.judge.oracle import Row, evaluate
from slackwater.model.row_fields import OfFields, columns_of_results
from slackwater.primitives.aggregates import AGGREGATES
from slackwater.primitives.expressions import compile_predicate

Spread: TypeAlias = tuple[float | None, ...]
"""A figure: as computed, then the ends between which rounding may leave it, if it may."""
Fields: TypeAlias = Mapping[str, Mapping[str, float | None]]
"""The numbers of a row, by field and aggregate."""
FIGURES_TRIED_MAX: Final = 4
"""Up to this many figures of a condition are tried in all combinations, more one by one."""


class HavingJudge:
    """The condition of a query; ``shown`` has the fields of its rows with their aggregates."""

    def __init__(self, text: str, shown: OfFields) -> None:
        self._text = text
        reads = compile_predicate(text, columns_of_results(shown)).reads
        self.figures: tuple[tuple[str, str], ...] = tuple(
            (field, name) for field, names in shown for name in names if f"{field}_{name}" in reads
        )
        """Field and aggregate of each name in the condition."""
        self._names = [f"{field}_{name}" for field, name in self.figures]

    def holds(self, rows: Sequence[tuple[str, Fields]]) -> list[bool]:
        """Return whether the condition is TRUE for each (key, fields of a row)."""
        given: list[Row] = [
            (key, tuple(fields.get(field, {}).get(name) for field, name in self.figures))
            for key, fields in rows
        ]
        return self._evaluate(given)

    def verdicts(self, cells: Sequence[tuple[str, Sequence[Spread]]]) -> list[bool | None]:
        """Return for each (key, its ``figures``) whether it has a row; None: it may have one."""
        tried: list[Row] = []
        counts: list[int] = []
        for key, spreads in cells:
            rows = [(key, values) for values in _tried(spreads)]
            tried += rows
            counts.append(len(rows))
        found = iter(self._evaluate(tried))
        agreed = ({*islice(found, count)} for count in counts)
        return [one.pop() if len(one) == 1 else None for one in agreed]

    def _evaluate(self, rows: Sequence[Row]) -> list[bool]:
        kept = {index for index, _ in evaluate(self._text, None, self._names, rows)}
        return [index in kept for index in range(len(rows))]


def _tried(spreads: Sequence[Spread]) -> Iterable[tuple[float | None, ...]]:
    """Yield the combinations of figures to try."""
    if sum(len(spread) > 1 for spread in spreads) <= FIGURES_TRIED_MAX:
        yield from product(*spreads)
        return
    computed = tuple(spread[0] for spread in spreads)
    yield computed
    for end in (1, -1):
        yield tuple(spread[end] if len(spread) > 1 else spread[0] for spread in spreads)
    for place, spread in enumerate(spreads):
        for value in spread[1:]:
            yield (*computed[:place], value, *computed[place + 1 :])


def spread_of(
    name: str, number: float | None, *, count: float, scale: float, deviation: float
) -> Spread:
    """Return what rounding may make of an aggregate's number.

    ``count``, ``scale`` and ``deviation`` are those of the values, as in ``exact.Rounding``.
    """
    rounding = AGGREGATES[name].rounding
    may_be_null = rounding.may_overflow(count, scale)
    if number is None:
        return (None,)
    error = rounding.error(number, count, scale, deviation)
    ends = (number - error, number + error) if error else ()
    return (number, *ends, *((None,) if may_be_null else ()))
