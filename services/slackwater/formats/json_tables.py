"""Batches of JSON messages as pyarrow's tables: their types, and columns of them as values.

A table has the types of the batch's first message. pyarrow refuses a message with others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pjson

from slackwater.formats.columns import TIME_CHARS_MAX, numbers
from slackwater.formats.json_text import JsonNumber, has_large_exponent, has_long_number
from slackwater.model.meanings import Meanings
from slackwater.model.message_paths import Step
from slackwater.model.records import type_f64

INTEGER: Final = re.compile(r"-?[0-9]+", re.ASCII)


def read_table(text: bytes, schema: Any) -> Any | None:
    """Return pyarrow's table of objects that are separated by line ends; None if it refuses."""
    try:
        return pjson.read_json(
            pa.BufferReader(text),
            pjson.ReadOptions(use_threads=False, block_size=len(text) + 1),
            pjson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def is_no_decimal(text: bytes) -> bool:
    """Whether pyarrow might parse a decimal that the definition refuses; string values count too.

    For example, pyarrow reads a string of three hundred zeros as 0; the definition refuses it.
    """
    return has_large_exponent(text) or has_long_number(text, TIME_CHARS_MAX)


def quick_values(column: Any, meanings: Meanings) -> type_f64 | None:
    """Convert a column of numbers or texts; None if the definition might refuse one of them."""
    if pa.types.is_string(column.type):
        texts = pc.utf8_trim_whitespace(pc.fill_null(column, ""))
        values, bad = numbers(texts, ".", meanings)
        return None if bad.any() else values
    if meanings.is_text and column.null_count < len(column):
        return None
    numbers_: type_f64 = column.to_numpy(zero_copy_only=False)
    finite = int(np.count_nonzero(np.isfinite(numbers_)))
    return meanings.of_column(numbers_) if finite == len(numbers_) - column.null_count else None


def column_of(table: Any, path: Sequence[Step]) -> Any:
    """Return the column at a path of names, in one array."""
    column = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def grow(tree: dict[str, Any], path: Sequence[Step], kind: Any) -> bool:
    """Insert a type at a path of names; False if another type is there or the value has none."""
    if kind is None:
        return False
    *outer, name = path
    if not isinstance(name, str):
        return False
    for step in outer:
        if not isinstance(step, str):
            return False
        inner: Any = tree.setdefault(step, {})
        if not isinstance(inner, dict):
            return False
        tree = inner
    return bool(tree.setdefault(name, kind) == kind)


def fields_of(tree: dict[str, Any]) -> list[Any]:
    """Return the fields of a tree that ``grow`` made."""
    return [
        pa.field(name, pa.struct(fields_of(kind)) if isinstance(kind, dict) else kind)
        for name, kind in tree.items()
    ]


def key_type(value: Any) -> Any | None:
    """Return the type of a column that begins with this key; None if it has none."""
    if isinstance(value, JsonNumber):
        return pa.int64() if INTEGER.fullmatch(value) else None
    return pa.string() if isinstance(value, str) else None


def texts_of(columns: Sequence[Any]) -> list[Any] | None:
    """Return columns of ``key_type`` as texts; None if a value is absent."""
    if any(column.null_count for column in columns):
        return None
    return [
        column if pa.types.is_string(column.type) else pc.cast(column, pa.string())
        for column in columns
    ]
