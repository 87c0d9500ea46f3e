"""Reader of ``json-columns``: a message is a JSON object of arrays, one for each declared path.

``{"ts": [1, 2], "sensor": "a", "value": [0.5, 0.7]}`` has two readings. Arrays have equal lengths,
and at least one declared path leads to an array; any other value applies to all rows. Paths lead
into objects, but not into the elements of an array. ``{"boundary": t}`` is a watermark, as in
``json``.

A scanner in machine code (``formats/scan``) reads usual messages. The messages that it leaves, or
all messages without a scanner, are joined by line ends and parsed by pyarrow with the types of the
first message, in which each column is a list. A batch that pyarrow refuses is halved until the
refused messages are alone; these are parsed by the definition, ``message_of``: row by row, with the
rules of ``json``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formats.elements import (
    elements_max,
    halves,
    in_order,
    numbered,
    parse_dividing,
    undivided,
)
from slackwater.formats.json_input import (
    JsonReader,
    is_boundary,
    parsed_of,
    step_into,
)
from slackwater.formats.json_tables import (
    column_of,
    fields_of,
    grow,
    is_no_decimal,
    key_type,
    quick_values,
    read_table,
)
from slackwater.formats.json_text import JsonNumber, Unreadable, are_objects, dump_value, load
from slackwater.formats.messages import Bad, Messages, Parsed, joined, moved, one_element
from slackwater.formats.repeated import RepeatedMember
from slackwater.formats.scan import scanner_of
from slackwater.model.deployment import StreamSpec
from slackwater.model.message_paths import path_text
from slackwater.model.records import type_i64

if TYPE_CHECKING:
    from slackwater.formats.scan.scanner import ScannedColumns

_T = TypeVar("_T", bound=np.generic)


class JsonColumnsReader:
    """Parser of one stream's messages."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self._rows = JsonReader(spec)
        self._elements_max = elements_max(len(spec.fields))
        self._scanner = scanner_of(spec)
        self._constant_key = [spec.key.value or ""]

    def parse(self, messages: Sequence[bytes]) -> Parsed:
        """Parse all messages of a batch; any bytes are accepted."""
        if self._scanner is None or not messages:
            return self.parse_without_scanner(messages)
        scanned = self._scanner.scan_columns(Messages.of(messages), self._elements_max)
        if not len(scanned.left):
            return self._scanned(scanned)
        left = scanned.left.tolist()
        rest = moved(self._left([messages[i] for i in left]), left)
        return in_order(joined([self._scanned(scanned), rest], len(self.spec.fields)))

    def _scanned(self, scanned: ScannedColumns) -> Parsed:
        """Return the readings of the scanned messages."""
        elements = numbered(scanned.counts)
        return Parsed(
            np.arange(len(elements), dtype=np.int64),
            scanned.stimes,
            scanned.key_index,
            self._keys_of_scanner,
            tuple(map(self._rows.meanings.of_column, scanned.values)),
            elements=elements,
            not_finite=scanned.not_finite,
        )

    def _left(self, messages: Sequence[bytes]) -> Parsed:
        """Parse messages that the scanner has left, with its codes of keys."""
        assert self._scanner is not None
        parsed = self.parse_without_scanner(messages)
        index = parsed.key_index
        if self._rows.key_paths and len(index):
            codes = np.array([self._scanner.code(key) for key in parsed.keys], np.int32)
            index = codes[index]
        return replace(parsed, key_index=index, keys=self._keys_of_scanner)

    @property
    def _keys_of_scanner(self) -> Sequence[str]:
        """The list to which the scanner's codes refer; batches share it."""
        assert self._scanner is not None
        return self._scanner.texts if self._rows.key_paths else self._constant_key

    def parse_without_scanner(self, messages: Sequence[bytes]) -> Parsed:
        """Parse a batch by pyarrow, and the messages that it refuses by the definition."""
        return parse_dividing(messages, len(self.spec.fields), self._quick, self.message_of)

    def texts(self, message: bytes) -> Callable[[int], str]:
        """Return a function from a row's index to its values by path, as JSON."""
        data = load(message)
        columns = {path_text(path): step_into(data, path) for path in self._rows.paths}

        def text(index: int) -> str:
            return dump_value(
                {path: c[index] if isinstance(c, list) else c for path, c in columns.items()}
            )

        return text

    # The definition.

    def message_of(self, message: bytes, at: int = 0) -> Parsed:
        """Return the readings of a message, whose index in the batch is ``at``."""
        fields = len(self.spec.fields)
        try:
            data = load(message)
        except Unreadable as why:
            return undivided(Bad(at, str(why), None), fields)
        if is_boundary(data, self.spec):
            boundary = parsed_of([self._rows.reading_in(data)], fields)
            return replace(boundary, elements=one_element(at))
        columns = [step_into(data, path) for path in self._rows.paths]
        repeated = next((one for one in columns if isinstance(one, RepeatedMember)), None)
        if repeated is not None:
            return undivided(Bad(at, str(repeated), None), fields)
        lengths = sorted({len(column) for column in columns if isinstance(column, list)})
        if len(lengths) != 1 or lengths[0] > self._elements_max:
            return undivided(Bad(at, self._why_undivided(lengths), None), fields)
        rows: Iterable[Any] = zip(
            *(c if isinstance(c, list) else repeat(c, lengths[0]) for c in columns), strict=True
        )
        parsed = parsed_of((self._rows.reading_from(*row) for row in rows), fields)
        return replace(parsed, elements=numbered(np.array(lengths, np.int64), at))

    def _why_undivided(self, lengths: Sequence[int]) -> str:
        if not lengths:
            return "no column is an array"
        if len(lengths) == 1:
            return f"{lengths[0]} readings, at most {self._elements_max}"
        return f"columns of {' and '.join(map(str, lengths))} values"

    # The fast path.

    def _quick(self, messages: Sequence[bytes], first: int) -> Parsed | list[tuple[int, int]]:
        text, n = b"\n".join(messages), len(messages)
        schema = self._schema_of(messages[0], text) if are_objects(text, n) else None
        table = None if schema is None else read_table(text, schema)
        found = self._divided(table, first) if table is not None and len(table) == n else None
        return halves(first, first + n) if found is None else found

    def _schema_of(self, message: bytes, text: bytes) -> Any | None:
        """Return the schema of the first message; the others must have the same types."""
        try:
            data = orjson.loads(message)
        except orjson.JSONDecodeError:
            return None
        tree: dict[str, Any] = {}
        of_key, of_time, fields = self._rows.divided(self._rows.paths)
        kinds = [(path, key_type) for path in of_key]
        kinds += [(path, self._rows.time_type) for path in of_time]
        for path, kind_of in [*kinds, *((path, _value_type) for path in fields)]:
            if not grow(tree, path, _kind(step_into(data, path), kind_of)):
                return None
        schema = pa.schema(fields_of(tree))
        exact = any(map(pa.types.is_decimal, _leaves(tree)))
        return None if exact and is_no_decimal(text) else schema

    def _divided(self, table: Any, first: int) -> Parsed | None:
        columns = [column_of(table, path) for path in self._rows.paths]
        counts = _counts(columns)
        if counts is None or counts.max() > self._elements_max:
            return None
        of_key, of_time, fields = self._rows.divided(columns)
        stimes = self._times(of_time, counts)
        meant = [partial(quick_values, meanings=each) for each in self._rows.field_meanings]
        values = [
            _spread(field, counts, convert) for field, convert in zip(fields, meant, strict=True)
        ]
        keys = self._keys(of_key, counts)
        if stimes is None or keys is None:
            return None
        found = tuple(value for value in values if value is not None)
        if len(found) < len(values):
            return None
        elements = numbered(counts, first)
        indices = np.arange(len(elements), dtype=np.int64)
        return Parsed(indices, stimes, *keys, found, elements=elements)

    def _times(self, parts: Sequence[Any], counts: type_i64) -> type_i64 | None:
        if len(parts) == 1:
            return _spread(parts[0], counts, lambda part: self._rows.quick_times([part], len(part)))
        return self._rows.quick_times(_rows_of(parts, counts), int(counts.sum()))

    def _keys(self, parts: Sequence[Any], counts: type_i64) -> tuple[Any, Sequence[str]] | None:
        if len(parts) == 1 and not _is_list(parts[0]):
            found = self._rows.quick_keys(parts, len(counts))
            return None if found is None else (np.repeat(found[0], counts), found[1])
        return self._rows.quick_keys(_rows_of(parts, counts), int(counts.sum()))


def _kind(value: Any, kind_of: Callable[[Any], Any | None]) -> Any | None:
    """Return the type of a column of the first message; None if it has none."""
    if not isinstance(value, list):
        return kind_of(_as_loaded(value))
    # One fraction decides the type: a column of fractions also accepts whole numbers.
    present = [one for one in value if one is not None]
    one = next((one for one in present if isinstance(one, float)), present[0] if present else None)
    inner = kind_of(_as_loaded(one)) if value else None
    return None if inner is None else pa.list_(inner)


def _as_loaded(value: Any) -> Any:
    """Return a value in the form of ``json_text.load``, as far as types depend on it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return JsonNumber(value)
    return value


def _value_type(value: Any) -> Any:
    is_text = isinstance(value, str) and not isinstance(value, JsonNumber)
    return pa.string() if is_text else pa.float64()


def _leaves(tree: dict[str, Any]) -> Iterator[Any]:
    for kind in tree.values():
        if isinstance(kind, dict):
            yield from _leaves(kind)
        else:
            yield kind.value_type if pa.types.is_list(kind) else kind


def _is_list(column: Any) -> bool:
    return bool(pa.types.is_list(column.type))


def _counts(columns: Sequence[Any]) -> type_i64 | None:
    """Return the rows of each message; None if its arrays differ in length or one is missing."""
    found: type_i64 | None = None
    for column in columns:
        if column is None or not _is_list(column):
            continue
        if column.null_count:
            return None
        counts = pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
        if found is not None and not np.array_equal(found, counts):
            return None
        found = counts
    return found


def _rows_of(columns: Sequence[Any], counts: type_i64) -> list[Any]:
    """Return columns with a value for each row; a message's single value is repeated."""
    messages = pa.array(np.repeat(np.arange(len(counts)), counts))
    return [c.flatten() if _is_list(c) else c.take(messages) for c in columns]


def _spread(
    column: Any, counts: type_i64, convert: Callable[[Any], npt.NDArray[_T] | None]
) -> npt.NDArray[_T] | None:
    """Return one value for each row; a message's single value is repeated."""
    if _is_list(column):
        return convert(column.flatten())
    values = convert(column)
    return None if values is None else np.repeat(values, counts)
