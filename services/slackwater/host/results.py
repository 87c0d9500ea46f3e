"""Encodes the results of a root's transaction as records of the three result topics.

The order is that of the core's effects (rule-23). Rows are encoded in portions, since a window may
have a hundred thousand keys and the event loop also has to read the deltas. The state record that
completes a transaction is added by ``transactions``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slackwater.codec.results import (
    ReadingColumns,
    ResultHead,
    ResultRows,
    encode_boundary,
    encode_gap,
    encode_rec_done,
    encode_rows,
    encode_undo,
    label_of,
)
from slackwater.model.names import ResultKind
from slackwater.model.row_fields import OfFields
from slackwater.primitives.aggregates import AggregateColumns
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import PaneShare
from slackwater.primitives.rows import Rows
from slackwater.protocols.dpc.soutput.answers import (
    Effect,
    EmptyRun,
    GapNote,
    RecDone,
    StableWindow,
    TentativeWindow,
    Undo,
)
from slackwater.protocols.dpc.soutput.config import Commit

ROWS_PER_PORTION = 2_000

Lines = Sequence[tuple[bytes | None, bytes]]
"""Kafka keys and values."""


@dataclass(frozen=True, slots=True)
class ResultsWriter:
    """Encodes a part's result records, with the fields common to all of them."""

    head: ResultHead
    fields: tuple[str, ...]
    aggregate: tuple[str, ...]
    of_fields: OfFields = ()

    def lines(self, commit: Commit, emitted_at: int) -> Iterator[tuple[ResultKind, Lines]]:
        """Yield topic and records, in order, at most ``ROWS_PER_PORTION`` rows at a time."""
        for effect in commit.transaction.effects:
            if isinstance(effect, StableWindow | TentativeWindow) and effect.rows:
                rows = self._rows(effect, commit.keys, emitted_at)
                for start in range(0, effect.rows, ROWS_PER_PORTION):
                    yield label_of(effect), encode_rows(rows, start, start + ROWS_PER_PORTION)
            topic, value = self._line(effect, emitted_at)
            yield topic, [(None, value)]

    def _line(self, effect: Effect[Any], emitted_at: int) -> tuple[ResultKind, bytes]:
        """Return topic and value of an effect's only record, or of that after its rows."""
        head = self.head
        match effect:
            case StableWindow() | TentativeWindow() | EmptyRun():
                return label_of(effect), encode_boundary(head, effect, emitted_at)
            case Undo():
                return "corrections", encode_undo(head, effect, emitted_at)
            case RecDone():
                return "corrections", encode_rec_done(head, effect, emitted_at)
            case GapNote():
                return "corrections", encode_gap(head, effect, emitted_at)

    def _rows(
        self,
        window: StableWindow[PaneShare[Any]] | TentativeWindow[PaneShare[Any]],
        table: KeyTable,
        emitted_at: int,
    ) -> ResultRows:
        """Return the rows of a window: aggregates in key order, readings as ordered."""
        assert window.content is not None
        content = window.content.slice
        figures: AggregateColumns | ReadingColumns
        if isinstance(content, Rows):
            keys = table.names(content.index)
            figures = ReadingColumns(content.stimes, content.values)
        else:
            keys, columns = content.sorted(table)
            figures = AggregateColumns.of(columns, self.aggregate, content.cells(table))
        return ResultRows(
            head=self.head,
            window=window,
            keys=keys,
            fields=self.fields,
            figures=figures,
            aggregate=self.aggregate,
            of_fields=self.of_fields,
            emitted_at=emitted_at,
        )
