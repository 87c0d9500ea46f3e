"""Bodies that are tables: CSV as the stream's ``csv`` declares it, and streams of Arrow IPC.

CSV is read by the reader of files. An unusable line is refused by its number; the header is line 1.

Arrow is the fast format: its columns are those of a source record, so a reading takes some
nanoseconds. The bytes are untrusted. Every selected column is validated completely before its
values are read, and compressed buffers are refused, since a small body could expand to any size.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import DeploymentError
from slackwater.model.records import type_f64, type_i64
from slackwater.proxy.columns import (
    STIME_US_MAX,
    UNIT_US,
    keys_of,
    numbers,
    times,
    trimmed,
)
from slackwater.proxy.csvfile import CsvFile, CsvPiece
from slackwater.proxy.csvtext import CsvSource
from slackwater.proxy.http.parts import check_number
from slackwater.proxy.messages import Bad, Parsed
from slackwater.proxy.requests import BodyContent, UnusableBody

CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
_ROW_CHARS_MAX: Final = 4_096
Mask = npt.NDArray[np.bool_]

# CSV.


class _BodySource(CsvSource):
    """A body as the source of a CSV reader."""

    def __init__(self, stream: str, body: bytes) -> None:
        super().__init__(stream, Path("body"))
        self._body = body

    def error(self, what: str) -> DeploymentError:
        return DeploymentError(f"the body {what}")

    def _open(self) -> IO[bytes]:
        return io.BytesIO(self._body)


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a body as text; an index is a line number."""

    piece: CsvPiece

    def __call__(self, line: int) -> str:
        return self.piece.text(line)


def read_csv(spec: StreamSpec, body: bytes) -> BodyContent:
    """Parse lines below a header."""
    ends = max(body.count(b"\n"), body.count(b"\r"))
    check_number(ends - 1)  # a bound before memory is allocated; the exact check is below
    try:
        file = CsvFile(spec, source=_BodySource(spec.name, body))
        piece = file.complete(body)
    except DeploymentError as error:
        raise UnusableBody(str(error)) from None
    check_number(len(piece.lines) + len(piece.malformed))
    arrived = piece.arrived
    parsed = Parsed(
        piece.lines,
        arrived.stimes,
        arrived.key_index,
        arrived.keys,
        arrived.values,
        tuple(Bad(one.line, one.detail, one.stime, one.reason) for one in piece.malformed),
    )
    return BodyContent(parsed, _Lines(piece), range(arrived.position + 1), "line")


# Arrow.


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a table as text."""

    table: Any

    def __call__(self, index: int) -> str:
        row = {name: _shown(self.table.column(name)[index]) for name in self.table.column_names}
        return orjson.dumps(row, default=str).decode()[:_ROW_CHARS_MAX]


def _shown(value: Any) -> Any:
    try:
        return value.as_py()
    except (ArithmeticError, LookupError, ValueError):
        # A timestamp that datetime cannot represent: its range, nanoseconds or time zone.
        return _shown(value.value) if isinstance(value, pa.DictionaryScalar) else value.value


def read_arrow(spec: StreamSpec, body: bytes) -> BodyContent:
    """Parse the columns of all record batches of a stream."""
    table = _table(spec, body)
    n = len(table)
    if not n:
        raise UnusableBody("the body contains no readings")
    reasons: dict[str, Mask] = {}
    key_index, keys = _keys(spec, table, reasons)
    stimes, no_time = _times(spec, table)
    reasons["time"] = no_time
    values = []
    for declared in spec.fields:
        value, wrong = _values(table, declared.source)
        reasons[f"field {declared.name}"] = wrong
        values.append(value)
    refused = np.logical_or.reduce(list(reasons.values()))
    kept = np.flatnonzero(~refused)
    bad = tuple(
        Bad(
            i,
            ", ".join(name for name, mask in reasons.items() if mask[i]),
            None if no_time[i] else int(stimes[i]),
        )
        for i in np.flatnonzero(refused).tolist()
    )
    columns = tuple(column[kept] for column in values) if bad else tuple(values)
    parsed = Parsed(kept, stimes[kept], key_index[kept], keys, columns, bad)
    return BodyContent(parsed, _Rows(table), range(n))


def _table(spec: StreamSpec, body: bytes) -> Any:
    """Return the declared columns after validation."""
    key = spec.key.column
    wanted = [*([] if key is None else [key]), *spec.time.columns]
    wanted = list(dict.fromkeys([*wanted, *(f.source for f in spec.fields)]))
    try:
        _refuse_compression(body)
        with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
            schema = reader.schema
            for name in wanted:
                if len(schema.get_all_field_indices(name)) != 1:
                    known = ", ".join(schema.names[:100])
                    raise UnusableBody(f"the body has no column {name!r}; it has: {known}")
            batches, rows = [], 0
            for batch in reader:
                rows += batch.num_rows
                check_number(rows)
                batches.append(batch.select(wanted))
        table = pa.Table.from_batches(batches, pa.schema([schema.field(n) for n in wanted]))
        table.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else "damaged"
        raise UnusableBody(f"the body is not an Arrow IPC stream: {reason}") from None
    return table.combine_chunks()


def _refuse_compression(body: bytes) -> None:
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(body)):
        if message.type in ("record batch", "dictionary") and _is_compressed(
            message.metadata.to_pybytes(), message.type == "dictionary"
        ):
            raise UnusableBody("the buffers of the body are compressed: send them plain")


def _is_compressed(metadata: bytes, dictionary: bool) -> bool:
    """Return whether the flatbuffer of a message, verified by Arrow, declares a compression.

    ``Message.header`` is field 2, ``DictionaryBatch.data`` field 1, ``RecordBatch.compression``
    field 3 of their tables.
    """
    at = _follow(metadata, 0)
    header = _field(metadata, at, 2)
    batch = None if header is None else _follow(metadata, header)
    if dictionary and batch is not None:
        data = _field(metadata, batch, 1)
        batch = None if data is None else _follow(metadata, data)
    return batch is None or _field(metadata, batch, 3) is not None


def _follow(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return the position of a field of a flatbuffer's table; None if it is absent."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    slot = 4 + 2 * number
    if slot >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset = int(struct.unpack_from("<H", data, vtable + slot)[0])
    return table + offset if offset else None


def _column(table: Any, name: str) -> Any:
    column = table.column(name)
    column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unusable(name: str, kind: Any, wanted: str) -> UnusableBody:
    return UnusableBody(f"column {name!r} is {kind}: {wanted}")


def _texts(column: Any) -> Any:
    return trimmed(pc.cast(pc.fill_null(column, ""), pa.string()))


def _keys(
    spec: StreamSpec, table: Any, reasons: dict[str, Mask]
) -> tuple[npt.NDArray[np.int32], list[str]]:
    name = spec.key.column
    if name is None:
        return np.zeros(len(table), np.int32), [spec.key.value or ""]
    column = _column(table, name)
    if pa.types.is_integer(column.type):
        column = pc.cast(column, pa.string())
    elif not _is_text(column.type):
        raise _unusable(name, column.type, "a key is text or an integer")
    column = pc.cast(pc.fill_null(column, ""), pa.string())
    index, keys, reasons["empty key"], reasons["long key"] = keys_of(column)
    return index, keys


def _times(spec: StreamSpec, table: Any) -> tuple[type_i64, Mask]:
    columns = [_column(table, name) for name in spec.time.columns]
    kind = columns[0].type
    if len(columns) > 1 or _is_text(kind):
        if not all(_is_text(column.type) for column in columns):
            raise _unusable(spec.time.columns[0], kind, "times in several columns are text")
        texts = [_texts(column) for column in columns]
        joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, " ")
        return times(joined, spec.time)
    column = columns[0]
    if pa.types.is_timestamp(kind):
        # Truncated to a microsecond, towards the past.
        counts = _integers(column)
        factor = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[kind.unit]
        return _bounded(counts // 1_000 if kind.unit == "ns" else counts, factor, column)
    if not pa.types.is_integer(kind) or spec.time.unit not in UNIT_US:
        raise _unusable(spec.time.columns[0], kind, "a time is a timestamp, an integer or text")
    return _bounded(_integers(column), UNIT_US[spec.time.unit], column)


def _integers(column: Any) -> type_i64:
    """Return the values as int64: 0 for null, the largest int64 for values beyond it."""
    if pa.types.is_uint64(column.type):
        values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        return np.asarray(np.minimum(values, np.uint64(2**63 - 1)), np.int64)
    values = pc.fill_null(pc.cast(column, pa.int64()), 0)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)


def _bounded(counts: type_i64, factor: int, column: Any) -> tuple[type_i64, Mask]:
    limit = (STIME_US_MAX - 1) // factor
    wrong: Mask = (counts > limit) | (counts < -limit)
    if column.null_count:
        wrong |= pc.is_null(column).to_numpy(zero_copy_only=False)
    return np.where(wrong, 0, counts) * factor, wrong


def _values(table: Any, name: str) -> tuple[type_f64, Mask]:
    column = _column(table, name)
    kind = column.type
    if _is_text(kind):
        return numbers(_texts(column))
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        raise _unusable(name, kind, "a field is a number")
    cast = pc.cast(column, pa.float64(), safe=False)
    values = np.asarray(cast.to_numpy(zero_copy_only=False), np.float64)
    wrong: Mask = np.isinf(values)
    return values, wrong
