"""Parses one aggregate of SQL, as in ``avg(temperature * 2)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from slackwater.deployment.shaping import did_you_mean
from slackwater.primitives.aggregates import AGGREGATES, PARAMETERISED
from slackwater.sql.cursor import TokenCursor
from slackwater.sql.tokens import Tok

QUANTILE: Final = "quantile"
TOP: Final = "top"
_PARAMETERS: Final = {QUANTILE: "quantile(temperature, 0.99)", TOP: "top(temperature, 3)"}


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate of an expression: its token, the text of what it is of, the name of its column.

    ``start`` is the first token of the expression. ``of_all``: it is of all fields, ``COLUMNS(*)``.
    """

    function: Tok
    text: str
    start: Tok
    figure: str
    form: str
    of_all: bool

    def shown(self) -> str:
        """Return the call as in messages."""
        return self.form % short(self.text)


def is_aggregate_call(items: TokenCursor) -> bool:
    """Whether an aggregate with its bracket is next."""
    is_known = items.tok.text.lower() in {*AGGREGATES, QUANTILE, TOP}
    return items.tok.kind == "word" and is_known and items.ahead().is_symbol("(")


def aggregate_call(items: TokenCursor) -> AggregateCall:
    """Parse a function and its arguments, and step behind them.

    Raises:
        SqlError: there is no such aggregate, or an argument is wrong.
    """
    tok = items.tok
    function = tok.text.lower()
    known = [*AGGREGATES, QUANTILE, TOP]
    if function not in known or function in PARAMETERISED.keys() - {TOP}:
        reason = f"there is no aggregate {tok.text}, only {', '.join(known)}"
        raise items.error(reason + did_you_mean(function, known))
    items.take()
    items.take()
    if items.symbol("*"):
        raise items.error(
            f"{function} is of a field that has values: {function}(temperature), or of all:"
            f" {function}(COLUMNS(*))",
            tok,
        )
    if items.is_modifier("DISTINCT"):
        raise items.error("the number of different values is distinct(temperature)")
    of_all = _all_columns(items)
    start = items.tok
    text = "COLUMNS(*)" if of_all else items.expression(f"what {function} is of", (",",))[0]
    parameter = None
    if items.symbol(","):
        if function not in {QUANTILE, TOP}:
            raise items.error(f"{function} has one argument")
        parameter = items.take()
    elif function in {QUANTILE, TOP}:
        raise items.unexpected(f"the parameter is missing: {_PARAMETERS[function]}")
    items.expect_symbol(")")
    figure, form = _figure(items, function, parameter)
    return AggregateCall(tok, text, start, figure, form, of_all)


def _all_columns(items: TokenCursor) -> bool:
    """Step behind ``COLUMNS(*)``, if it is next."""
    is_all = items.tok.is_word("COLUMNS") and items.ahead().is_symbol("(")
    if is_all and items.ahead(2).is_symbol("*") and items.ahead(3).is_symbol(")"):
        for _ in range(4):
            items.take()
        return True
    return False


def _figure(items: TokenCursor, function: str, parameter: Tok | None) -> tuple[str, str]:
    """Return the name of an aggregate in columns, and its form in SQL with %s for its argument."""
    if parameter is None:
        return function, f"{function}(%s)"
    value = [parameter.text] if function == QUANTILE else parameter.text
    word = "quantiles" if function == QUANTILE else TOP
    if parameter.kind != "number":
        raise items.error(f"the parameter is a number: {_PARAMETERS[function]}", parameter)
    try:
        names = PARAMETERISED[word].names(value)
    except ValueError as error:
        raise items.error(str(error).replace("quantiles:", "quantile:"), parameter) from None
    # All numbers of a top are one column of SELECT.
    figure = names[0] if function == QUANTILE else f"{TOP}{len(names)}"
    return figure, f"{function}(%s, {parameter.text})"


def as_declared(figure: str) -> Any:
    """Return an aggregate as the deployment file has it."""
    if figure in {*AGGREGATES}:
        return figure
    if figure.startswith(TOP):
        return {TOP: figure.removeprefix(TOP)}
    return {"quantiles": [f"0.{figure[1:]}"]}


def merged(aggregates: list[Any]) -> list[Any]:
    """Return the aggregates with neighbouring quantiles as one entry."""
    found: list[Any] = []
    for each in aggregates:
        before = found[-1] if found else None
        if (
            isinstance(each, dict)
            and isinstance(before, dict)
            and "quantiles" in each.keys() & before
        ):
            found[-1] = {"quantiles": [*before["quantiles"], *each["quantiles"]]}
        else:
            found.append(each)
    return found


def plain_name(text: str, tok: Tok) -> str | None:
    """Return the field that an expression is, if it is no more than a name."""
    is_one = tok.is_name and text in {tok.text, f'"{tok.text}"'}
    return tok.text if is_one else None


def short(text: str) -> str:
    """Return the beginning of a text, for messages."""
    return text if len(text) <= 60 else text[:57] + "..."
