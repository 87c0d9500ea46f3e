"""Readings in columns, as they come in; joined, and cut into pieces that fit a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slackwater.model.records import type_f64, type_i32, type_i64


@dataclass(frozen=True, slots=True)
class Arrived:
    """Readings in input order, as columns of one length; times are us of event time.

    ``keys[key_index[i]]`` is the key of reading i, and ``values`` has one column for each field.
    ``positions[i]`` is the input position after reading i; ``position`` is the input position
    after everything that was read, readings or not.
    """

    stimes: type_i64
    key_index: type_i32
    keys: Sequence[str]
    values: tuple[type_f64, ...]
    positions: type_i64
    position: int

    def __len__(self) -> int:
        return len(self.stimes)

    def take(self, which: npt.NDArray[np.bool_] | slice) -> Arrived:
        """The selected readings."""
        return Arrived(
            self.stimes[which],
            self.key_index[which],
            self.keys,
            tuple(column[which] for column in self.values),
            self.positions[which],
            self.position,
        )


def cut(arrived: Arrived, rows_max: int, bytes_max: int) -> list[Arrived]:
    """Return the readings in pieces with the keys that occur in them.

    A piece has at most ``rows_max`` readings. If it is longer than ``bytes_max`` with its keys,
    which may be long, it is halved, down to one reading.
    """
    pieces: list[Arrived] = []
    for start in range(0, len(arrived), rows_max):
        pieces += _fit(_compact(arrived.take(slice(start, start + rows_max))), bytes_max)
    return pieces


def _fit(piece: Arrived, bytes_max: int) -> list[Arrived]:
    size = sum(map(len, piece.keys)) + len(piece) * (12 + 8 * len(piece.values))
    if size <= bytes_max or len(piece) == 1:
        return [piece]
    half = len(piece) // 2
    left, right = piece.take(slice(0, half)), piece.take(slice(half, len(piece)))
    return _fit(_compact(left), bytes_max) + _fit(_compact(right), bytes_max)


def join(chunks: Sequence[Arrived]) -> Arrived:
    """Concatenate chunks over one list of keys."""
    first, last = chunks[0], chunks[-1]
    if len(chunks) == 1:
        return first
    keys: Sequence[str] = first.keys
    indices = [chunk.key_index for chunk in chunks]
    if any(chunk.keys is not keys for chunk in chunks):
        places: dict[str, int] = {}
        indices = [_place(chunk, places) for chunk in map(_compact, chunks)]
        keys = list(places)
    return Arrived(
        np.concatenate([chunk.stimes for chunk in chunks]),
        np.concatenate(indices),
        keys,
        tuple(np.concatenate(columns) for columns in zip(*(c.values for c in chunks), strict=True)),
        np.concatenate([chunk.positions for chunk in chunks]),
        last.position,
    )


def _place(chunk: Arrived, places: dict[str, int]) -> type_i32:
    to = [places.setdefault(key, len(places)) for key in chunk.keys]
    return np.asarray(to, np.int32)[chunk.key_index]


def _compact(chunk: Arrived) -> Arrived:
    """The same readings, with only the keys that occur in them."""
    used = np.zeros(len(chunk.keys), np.bool_)
    used[chunk.key_index] = True
    if used.all():
        return chunk
    to = (np.cumsum(used) - 1).astype(np.int32)
    return Arrived(
        chunk.stimes,
        to[chunk.key_index],
        [chunk.keys[i] for i in np.flatnonzero(used).tolist()],
        chunk.values,
        chunk.positions,
        chunk.position,
    )
