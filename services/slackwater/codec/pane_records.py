"""Codec of panes and heads, the records of ``sw.panes.<query>``, and of merged panes.

A piece of a pane is a few columns, one for each figure and field. A head has a column for each part
of its references, since a window of a day has thousands of panes. The columns of merged panes are
packed where they pass over a thin link: that takes forty times as long to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from slackwater.codec.avro_types import DamageError
from slackwater.codec.packed_columns import pack, unpack
from slackwater.codec.record_fields import (
    Bytes,
    decode,
    log_position,
    position_values,
    record_states,
    same,
    state_values,
)
from slackwater.codec.schemas import codec
from slackwater.model.heads import Head, LogHead, Noted, PaneColumns, PaneRecord, PaneRef
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Gap

EXACT_MAX: Final = 2**53
"""Up to here each integer is a double."""
_HALF_BITS: Final = 32
_HALF: Final = 1 << _HALF_BITS


def encode_pane(record: PaneRecord) -> bytes:
    """Encode a piece of a pane."""
    return codec("pane").encode(*_pane_values(record))


def _pane_values(record: PaneRecord) -> tuple[Any, ...]:
    columns = record.columns
    return (
        *record.ref,
        record.piece,
        columns.keys,
        columns.figures.shape[1],
        [column for figure in columns.figures for column in figure],
        state_values(columns.states),
    )


def decode_pane(buf: Bytes, where: object = "") -> PaneRecord:
    """Decode a piece of a pane; raises ``MalformedRecordError``."""
    return decode("pane", buf, where, _make_pane)


def _make_pane(values: list[Any]) -> PaneRecord:
    *ref, piece, keys, fields, columns, states = values
    if not (fields > 0 and len(columns) % fields == 0):
        raise DamageError(f"{len(columns)} columns for {fields} fields")
    for column in columns:
        same(len(column), len(keys), "values", "keys")
    figures = np.array(columns).reshape(len(columns) // fields, fields, len(keys))
    found = PaneColumns(keys, figures, record_states(states, fields, len(keys)))
    return PaneRecord(PaneRef(*ref), piece, found)


def encode_merged(record: MergedRecord, *, packed: bool = False) -> bytes:
    """Encode a piece of a merged pane; ``packed``: few bytes in place of little time."""
    behind = list(map(position_values, record.positions))
    columns = record.pane.columns
    figures, fields, keys = columns.figures.shape
    rows = columns.figures.reshape(figures * fields, keys)
    plain, bits = ((), pack(rows)) if packed else ([*rows], b"")
    return codec("merged").encode(
        *(record.end, behind, *record.pane.ref, record.pane.piece, columns.keys, fields, plain),
        *(state_values(columns.states), record.gap, bits, record.keys_hash),
    )


def decode_merged(buf: Bytes, where: object = "") -> MergedRecord:
    """Decode a piece of a merged pane; raises ``MalformedRecordError``."""
    return decode("merged", buf, where, _make_merged)


def _make_merged(values: list[Any]) -> MergedRecord:
    end, behind, *of_pane, gap, packed, keys_hash = values
    if not packed:
        pane = _make_pane(of_pane)
    else:
        pane = _unpacked(of_pane, packed, is_named=bool(keys_hash))
    if end <= pane.ref.start:
        raise DamageError(f"panes from {pane.ref.start} to {end}")
    if not 0 <= pane.piece < max(pane.ref.pieces, 1):
        raise DamageError(f"piece {pane.piece} of {pane.ref.pieces}")
    gaps = tuple(map(Gap._make, gap))
    return MergedRecord(pane, end, tuple(map(log_position, behind)), gaps, keys_hash)


def _unpacked(values: list[Any], packed: Bytes, *, is_named: bool) -> PaneRecord:
    """Return a piece of packed columns; if its keys are named it may have none itself."""
    *ref, piece, keys, fields, columns, states = values
    numbers = unpack(bytes(packed))
    if not (fields > 0 and len(numbers) % fields == 0) or columns:
        raise DamageError(f"{len(numbers)} packed columns for {fields} fields")
    size = numbers.shape[1]
    if keys or not is_named:
        same(size, len(keys), "values", "keys")
    figures = numbers.reshape(len(numbers) // fields, fields, size)
    found = PaneColumns(keys, figures, record_states(states, fields, size))
    return PaneRecord(PaneRef(*ref), piece, found)


def encode_head(head: Head) -> bytes:
    """Encode a head."""
    return codec("head").encode(
        head.term,
        head.number,
        head.next_seq,
        head.epoch,
        head.stable_from,
        head.answered_to,
        head.frontiers,
        [(child, *noted) for child, of in enumerate(head.noted) for noted in of],
        _columns(head.panes),
        [
            (
                log.child,
                log.replica,
                log.line,
                *map(position_values, (log.stable, log.live)),
                log.contiguous_seq,
            )
            for log in head.logs
        ],
    )


def _columns(panes: Sequence[PaneRef]) -> Sequence[Any]:
    if not panes:
        return ()
    child, start, rows, pieces, digest = np.array(panes, np.int64).T
    return child, start, rows, pieces, digest >> _HALF_BITS, digest & (_HALF - 1)


def decode_head(buf: Bytes, where: object = "") -> Head:
    """Decode a head; raises ``MalformedRecordError``."""
    return decode("head", buf, where, _make_head)


def _make_head(values: list[Any]) -> Head:
    term, number, next_seq, epoch, stable_from, answered_to = values[:6]
    frontiers, noted, columns, logs = values[6:]
    lost: list[list[Noted]] = [[] for _ in frontiers]
    for child, start, end, gap in noted:
        if not 0 <= child < len(lost):
            raise DamageError(f"a loss of child {child} of {len(lost)}")
        lost[child].append(Noted(start, end, tuple(map(Gap._make, gap))))
    return Head(
        term,
        number,
        next_seq,
        epoch,
        stable_from,
        answered_to,
        frontiers=tuple(frontiers),
        noted=tuple(map(tuple, lost)),
        panes=_refs(columns),
        logs=tuple(
            LogHead(child, replica, line, log_position(stable), log_position(live), seq)
            for child, replica, line, stable, live, seq in logs
        ),
    )


def _refs(columns: Sequence[Any]) -> tuple[PaneRef, ...]:
    if not columns:
        return ()
    if len(columns) != len(PaneRef._fields) + 1:
        raise DamageError(f"{len(columns)} columns of panes")
    for column in columns:
        same(len(column), len(columns[0]), "values", "panes")
        # A NaN fails each comparison.
        if not ((abs(column) <= EXACT_MAX).all() and (column == np.floor(column)).all()):
            raise DamageError("a number of a pane that is not an integer")
    *firsts, upper, lower = (column.astype(np.int64) for column in columns)
    digests = (upper << _HALF_BITS) | lower
    return tuple(map(PaneRef._make, zip(*(c.tolist() for c in (*firsts, digests)), strict=True)))
