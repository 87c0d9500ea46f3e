"""Codec of delta records: the partial aggregates of one piece of a bucket.

Each of the five basic figures is an array of shape (fields, keys). A record with figures or states
beside these, which only some aggregates bring along, has a schema of its own: it is that of the
others with two more fields. Nothing is paid for them by records without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from slackwater.codec.avro_types import DamageError
from slackwater.codec.record_fields import (
    KINDS,
    NO_FRONTIER,
    Bytes,
    check_place,
    decode,
    record_states,
    start_frontier,
    state_values,
)
from slackwater.codec.schemas import codec
from slackwater.model.records import DeltaRecord, Gap, type_f64
from slackwater.primitives.figures import ALWAYS, BASIC, FIGURE_NAMES

_ABSENT: Final = {figure.name: figure.nothing for figure in BASIC if figure.name not in ALWAYS}
"""Values of figures that were not computed because no aggregate of the query needs them."""
_HEADER_BYTES: Final = 10
_WIDE: Final = "wide_delta"
_OTHERS: Final = 18 + len(BASIC)
"""The place of the other figures among the fields of a wide delta."""


def encode_delta(record: DeltaRecord) -> bytes:
    """Encode a delta record, as Spark does in the aggregator; for tests and benches.

    Raises:
        ValueError: a figure has another shape than (fields, keys).
    """
    shape = (len(record.fields), len(record.keys))
    figures = (record.count, record.sum, record.m2, record.min, record.max)
    for name, figure in zip(FIGURE_NAMES, figures, strict=True):
        if figure.shape != shape:
            raise ValueError(f"{name} has shape {figure.shape}, not {shape}")
    for name, figure in record.others.items():
        if figure.shape != shape:
            raise ValueError(f"{name} has shape {figure.shape}, not {shape}")
    frontier = record.frontier or NO_FRONTIER
    others: tuple[Any, ...] = ()
    if record.others or record.states:
        others = (list(record.others.items()), state_values(record.states))
    return codec(_WIDE if others else "delta").encode(
        record.kind,
        record.child,
        record.replica,
        record.inc,
        record.bucket_start,
        record.bucket_end,
        record.seq,
        record.piece,
        record.pieces,
        record.first_id,
        record.last_id,
        frontier.bucket_start,
        frontier.piece,
        record.missing,
        record.gap,
        record.keys,
        record.keys_hash,
        record.fields,
        *figures,
        *others,
    )


def decode_delta(
    buf: Bytes, where: object = "", known: Mapping[int, Sequence[str]] | None = None
) -> DeltaRecord:
    """Decode a delta record completely.

    A recently used key list is recognised by its bytes and not decoded. If ``known`` (key lists by
    ``keys_hash``) has an equal list, ``record.keys`` is that object, which the caller can compare
    by ``is``. Raises ``MalformedRecordError``.
    """
    name = _WIDE if buf[:_HEADER_BYTES] == codec(_WIDE).header else "delta"
    return decode(name, buf, where, lambda values: _make_delta(values, known))


def _make_delta(values: list[Any], known: Mapping[int, Sequence[str]] | None) -> DeltaRecord:
    kind, child, replica, inc, start, end, seq, piece, pieces, first, last = values[:11]
    bucket, frontier_piece, missing, gap, keys, keys_hash, fields = values[11:18]
    check_place(start, end, piece, pieces)
    mine = None if known is None else known.get(keys_hash)
    if mine is not None and mine is not keys and tuple(mine) == keys:
        keys = mine
    shape = (len(fields), len(keys))
    figures = [
        _matrix(name, columns, shape)
        for name, columns in zip(FIGURE_NAMES, values[18:_OTHERS], strict=True)
    ]
    others, states = {}, {}
    if len(values) > _OTHERS:
        others = {name: _matrix(name, columns, shape) for name, columns in values[_OTHERS]}
        states = record_states(values[_OTHERS + 1], *shape)
    return DeltaRecord(
        KINDS[kind],
        child,
        replica,
        inc,
        start,
        end,
        seq,
        piece,
        pieces,
        first,
        last,
        start_frontier(kind, bucket, frontier_piece),
        missing,
        tuple(map(Gap._make, gap)),
        keys,
        keys_hash,
        fields,
        *figures,
        others=others,
        states=states,
    )


def _matrix(name: str, columns: Sequence[type_f64], shape: tuple[int, int]) -> type_f64:
    """Return one figure as an array (fields, keys), with neutral values if it is absent."""
    if not columns and name in _ABSENT:
        return np.full(shape, _ABSENT[name])
    if len(columns) != shape[0]:
        raise DamageError(f"{len(columns)} columns of {name} for {shape[0]} fields")
    for column in columns:
        if len(column) != shape[1]:
            raise DamageError(f"{len(column)} values of {name} for {shape[1]} keys")
    if shape[0] == 1:
        return columns[0].reshape(shape)
    matrix = np.empty(shape)
    for row, column in zip(matrix, columns, strict=True):
        row[:] = column
    return matrix
