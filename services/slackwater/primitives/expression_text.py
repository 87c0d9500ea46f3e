"""Parses ``where`` and ``select`` with sqlglot; any identifier may be the name of a field.

Names are case-sensitive. SQL reserves hundreds of words, and each library a different set.
Therefore no name is passed to the parser: the token of a field's name is replaced by the field's
position. Only ``RESERVED_WORDS`` keep their meaning. A field with such a name must be written in
double quotes, which are allowed for every name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import ClassVar, Final

import sqlglot
from sqlglot import Token, Tokenizer, TokenType
from sqlglot import expressions as exp
from sqlglot.errors import ParseError, TokenError

EXPRESSION_CHARS_MAX: Final = 8_192
EXPRESSION_NODES_MAX: Final = 1_000
EXPRESSION_BRACKETS_MAX: Final = 24
"""Nesting of brackets and CASEs; each level takes some 25 stack frames in the parser."""

NAMES_SHOWN_MAX: Final = 20
"""Field names listed in an error."""

KEY: Final = "key"
RESERVED_WORDS: Final = frozenset(
    {"AND", "OR", "NOT", "IS", "IN", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END"}
    | {"NULL", "TRUE", "FALSE"}
)
_VALUES: Final = (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.NUMBER)


class ExpressionError(ValueError):
    """Raised when a text is not a valid expression; ``position`` counts characters from 1."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} (at character {position})")
        self.reason = reason
        self.position = position


class _Tokenizer(Tokenizer):
    """sqlglot's tokenizer without commands, whose arguments it would not tokenize."""

    COMMANDS: ClassVar[set[TokenType]] = set()


def parse(text: str, fields: Sequence[str]) -> exp.Expr:
    """Parse a text with sqlglot; ``fields`` and ``key`` are its columns.

    Raises ``ExpressionError`` for any other text.
    """
    if len(text) > EXPRESSION_CHARS_MAX:
        raise ExpressionError(f"is longer than {EXPRESSION_CHARS_MAX} characters")
    try:
        tokens = _Tokenizer().tokenize(text)
        _check_tokens(tokens)
        names = _name_by_position(tokens, [*fields, KEY])
        trees = sqlglot.Dialect.get_or_raise(None).parser().parse_into(exp.Condition, tokens, text)
    except TokenError as error:
        raise ExpressionError("has an unclosed quote or a character that SQL lacks") from error
    except ParseError as error:
        raise _of_parse_error(error) from error
    except RecursionError as error:
        raise ExpressionError("is nested too deeply") from error
    parsed = trees[0] if len(trees) == 1 else None
    if parsed is None:
        raise ExpressionError("is empty")
    for nodes, node in enumerate(parsed.walk(), start=1):
        if nodes > EXPRESSION_NODES_MAX:
            raise ExpressionError(f"has more than {EXPRESSION_NODES_MAX} parts")
        if isinstance(node, exp.Identifier) and node.this in names:
            node.set("this", names[node.this])
    return parsed


def _name_by_position(tokens: list[Token], names: Sequence[str]) -> dict[str, str]:
    """Replace the names among the tokens by positions; return the names by position."""
    position = {name: f"#{i}" for i, name in enumerate(names)}
    for token, after in zip_longest(tokens, tokens[1:]):
        quoted = token.token_type == TokenType.IDENTIFIER
        if quoted and token.text not in position:
            raise ExpressionError(no_field(token.text, names), _at(token))
        if token.token_type in _VALUES or token.text not in position:
            continue
        is_function = after is not None and after.token_type == TokenType.L_PAREN
        if quoted or not (is_function or token.text.upper() in RESERVED_WORDS):
            token.token_type, token.text = TokenType.IDENTIFIER, position[token.text]
    return {at: name for name, at in position.items()}


@contextmanager
def quotes_advised(text: str, fields: Sequence[str]) -> Iterator[None]:
    """Add advice to errors in texts that may use a reserved word as the name of a field."""
    try:
        yield
    except ExpressionError as error:
        words = set(re.findall(r"\w+", text))
        for name in fields:
            if name.upper() in RESERVED_WORDS and name in words:
                advice = f'{error.reason}; write the field {name} in double quotes: "{name}"'
                raise ExpressionError(advice, error.position) from error
        raise


def no_field(name: str, known: Sequence[str]) -> str:
    """Return the text of the error about an unknown field."""
    shown = list(dict.fromkeys(known))
    more = f" and {len(shown) - NAMES_SHOWN_MAX} more" if len(shown) > NAMES_SHOWN_MAX else ""
    return f"there is no field {name!r}, only {', '.join(shown[:NAMES_SHOWN_MAX])}{more}"


def _check_tokens(tokens: Sequence[Token]) -> None:
    depth = 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise ExpressionError("has a semicolon: only one expression is allowed", _at(token))
        if token.comments:
            raise ExpressionError("has a comment: write a - -b with a space", _at(token))
        if token.token_type in (TokenType.L_PAREN, TokenType.CASE):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.END):
            depth -= 1
        if depth > EXPRESSION_BRACKETS_MAX:
            reason = f"nests brackets more than {EXPRESSION_BRACKETS_MAX} deep"
            raise ExpressionError(reason, _at(token))


def _at(token: Token) -> int:
    return int(token.start) + 1


def _of_parse_error(error: ParseError) -> ExpressionError:
    if not error.errors:
        return ExpressionError("is not an SQL expression")
    first = error.errors[0]
    found = first.get("highlight") or "its end"
    before = first.get("start_context") or ""
    return ExpressionError(f"is not an SQL expression: unexpected {found!r}", len(before) + 1)
