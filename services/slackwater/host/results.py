"""Encodes the results of a root's transaction as records of the three result topics.

The order is that of the core's effects (rule-23). Rows are encoded in portions, since a window may
have a hundred thousand keys and the event loop also has to read the deltas. The state record that
completes a transaction is added by ``transactions``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from slackwater.codec.results import (
    Label,
    ReadingColumns,
    ResultRows,
    encode_boundary,
    encode_gap,
    encode_rec_done,
    encode_rows,
    encode_undo,
)
from slackwater.model.names import ResultKind
from slackwater.model.records import Gap
from slackwater.primitives.aggregates import AggregateColumns
from slackwater.primitives.deltas import KeyTable, Slice
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

Lines = list[tuple[bytes | None, bytes]]


@dataclass(frozen=True, slots=True)
class ResultsWriter:
    """Encodes a part's result records, with the fields common to all of them."""

    query: str
    part: int
    fields: tuple[str, ...]
    aggregate: tuple[str, ...]
    generation: int = 0

    def lines(self, commit: Commit, emitted_at: int) -> Iterator[tuple[ResultKind, Lines]]:
        """Yield topic and records, in order, at most ``ROWS_PER_PORTION`` rows at a time."""
        for effect in commit.transaction.effects:
            yield from self._lines_of(effect, commit.keys, emitted_at)

    def _lines_of(
        self, effect: Effect[PaneShare[Any]], keys: KeyTable, emitted_at: int
    ) -> Iterator[tuple[ResultKind, Lines]]:
        match effect:
            case StableWindow():
                yield from self._window("stable", effect, keys, emitted_at)
            case TentativeWindow():
                yield from self._window("tentative", effect, keys, emitted_at)
            case EmptyRun():
                yield self._empty_run(effect, emitted_at)
            case _:
                yield "corrections", [(None, self._correction(effect, emitted_at))]

    def _window(
        self,
        label: Label,
        window: StableWindow[PaneShare[Any]] | TentativeWindow[PaneShare[Any]],
        keys: KeyTable,
        emitted_at: int,
    ) -> Iterator[tuple[ResultKind, Lines]]:
        missing = window.missing if isinstance(window, TentativeWindow) else ()
        if window.rows:
            assert window.content is not None
            names, figures = _content(window.content.slice, keys)
            answer = ResultRows(
                query=self.query,
                generation=self.generation,
                part=self.part,
                first_seq=window.first_seq,
                label=label,
                epoch=window.epoch,
                window_start=window.window_start,
                window_end=window.window_end,
                keys=names,
                fields=self.fields,
                figures=figures,
                aggregate=self.aggregate,
                missing=missing,
                lost=_by_stream(window.gap),
                due_at=_due_at(window.due_at, emitted_at),
                emitted_at=emitted_at,
            )
            for start in range(0, window.rows, ROWS_PER_PORTION):
                yield label, list(encode_rows(answer, start, start + ROWS_PER_PORTION))
        boundary = encode_boundary(
            query=self.query,
            generation=self.generation,
            part=self.part,
            seq=window.seq,
            epoch=window.epoch,
            label=label,
            window_start=window.window_start,
            window_end=window.window_end,
            keys=window.rows,
            missing=missing,
            lost=_by_stream(window.gap),
            due_at=_due_at(window.due_at, emitted_at),
            emitted_at=emitted_at,
        )
        yield label, [(None, boundary)]

    def _empty_run(self, run: EmptyRun, emitted_at: int) -> tuple[ResultKind, Lines]:
        label: Label = "stable" if run.stable else "tentative"
        boundary = encode_boundary(
            query=self.query,
            generation=self.generation,
            part=self.part,
            seq=run.seq,
            epoch=run.epoch,
            label=label,
            window_start=run.window_start,
            window_end=run.window_end,
            windows=run.windows,
            keys=0,
            missing=run.missing,
            skipped=run.skipped,
            due_at=_due_at(run.due_at, emitted_at),
            emitted_at=emitted_at,
        )
        return label, [(None, boundary)]

    def _correction(self, effect: Undo | GapNote | RecDone, emitted_at: int) -> bytes:
        match effect:
            case Undo(seq, epoch, undo_from, undo_to):
                return encode_undo(
                    query=self.query,
                    generation=self.generation,
                    part=self.part,
                    seq=seq,
                    epoch=epoch,
                    undo_from=undo_from,
                    undo_to=undo_to,
                    emitted_at=emitted_at,
                )
            case RecDone(seq, epoch):
                return encode_rec_done(
                    query=self.query,
                    generation=self.generation,
                    part=self.part,
                    seq=seq,
                    epoch=epoch,
                    emitted_at=emitted_at,
                )
            case GapNote(seq, epoch, start, end, gap):
                return encode_gap(
                    query=self.query,
                    generation=self.generation,
                    part=self.part,
                    seq=seq,
                    epoch=epoch,
                    stream=",".join(g.stream for g in gap),
                    lost=sum(g.lost for g in gap),
                    gap_from=start,
                    gap_to=end,
                    emitted_at=emitted_at,
                )


def _content(
    content: Slice | Rows, keys: KeyTable
) -> tuple[list[str], AggregateColumns | ReadingColumns]:
    """Return keys and numbers of the rows: aggregates in key order, readings as ordered."""
    if isinstance(content, Rows):
        return keys.names(content.index), ReadingColumns(content.stimes, content.values)
    names, figures = content.sorted(keys)
    return names, AggregateColumns(*figures)


def _by_stream(gaps: Iterable[Gap]) -> dict[str, int]:
    lost: Counter[str] = Counter()
    for stream, readings in gaps:
        lost[stream] += readings
    return dict(lost)


def _due_at(due_at: int | None, emitted_at: int) -> int:
    """Return the normal time; with ``clock: data`` it may be unknown, and the answer is in time."""
    return emitted_at if due_at is None else due_at
