"""Reads tokens one after another: words, names, values of WITH, intervals and expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from slackwater.deployment.shaping import did_you_mean
from slackwater.deployment.yaml_lines import YAML_DEPTH_MAX, YAML_ENTRIES_MAX
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.sql.tokens import Source, SqlError, Tok

INTERVAL_UNITS: Final = {
    "MICROSECOND": "us",
    "MILLISECOND": "ms",
    "SECOND": "s",
    "MINUTE": "m",
    "HOUR": "h",
    "DAY": "d",
    "WEEK": "w",
    "MONTH": "mo",
}
"""Units of intervals, with those of durations in the deployment file."""
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_OPERATORS: Final = ("AND", "OR", "NOT", "IS", "IN", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE")
_CLAUSES: Final = (
    *("FROM", "WHERE", "GROUP", "HAVING", "EMIT", "WITH", "AS", "WINDOW", "ORDER", "LIMIT"),
    *("UNION", "PARTITION", "QUALIFY"),
)
"""Words that end an expression, where an operand has just ended."""
INTERVAL_FORM: Final = "write INTERVAL '10' SECOND (or MINUTE, HOUR, DAY, WEEK, MONTH)"


class TokenCursor:
    """The tokens of one statement, the last of which is an ``end``."""

    def __init__(self, source: Source, toks: Sequence[Tok]) -> None:
        self._source = source
        self._toks = toks
        self.at = 0
        self.spots: dict[Place, int] = {}
        self.tokens: dict[int, list[tuple[int, int]]] = {}
        """By the place of an expression: of each token the place in its text, and in the source."""

    @property
    def tok(self) -> Tok:
        """The next token."""
        return self._toks[self.at]

    def ahead(self, count: int = 1) -> Tok:
        """Return a later token, or the last one."""
        return self._toks[min(self.at + count, len(self._toks) - 1)]

    def take(self) -> Tok:
        """Return the next token, and step behind it; the last one remains."""
        tok = self.tok
        if tok.kind != "end":
            self.at += 1
        return tok

    def part(self, first: int, last: int) -> TokenCursor:
        """Return a cursor over tokens of this one, by their numbers."""
        end = self._toks[last].start
        part = TokenCursor(self._source, [*self._toks[first:last], Tok("end", "", end, end)])
        part.tokens = self.tokens
        return part

    def error(self, reason: str, tok: Tok | None = None) -> SqlError:
        """Return an error at a token, the next one by default."""
        return SqlError((self.tok if tok is None else tok).start, reason)

    def unexpected(self, wanted: str) -> SqlError:
        """Return the error for a token in place of what is wanted."""
        return self.error(f"{self.shown()} is not expected here: {wanted}")

    def shown(self) -> str:
        """Return the next token as in messages."""
        tok = self.tok
        if tok.kind == "end":
            return "the end of the statement"
        text = self._source.text[tok.start : tok.end]
        return text if len(text) <= 60 else text[:57] + "..."

    def keywords(self, *words: str) -> bool:
        """Step behind these words, if they are the next tokens."""
        if all(self.ahead(i).is_word(word) for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def expect(self, *words: str, wanted: str = "") -> None:
        """Step behind these words, or raise an error."""
        for word in words:
            if not self.keywords(word):
                raise self.unexpected(wanted or f"{word} is missing")

    def symbol(self, symbol: str) -> bool:
        """Step behind this symbol, if it is the next token."""
        if self.tok.is_symbol(symbol):
            self.at += 1
            return True
        return False

    def expect_symbol(self, symbol: str, wanted: str = "") -> None:
        """Step behind this symbol, or raise an error."""
        if not self.symbol(symbol):
            raise self.unexpected(wanted or f"{symbol} is missing")

    def name(self, what: str) -> str:
        """Return a name, and step behind it; one with ``-`` needs double quotes."""
        tok = self.tok
        if not tok.is_name:
            raise self.unexpected(f"{what} is missing")
        self.take()
        after = self.tok
        if tok.kind == "word" and after.is_symbol("-") and after.start == tok.end:
            last = self.ahead()
            text = self._source.text[tok.start : last.end]
            if last.start == after.end and last.kind in {"word", "number"}:
                raise self.error(f'a name with - needs double quotes: "{text}"', tok)
        return tok.text

    def end(self, wanted: str = "a statement ends with ;") -> None:
        """Raise an error unless all tokens have been read."""
        if self.tok.kind != "end":
            raise self.unexpected(wanted)

    def interval(self) -> str:
        """Return an interval as a duration of the deployment file, as in ``10s`` or ``1mo``."""
        if not self.keywords("INTERVAL"):
            raise self.unexpected(INTERVAL_FORM)
        number = self.take()
        unit = self.take()
        text = unit.text.upper() if unit.kind == "word" else ""
        short = INTERVAL_UNITS.get(text) or INTERVAL_UNITS.get(text.removesuffix("S"))
        if number.kind != "string" or not _NUMBER.fullmatch(number.text):
            raise self.error(f"an interval has its number in quotes: {INTERVAL_FORM}", number)
        if short is None:
            meant = did_you_mean(text, list(INTERVAL_UNITS))
            raise self.error(f"an interval has a unit{meant or ': ' + INTERVAL_FORM}", unit)
        return number.text + short

    def options(self, place: Place = (), depth: int = 0) -> dict[str, Any]:
        """Return the values in brackets, ``(a = 1, b = 'x')``, and step behind them.

        Their places are added to ``spots``, below ``place``.
        """
        if depth > YAML_DEPTH_MAX:
            raise self.error(f"values are nested more than {YAML_DEPTH_MAX} levels deep")
        self.expect_symbol("(", "values are in brackets, (name = value, ...)")
        found: dict[str, Any] = {}

        def one() -> None:
            tok = self.tok
            if not tok.is_name and tok.kind != "string":
                raise self.unexpected("write name = value; a list is in [square brackets]")
            if tok.text in found:
                raise self.error(f"{tok.text!r} is defined twice")
            if len(found) == YAML_ENTRIES_MAX:
                raise self.error(f"has more than {YAML_ENTRIES_MAX} values")
            self.take()
            self.spots.setdefault((*place, tok.text), tok.start)
            self.expect_symbol("=", "write name = value; a list is in [square brackets]")
            found[tok.text] = self.value((*place, tok.text), depth + 1)

        self._several(one, ")")
        return found

    def value(self, place: Place, depth: int = 0) -> Any:
        """Return a value of WITH, as the YAML file would have it: all scalars are text."""
        tok = self.tok
        if tok.is_symbol("("):
            return self.options(place, depth)
        if tok.is_symbol("["):
            return self._list(place, depth)
        if tok.kind == "string":
            return self.take().text
        if tok.is_word("TRUE", "FALSE"):
            return self.take().text.lower()
        if tok.is_word("INTERVAL"):
            raise self.error("in WITH a duration is a text, as in '100ms'")
        sign = self.take().text if tok.is_symbol("-", "+") else ""
        if self.tok.kind == "number":
            return sign + self.take().text
        raise self.unexpected("a value is a 'text', a number, TRUE, FALSE, (a = 1) or [1, 2]")

    def _list(self, place: Place, depth: int) -> list[Any]:
        if depth > YAML_DEPTH_MAX:
            raise self.error(f"values are nested more than {YAML_DEPTH_MAX} levels deep")
        self.take()
        found: list[Any] = []

        def one() -> None:
            start = self.tok.start
            self.spots.setdefault((*place, len(found)), start)
            found.append(self.value((*place, len(found)), depth + 1))
            if isinstance(found[-1], str):  # ``fields = ['a']`` becomes a mapping
                self.spots.setdefault((*place, found[-1]), start)

        self._several(one, "]")
        return found

    def _several(self, one: Callable[[], None], closing: str) -> None:
        if self.symbol(closing):
            return
        while True:
            one()
            if self.symbol(closing):
                return
            self.expect_symbol(",", f", or {closing} is missing")

    def expression(
        self,
        what: str,
        stops: Sequence[str] = (),
        named: Callable[[TokenCursor], str | None] | None = None,
    ) -> tuple[str, int]:
        """Return the text of an expression and its place, and step behind it.

        What ``named`` recognises at the beginning of a cursor, and steps behind, is replaced by the
        name that it returns.

        It ends at one of the symbols ``stops`` outside of brackets, or where a clause begins: at
        one of ``_CLAUSES`` behind an operand. Elsewhere such a word is the name of a field. A line
        break or a comment in it becomes a blank, as in the deployment file.
        """
        first = self.at
        opened: list[Tok] = []
        while self.tok.kind != "end":
            tok = self.tok
            if not opened and (tok.is_symbol(*stops) or self._is_clause(first)):
                break
            if tok.is_symbol("(") or tok.is_word("CASE"):
                opened.append(tok)
            elif tok.is_symbol(")") or tok.is_word("END"):
                if not opened:
                    break
                opened.pop()
            self.take()
        if opened:
            closing = ")" if opened[-1].is_symbol("(") else "END"
            raise self.error(f"{closing} is missing", opened[-1])
        if self.at == first:
            raise self.unexpected(f"{what} is missing")
        text = self._text(first, self.at, {} if named is None else self._named(first, named))
        return text, self._toks[first].start

    def _named(
        self, first: int, named: Callable[[TokenCursor], str | None]
    ) -> dict[int, tuple[int, str]]:
        """Return by the number of a token the number behind what a name replaces, and the name."""
        found: dict[int, tuple[int, str]] = {}
        number = first
        while number < self.at:
            part = self.part(number, self.at)
            if (name := named(part)) is not None:
                found[number] = (number + part.at, name)
            number += max(part.at, 1)
        return found

    def is_modifier(self, word: str) -> bool:
        """Whether this word is next and an operand follows it: elsewhere it is a name."""
        return self.tok.is_word(word) and self._begins_operand(self.ahead())

    def _is_clause(self, first: int) -> bool:
        """Whether a clause begins at the next token."""
        tok = self.tok
        if not tok.is_word(*_CLAUSES):
            return False
        if self.at > first and self._ends_operand(self._toks[self.at - 1]):
            return True
        # Without an operand before it, it is a name if an operator or the end follows it.
        return self._begins_operand(self.ahead()) or self.ahead().is_symbol("(")

    @staticmethod
    def _begins_operand(tok: Tok) -> bool:
        if tok.kind == "word":
            return not tok.is_word(*_OPERATORS, *_CLAUSES)
        return tok.kind in {"name", "string", "number"}

    @staticmethod
    def _ends_operand(tok: Tok) -> bool:
        if tok.kind == "word":
            return not tok.is_word(*_OPERATORS)
        return tok.kind in {"name", "string", "number"} or tok.is_symbol(")")

    def _text(self, first: int, last: int, named: Mapping[int, tuple[int, str]]) -> str:
        """Return the text of some tokens; what is between them has no line break or comment."""
        source, text = self._source.text, ""
        places = self.tokens[self._toks[first].start] = []
        number = first
        while number < last:
            tok = self._toks[number]
            if number > first:
                gap = source[self._toks[number - 1].end : tok.start]
                text += " " if gap.strip(" \t") else gap
            places.append((len(text), tok.start))
            number, shown = named.get(number, (number + 1, source[tok.start : tok.end]))
            text += shown
        return text
