"""Checks the history of a query with ``having``: some keys of a window have no row.

A stable answer must have the rows that the batch computation requires, and may have those of which
rounding decides (``having.py``). A tentative answer is filtered by figures that the batch does not
know, if an input was missing: then any key may be absent, and a row must satisfy the condition by
its own figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slackwater.judge.batch import BatchResult, Cell, ExactAggregates
from slackwater.judge.check import Checker, Expectations, Part, Record, to_us
from slackwater.judge.having import HavingJudge, Spread, spread_of
from slackwater.model.deployment import QuerySpec


class HavingChecker(Checker):
    """``Checker`` for a query with a condition on its rows; ``batch`` has all keys."""

    def __init__(self, expectations: Expectations, batch: BatchResult, having: HavingJudge) -> None:
        super().__init__(expectations, batch)
        self._having = having
        cells = [(key, self._spreads(fields)) for (_, key), fields in batch.items()]
        self._has_row = dict(zip(batch, having.verdicts(cells), strict=True))
        """Of each window and key, whether it has a row; None: it may have one."""

    def _spreads(self, fields: Mapping[str, ExactAggregates]) -> list[Spread]:
        return [
            spread_of(
                name,
                fields[field].numbers[name],
                count=fields[field].count,
                scale=fields[field].scale,
                deviation=fields[field].spread,
            )
            for field, name in self._having.figures
        ]

    def cells(self) -> Iterable[Cell]:
        """Yield each (window start, key) that must have a stable row."""
        return (cell for cell, has_row in self._has_row.items() if has_row)

    def exact(self, part: Part) -> None:
        """Check that the rows of a stable answer equal the batch's, and that they belong there."""
        super().exact(part)
        self._check_own(part)
        for row in part.rows:
            if self._has_row.get(_cell_of(row)) is False:
                self._wrong(part, _cell_of(row), "does not satisfy having, and has a row")

    def check_missing(self, part: Part, boundary: Record, start: int) -> None:
        """Check the rows of a tentative answer, and those that are absent although nothing is."""
        excused = set(boundary["missing"])
        may_be_unknown = self.expectations.chained and bool(excused)
        rows = {_cell_of(row): row for row in part.rows}
        self._check_own(part)
        for cell in rows.keys() - self.batch.keys():
            if not may_be_unknown:
                self._wrong(part, cell, "is tentative, and unknown")
        for cell in self.batch_keys(start):
            if cell in rows:
                self.check_counts(part, cell, rows[cell]["fields"], excused)
            elif self.expectations.parts == 1 and self._has_row[cell] and not may_be_unknown:
                lacks = (excused.intersection(of.by_stream) for of in self.batch[cell].values())
                if not any(lacks):
                    self._wrong(part, cell, "is absent, but no reading of it is missing")

    def _check_own(self, part: Part) -> None:
        """Check that each row satisfies the condition by its own figures."""
        held = self._having.holds([(row["key"], row["fields"]) for row in part.rows])
        for row, holds in zip(part.rows, held, strict=True):
            if not holds:
                self._wrong(part, _cell_of(row), "has figures that do not satisfy having")

    def _wrong(self, part: Part, cell: Cell, what: str) -> None:
        self.verdict.add("wrong", f"{self.at(part, cell[0])} key {cell[1]!r} {what}")


def _cell_of(row: Record) -> Cell:
    return to_us(row["window_start"]), row["key"]


def windows_checker(query: QuerySpec, batch: BatchResult, expectations: Expectations) -> Checker:
    """Return the checker of a query with windows; ``batch`` has all keys of each."""
    if query.having is None or not batch:
        return Checker(expectations, batch)
    fields = next(iter(batch.values()))
    shown = tuple((field, tuple(figures.numbers)) for field, figures in fields.items())
    return HavingChecker(expectations, batch, HavingJudge(query.having, shown))
