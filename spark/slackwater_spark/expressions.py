"""Translates expressions of ``where`` and ``select`` into Spark columns.

Spark differs from the pipeline in two ways. ``floor`` and ``ceil`` return a long in Spark, so they
are not applied above 2^52, where a double has no fraction. And a result that is undefined, or
exceeds the range of a double, must be NULL, which Spark ensures for division only. "x if it is
finite" is expressed by a lambda over an array of one element, which evaluates x only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from slackwater.primitives.expression_sql import SqlWriter
from slackwater.primitives.expression_tree import Number, Truth

_FINITE: Final = (
    "filter(array({}), _v_ -> _v_ BETWEEN -1.7976931348623157E308D AND 1.7976931348623157E308D)[0]"
)
_COMPLETE: Final = (
    "transform(array({}), _v_ -> if(abs(_v_) < 4503599627370496D, {}(_v_) * 1D, _v_))[0]"
)
_OPERATORS: Final = ("+", "-", "*", "/", "%")


class _Writer(SqlWriter):
    def _number(self, value: float) -> str:
        return f"cast('{value!r}' as double)"

    def _string(self, literal: str) -> str:
        return f"cast(X'{literal.encode().hex()}' as string)"

    def _null(self, is_number: bool) -> str:
        return f"cast(NULL as {'double' if is_number else 'boolean'})"

    def _computed(self, function: str, operands: Sequence[str]) -> str:
        match function:
            case "negate":
                return f"(- {operands[0]})"
            case "abs":
                return f"abs({operands[0]})"
            case "floor" | "ceil":
                return _COMPLETE.format(operands[0], function)
            case "least" | "greatest":
                # Spark requires two or more arguments.
                return f"{function}({', '.join([*operands, operands[0]])})"
        if function in _OPERATORS:
            return _FINITE.format(f"({operands[0]} {function} {operands[1]})")
        return _FINITE.format(f"{function}({', '.join(operands)})")

    def _rounded(self, operand: str, digits: int) -> str:
        return f"round({operand}, {digits})"


def with_columns(
    frame: DataFrame, fields: Sequence[str], trees: Sequence[Number | Truth]
) -> tuple[DataFrame, list[Column]]:
    """Return the column of each tree, and ``frame`` with the columns that these need.

    ``frame`` has ``c0``, ``c1``, ... for the fields, and ``key_``.
    """
    writer = _Writer(fields)
    texts = [writer.write(tree) for tree in trees]
    for name, text in writer.lets:
        frame = frame.select("*", sf.expr(text).alias(name))
    return frame, [sf.expr(text) for text in texts]
