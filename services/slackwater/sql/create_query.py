"""Parses what follows CREATE QUERY name AS into the mapping that the deployment file has.

The windows are a table function in FROM, as in Flink, and ``COLUMNS(*)`` stands for all fields, as
in DuckDB. Other systems' forms are refused with the one of this language.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from slackwater.deployment.shapes import QueryShape
from slackwater.deployment.shaping import did_you_mean
from slackwater.primitives.aggregates import AGGREGATES
from slackwater.primitives.expression_text import KEY
from slackwater.sql.aggregate_calls import (
    QUANTILE,
    TOP,
    AggregateCall,
    aggregate_call,
    as_declared,
    is_aggregate_call,
    merged,
    plain_name,
    short,
)
from slackwater.sql.cursor import TokenCursor
from slackwater.sql.identifiers import identifier
from slackwater.sql.tokens import SqlError, Tok

OPTIONS: Final = (
    *("margin", "policy", "replicas", "children", "parts", "copies", "mergers", "results", "from"),
)
"""Fields of a query that are in WITH. ``from`` is for a join that reads its right side first."""
TUMBLE_FORM: Final = "FROM TUMBLE(TABLE lab, INTERVAL '1' MINUTE)"
HOP_FORM: Final = (
    "FROM HOP(TABLE lab, INTERVAL '10' SECOND, INTERVAL '1' MINUTE), slide before size"
)
GROUP_FORM: Final = "GROUP BY window_start, key"
EMIT_FORM: Final = "EMIT WITHIN INTERVAL '2' SECOND, the bound of the first answer"
UNION_FORM: Final = "several sources are TABLE a UNION ALL TABLE b"
_ARGUMENTS: Final = ("offset", "starts", "zone")
_OF_ROWS: Final = ("window_start", "window_end", "key")
_HAVING: Final = f"a condition on windows follows the groups: {GROUP_FORM} HAVING ..."
_WINDOW: Final = (
    f"windows are in FROM: {TUMBLE_FORM}, or {HOP_FORM.removesuffix(', slide before size')}"
)
_LATER: Final = {
    "HAVING": _HAVING,
    "WINDOW": _WINDOW,
    "ORDER": "rows come in the order of their windows: leave ORDER BY out",
    "LIMIT": "a query has no end: leave LIMIT out",
    "PARTITION": f"groups are {GROUP_FORM}",
    "QUALIFY": _HAVING,
}


@dataclass(slots=True)
class _Items:
    """The aggregates of a SELECT, by field, with their places; the expressions, with theirs."""

    expressions: dict[str, str] = field(default_factory=dict)
    aggregates: dict[str, dict[str, int]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    of_all: bool = False


def parse_query(cursor: TokenCursor) -> dict[str, Any]:
    """Return the content of a query; the places of its parts are in ``cursor.spots``.

    Raises:
        SqlError: at the first error.
    """
    cursor.expect("SELECT", wanted="SELECT is missing: CREATE QUERY name AS SELECT ...")
    if cursor.is_modifier("DISTINCT"):
        raise cursor.error("rows of windows differ in their keys: leave DISTINCT out")
    first = cursor.at
    _skip_items(cursor)
    items = cursor.part(first, cursor.at)
    if not cursor.tok.is_word("FROM"):
        raise cursor.unexpected("FROM is missing")
    content: dict[str, Any] = {}
    _from(cursor, content)
    has_window = "window" in content
    if cursor.keywords("WHERE"):
        text, at = cursor.expression("the condition of WHERE", (",",))
        content["where"], cursor.spots["where",] = text, at
    group = cursor.tok
    is_grouped = cursor.keywords("GROUP", "BY")
    if is_grouped:
        if not has_window:
            raise cursor.error(f"groups are of windows: {TUMBLE_FORM} ... {GROUP_FORM}", group)
        _group(cursor)
    if has_window:
        found = _window_items(items, content, cursor)
        if not is_grouped:
            _refuse_later(cursor)
            raise cursor.unexpected(f"windows need {GROUP_FORM}")
        if cursor.keywords("HAVING"):
            content["having"], cursor.spots["having",] = _having(cursor, found)
    else:
        _row_items(items, content, cursor)
    _refuse_later(cursor)
    _emit(cursor, content)
    if cursor.tok.is_word("WITH"):
        _with(cursor, content)
    _refuse_later(cursor)
    cursor.end("a query ends with EMIT WITHIN INTERVAL '2' SECOND [WITH (parts = 4)];")
    return content


def _skip_items(cursor: TokenCursor) -> None:
    """Step to FROM. What is skipped is parsed when it is known whether there are windows."""
    while True:
        if cursor.tok.is_symbol("*"):
            cursor.take()
        else:
            cursor.expression("a column of SELECT", (",",))
        if cursor.keywords("AS"):
            cursor.name("the name behind AS")
        if not cursor.symbol(","):
            return


def _from(cursor: TokenCursor, content: dict[str, Any]) -> None:
    cursor.expect("FROM")
    at = cursor.tok
    cursor.spots["from",] = at.start
    if at.is_word("TUMBLE", "HOP") and cursor.ahead().is_symbol("("):
        cursor.take()
        cursor.take()
        _tables(cursor, content)
        _window(cursor, content, at)
    elif at.is_word("HOPPING", "TUMBLING", "SESSION", "CUMULATE") and cursor.ahead().is_symbol("("):
        raise cursor.error(f"windows are TUMBLE and HOP: {TUMBLE_FORM}")
    elif cursor.symbol("("):
        _tables(cursor, content)
        cursor.expect_symbol(")")
    else:
        cursor.keywords("TABLE")
        _source(cursor, content)
    if cursor.tok.is_symbol(","):
        raise cursor.error(f"a comma in FROM: {UNION_FORM}")
    if cursor.tok.is_word("UNION"):
        raise cursor.error(f"{UNION_FORM}, in brackets: FROM (TABLE a UNION ALL TABLE b)")
    if cursor.tok.is_word("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS"):
        raise cursor.error(_JOIN)
    if cursor.tok.is_word("WINDOW"):
        raise cursor.error(_WINDOW)


_JOIN: Final = (
    "a join pairs readings of one key by their times:"
    " FROM TUMBLE(TABLE a JOIN TABLE b WITHIN INTERVAL '500' MILLISECOND, INTERVAL '1' MINUTE), or"
    " FROM (TABLE a JOIN TABLE b WITHIN INTERVAL '500' MILLISECOND)"
)


def _source(cursor: TokenCursor, content: dict[str, Any]) -> None:
    sources = content.setdefault("from", [])
    cursor.spots["from", len(sources)] = cursor.tok.start
    sources.append(cursor.name("a stream or query"))


def _tables(cursor: TokenCursor, content: dict[str, Any]) -> None:
    """Parse ``TABLE a UNION ALL TABLE b``, or ``TABLE a JOIN TABLE b WITHIN INTERVAL ...``."""
    cursor.expect("TABLE", wanted="a source in brackets is TABLE name")
    _source(cursor, content)
    if cursor.keywords("JOIN"):
        cursor.expect("TABLE", wanted=_JOIN)
        _source(cursor, content)
        cursor.expect("WITHIN", wanted=_JOIN)
        left, right = content["from"]
        cursor.spots["join", "within"] = cursor.tok.start
        cursor.spots["join", "left"] = cursor.spots["from", 0]
        cursor.spots["join", "right"] = cursor.spots["from", 1]
        content["join"] = {"left": left, "right": right, "within": cursor.interval()}
        return
    while cursor.keywords("UNION"):
        cursor.expect("ALL", wanted="readings are not compared with each other: UNION ALL")
        cursor.expect("TABLE", wanted=UNION_FORM)
        _source(cursor, content)


def _window(cursor: TokenCursor, content: dict[str, Any], function: Tok) -> None:
    """Parse the arguments of TUMBLE and HOP behind the sources."""
    window: dict[str, Any] = {}
    is_hop = function.is_word("HOP")
    form = HOP_FORM if is_hop else TUMBLE_FORM
    cursor.spots["window",] = function.start
    for name in ("slide", "size") if is_hop else ("size",):
        cursor.expect_symbol(",", f"{form}; {UNION_FORM}" if not window else form)
        if cursor.tok.is_word("DESCRIPTOR"):
            raise cursor.error(f"the time is declared with the stream: leave it out, {form}")
        if cursor.tok.is_word("TABLE") or (
            cursor.tok.is_name and not cursor.tok.is_word("INTERVAL")
        ):
            raise cursor.unexpected(f"{form}; {UNION_FORM}")
        cursor.spots["window", name] = cursor.tok.start
        window[name] = cursor.interval()
    while cursor.symbol(","):
        tok = cursor.tok
        name = tok.text.lower()
        if tok.kind != "word" or name not in _ARGUMENTS or not cursor.ahead().is_symbol("=>"):
            wanted = "behind the size are OFFSET => INTERVAL ..., STARTS => 'sunday', ZONE => '...'"
            raise cursor.unexpected(f"{wanted}; {form}")
        if name in window:
            raise cursor.error(f"{tok.text} is given twice")
        cursor.take()
        cursor.take()
        cursor.spots["window", name] = tok.start
        if name == "offset":
            window[name] = cursor.interval()
        elif cursor.tok.kind == "string":
            window[name] = cursor.take().text
        else:
            raise cursor.unexpected(f"{tok.text} => 'text'")
    cursor.expect_symbol(")", f"{form})")
    content["window"] = window


def _group(cursor: TokenCursor) -> None:
    """Parse the columns of GROUP BY, in any order."""
    found: list[str] = []
    while True:
        tok = cursor.tok
        if not tok.is_word(*map(str.upper, _OF_ROWS)) or tok.text.lower() in found:
            raise cursor.unexpected(GROUP_FORM)
        found.append(cursor.take().text.lower())
        if not cursor.symbol(","):
            break
    if not {"window_start", "key"} <= {*found}:
        raise cursor.unexpected(f"rows are of windows and keys: {GROUP_FORM}")


def _emit(cursor: TokenCursor, content: dict[str, Any]) -> None:
    if not cursor.keywords("EMIT"):
        raise cursor.unexpected(f"a query needs {EMIT_FORM}")
    if cursor.tok.is_word("ON", "CHANGES", "FINAL", "AFTER", "UPDATES"):
        raise cursor.error(
            f"a query has {EMIT_FORM}; what is then wrong is replaced by the exact answer. A reader"
            " chooses: SELECT * FROM q EMIT CHANGES, or EMIT FINAL"
        )
    cursor.expect("WITHIN", wanted=EMIT_FORM)
    cursor.spots["bound",] = cursor.tok.start
    content["bound"] = cursor.interval()


def _with(cursor: TokenCursor, content: dict[str, Any]) -> None:
    cursor.take()
    options = cursor.options()
    for name, value in options.items():
        at = cursor.spots[name,]
        if name not in OPTIONS or (name == "from" and "join" not in content):
            known = [each for each in OPTIONS if each != "from"]
            is_clause = name in {f.alias or n for n, f in QueryShape.model_fields.items()}
            meant = " is a clause of the statement" if is_clause else did_you_mean(name, known)
            reason = (
                f"WITH of a query has {', '.join(known)}; {name!r}{meant or ' is none of them'}"
            )
            raise SqlError(at, reason)
        content[name] = value


def _refuse_later(cursor: TokenCursor) -> None:
    tok = cursor.tok
    if tok.kind == "word" and (reason := _LATER.get(tok.text.upper())):
        raise cursor.error(reason)


def _row_items(items: TokenCursor, content: dict[str, Any], cursor: TokenCursor) -> None:
    """Parse the columns of a query without a window: readings."""
    if items.symbol("*"):
        items.end("SELECT * has all fields, without others")
        return
    select: dict[str, str] = {}
    while True:
        tok = items.tok
        if tok.is_symbol("*"):
            raise items.error("SELECT * has all fields, without others")
        called = tok.kind == "word" and items.ahead().is_symbol("(")
        if called and tok.text.lower() in {*AGGREGATES, QUANTILE, TOP}:
            raise items.error(f"{tok.text}(...) is of windows: {TUMBLE_FORM} ... {GROUP_FORM}")
        text, at = items.expression("a column of SELECT", (",",))
        name = items.name("the name behind AS") if items.keywords("AS") else plain_name(text, tok)
        if name is None:
            raise items.error(f"an expression needs a name: {short(text)} AS name", tok)
        if text == KEY:
            if name != KEY:
                raise items.error("key is in every row, and keeps its name", tok)
        elif name in select:
            raise items.error(f"{name!r} is selected twice", tok)
        else:
            select[name] = text
            cursor.spots["select", name] = at
        if not items.symbol(","):
            break
    items.end(", or FROM is missing")
    if not select:
        raise items.error("select a field beside key, or SELECT *")
    content["select"] = select


def _window_items(items: TokenCursor, content: dict[str, Any], cursor: TokenCursor) -> _Items:
    """Parse the columns of a query with windows."""
    found = _Items()
    first = items.tok
    while True:
        tok = items.tok
        is_column = tok.is_word(*map(str.upper, _OF_ROWS)) and not items.ahead().is_symbol("(")
        if is_column:
            items.take()
            if items.tok.is_word("AS"):
                raise items.error(f"{tok.text} is in every row, and keeps its name")
        else:
            _aggregate(items, found)
        if not items.symbol(","):
            break
    items.end("a column is an aggregate of an expression, as in avg(temperature * 2) AS twice_avg")
    if not found.aggregates:
        raise items.error("select an aggregate, as in count(temperature)", first)
    declared = {name: merged([*map(as_declared, uses)]) for name, uses in found.aggregates.items()}
    cursor.spots["aggregate",] = first.start
    if is_same := len({tuple(sorted(uses)) for uses in found.aggregates.values()}) == 1:
        content["aggregate"] = next(iter(declared.values()))
    else:
        content["aggregate"] = declared
        for name, uses in found.aggregates.items():
            cursor.spots["aggregate", name] = min(uses.values())
    are_plain = all(_is_plain(name, text) for name, text in found.expressions.items())
    # With aggregates by field the rows have the fields that are named, of all that there are.
    if not found.of_all and (is_same or not are_plain):
        content["select"] = dict(found.expressions)
        for name, at in found.places.items():
            cursor.spots["select", name] = at
    return found


def _aggregate(items: TokenCursor, found: _Items) -> None:
    tok = items.tok
    if tok.kind != "word" or not items.ahead().is_symbol("("):
        raise items.unexpected(
            f"SELECT of windows has window_start, key and aggregates, as in avg({items.shown()})"
        )
    call = aggregate_call(items)
    name = "*" if call.of_all else plain_name(call.text, call.start)
    if items.keywords("AS"):
        at = items.tok
        alias = items.name("the name behind AS")
        name = alias.removesuffix(f"_{call.figure}")
        if call.of_all:
            raise items.error("COLUMNS(*) keeps the names of the fields", at)
        if name == alias or not name:
            raise items.error(
                f"a column is named after its field and its aggregate: AS {alias}_{call.figure}", at
            )
    elif name is None:
        raise items.error(f"an expression needs a name: {call.shown()} AS name_{call.figure}", tok)
    if found.aggregates and call.of_all is not found.of_all:
        raise items.error("COLUMNS(*) is for all aggregates of a SELECT, or for none", tok)
    found.of_all = call.of_all
    if found.expressions.setdefault(name, call.text) != call.text:
        before = short(found.expressions[name])
        reason = f"{name!r} is {before} before: write {call.shown()} AS other_{call.figure}"
        raise items.error(reason, tok)
    found.places.setdefault(name, call.start.start)
    uses = found.aggregates.setdefault(name, {})
    if call.figure in uses:
        raise items.error(f"{call.shown()} is selected twice", tok)
    uses[call.figure] = tok.start


def _having(cursor: TokenCursor, found: _Items) -> tuple[str, int]:
    """Return the condition behind HAVING, with names of columns in place of aggregates."""

    def named(part: TokenCursor) -> str | None:
        return _column(aggregate_call(part), found, part) if is_aggregate_call(part) else None

    return cursor.expression("the condition of HAVING", (",",), named)


def _column(call: AggregateCall, found: _Items, part: TokenCursor) -> str:
    """Return the column of SELECT that an aggregate in HAVING is."""
    for name, uses in found.aggregates.items():
        of = plain_name(call.text, call.start) if found.of_all else name
        is_same = found.of_all or found.expressions[name] == call.text
        if is_same and of is not None and call.figure in uses:
            return identifier(f"{of}_{call.figure}")
    reason = f"HAVING is of columns that SELECT has: add {call.shown()} to SELECT"
    raise part.error(reason, call.function)


def _is_plain(name: str, text: str) -> bool:
    return text in {name, f'"{name}"', "COLUMNS(*)"}
