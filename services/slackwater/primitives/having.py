"""The condition of a query on its rows: which keys of a window have a row in its answer.

It is SQL's HAVING, a filter of merged figures, so it stands at the root, behind the merge of the
children; ``where`` is a filter of readings, before it. Both are expressions of one language. Here
the names are those of a row's figures, ``temperature_avg``, as readers of the query see them.

A key without a row is absent from the answer as if it had sent nothing. A tentative answer is
filtered by its own figures, so an UNDO may add a row and take one away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slackwater.model.row_fields import OfFields
from slackwater.primitives.aggregates import AggregateColumns, columns_of
from slackwater.primitives.deltas import Slice
from slackwater.primitives.expressions import Predicate, compile_predicate
from slackwater.primitives.key_table import KeyTable


@dataclass(frozen=True, slots=True)
class Having:
    """A compiled condition.

    ``fields`` are those of a slice, in order, ``aggregates`` all of the query's aggregates, and
    ``figures`` the field and the aggregate of each name in the condition.
    """

    predicate: Predicate
    fields: tuple[str, ...]
    aggregates: tuple[str, ...]
    figures: tuple[tuple[str, str, str], ...]

    @classmethod
    def of(
        cls, text: str, fields: tuple[str, ...], aggregates: tuple[str, ...], shown: OfFields
    ) -> Having:
        """Compile a condition on the rows of a query that have ``shown``.

        Raises:
            ExpressionError: it is no condition, or names another figure.
        """
        figures = tuple(
            (f"{field}_{name}", field, name) for field, names in shown for name in names
        )
        predicate = compile_predicate(text, [name for name, _, _ in figures])
        return cls(predicate, fields, aggregates, figures)

    def kept(self, value: Slice, table: KeyTable) -> Slice:
        """Return the keys of a window for which the condition is TRUE, not FALSE or NULL."""
        if not len(value):
            return value
        mask = self.predicate.mask(self._columns(value), value.index, table.known)
        if mask.all():
            return value
        index = table.shared(value.index[mask])
        figures = np.ascontiguousarray(value.figures[:, :, mask])
        figures.setflags(write=False)
        fields = len(self.fields)
        states = tuple(entries.of_keys(index, fields) for entries in value.states)
        return Slice(index, figures, states)

    def _columns(self, value: Slice) -> dict[str, npt.NDArray[np.float64]]:
        """Return the figures that the condition reads, one number a key; NaN is null."""
        cells = [entries.by_row(value.index, len(self.fields)) for entries in value.states]
        of_window = AggregateColumns.of(value.figures, self.aggregates, cells)
        with np.errstate(all="ignore"):  # overflow and undefined values are null, as in a row
            numbers = columns_of(of_window, self.aggregates)
        of_aggregate = dict(zip(self.aggregates, numbers, strict=True))
        return {
            name: _finite(of_aggregate[aggregate][self.fields.index(field)])
            for name, field, aggregate in self.figures
            if name in self.predicate.reads
        }


def _finite(column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    numbers = column.astype(np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)
