"""Writes an expression tree as SQL, for verification in another engine.

Rehearsal and audit compare the pipeline's results with those of SQLite and Spark. ``expressions``
alone defines the meaning of a text; this module writes its tree for another engine. Columns are
named by position (``c0``, ``c1``, ...), because engines reserve different words, and some do not
distinguish ``T`` from ``t``. Literals and functions are written by a subclass for each engine.

NULL, three-valued logic and CASE have the same meaning in all engines. Arithmetic differs
(whole-number division, overflow), so each subclass defines how its engine computes with doubles.

A subexpression that occurs several times (``Once``) or is deeply nested becomes a column of its own
in ``lets``. Otherwise the text could have a length of 2^depth, and SQLite's parser fails beyond 35
nested calls.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from slackwater.primitives import expression_tree as tree
from slackwater.primitives.expression_tree import Number, Truth

HEIGHT_MAX: Final = 8
"""Levels of the tree that are written as one nested text."""

KEY_COLUMN: Final = "key_"


class _Sql(NamedTuple):
    text: str
    height: int


class SqlWriter(ABC):
    """Writes trees over ``fields``: columns ``c0``, ``c1``, ... in this order, and ``key_``.

    The texts may refer to the additional columns ``lets``, each defined over those before it.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._columns = {name: f"c{i}" for i, name in enumerate(fields)}
        self._written: dict[tree.Once, _Sql] = {}
        self.lets: list[tuple[str, str]] = []

    def write(self, node: Number | Truth) -> str:
        """Return the expression as SQL."""
        return self._sql(node).text

    @abstractmethod
    def _number(self, value: float) -> str:
        """Return a finite number as SQL."""

    @abstractmethod
    def _string(self, literal: str) -> str:
        """Return a string literal as SQL."""

    @abstractmethod
    def _null(self, is_number: bool) -> str:
        """Return NULL as a number or as a truth value."""

    @abstractmethod
    def _computed(self, function: str, operands: Sequence[str]) -> str:
        """Return a function of ``ARITHMETIC``, ``FUNCTIONS`` or ``EXTREMES`` as SQL.

        Its value must be NULL where the function is undefined.
        """

    @abstractmethod
    def _rounded(self, operand: str, digits: int) -> str:
        """Return ``operand`` rounded half away from zero, as SQL."""

    def _sql(self, node: Number | Truth) -> _Sql:
        if isinstance(node, tree.Once):
            if node not in self._written:
                written = self._sql(node.operand)
                self._written[node] = self._let(written.text) if written.height else written
            return self._written[node]
        written = self._node(node)
        return self._let(written.text) if written.height > HEIGHT_MAX else written

    def _let(self, text: str) -> _Sql:
        name = f"o{len(self.lets)}"
        self.lets.append((name, text))
        return _Sql(name, 0)

    def _node(self, node: Number | Truth) -> _Sql:
        match node:
            case tree.Constant(value):
                return _Sql(
                    self._null(True) if math.isnan(value) else self._number(float(value)), 0
                )
            case tree.Column(name):
                return _Sql(self._columns[name], 0)
            case tree.Arithmetic(op, left, right):
                return self._compute(op, left, right)
            case tree.Call(function, operand):
                return self._compute("negate" if function == "-" else function, operand)
            case tree.Extreme(function, operands):
                return self._compute(function, *operands)
            case tree.Round(operand, digits):
                inner = self._sql(operand)
                return _Sql(self._rounded(inner.text, digits), inner.height + 1)
            case tree.NumberCase(branches, otherwise) | tree.TruthCase(branches, otherwise):
                when = " WHEN {} THEN {}" * len(branches)
                parts = (part for branch in branches for part in branch)
                return self._form(f"CASE{when} ELSE {{}} END", *parts, otherwise)
        return self._truth(node)

    def _truth(self, node: Number | Truth) -> _Sql:
        match node:
            case tree.Known(None):
                return _Sql(self._null(False), 0)
            case tree.Known(value):
                return _Sql("(1 = 1)" if value else "(1 = 0)", 0)
            case tree.Compare(op, left, right):
                return self._form(f"({{}} {op} {{}})", left, right)
            case tree.KeyCompare(op, literal):
                return _Sql(f"({KEY_COLUMN} {op} {self._string(literal)})", 0)
            case tree.KeyIn(literals, or_null):
                among = [*map(self._string, sorted(literals)), *["NULL"] * or_null]
                return _Sql(f"({KEY_COLUMN} IN ({', '.join(among)}))", 0)
            case tree.In(operand, choices):
                among = ["{}"] * len(choices)
                return self._form(f"({{}} IN ({', '.join(among)}))", operand, *choices)
            case tree.And(terms):
                return self._form(f"({' AND '.join(['{}'] * len(terms))})", *terms)
            case tree.Or(terms):
                return self._form(f"({' OR '.join(['{}'] * len(terms))})", *terms)
            case tree.Not(term):
                return self._form("(NOT {})", term)
            case tree.NumberIsNull(operand) | tree.TruthIsNull(operand):
                return self._form("({} IS NULL)", operand)
        raise AssertionError(f"no SQL for {type(node).__name__}")

    def _compute(self, function: str, *operands: Number) -> _Sql:
        parts = [self._sql(operand) for operand in operands]
        return _Sql(self._computed(function, [p.text for p in parts]), _above(parts))

    def _form(self, form: str, *nodes: Number | Truth) -> _Sql:
        parts = [self._sql(node) for node in nodes]
        return _Sql(form.format(*(p.text for p in parts)), _above(parts))


def _above(parts: Iterable[_Sql]) -> int:
    return 1 + max(part.height for part in parts)
