"""Decodes many messages of one schema at a time, field by field over all messages.

Each message has a position in the joined bytes. numpy reads a field at all positions at once and
advances them. A message that does not match is left to the definition (``schema.decode``), so this
decoder must be correct only for the messages that it accepts. It does not support schemas with an
array, a map or a union of several types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackwater.formats.avro.framing import Framed, Rows
from slackwater.formats.avro.schema import Type
from slackwater.formats.columns import Mask
from slackwater.model.records import type_i64

Path = tuple[str | int, ...]
_PLAIN: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum")
)
_INT_MAX: Final = 2**31
_VARINT_BYTES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """The values of one path, and the messages that have one."""

    values: Any
    rows: Rows


@dataclass(slots=True)
class DecodedBatch:
    """Messages being decoded: positions, ends, and which of them match so far."""

    data: npt.NDArray[np.uint8]
    at: type_i64
    ends: type_i64
    fits: Mask
    sizes: type_i64
    columns: dict[Path, DecodedColumn] = field(default_factory=dict)


def is_plain(schema: Type) -> bool:
    """Return whether messages of this schema can be decoded many at a time."""
    if schema.kind in ("record", "nullable"):
        return all(is_plain(inner) for _, inner in schema.inner)
    return schema.kind in _PLAIN


def decode_batch(
    schema: Type, framed: Framed, rows: Rows, header: int, paths: set[Path]
) -> DecodedBatch:
    """Decode messages with headers of ``header`` bytes into columns at these paths.

    Rows of the result are numbered by their places in ``rows``. Values of messages that do not
    match are undefined.
    """
    starts, ends = framed.starts[rows], framed.ends[rows]
    batch = DecodedBatch(
        framed.data, starts + header, ends, np.ones(len(rows), np.bool_), ends - starts
    )
    _Decoder(batch, paths).read(schema, (), np.arange(len(rows)))
    batch.fits &= batch.at == batch.ends
    return batch


class _Decoder:
    """Reads a type at the positions of some rows."""

    def __init__(self, batch: DecodedBatch, paths: set[Path]) -> None:
        self._batch = batch
        self._paths = paths

    def read(self, schema: Type, path: Path, rows: Rows) -> None:
        match schema.kind:
            case "record":
                for name, inner in schema.inner:
                    self.read(inner, (*path, name), rows)
            case "nullable":
                branches = self._varints(rows)
                self._refuse(rows, (branches != 0) & (branches != 1))
                self.read(schema.inner[0][1], path, rows[branches == schema.null_first])
            case _:
                values = self._values(schema, path, rows)
                if path in self._paths and values is not None:
                    self._batch.columns[path] = DecodedColumn(values, rows)

    def _values(self, schema: Type, path: Path, rows: Rows) -> Any:
        match schema.kind:
            case "int" | "long" | "enum":
                return self._numbers(schema, rows)
            case "float":
                return self._reals(rows, "<f4", 4)
            case "double":
                return self._reals(rows, "<f8", 8)
            case "string" | "bytes":
                starts, stops = self._texts(rows)
                return self._strings(starts, stops) if path in self._paths else None
            case "boolean":
                self._refuse(rows, self._batch.data[self._batch.at[rows]] > 1)
                self._move(rows, 1)
            case "fixed":
                self._move(rows, schema.size)
        return None

    def _numbers(self, schema: Type, rows: Rows) -> type_i64:
        values = self._varints(rows)
        if schema.kind == "enum":
            self._refuse(rows, (values < 0) | (values >= len(schema.symbols)))
        elif schema.kind == "int":
            self._refuse(rows, (values < -_INT_MAX) | (values >= _INT_MAX))
        return values

    def _varints(self, rows: Rows) -> type_i64:
        """Read a zigzag varint of each row."""
        data, at = self._batch.data, self._batch.at[rows]
        values = np.zeros(len(rows), np.uint64)
        active: Any = slice(None)
        for i in range(_VARINT_BYTES_MAX):
            octets = data[at[active]]
            values[active] |= (octets & np.uint8(127)).astype(np.uint64) << np.uint64(7 * i)
            at[active] += 1
            goes_on = octets >= (128 if i < _VARINT_BYTES_MAX - 1 else 2)
            if not goes_on.any():
                break
            active = np.flatnonzero(goes_on) if i == 0 else active[goes_on]
        else:
            self._batch.fits[rows[active]] = False
        self._batch.at[rows] = at
        self._stop(rows)
        return ((values >> np.uint64(1)) ^ -(values & np.uint64(1))).view(np.int64)

    def _reals(self, rows: Rows, kind: str, size: int) -> Any:
        at = self._batch.at[rows]
        octets = self._batch.data[at[:, None] + np.arange(size)]
        self._move(rows, size)
        return octets.reshape(-1).view(kind).astype(np.float64)

    def _texts(self, rows: Rows) -> tuple[type_i64, type_i64]:
        sizes = self._varints(rows)
        at = self._batch.at[rows]
        wrong = (sizes < 0) | (sizes > self._batch.ends[rows] - at)
        self._refuse(rows, wrong)
        stops = at + np.where(wrong, 0, sizes)
        self._batch.at[rows] = stops
        return at, stops

    def _strings(self, starts: type_i64, stops: type_i64) -> Any:
        """Return the strings of the rows as an array; rows are ordered, so gaps can be skipped."""
        edges = np.stack([starts, stops], 1).reshape(-1)
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(self._batch.data)]
        every = pa.Array.from_buffers(pa.large_binary(), max(0, len(edges) - 1), buffers)
        return every.take(pa.array(np.arange(0, len(edges), 2)))

    def _move(self, rows: Rows, size: int) -> None:
        self._batch.at[rows] += size
        self._stop(rows)

    def _stop(self, rows: Rows) -> None:
        """Refuse rows whose positions have passed their ends."""
        at, ends = self._batch.at[rows], self._batch.ends[rows]
        past = at > ends
        if past.any():
            self._batch.fits[rows[past]] = False
            self._batch.at[rows] = np.minimum(at, ends)

    def _refuse(self, rows: Rows, wrong: Mask) -> None:
        if wrong.any():
            self._batch.fits[rows[wrong]] = False
