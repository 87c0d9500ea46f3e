"""Bodies that are tables: CSV as the stream's ``csv`` declares it, and streams of Arrow IPC.

CSV is read by the reader of files. An unusable line is refused by its number; the header is line 1.

Arrow is the fast format: its columns are those of a source record, so a reading takes some
nanoseconds. The bytes are untrusted. Every selected column is validated completely before its
values are read, and compressed buffers are refused, since a small body could expand to any size.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formats.columns import (
    TIME,
    UNIT_DIGITS,
    keys_of,
    microseconds,
    numbers,
    time_fault,
    times,
    trimmed,
)
from slackwater.formats.csvfile import CsvFile
from slackwater.formats.csvtext import CsvSource
from slackwater.formats.joined import ambiguous, joined_keys, joined_texts
from slackwater.formats.localtimes import local_times
from slackwater.formats.messages import Bad, Parsed
from slackwater.formats.pieces import FilePiece
from slackwater.formats.repeated import repeated_column
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import DeploymentError
from slackwater.model.meanings import Meanings, field_meanings
from slackwater.model.records import type_f64, type_i64
from slackwater.proxy.http.parts import by_column, check_number
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

    piece: FilePiece

    def __call__(self, line: int) -> str:
        return self.piece.text(line)


def read_csv(spec: StreamSpec, body: bytes) -> BodyContent:
    """Parse lines below a header. As in JSON, a field may be absent; key and time may not."""
    spec = by_column(spec)
    ends = max(body.count(b"\n"), body.count(b"\r"))
    check_number(ends - 1)  # a bound before memory is allocated; the exact check is below
    try:
        file = CsvFile(spec, source=_BodySource(spec.name, body), may_lack_fields=True)
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
    if isinstance(value, pa.DictionaryScalar) and value.is_valid:
        value = value.value
    kind = value.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns" and value.is_valid:
        # Arrow makes a value of pandas of it where pandas is installed.
        if value.value % 1_000:
            return value.value
        value = value.cast(pa.timestamp("us", kind.tz))
    try:
        return value.as_py()
    except (ArithmeticError, LookupError, ValueError):
        # A timestamp that datetime cannot represent: its range or time zone.
        return value.value


def read_arrow(spec: StreamSpec, body: bytes) -> BodyContent:
    """Parse the columns of all record batches of a stream."""
    spec = by_column(spec)
    table = _table(spec, body)
    n = len(table)
    if not n:
        raise UnusableBody("the body contains no readings")
    reasons: dict[str, Mask] = {}
    key_index, keys = _keys(spec, table, reasons)
    stimes, no_time, time_fault_of = _times(spec, table)
    reasons[TIME] = no_time
    values = []
    for declared, meanings in zip(spec.fields, field_meanings(spec), strict=True):
        value, wrong = _values(table, declared.source, meanings)
        reasons[f"field {declared.name}"] = wrong
        values.append(value)
    refused = np.logical_or.reduce(list(reasons.values()))
    kept = np.flatnonzero(~refused)
    bad = tuple(
        Bad(
            i,
            ", ".join(
                time_fault_of(i) if name == TIME else name
                for name, mask in reasons.items()
                if mask[i]
            ),
            None if no_time[i] else int(stimes[i]),
        )
        for i in np.flatnonzero(refused).tolist()
    )
    columns = tuple(column[kept] for column in values) if bad else tuple(values)
    parsed = Parsed(kept, stimes[kept], key_index[kept], keys, columns, bad)
    return BodyContent(parsed, _Rows(table), range(n))


def _table(spec: StreamSpec, body: bytes) -> Any:
    """Return the declared columns that are there, after validation.

    As in JSON, a field may be absent, and is then missing in all rows; key and time may not.
    """
    needed = [*spec.key.parts, *spec.time.parts]
    wanted = list(dict.fromkeys([*needed, *(f.source for f in spec.fields)]))
    try:
        _refuse_compression(body)
        with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
            schema = reader.schema
            for name in wanted:
                places = schema.get_all_field_indices(name)
                if len(places) > 1:
                    numbers = [place + 1 for place in places]
                    raise UnusableBody(f"the body {repeated_column(name, numbers)}")
                if not places and name in needed:
                    known = ", ".join(schema.names[:100])
                    raise UnusableBody(f"the body has no column {name!r}; it has: {known}")
            wanted = [name for name in wanted if schema.get_field_index(name) >= 0]
            if not wanted:
                raise UnusableBody("the body has no column that the stream declares")
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
    if not spec.key.parts:
        return np.zeros(len(table), np.int32), [spec.key.value or ""]
    columns = [_part(table, name, "a key is text or an integer") for name in spec.key.parts]
    joined, reasons[ambiguous(spec.key.join)] = joined_keys(columns, spec.key.join)
    index, keys, reasons["empty key"], reasons["long key"] = keys_of(joined)
    return index, keys


def _part(table: Any, name: str, wanted: str) -> Any:
    """Return a column of texts or integers as text, empty where it is null."""
    column = _column(table, name)
    if pa.types.is_integer(column.type):
        column = pc.cast(column, pa.string())
    elif not _is_text(column.type):
        raise _unusable(name, column.type, wanted)
    return pc.cast(pc.fill_null(column, ""), pa.string())


def _times(spec: StreamSpec, table: Any) -> tuple[type_i64, Mask, Callable[[int], str]]:
    """Return times, a mask of malformed ones, and the function to the detail of such a row."""
    parts = spec.time.parts
    if not parts:
        n = len(table)
        return np.zeros(n, np.int64), np.zeros(n, np.bool_), lambda _row: TIME
    column = _column(table, parts[0])
    kind = column.type
    if len(parts) > 1 or _is_text(kind):
        wanted = "times in several columns are text or integers"
        texts = [_part(table, name, wanted) for name in parts]
        joined = trimmed(joined_texts(texts, spec.time.join))
        return *times(joined, spec.time), lambda i: time_fault(joined[i].as_py(), spec.time)
    if pa.types.is_timestamp(kind):
        us, wrong = _bounded(column, kind.unit)
        if kind.tz is not None or spec.time.zone is None:
            return us, wrong, lambda _row: TIME
        instants, refused = local_times(spec.time.zone, spec.time.fold).instants_of(us)
        local = replace(spec.time, unit="us", format=None)
        return instants, wrong | refused, lambda i: time_fault(str(us[i]), local)
    if not pa.types.is_integer(kind) or spec.time.unit not in UNIT_DIGITS:
        raise _unusable(parts[0], kind, "a time is a timestamp, an integer or text")
    return *_bounded(column, spec.time.unit), lambda _row: TIME


def _bounded(column: Any, unit: str) -> tuple[type_i64, Mask]:
    """Return integers as times, and a mask of nulls and of those outside the calendar."""
    if pa.types.is_uint64(column.type):
        if unit == "ns":  # a nanosecond beyond 64 bits is in the year 2554
            column, unit = pc.divide(column, pa.scalar(1_000, pa.uint64())), "us"
        column = pc.min_element_wise(column, pa.scalar(2**63 - 1, pa.uint64()), skip_nulls=False)
    counts = pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy(zero_copy_only=False)
    us, wrong = microseconds(np.asarray(counts, np.int64), unit)
    if column.null_count:
        wrong |= pc.is_null(column).to_numpy(zero_copy_only=False)
    return us, wrong


def _values(table: Any, name: str, meanings: Meanings) -> tuple[type_f64, Mask]:
    if name not in table.column_names:
        return np.full(len(table), np.nan), np.zeros(len(table), np.bool_)
    column = _column(table, name)
    kind = column.type
    if pa.types.is_boolean(kind) and (meanings.texts or meanings.is_text):
        column = pc.cast(column, pa.string())
        kind = column.type
    if _is_text(kind):
        return numbers(_texts(column), ".", meanings)
    if meanings.is_text:
        raise _unusable(name, kind, "a field of texts is text or boolean")
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        hint = ", or declare `values: {true: 1, false: 0}`" if pa.types.is_boolean(kind) else ""
        raise _unusable(name, kind, f"a field is a number{hint}")
    cast = pc.cast(column, pa.float64(), safe=False)
    values = np.asarray(cast.to_numpy(zero_copy_only=False), np.float64)
    wrong: Mask = np.isinf(values)
    return meanings.of_column(values), wrong
