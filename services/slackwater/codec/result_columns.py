"""Decodes many result lines at once, into columns: the input of a table of answers.

A line has three or four hundred bytes, so a million of them as one object each cost more than all
else that is done with them. Arrow's reader of JSON has no object for a line. It is laxer than
``parse_result``, though: it accepts text that is not UTF-8, several objects in a line and a time
without a zone, takes what is absent for null, and a text of nulls makes it crash. So a chunk of
lines is decoded by it only if each line begins as an object, and the columns are used only if they
are what a root writes. Otherwise each line of the chunk is decoded alone, and what is not a result
is skipped and reported.

Rejected: orjson over a chunk, and a list for each column. It is as strict as ``parse_result``, but
makes all the objects. Rejected: the schema of the query's definition. The fields of a stream are in
a deployment file that a reader of results does not have, and another generation may have others
(rule-29). So the names of the figures are those of the first and last row of a chunk.

Pure, except that skipped lines are reported by a callback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from slackwater.codec.results import COUNT_MAX, check_result, parse_result, parse_time
from slackwater.model.errors import MalformedRecordError

Table: TypeAlias = Any
"""A ``pyarrow.Table``; pyarrow has no types."""
Skipped: TypeAlias = Callable[[int, str], None]
"""Called with the index of a line that is not a result, and the reason."""

TIMES: Final = ("window_start", "window_end", "due_at", "emitted_at")
LINES: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("epoch", pa.int64()),
        ("generation", pa.int64()),
        ("is_boundary", pa.bool_()),
        ("tentative", pa.bool_()),
        *((name, pa.int64()) for name in TIMES),
        ("missing", pa.string()),
        ("lost", pa.int64()),
        ("key", pa.string()),
        ("stime", pa.int64()),
        ("keys", pa.int64()),
        ("windows", pa.int64()),
        ("skipped", pa.bool_()),
    ]
)
"""What is decoded of each line of a stable or a tentative topic, besides its figures.

Times are us since the epoch. ``missing`` is a text, names joined by a comma; ``lost`` a sum over
streams. ``key`` is null in a boundary; ``keys``, ``windows`` are null in a row; ``stime`` is null
but in a row of a query without a window.
"""
FIGURE: Final = "figure:"
"""Begins the names of columns of figures, ``figure:temperature_avg``: a field may be ``seq``."""

_UTC: Final = pa.timestamp("us", "UTC")
_DECLARED: Final = pa.schema(
    [
        ("query", pa.string()),
        ("part", pa.int64()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("epoch", pa.int64()),
        ("generation", pa.int64()),
        *((name, _UTC) for name in TIMES),
        ("stime", _UTC),
        ("missing", pa.list_(pa.string())),
        ("key", pa.string()),
        ("label", pa.string()),
        ("keys", pa.int64()),
        ("windows", pa.int64()),
        ("skipped", pa.bool_()),
    ]
)
_ALWAYS: Final = ("query", "part", "seq", "kind", "epoch", *TIMES, "missing")
_BLOCK_BYTES_MIN: Final = 1 << 20
_BOUNDARY: Final = b'"kind":"boundary"'
_LOST: Final = b'"lost":'


class _UnusualError(Exception):
    """The lines are not all as a root writes them: decode them one by one."""


def result_columns(
    lines: Sequence[bytes], query: str, part: int, skipped: Skipped, where: str = ""
) -> Table:
    """Decode lines of a part's stable or tentative topic, in their order.

    Returns a table with the columns of ``LINES``, and one column ``figure:<name>`` for each figure
    in a line: ``<field>_<aggregate>``, or ``<field>`` of a query without a window. A count is
    int64, the other figures are float64; a null is a missing value. Lines that are no rows or
    boundaries of this query and part are left out, and ``skipped`` is called for each.
    """
    try:
        return _in_bulk(lines, query, part)
    except _UnusualError:
        return _one_by_one(lines, query, part, skipped, where)


def figures_of(table: Table) -> tuple[str, ...]:
    """Return the names of the figures of a table of lines, without ``figure:``."""
    return tuple(n.removeprefix(FIGURE) for n in table.column_names if n.startswith(FIGURE))


def joined(tables: Sequence[Table]) -> Table:
    """Append tables of lines. The newest lines give the order of the figures.

    A figure that a line does not have is null there.
    """
    newest_first = (name for table in reversed(tables) for name in table.column_names)
    names = dict.fromkeys((*LINES.names, *newest_first))
    merged = pa.concat_tables([LINES.empty_table(), *tables], promote_options="default")
    return merged.select(list(names))


def _in_bulk(lines: Sequence[bytes], query: str, part: int) -> Table:
    if not lines:
        return LINES.empty_table()
    if not all(line.startswith(b"{") for line in lines):
        raise _UnusualError
    samples = _samples(lines)
    found = _read_json(lines, samples)
    if found.num_rows != len(lines) or any(found[name].null_count for name in _ALWAYS):
        raise _UnusualError
    is_boundary = pc.equal(found["kind"], "boundary")
    label = pc.if_else(is_boundary, found["label"], found["kind"])
    tentative = pc.equal(label, "tentative")
    is_row, has_stime = pc.invert(is_boundary), pc.is_valid(found["stime"])
    generation = pc.fill_null(found["generation"], 0)
    names = pc.list_flatten(found["missing"])
    as_written = (
        pc.equal(found["query"], query),
        pc.equal(found["part"], part),
        pc.or_kleene(tentative, pc.equal(label, "stable")),
        pc.equal(is_row, pc.is_valid(found["key"])),
        pc.equal(is_row, pc.is_valid(found["fields"])),
        pc.equal(is_boundary, pc.is_valid(found["keys"])),
        pc.equal(is_boundary, pc.is_valid(found["windows"])),
        pc.equal(has_stime, is_row) if pc.any(has_stime).as_py() else pc.invert(has_stime),
        *(_is_count(found[name]) for name in ("seq", "epoch", "keys", "generation")),
        _is_count(pc.subtract(found["windows"], 1)),
        pc.is_in(pc.filter(generation, is_row), pa.array([*samples], pa.int64())),
    )
    if names.null_count or not all(_is_true(column) for column in as_written):
        raise _UnusualError
    columns = {
        "seq": found["seq"],
        "epoch": found["epoch"],
        "generation": generation,
        "is_boundary": is_boundary,
        "tentative": tentative,
        **{name: found[name].cast(pa.int64()) for name in TIMES},
        "missing": pc.binary_join(found["missing"], ","),
        "lost": _lost(lines),
        "key": found["key"],
        "stime": found["stime"].cast(pa.int64()),
        "keys": found["keys"],
        "windows": found["windows"],
        "skipped": pc.fill_null(found["skipped"], False),
    }
    table = pa.table(columns, LINES)
    for name, figure in _figures(found["fields"]):
        table = table.append_column(FIGURE + name, figure)
    return table


def _samples(lines: Sequence[bytes]) -> dict[int, Mapping[str, Any]]:
    """Return the ``fields`` of the last row and of the first one, by generation.

    All rows of a generation have the same figures. A chunk with a third generation is unusual.
    """
    found: dict[int, Mapping[str, Any]] = {}
    for order in (reversed(lines), lines):
        for line in order:
            if _BOUNDARY in line:
                continue
            try:
                row = orjson.loads(line)
                fields, generation = row["fields"], row.get("generation", 0)
            except (ValueError, KeyError, TypeError) as error:
                raise _UnusualError from error
            if not isinstance(fields, dict) or not isinstance(generation, int):
                raise _UnusualError
            found.setdefault(generation, fields)
            break
    return found


def _read_json(lines: Sequence[bytes], samples: Mapping[int, Mapping[str, Any]]) -> Table:
    """Read lines with the columns that are declared, and the figures of the samples."""
    fields: dict[str, dict[str, None] | None] = {}
    for sample in samples.values():
        for name, of in sample.items():
            if isinstance(of, dict):
                fields[name] = {**(fields.get(name) or {}), **dict.fromkeys(of)}
            else:
                fields[name] = None
    figures = [(name, _field_type(aggregates)) for name, aggregates in fields.items()]
    text = b"\n".join(lines)
    try:
        text.decode()
        found = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(
                block_size=max(_BLOCK_BYTES_MIN, 2 * max(map(len, lines)) + 2)
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=_DECLARED.append(pa.field("fields", pa.struct(figures))),
                # Inference of the type of what is nested deeply overflows the stack.
                unexpected_field_behavior="ignore",
            ),
        )
    except (UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise _UnusualError from error
    return found.combine_chunks()


def _field_type(aggregates: Mapping[str, None] | None) -> Any:
    if aggregates is None:
        return pa.float64()
    return pa.struct([(n, pa.int64() if n == "count" else pa.float64()) for n in aggregates])


def _is_true(column: Any) -> bool:
    return not column.null_count and pc.all(column, min_count=0).as_py() is True


def _is_count(column: Any) -> Any:
    """Return whether each number is a count; a null is one that is not there."""
    fits = pc.and_(pc.greater_equal(column, 0), pc.less(column, COUNT_MAX))
    return pc.fill_null(fits, True)


def _lost(lines: Sequence[bytes]) -> Any:
    """Return the readings that retention deleted, over all streams: a member of few lines."""
    lost = np.zeros(len(lines), np.int64)
    for index, line in enumerate(lines):
        if _LOST in line:
            try:
                lost[index] = sum(orjson.loads(line).get("lost", {}).values())
            except (ValueError, TypeError, AttributeError, OverflowError) as error:
                raise _UnusualError from error
    return pa.array(lost)


def _figures(column: Any) -> Iterator[tuple[str, Any]]:
    """Yield the figures with their names, in the order of the fields."""
    fields = column.combine_chunks()
    for field, of in zip(fields.type, fields.flatten(), strict=True):
        if not pa.types.is_struct(of.type):
            yield field.name, of
            continue
        for aggregate, figure in zip(of.type, of.flatten(), strict=True):
            if pa.types.is_int64(figure.type) and not _is_true(_is_count(figure)):
                raise _UnusualError
            yield f"{field.name}_{aggregate.name}", figure


def _one_by_one(
    lines: Sequence[bytes], query: str, part: int, skipped: Skipped, where: str
) -> Table:
    records: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    for index, line in enumerate(lines):
        try:
            record = _record(line, query, part, where)
        except MalformedRecordError as error:
            skipped(index, error.reason)
            continue
        fields, figures_of_it = record
        records.append(fields | {name: figure for name, (figure, _) in figures_of_it.items()})
        figures = {name: of for name, (_, of) in figures_of_it.items()} | figures  # newest first
    schema = pa.schema([*LINES, *(pa.field(*each) for each in figures.items())])
    return pa.Table.from_pylist(records, schema)


def _record(
    line: bytes, query: str, part: int, where: str
) -> tuple[dict[str, Any], dict[str, _Figure]]:
    """Decode a line: its columns of ``LINES``, and its figures.

    Raises:
        MalformedRecordError: it is no row or boundary of this query and part.
    """
    found = parse_result(line, where)
    check_result(found, query, part, where)
    kind = found["kind"]
    if kind not in ("stable", "tentative", "boundary"):
        raise MalformedRecordError(where, f"a {kind} in a topic of rows")
    is_boundary, generation = kind == "boundary", found.get("generation", 0)
    if not isinstance(generation, int) or not 0 <= generation < COUNT_MAX:
        raise MalformedRecordError(where, f"generation {generation!r}")
    try:
        columns = {
            **{name: found[name] for name in ("seq", "epoch")},
            "generation": generation,
            "is_boundary": is_boundary,
            "tentative": "tentative" in (kind, found.get("label")),
            **{name: _time(found[name]) for name in TIMES},
            "missing": ",".join(found["missing"]),
            "lost": sum(found.get("lost", {}).values()),
            "key": None if is_boundary else found["key"],
            "stime": _time(found["stime"]) if "stime" in found else None,
            "keys": found["keys"] if is_boundary else None,
            "windows": found["windows"] if is_boundary else None,
            "skipped": found.get("skipped") is True,
        }
        return columns, {} if is_boundary else _figures_of_one(found["fields"])
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MalformedRecordError(where, f"not a row: {error}") from error


def _time(text: str) -> int:
    us = parse_time(text)
    if not -(2**63) <= us < 2**63:
        raise ValueError(f"{text} is beyond 64 bits")
    return us


_Figure: TypeAlias = tuple[int | float | None, Any]
"""A figure, and the type of its column."""


def _figures_of_one(fields: Mapping[str, Any]) -> dict[str, _Figure]:
    found: dict[str, _Figure] = {}
    for field, of in fields.items():
        if isinstance(of, dict):
            for aggregate, figure in of.items():
                is_count = aggregate == "count"
                found[f"{FIGURE}{field}_{aggregate}"] = _number_of(figure, counts=is_count)
        else:
            found[FIGURE + field] = _number_of(of, counts=False)
    return found


def _number_of(figure: object, *, counts: bool) -> _Figure:
    of = pa.int64() if counts else pa.float64()
    if figure is None:
        return None, of
    if isinstance(figure, bool) or not isinstance(figure, int | float):
        raise ValueError(f"{figure!r} is not a number")
    if counts and not (isinstance(figure, int) and 0 <= figure < COUNT_MAX):
        raise ValueError(f"{figure!r} is not a count")
    return figure if counts else float(figure), of
