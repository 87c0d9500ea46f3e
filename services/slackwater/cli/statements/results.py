"""SELECT: reads the results of a query. The condition is an expression over its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.cli.common import warn
from slackwater.cli.statements.output import RowOutput
from slackwater.client.follow import Client
from slackwater.codec.results import format_time, parse_time
from slackwater.deployment.shaping import did_you_mean
from slackwater.model.deployment import Deployment
from slackwater.model.names import Names
from slackwater.primitives.expression_text import ExpressionError
from slackwater.primitives.expressions import Predicate, compile_predicate
from slackwater.runtime.logs.cluster import Cluster
from slackwater.sql.statements import Select, place_of
from slackwater.sql.tokens import SqlError

_TIMES: Final = ("window_start", "window_end", "stime")
_WIDTHS: Final = {**dict.fromkeys(_TIMES, 27), "kind": 9}


@dataclass(frozen=True, slots=True)
class CheckedSelect:
    """A SELECT of columns that are there."""

    query: str
    columns: tuple[str, ...]
    figures: tuple[str, ...]
    where: Predicate | None
    changes: bool
    has_window: bool


def columns_of(deployment: Deployment, query: str, *, changes: bool = False) -> tuple[str, ...]:
    """Return the columns of a query's results; of changes also their kind and what is missing."""
    has_window = deployment.queries[query].window is not None
    begin = ("window_start", "window_end", "key") if has_window else ("stime", "key")
    figures = deployment.fields_of(query)
    return ("kind", *begin, *figures, "missing") if changes else (*begin, *figures)


def check_select(select: Select, deployment: Deployment) -> CheckedSelect:
    """Return a SELECT of a query of this deployment.

    Raises:
        SqlError: it names a column that the query does not have, or its condition is wrong.
    """
    known = columns_of(deployment, select.query, changes=select.changes)
    for name, at in select.columns:
        if name not in known:
            reason = f"{select.query} has no column {name!r}, only {', '.join(known[:20])}"
            raise SqlError(at, reason + did_you_mean(name, known))
    figures = deployment.fields_of(select.query)
    where = None
    if select.where is not None:
        text, at = select.where
        try:
            times = [name for name in known if name in _TIMES and name not in figures]
            where = compile_predicate(text, [*figures, *times], times=times)
        except ExpressionError as error:
            raise SqlError(place_of(at, error.position, select.tokens), error.reason) from None
    columns = tuple(name for name, _ in select.columns) or known
    if select.changes and "kind" not in columns:
        columns = ("kind", *columns)
    has_window = deployment.queries[select.query].window is not None
    return CheckedSelect(select.query, columns, figures, where, select.changes, has_window)


def print_select(select: CheckedSelect, cluster: Cluster, names: Names, output: RowOutput) -> None:
    """Print the exact results that are there; of changes each as it comes, until Ctrl-C."""
    client = Client(cluster, prefix=names.prefix)
    if not select.changes:
        table = client.table(select.query, kinds="exact")
        output.rows(select.columns, exact_rows(select, table))
        return
    kinds = {"stable", "tentative", "undo", "rec_done"}
    with client.follow(select.query, kinds=kinds) as records, suppress(KeyboardInterrupt):
        output.stream(select.columns, changed_rows(select, records), _WIDTHS)
    if records.repeats:
        warn(f"slackwater: {records.repeats} results occurred twice; please report this")


def exact_rows(select: CheckedSelect, table: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table that the condition keeps; ``table`` is that of ``Client.table``."""
    if not table.num_rows:
        return
    if select.where is not None:
        columns = {
            name: _doubles(table.column(name))
            for name in select.where.reads
            if name in table.column_names
        }
        keys = table.column("key").to_pylist()
        table = table.filter(pa.array(_mask(select.where, columns, keys)))
    there = {*table.column_names}
    values = [
        _values(name, table.column(name)) if name in there else [None] * table.num_rows
        for name in select.columns
    ]
    yield from zip(*values, strict=True)


def changed_rows(
    select: CheckedSelect, records: Iterator[Mapping[str, Any]] | Any
) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each record: of the results, those that the condition keeps.

    ``undo`` and ``rec_done`` have no key: they are about all rows of these windows.
    """
    for record in records:
        row: dict[str, Any] = {
            "kind": record["kind"],
            "window_start": record.get("window_start", record.get("undo_from")),
            "window_end": record.get("window_end", record.get("undo_to")),
            "stime": record.get("stime"),
            "key": record.get("key"),
            "missing": ",".join(record.get("missing", ())),
        }
        for field, figures in record.get("fields", {}).items():
            if select.has_window:
                row |= {f"{field}_{name}": value for name, value in figures.items()}
            else:
                row[field] = figures
        if select.where is not None and record["kind"] in {"stable", "tentative"}:
            reads = ((name, row.get(name)) for name in select.where.reads)
            columns = {n: np.array([_double(n, v)], float) for n, v in reads}
            if not _mask(select.where, columns, [row["key"]])[0]:
                continue
        yield tuple(row.get(name) for name in select.columns)


def _mask(where: Predicate, columns: Mapping[str, Any], keys: Sequence[str]) -> Any:
    numbers: dict[str, int] = {}
    index = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    return where.mask(columns, index, list(numbers))


def _double(name: str, value: Any) -> float:
    """Return the value of a row as a number; a time, which is a text there, in us."""
    if value is None:
        return np.nan
    return float(parse_time(value) if name in _TIMES and isinstance(value, str) else value)


def _doubles(column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(values), values, np.nan)


def _values(name: str, column: Any) -> list[Any]:
    if name in _TIMES:
        return [
            None if at is None else format_time(at) for at in column.cast(pa.int64()).to_pylist()
        ]
    found: list[Any] = column.to_pylist()
    return found
