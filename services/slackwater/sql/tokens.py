"""Tokens of SQL with their places, made by sqlglot's tokenizer.

Only its tokenizer is used: no dialect of sqlglot has these statements. Expressions are not parsed
here. They are cut out of the text and parsed as those of the deployment file are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Literal

from sqlglot import Token, Tokenizer, TokenType
from sqlglot.errors import TokenError

from slackwater.deployment.bounds import ERRORS_SHOWN_MAX, shortened

TEXT_CHARS_MAX: Final = 1_000_000
"""Maximum length of a text with statements."""
CONTEXT_CHARS: Final = 100
"""Characters of a line that are shown with an error."""

Kind = Literal["word", "name", "string", "number", "symbol", "end"]

_PLAIN_NAME: Final = re.compile(r"[^\W\d]\w*")
_PARTS: Final = re.compile(r"\S+")
_OPENING: Final = re.compile(r"""'(?:[^']|'')*+'|"(?:[^"]|"")*+"|--[^\n]*|(['"]|/\*)""")
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_QUOTED: Final = {TokenType.STRING: "string", TokenType.IDENTIFIER: "name"}


class _Tokenizer(Tokenizer):
    """sqlglot's tokenizer without commands, whose arguments it would not tokenize."""

    COMMANDS: ClassVar[set[TokenType]] = set()


@dataclass(frozen=True, slots=True)
class Tok:
    """A token: ``text`` is without quotes; it is ``source[start:end]``.

    A ``name`` is in double quotes, a ``word`` is not. ``end`` is the token after the last one.
    """

    kind: Kind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words (capital letters), in any case."""
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        """Whether it is one of these symbols."""
        return self.kind == "symbol" and self.text in symbols

    @property
    def is_name(self) -> bool:
        """Whether it can be a name."""
        return self.kind in {"word", "name"}


class SqlError(Exception):
    """Raised at the first error of a statement; ``at`` counts characters from 0."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at
        self.reason = reason


class Source:
    """A text and the name under which errors report it, such as that of its file."""

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self.where = where

    @cached_property
    def _lines(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def place(self, at: int) -> tuple[int, int]:
        """Return line and column of a character, counted from 1."""
        line = bisect_right(self._lines, at)
        return line, at - self._lines[line - 1] + 1

    def report(self, at: int, reason: str) -> str:
        """Return an error with its place, the line and a caret below the character."""
        line, column = self.place(at)
        start = self._lines[line - 1]
        stop = self._lines[line] if line < len(self._lines) else len(self.text)
        first = max(start, at - CONTEXT_CHARS // 2)
        shown = self.text[first : min(stop, first + CONTEXT_CHARS)].rstrip("\r\n")
        shown = "".join(" " if c.isspace() or not c.isprintable() else c for c in shown)
        head = shortened(f"{self.where}:{line}:{column}: {reason}")
        return f"{head}\n    {shown}\n    {' ' * (at - first)}^"

    def reports(self, errors: list[tuple[int, str]]) -> str:
        """Return all errors in the order of the text, up to a bound."""
        found = list(dict.fromkeys(sorted(errors)))
        shown = [self.report(at, reason) for at, reason in found[:ERRORS_SHOWN_MAX]]
        if len(found) > len(shown):
            shown.append(f"{self.where}: {len(found) - len(shown)} more errors")
        return "\n".join(shown)


def tokenize(source: Source) -> list[Tok]:
    """Return the tokens of a text.

    Raises:
        SqlError: a quote or a comment is not closed, or the text is too long.
    """
    text = source.text
    if len(text) > TEXT_CHARS_MAX:
        reason = f"the text has {len(text)} characters, at most {TEXT_CHARS_MAX}"
        raise SqlError(0, reason)
    try:
        found = _Tokenizer().tokenize(text)
    except TokenError as error:
        raise _unclosed(text) from error
    return [tok for token in found for tok in _parts(token, text)]


def statements_of(toks: list[Tok], end: int) -> Iterator[list[Tok]]:
    """Yield the tokens of each statement, without its semicolon, with an ``end`` token."""
    statement: list[Tok] = []
    for tok in toks:
        if tok.is_symbol(";"):
            if statement:
                yield [*statement, Tok("end", "", tok.start, tok.start)]
            statement = []
        else:
            statement.append(tok)
    if statement:
        yield [*statement, Tok("end", "", end, end)]


def is_complete(text: str) -> bool:
    """Whether a text that is being typed ends with a semicolon, or has nothing to run."""
    source = Source(text, "")
    try:
        toks = tokenize(source)
    except SqlError:
        return False
    return not toks or toks[-1].is_symbol(";")


def _parts(token: Token, text: str) -> Iterator[Tok]:
    """Yield one of our tokens; of words that sqlglot has joined, as in GROUP BY, each."""
    start, end = int(token.start), int(token.end) + 1
    shown = text[start:end]
    quoted = _QUOTED.get(token.token_type)
    if quoted is not None and shown[:1] in {"'", '"'}:
        yield Tok("string" if quoted == "string" else "name", token.text, start, end)
    elif token.token_type == TokenType.NUMBER:
        yield Tok("number", shown, start, end)
    else:
        for part in _PARTS.finditer(shown):
            kind: Kind = "word" if _PLAIN_NAME.fullmatch(part[0]) else "symbol"
            yield Tok(kind, part[0], start + part.start(), start + part.end())


def _unclosed(text: str) -> SqlError:
    """Return the error for a text that sqlglot cannot tokenize, with its place."""
    at = 0
    while (found := _OPENING.search(text, at)) is not None:
        opened, at = found[1], found.end()
        if opened == "/*":
            depth = 1  # comments are nested
            for edge in _COMMENT_EDGE.finditer(text, at):
                depth += 1 if edge[0] == "/*" else -1
                if not depth:
                    at = edge.end()
                    break
            else:
                return SqlError(found.start(), "the comment is not closed: */")
        elif opened is not None:
            return SqlError(found.start(), f"the quote is not closed: {opened}")
    return SqlError(0, "has a character that SQL lacks")
