"""Compiles the SQL expressions of ``where`` and ``select`` into predicates and projections.

They are Filter and Map of DPC (section 2.2, from Borealis) as vectorised functions of columns.
sqlglot parses the text, and its tree is translated into the smaller one of ``expression_tree``. The
translation accepts an explicit list of constructs, and rejects others that sqlglot can parse: the
meaning of an expression must be the same in all replicas and after an upgrade of the library.
sqlglot's own executor is not used, since it evaluates row by row in Python.

Each expression has one of three types, determined by the translation: number, truth value, or
string (``key`` and literals, which can only be compared). NULL has any type. String literals are in
single quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
from sqlglot import expressions as exp

from slackwater.model.text_codes import text_code
from slackwater.primitives import expression_tree as tree
from slackwater.primitives.expression_text import (
    KEY,
    ExpressionError,
    no_field,
    parse,
    quotes_advised,
)
from slackwater.primitives.expression_tree import F64, ColumnBatch, Number, Truth

EXPRESSION_DEPTH_MAX: Final = 120
"""Depth of the tree; a sum of n terms has depth n. Each level takes two Python stack frames."""

_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on readings; ``reads`` has the fields that it uses, except ``key``."""

    text: str
    root: Truth
    reads: frozenset[str]

    def mask(
        self, columns: Mapping[str, F64], key_index: npt.NDArray[np.integer], keys: Sequence[str]
    ) -> npt.NDArray[np.bool_]:
        """Return the mask of the readings for which the condition is TRUE, not FALSE or NULL.

        Columns have finite values or NaN (NULL); a field without a column is NULL in all readings.
        """
        with np.errstate(all="ignore"):
            true = self.root.masks(ColumnBatch(columns, key_index, keys, {})).true
        return _for_all(true, len(key_index))

    def masks(
        self, columns: Mapping[str, F64], key_index: npt.NDArray[np.integer], keys: Sequence[str]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return the masks of the readings for which it is TRUE, and FALSE; elsewhere it is NULL.

        Arguments as of ``mask``.
        """
        with np.errstate(all="ignore"):
            found = self.root.masks(ColumnBatch(columns, key_index, keys, {}))
        return _for_all(found.true, len(key_index)), _for_all(found.false, len(key_index))


@dataclass(frozen=True, slots=True)
class Projection:
    """New fields computed from others, in order; ``reads`` has the fields that it uses."""

    fields: tuple[tuple[str, Number], ...]
    reads: frozenset[str]

    def apply(
        self, columns: Mapping[str, F64], key_index: npt.NDArray[np.integer], keys: Sequence[str]
    ) -> dict[str, F64]:
        """Return the new columns; a column that is only renamed is not copied."""
        batch = ColumnBatch(columns, key_index, keys, {})
        with np.errstate(all="ignore"):
            results = {name: number.values(batch) for name, number in self.fields}
        return {name: _for_all(values, len(key_index)) for name, values in results.items()}


def _for_all(values: npt.NDArray[_Scalar] | _Scalar, readings: int) -> npt.NDArray[_Scalar]:
    """Return one value for each reading; broadcasts a scalar."""
    if isinstance(values, np.ndarray) and values.ndim:
        return values
    return np.full(readings, values)


def compile_predicate(
    text: str, fields: Sequence[str], texts: Collection[str] = (), times: Collection[str] = ()
) -> Predicate:
    """Compile a condition over ``fields`` and ``key``; raises ``ExpressionError``.

    ``texts``: the fields that may be compared with texts. Their columns have codes. ``times``:
    those that are times, compared with ISO 8601 texts. Their columns are us since 1970.
    """
    translator = _Translator(fields, texts, times)
    with quotes_advised(text, fields):
        root = translator.truth(parse(text, fields))
    return Predicate(text, root, frozenset(translator.reads))


def compile_projection(select: Sequence[tuple[str, str]], fields: Sequence[str]) -> Projection:
    """Compile number expressions over ``fields`` and ``key``; raises ``ExpressionError``."""
    translator = _Translator(fields)
    numbers = []
    for name, text in select:
        with quotes_advised(text, fields):
            numbers.append((name, translator.number(parse(text, fields))))
    return Projection(tuple(numbers), frozenset(translator.reads))


_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Pow: "power",
}
_FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.Neg: "-",
    exp.Abs: "abs",
    exp.Floor: "floor",
    exp.Ceil: "ceil",
    exp.Sqrt: "sqrt",
    exp.Ln: "ln",
    exp.Exp: "exp",
}
_EXTREMES: Final[dict[type[exp.Expr], str]] = {exp.Least: "least", exp.Greatest: "greatest"}


@dataclass(frozen=True, slots=True)
class _Text:
    """A string, which can only be compared: a literal, or the key (None)."""

    literal: str | None


@dataclass(frozen=True, slots=True)
class _Time:
    """A time, which can only be compared with another one or with a text."""

    column: tree.Column


class _Null:
    """The literal NULL, whose type the context determines."""


_Any = Number | Truth | _Text | _Time | _Null


class _Translator:
    """Translates sqlglot's tree; checks names, types, and that no other construct occurs."""

    def __init__(
        self, fields: Sequence[str], texts: Collection[str] = (), times: Collection[str] = ()
    ) -> None:
        self._fields = frozenset(fields)
        self._texts = frozenset(texts)
        self._times = frozenset(times)
        self._known = [*fields, KEY]
        self._depth = 0
        self._handlers = self._table()
        self.reads: set[str] = set()

    def number(self, node: exp.Expr) -> Number:
        return _as_number(self._any(node), node)

    def truth(self, node: exp.Expr) -> Truth:
        return _as_truth(self._any(node), node)

    def _any(self, node: exp.Expr) -> _Any:
        self._depth += 1
        if self._depth > EXPRESSION_DEPTH_MAX:
            raise _refusal(f"is nested more than {EXPRESSION_DEPTH_MAX} deep", node)
        handler = self._handlers.get(type(node))
        if handler is None:
            raise _refusal(f"{_named(node)} is not supported", node)
        found = handler(node)
        self._depth -= 1
        return found

    def _table(self) -> dict[type[exp.Expr], Callable[[exp.Expr], _Any]]:
        return {
            exp.Paren: self._paren,
            exp.Literal: self._literal,
            exp.Column: self._column,
            exp.Null: lambda _: _Null(),
            exp.Boolean: lambda node: tree.Known(bool(node.this)),
            **dict.fromkeys(_FUNCTIONS, self._call),
            **dict.fromkeys(_ARITHMETIC, self._arithmetic),
            **dict.fromkeys(_EXTREMES, self._extreme),
            **dict.fromkeys(_COMPARISONS, self._comparison),
            exp.Round: self._round,
            exp.And: lambda node: tree.And(self._terms(node)),
            exp.Or: lambda node: tree.Or(self._terms(node)),
            exp.Not: lambda node: tree.Not(self.truth(node.this)),
            exp.Is: self._is_null,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Case: self._case,
        }

    def _paren(self, node: exp.Expr) -> _Any:
        _only(node, "this")
        return self._any(node.this)

    def _literal(self, node: exp.Expr) -> _Any:
        if node.args.get("is_string"):
            return _Text(str(node.this))
        if not _NUMBER.fullmatch(node.this):
            raise _refusal(f"{node.this!r} is not a number", node)
        value = np.float64(node.this)
        if not np.isfinite(value):
            raise _refusal(f"{node.this} is too large for a double", node)
        return tree.Constant(value)

    def _column(self, node: exp.Expr) -> _Any:
        _only(node, "this")
        if not isinstance(node.this, exp.Identifier):
            raise _refusal(f"{_named(node.this)} is not supported", node)
        name = str(node.this.this)
        if name == KEY:
            return _Text(None)
        if name not in self._fields:
            raise _refusal(no_field(name, self._known), node)
        self.reads.add(name)
        return _Time(tree.Column(name)) if name in self._times else tree.Column(name)

    def _call(self, node: exp.Expr) -> _Any:
        _only(node, "this")
        return tree.Call(_FUNCTIONS[type(node)], self.number(node.this))

    def _arithmetic(self, node: exp.Expr) -> _Any:
        _only(node, "this", "expression")
        left, right = self.number(node.this), self.number(node.args["expression"])
        return tree.Arithmetic(_ARITHMETIC[type(node)], left, right)

    def _extreme(self, node: exp.Expr) -> _Any:
        _only(node, "this", "expressions", "ignore_nulls")
        operands = [node.this, *node.expressions]
        return tree.Extreme(_EXTREMES[type(node)], tuple(self.number(n) for n in operands))

    def _round(self, node: exp.Expr) -> _Any:
        _only(node, "this", "decimals")
        operand, decimals = self.number(node.this), node.args.get("decimals")
        if decimals is None:
            return tree.Round(operand, 0)
        written = str(decimals.this) if isinstance(decimals, exp.Literal) else ""
        if not re.fullmatch(r"[0-9]|1[0-5]", written, re.ASCII):
            raise _refusal("the decimals of round must be a whole number from 0 to 15", decimals)
        return tree.Round(operand, int(written))

    def _terms(self, node: exp.Expr) -> tuple[Truth, ...]:
        kind, terms = type(node), []
        while type(node) is kind:
            terms.append(node.args["expression"])
            node = node.this
        terms.append(node)
        return tuple(self.truth(term) for term in reversed(terms))

    def _comparison(self, node: exp.Expr) -> _Any:
        _only(node, "this", "expression")
        left, right = self._any(node.this), self._any(node.args["expression"])
        return self._compare(node, _COMPARISONS[type(node)], left, right)

    def _compare(self, node: exp.Expr, op: str, left: _Any, right: _Any) -> Truth:
        match left, right:
            case (_Null(), _) | (_, _Null()):
                return tree.Known(None)
            case _Text(None), _Text(str() as literal):
                return tree.KeyCompare(op, literal)
            case _Text(str() as literal), _Text(None):
                return tree.KeyCompare(_MIRRORED[op], literal)
            case _Time(column), _Text(str() as literal):
                return tree.Compare(op, column, _instant(literal, node))
            case _Text(str() as literal), _Time(column):
                return tree.Compare(op, _instant(literal, node), column)
            case _Time(column), _Time(other):
                return tree.Compare(op, column, other)
            case _Text(a), _Text(b):
                return tree.Known(tree.KEY_COMPARISONS[op](a or "", b or ""))
        if op in ("=", "<>"):
            left, right = self._coded(left, right), self._coded(right, left)
        if isinstance(left, Number) and isinstance(right, Number):
            return tree.Compare(op, left, right)
        raise _refusal(f"{_type_of(left)} cannot be compared with {_type_of(right)}", node)

    def _coded(self, found: _Any, other: _Any) -> _Any:
        """Return a literal that is compared with a field of texts as its code."""
        of_texts = isinstance(other, tree.Column) and other.name in self._texts
        if of_texts and isinstance(found, _Text) and found.literal is not None:
            return tree.Constant(np.float64(text_code(found.literal)))
        return found

    def _is_null(self, node: exp.Expr) -> _Any:
        _only(node, "this", "expression")
        if not isinstance(node.args["expression"], exp.Null):
            raise _refusal("IS is supported only in IS NULL and IS NOT NULL", node)
        operand = self._any(node.this)
        if isinstance(operand, _Null | _Text):
            return tree.Known(isinstance(operand, _Null))
        if isinstance(operand, _Time):
            return tree.NumberIsNull(operand.column)
        if isinstance(operand, Number):
            return tree.NumberIsNull(operand)
        return tree.TruthIsNull(operand)

    def _between(self, node: exp.Expr) -> _Any:
        _only(node, "this", "low", "high")
        operand = self._repeated(node.this)
        low, high = self._any(node.args["low"]), self._any(node.args["high"])
        at_least = self._compare(node, ">=", operand, low)
        return tree.And((at_least, self._compare(node, "<=", operand, high)))

    def _in(self, node: exp.Expr) -> _Any:
        _only(node, "this", "expressions")
        if not node.expressions:
            raise _refusal("IN needs a list of values in brackets", node)
        operand = self._any(node.this)
        choices = [self._any(choice) for choice in node.expressions]
        if isinstance(operand, Number):
            choices = [self._coded(choice, operand) for choice in choices]
            numbers = zip(choices, node.expressions, strict=True)
            return tree.In(operand, tuple(_as_number(found, at) for found, at in numbers))
        literals = [c.literal for c in choices if isinstance(c, _Text) and c.literal is not None]
        nulls = [c for c in choices if isinstance(c, _Null)]
        is_key = isinstance(operand, _Text) and operand.literal is None
        if is_key and len(literals) + len(nulls) == len(choices):
            return tree.KeyIn(frozenset(literals), bool(nulls))
        return tree.Or(tuple(self._compare(node, "=", operand, choice) for choice in choices))

    def _case(self, node: exp.Expr) -> _Any:
        _only(node, "this", "ifs", "default")
        operand = None if node.args.get("this") is None else self._repeated(node.this)
        conditions: list[Truth] = []
        results: list[tuple[_Any, exp.Expr]] = []
        for branch in node.args["ifs"]:
            _only(branch, "this", "true")
            if operand is None:
                conditions.append(self.truth(branch.this))
            else:
                value = self._any(branch.this)
                conditions.append(self._compare(branch.this, "=", operand, value))
            results.append((self._any(branch.args["true"]), branch.args["true"]))
        default = node.args.get("default")
        results.append((_Null(), node) if default is None else (self._any(default), default))
        if all(isinstance(found, _Null) for found, _ in results):
            return _Null()
        if any(isinstance(found, Truth) for found, _ in results):
            *truths, otherwise = [_as_truth(found, at) for found, at in results]
            return tree.TruthCase(tuple(zip(conditions, truths, strict=True)), otherwise)
        *numbers, last = [_as_number(found, at) for found, at in results]
        return tree.NumberCase(tuple(zip(conditions, numbers, strict=True)), last)

    def _repeated(self, node: exp.Expr) -> _Any:
        found = self._any(node)
        if isinstance(found, Number) and not isinstance(found, tree.Column | tree.Constant):
            return tree.Once(found)
        return found


def _instant(text: str, node: exp.Expr) -> tree.Constant:
    """Return a time as us since 1970; without a zone it is UTC, as results show times."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _refusal(f"{text!r} is no time: write '2026-01-31T12:00:00Z'", node) from None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    return tree.Constant(np.float64(since // timedelta(microseconds=1)))


def _as_number(found: _Any, node: exp.Expr) -> Number:
    if isinstance(found, _Null):
        return tree.Constant(tree.NULL)
    if isinstance(found, Number):
        return found
    raise _refusal(f"{_named(node)} is {_type_of(found)} where a number is needed", node)


def _as_truth(found: _Any, node: exp.Expr) -> Truth:
    if isinstance(found, _Null):
        return tree.Known(None)
    if isinstance(found, Truth):
        return found
    raise _refusal(f"{_named(node)} is {_type_of(found)} where a condition is needed", node)


def _only(node: exp.Expr, *allowed: str) -> None:
    """Reject a node that has arguments other than ``allowed``: constructs not supported here."""
    for name, value in node.args.items():
        if name in allowed or value is None or value is False:
            continue
        if not (isinstance(value, list) and not value):
            raise _refusal(f"{_named(node)} with {name} is not supported", node)


def _type_of(found: _Any) -> str:
    match found:
        case _Null():
            return "NULL"
        case _Text():
            return "a string"
        case _Time():
            return "a time"
        case Number():
            return "a number"
    return "a condition"


def _named(node: exp.Expr) -> str:
    match node:
        case exp.Column():
            return f"{node.name!r}"
        case exp.Literal():
            return f"'{node.this}'" if node.args.get("is_string") else str(node.this)
        case exp.Anonymous():
            return f"the function {node.name}()"
        case exp.Func():
            return f"the function {node.sql_name()}()"
        case exp.Query():
            return "a subquery"
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__)
    return f"the construct {words.upper()}"


def _refusal(reason: str, node: exp.Expr) -> ExpressionError:
    starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
    return ExpressionError(reason, min(starts) + 1 if starts else None)
