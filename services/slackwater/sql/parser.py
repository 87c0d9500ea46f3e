"""Parses a text into statements; the errors of all of them are reported together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slackwater.deployment.shapes import FileShape
from slackwater.deployment.shaping import did_you_mean
from slackwater.sql.create_query import parse_query
from slackwater.sql.cursor import TokenCursor
from slackwater.sql.statements import (
    ChangeQuery,
    Changing,
    Create,
    Describe,
    DropAlert,
    Explain,
    Section,
    Select,
    Setting,
    Show,
    ShowCreate,
    Statement,
)
from slackwater.sql.tokens import Source, SqlError, Tok, statements_of, tokenize

STATEMENTS_MAX: Final = 10_000
KINDS: Final[dict[str, Section]] = {
    "STREAM": "streams",
    "QUERY": "queries",
    "ALERT": "alerts",
}
KEYWORDS: Final = (
    *("CREATE", "DROP", "PAUSE", "RESUME", "SHOW", "DESCRIBE", "EXPLAIN", "SELECT", "SET"),
)
_CHANGES: Final[dict[str, Changing]] = {"DROP": "drop", "PAUSE": "pause", "RESUME": "resume"}
_SETTINGS: Final = tuple(
    name for name in FileShape.model_fields if name not in {"apiVersion", *KINDS.values()}
)
STREAM_FORM: Final = "CREATE STREAM name WITH (key = (...), time = (...), fields = [...])"
QUERY_FORM: Final = "CREATE [OR REPLACE] QUERY name AS SELECT ..."
ALERT_FORM: Final = (
    "CREATE [OR REPLACE] ALERT name WITH (query = 'climate', when = 'temperature_avg > 26')"
)
_OTHER_KINDS: Final = {
    "TABLE": f"a source is a stream, {STREAM_FORM}; results are a query, {QUERY_FORM}",
    "VIEW": f"results are a query: {QUERY_FORM}",
    "MATERIALIZED": f"results are a query: {QUERY_FORM}",
    "SOURCE": f"a source is a stream: {STREAM_FORM}",
    "SINK": "a query writes its results to Kafka topics of its own: leave CREATE SINK out",
}


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The statements of a text and the errors in it, with their places."""

    source: Source
    statements: tuple[Statement, ...]
    errors: tuple[tuple[int, str], ...]

    @property
    def all_named(self) -> bool:
        """Whether each statement with an error is among the statements, as a broken CREATE."""
        broken = [s for s in self.statements if isinstance(s, Create) and s.is_broken]
        return len(broken) == len(self.errors)


def parse(text: str, where: str) -> ParsedText:
    """Parse a text; ``where`` is its name in messages."""
    source = Source(text, where)
    statements: list[Statement] = []
    errors: list[tuple[int, str]] = []
    try:
        toks = tokenize(source)
    except SqlError as error:
        return ParsedText(source, (), ((error.at, error.reason),))
    for number, each in enumerate(statements_of(toks, len(text.rstrip()))):
        if number == STATEMENTS_MAX:
            errors.append((each[0].start, f"is statement {number + 1}, at most {number}"))
            break
        cursor = TokenCursor(source, each)
        try:
            statements.append(_statement(cursor))
        except SqlError as error:
            errors.append((error.at, error.reason))
            if (broken := _broken(TokenCursor(source, each))) is not None:
                statements.append(broken)
    return ParsedText(source, tuple(statements), tuple(errors))


def _statement(cursor: TokenCursor) -> Statement:
    tok = cursor.tok
    word = tok.text.upper() if tok.kind == "word" else ""
    if word == "CREATE":
        return _create(cursor)
    if word == "SELECT":
        return _select(cursor)
    cursor.take()
    if word in _CHANGES:
        return _change(cursor, word)
    if word == "SHOW":
        return _show(cursor, tok)
    if word == "SET":
        return _set(cursor)
    if word in {"DESCRIBE", "DESC"}:
        for kind in KINDS:
            if cursor.tok.is_word(kind) and cursor.ahead().is_name:
                cursor.take()
        at = cursor.tok.start
        name = cursor.name("a stream or query")
        cursor.end()
        return Describe(name, at)
    if word == "EXPLAIN":
        if not cursor.tok.is_word("CREATE"):
            raise cursor.unexpected("EXPLAIN CREATE QUERY ...")
        create = _create(cursor)
        if create.section != "queries":
            raise cursor.error("EXPLAIN is for CREATE QUERY", tok)
        return Explain(create, tok.start)
    cursor.at = 0
    advice = did_you_mean(word, KEYWORDS) or f"; statements begin with {', '.join(KEYWORDS)}"
    raise cursor.error(f"{cursor.shown()} begins no statement{advice}")


def _create(cursor: TokenCursor) -> Create:
    cursor.expect("CREATE")
    replaces = cursor.keywords("OR", "REPLACE")
    kind = cursor.tok
    if kind.kind == "word" and (reason := _OTHER_KINDS.get(kind.text.upper())):
        raise cursor.error(reason)
    if not kind.is_word(*KINDS):
        raise cursor.unexpected(f"{STREAM_FORM}, or {QUERY_FORM}, or {ALERT_FORM}")
    cursor.take()
    section = KINDS[kind.text.upper()]
    if replaces and section == "streams":
        raise cursor.error("a stream is not replaced: the queries that read it have its readings")
    if cursor.tok.is_word("IF"):
        raise cursor.error("IF is not needed: CREATE OR REPLACE QUERY changes one that differs")
    at = cursor.tok.start
    name = cursor.name(f"the name of the {kind.text.lower()}")
    if section == "queries":
        cursor.expect("AS", wanted=QUERY_FORM)
        content = parse_query(cursor)
        return Create(section, name, at, content, cursor.spots, cursor.tokens, replaces)
    form = STREAM_FORM if section == "streams" else ALERT_FORM
    if cursor.tok.is_symbol("("):
        raise cursor.error(f"fields are declared in WITH: {form}")
    cursor.expect("WITH", wanted=form)
    declared = cursor.options()
    cursor.end()
    return Create(section, name, at, declared, cursor.spots, replaces=replaces)


def _broken(cursor: TokenCursor) -> Create | None:
    """Return a CREATE with an error, if its name is known: what reads it has no other errors."""
    if not cursor.keywords("CREATE"):
        return None
    cursor.keywords("OR", "REPLACE")
    kind = cursor.take()
    at = cursor.tok.start
    if not kind.is_word(*KINDS) or not cursor.tok.is_name:
        return None
    name = cursor.take().text
    return Create(KINDS[kind.text.upper()], name, at, {}, is_broken=True)


def _change(cursor: TokenCursor, word: str) -> ChangeQuery | DropAlert:
    if word == "DROP" and cursor.keywords("ALERT"):
        at = cursor.tok.start
        dropped = cursor.name("the name of the alert")
        cursor.end()
        return DropAlert(dropped, at)
    if cursor.tok.is_word("STREAM"):
        raise cursor.error("a stream is there as long as a query reads it: DROP QUERY name")
    cursor.expect("QUERY", wanted=f"{word} QUERY name")
    at = cursor.tok.start
    name = cursor.name("the name of the query")
    cursor.end()
    return ChangeQuery(_CHANGES[word], name, at)


def _show(cursor: TokenCursor, tok: Tok) -> Show | ShowCreate:
    for section in KINDS.values():
        if cursor.keywords(section.upper()):
            cursor.end()
            return Show(section, tok.start)
    cursor.expect(
        "CREATE",
        wanted="SHOW QUERIES, STREAMS or ALERTS, or SHOW CREATE QUERY (or STREAM, ALERT) name",
    )
    kind = cursor.tok
    if not kind.is_word(*KINDS):
        raise cursor.unexpected("SHOW CREATE QUERY name, STREAM name, or ALERT name")
    cursor.take()
    at = cursor.tok.start
    name = cursor.name(f"the name of the {kind.text.lower()}")
    cursor.end()
    return ShowCreate(KINDS[kind.text.upper()], name, at)


def _set(cursor: TokenCursor) -> Setting:
    at = cursor.tok
    name = cursor.name("a setting")
    if name not in _SETTINGS:
        meant = did_you_mean(name, _SETTINGS)
        raise cursor.error(f"there is no setting {name!r}, only {', '.join(_SETTINGS)}{meant}", at)
    cursor.expect_symbol("=", f"SET {name} = value")
    cursor.spots[()] = cursor.tok.start
    content = cursor.value(())
    cursor.end()
    return Setting(name, at.start, content, cursor.spots)


def _select(cursor: TokenCursor) -> Select:
    """Parse a SELECT that reads results."""
    cursor.take()
    columns: list[tuple[str, int]] = []
    if not cursor.symbol("*"):
        while True:
            tok = cursor.tok
            name = cursor.name("a column")
            if cursor.tok.is_symbol("("):
                raise cursor.error(f"{_READS}: {tok.text}(...) is for CREATE QUERY", tok)
            if cursor.tok.is_word("AS"):
                raise cursor.error(f"{_READS}, under their own names: leave AS out")
            columns.append((name, tok.start))
            if not cursor.symbol(","):
                break
    cursor.expect("FROM", wanted=f"{_READS}: SELECT column, ... FROM query")
    at = cursor.tok
    query = cursor.name("a query")
    if cursor.tok.is_symbol("("):
        raise cursor.error(f"{_READS}: windows are for CREATE QUERY name AS SELECT ...", at)
    where = (
        cursor.expression("the condition of WHERE", (",",)) if cursor.keywords("WHERE") else None
    )
    changes = False
    if cursor.keywords("EMIT"):
        changes = cursor.tok.is_word("CHANGES")
        if not changes and not cursor.tok.is_word("FINAL"):
            raise cursor.unexpected(
                "EMIT FINAL, the exact answers that are there, or EMIT CHANGES, each as it comes"
            )
        cursor.take()
    cursor.end(f"{_READS}: SELECT ... FROM q [WHERE ...] [EMIT CHANGES | EMIT FINAL];")
    return Select(query, at.start, tuple(columns), where, changes, cursor.tokens)


_READS: Final = "SELECT reads the results of a query"
