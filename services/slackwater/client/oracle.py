"""``where`` and ``select`` by SQLite: the second opinion on every expression.

The pipeline evaluates expressions over numpy columns. Here the same text goes to a database that
has had NULL, three-valued logic and CASE right for twenty years. Where SQLite's arithmetic is not
that of doubles (``%`` and ``/`` of whole numbers, overflow to infinity), the operator is replaced
by a function of a line or two before SQLite sees it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import sqlglot
from sqlglot import expressions as exp

Row = tuple[str, tuple[float | None, ...]]


def _strict(function: Callable[..., float]) -> Callable[..., float | None]:
    """NULL in, NULL out; and what is undefined or infinite is NULL."""

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
    """Half away from zero on the decimal as it is written, as SQL has it."""
    unit = Decimal(1).scaleb(-int(digits))
    with localcontext(prec=400):
        return float(Decimal(repr(x)).quantize(unit, ROUND_HALF_UP))


def _least(*args: float | None) -> float | None:
    """The smallest that is known, as in Spark."""
    return min((arg for arg in args if arg is not None), default=None)


def _greatest(*args: float | None) -> float | None:
    return max((arg for arg in args if arg is not None), default=None)


FUNCTIONS: Final[dict[str, Callable[..., float | None]]] = {
    "sw_add": _strict(lambda a, b: a + b),
    "sw_sub": _strict(lambda a, b: a - b),
    "sw_mul": _strict(lambda a, b: a * b),
    "sw_div": _strict(lambda a, b: a / b),
    "sw_mod": _strict(math.fmod),
    "sw_abs": _strict(abs),
    "sw_round": _strict(_round),
    "sw_floor": _strict(math.floor),
    "sw_ceil": _strict(math.ceil),
    "sw_sqrt": _strict(math.sqrt),
    "sw_ln": _strict(math.log),
    "sw_exp": _strict(math.exp),
    "sw_power": _strict(math.pow),
    "sw_least": _least,
    "sw_greatest": _greatest,
}
NODES: Final[dict[type[exp.Expression], str]] = {
    exp.Add: "sw_add",
    exp.Sub: "sw_sub",
    exp.Mul: "sw_mul",
    exp.Div: "sw_div",
    exp.Mod: "sw_mod",
    exp.Abs: "sw_abs",
    exp.Round: "sw_round",
    exp.Floor: "sw_floor",
    exp.Ceil: "sw_ceil",
    exp.Sqrt: "sw_sqrt",
    exp.Ln: "sw_ln",
    exp.Exp: "sw_exp",
    exp.Pow: "sw_power",
    exp.Least: "sw_least",
    exp.Greatest: "sw_greatest",
}


def evaluate(
    where: str | None,
    select: Sequence[tuple[str, str]] | None,
    names: Sequence[str],
    rows: Sequence[Row],
) -> Iterator[tuple[int, Sequence[float | None]]]:
    """(index, fields) of the rows that ``where`` keeps, in order."""
    if where is None and select is None:
        yield from ((i, values) for i, (_, values) in enumerate(rows))
        return
    columns = [f"c{i}" for i in range(len(names))]
    chosen = columns if select is None else [translate(text, names) for _, text in select]
    condition = "" if where is None else f" WHERE {translate(where, names)}"
    with sqlite3.connect(":memory:") as db:
        for name, function in FUNCTIONS.items():
            db.create_function(name, -1, function, deterministic=True)
        declared = "".join(f", {c} REAL" for c in columns)
        db.execute(f"CREATE TABLE readings (id INTEGER PRIMARY KEY, key_ TEXT{declared})")
        db.executemany(
            f"INSERT INTO readings VALUES ({', '.join('?' * (2 + len(columns)))})",
            ((i, key, *values) for i, (key, values) in enumerate(rows)),
        )
        listed = "".join(f", {c}" for c in chosen)
        for index, *values in db.execute(f"SELECT id{listed} FROM readings{condition} ORDER BY id"):
            yield index, [None if v is None else float(v) for v in values]
    db.close()


def translate(text: str, names: Sequence[str]) -> str:
    """The expression as SQLite is to compute it, over columns ``key_``, ``c0``, ``c1``, ..."""

    def replace(node: Any) -> Any:
        if isinstance(node, exp.Column):
            name = node.name
            # SQLite does not tell T from t; positions do.
            return exp.column("key_" if name == "key" else f"c{names.index(name)}")
        if isinstance(node, exp.Literal) and not node.is_string:
            return exp.Literal.number(repr(float(node.this)))
        function = NODES.get(type(node))
        if function is None:
            return node
        return exp.Anonymous(this=function, expressions=_arguments(node))

    tree = sqlglot.parse_one(text)
    # A node that was replaced is not looked into again, so from the leaves to the root.
    for node in reversed(list(tree.bfs())):
        new = replace(node)
        if new is not node:
            if node.parent is None:
                tree = new
            else:
                node.replace(new)
    return tree.sql(dialect="sqlite")


def _arguments(node: exp.Expression) -> list[Any]:
    """The operands in their order, whatever sqlglot calls them."""
    operands: list[Any] = []
    for name in ("this", "expression", "expressions", "decimals"):
        value = node.args.get(name)
        if isinstance(value, list):
            operands += value
        elif value is not None:
            operands.append(value)
    return [operand.copy() for operand in operands]
