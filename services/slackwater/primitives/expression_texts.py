"""Checks how an expression uses fields that are texts: only to compare them with texts.

The columns of such fields have codes, numbers without a meaning. A sum or an order of them would be
a number too, so a use other than a comparison must be refused before anything is computed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlglot import expressions as exp

from slackwater.primitives.expression_text import ExpressionError, parse


def check_texts(text: str, fields: Sequence[str], texts: Collection[str]) -> None:
    """Raise ``ExpressionError`` if a field of ``texts`` is used as a number."""
    if not texts:
        return
    for node in parse(text, fields).walk():
        if not isinstance(node, exp.Column) or node.name not in texts:
            continue
        within = node.parent
        while isinstance(within, exp.Paren):
            within = within.parent
        if not _compares(within, node):
            right = f"{node.name} = 'ok', <> and IN compare it, IS NULL finds its absence"
            raise ExpressionError(f"{node.name!r} is a text and no number: {right}")


def _compares(within: exp.Expr | None, column: exp.Column) -> bool:
    if isinstance(within, exp.Is):
        return True
    if isinstance(within, exp.EQ | exp.NEQ):
        others = [within.this, within.args["expression"]]
    elif isinstance(within, exp.In):
        if within.this.find(exp.Column) is not column:
            return False
        others = [column, *within.expressions]
    else:
        return False
    literals = [
        other for other in others if isinstance(other, exp.Literal) and other.args.get("is_string")
    ]
    return len(literals) == len(others) - 1
