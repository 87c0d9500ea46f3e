"""Evaluates ``where`` and ``select`` with SQLite, as a reference for every expression.

The pipeline evaluates expressions over numpy columns. Here the same trees are evaluated by a
database with long-tested NULL, three-valued logic and CASE. Its arithmetic is not that of doubles
(``%`` and ``/`` of integers, overflow to infinity), so arithmetic is done by functions of a line or
two. The parser is the pipeline's (``primitives.expressions``); tests compare it with a reference of
their own.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Final

from slackwater.primitives.expression_sql import KEY_COLUMN, SqlWriter
from slackwater.primitives.expressions import compile_predicate, compile_projection

Row = tuple[str, tuple[float | None, ...]]


def _strict(function: Callable[..., float]) -> Callable[..., float | None]:
    """Wrap a function: NULL if an argument is NULL or the result is undefined or infinite."""

    def call(*args: float | None) -> float | None:
        if any(arg is None for arg in args):
            return None
        try:
            value = float(function(*args))
        except (ValueError, OverflowError, ZeroDivisionError):
            return None
        return value if math.isfinite(value) else None

    return call


def _round(x: float, digits: float = 0.0) -> float:
    """Round half away from zero on the decimal as written, as in SQL."""
    unit = Decimal(1).scaleb(-int(digits))
    with localcontext(prec=400):
        return float(Decimal(repr(x)).quantize(unit, ROUND_HALF_UP))


def _least(*args: float | None) -> float | None:
    """Return the smallest non-null argument, as in Spark."""
    return min((arg for arg in args if arg is not None), default=None)


def _greatest(*args: float | None) -> float | None:
    return max((arg for arg in args if arg is not None), default=None)


FUNCTIONS: Final[dict[str, Callable[..., float | None]]] = {
    "+": _strict(lambda a, b: a + b),
    "-": _strict(lambda a, b: a - b),
    "*": _strict(lambda a, b: a * b),
    "/": _strict(lambda a, b: a / b),
    "%": _strict(math.fmod),
    "power": _strict(math.pow),
    "negate": _strict(lambda a: -a),
    "abs": _strict(abs),
    "floor": _strict(math.floor),
    "ceil": _strict(math.ceil),
    "sqrt": _strict(math.sqrt),
    "ln": _strict(math.log),
    "exp": _strict(math.exp),
    "round": _strict(_round),
    "least": _least,
    "greatest": _greatest,
}
_CALLED: Final = {function: f"sw_{i}" for i, function in enumerate(FUNCTIONS)}


class _Writer(SqlWriter):
    """Writes values as parameters: SQLite parses number literals only to within one ulp."""

    def __init__(self, fields: Sequence[str]) -> None:
        super().__init__(fields)
        self.values: dict[float | str, int] = {}

    def _number(self, value: float) -> str:
        return self._parameter(value)

    def _string(self, literal: str) -> str:
        return self._parameter(literal)

    def _null(self, is_number: bool) -> str:
        del is_number
        return "NULL"

    def _computed(self, function: str, operands: Sequence[str]) -> str:
        return f"{_CALLED[function]}({', '.join(operands)})"

    def _rounded(self, operand: str, digits: int) -> str:
        return f"{_CALLED['round']}({operand}, {digits})"

    def _parameter(self, value: float | str) -> str:
        return f"?{self.values.setdefault(value, len(self.values) + 1)}"


def evaluate(
    where: str | None,
    select: Sequence[tuple[str, str]] | None,
    names: Sequence[str],
    rows: Sequence[Row],
) -> Iterator[tuple[int, Sequence[float | None]]]:
    """Yield (index, fields) of the rows that ``where`` keeps, in order."""
    if where is None and select is None:
        yield from ((i, values) for i, (_, values) in enumerate(rows))
        return
    columns = [f"c{i}" for i in range(len(names))]
    statement, values = _statement(where, select, names)
    with closing(sqlite3.connect(":memory:")) as db:
        for name, function in FUNCTIONS.items():
            db.create_function(_CALLED[name], -1, function, deterministic=True)
        declared = "".join(f", {c} REAL" for c in columns)
        db.execute(f"CREATE TABLE readings (id INTEGER PRIMARY KEY, {KEY_COLUMN} TEXT{declared})")
        db.executemany(
            f"INSERT INTO readings VALUES ({', '.join('?' * (2 + len(columns)))})",
            ((i, key, *cells) for i, (key, cells) in enumerate(rows)),
        )
        for index, *fields in db.execute(statement, values):
            yield index, [None if v is None else float(v) for v in fields]


def _statement(
    where: str | None, select: Sequence[tuple[str, str]] | None, names: Sequence[str]
) -> tuple[str, list[float | str]]:
    """Return the query over the table of readings, and its parameters."""
    writer = _Writer(names)
    condition = ""
    if where is not None:
        # Which fields are texts has been checked: here any of them may be one.
        condition = f" WHERE {writer.write(compile_predicate(where, names, names).root)}"
    if select is None:
        chosen = [f"c{i}" for i in range(len(names))]
    else:
        chosen = [writer.write(number) for _, number in compile_projection(select, names).fields]
    # Each table of the chain adds a column. MATERIALIZED keeps SQLite from inlining it.
    tables = ["readings", *(f"t_{name}" for name, _ in writer.lets)]
    chain = ", ".join(
        f"{table} AS MATERIALIZED (SELECT *, {text} AS {name} FROM {before})"
        for table, before, (name, text) in zip(tables[1:], tables, writer.lets, strict=False)
    )
    with_ = f"WITH {chain} " if chain else ""
    listed = ", ".join(["id", *chosen])
    statement = f"{with_}SELECT {listed} FROM {tables[-1]}{condition} ORDER BY id"
    return statement, list(writer.values)
