"""Valid statements with a damaged token are refused with a place, or are other statements."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.errors import DeploymentError
from slackwater.sql.document import declare
from slackwater.sql.parser import ParsedText, parse
from slackwater.sql.tokens import Source, tokenize

TEXTS = [
    """SET prefix = 'p.';
CREATE STREAM lab WITH (key = (column = 'k'), time = (column = 't', unit = 's'),
  fields = ['x', 'y'], values = ("open" = -1, closed = 0), disorder = '1s');
CREATE STREAM "b-1" WITH (key = (value = 'k'), time = (column = 't', unit = 's'),
  fields = (x = 'X'));
CREATE OR REPLACE QUERY q AS
SELECT window_start, key, count(x), avg(x), count(y * 2) AS z_count, avg(y * 2) AS z_avg
FROM HOP(TABLE lab UNION ALL TABLE "b-1", INTERVAL '10' SECOND, INTERVAL '1' MINUTE,
  OFFSET => INTERVAL '1' SECOND)
WHERE x > -40 AND (y IS NULL OR key = 'a')
GROUP BY window_start, key
EMIT WITHIN INTERVAL '2' SECOND WITH (parts = 4, policy = (failure = 'delay'));
CREATE QUERY r AS SELECT x_avg, x_avg + 1 AS more FROM q EMIT WITHIN INTERVAL '2' SECOND;
CREATE QUERY j AS SELECT quantile(COLUMNS(*), 0.5), top(COLUMNS(*), 2)
FROM TUMBLE(TABLE lab JOIN TABLE "b-1" WITHIN INTERVAL '1' SECOND, INTERVAL '1' DAY, ZONE => 'UTC')
GROUP BY window_start, window_end, key EMIT WITHIN INTERVAL '2' SECOND;""",
    """DROP QUERY q; PAUSE QUERY "q-1"; RESUME QUERY q; SHOW QUERIES; SHOW STREAMS;
SHOW CREATE QUERY q; SHOW CREATE STREAM s; DESCRIBE q; DESCRIBE QUERY q;
EXPLAIN CREATE QUERY q AS SELECT * FROM (TABLE a UNION ALL TABLE b) EMIT WITHIN INTERVAL '2' SECOND;
SELECT window_start, key, x_avg FROM q WHERE x_avg > 3 AND key <> 'a' EMIT CHANGES;
SELECT * FROM q EMIT FINAL; SELECT * FROM q;""",
]  # fmt: skip


def damaged(text: str) -> list[str]:
    """Return the text with each token deleted, doubled, or swapped with the next one."""
    toks = [(tok.start, tok.end) for tok in tokenize(Source(text, ""))]
    found = []
    for (start, end), following in zip(toks, [*toks[1:], None], strict=True):
        found.append(text[:start] + text[end:])
        found.append(text[:end] + " " + text[start:])
        found.append(text[:start])
        if following is not None:
            swapped = text[following[0] : following[1]] + text[end : following[0]] + text[start:end]
            found.append(text[:start] + swapped + text[following[1] :])
    return found


def parsed(text: str) -> ParsedText:
    """Parse a text; declare what it declares, if it has no other statements."""
    found = parse(text, "d.sql")
    for at, reason in found.errors:
        assert 0 <= at <= len(text)
        assert reason
    return found


def why_refused(found: ParsedText) -> str | None:
    try:
        declare(found)
    except DeploymentError as error:
        return error.message
    return None


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_a_damaged_token_is_an_error_with_its_place_or_another_statement(number: int) -> None:
    text = TEXTS[number]
    assert not parsed(text).errors
    refused = 0
    for other in damaged(text):
        found = parsed(other)
        if (reported := why_refused(found)) is not None:
            assert re.match(r"d\.sql:\d+:\d+: .+\n    .*\n +\^", reported), reported
            refused += 1
    assert refused > len(damaged(text)) / 2


STREAMS = """CREATE STREAM lab WITH (key = (column = 'k'), time = (column = 't', unit = 's'),
  fields = ['x', 'y']);
CREATE STREAM "b-1" WITH (key = (value = 'k'), time = (column = 't', unit = 's'), fields = ['x']);
CREATE QUERY read AS SELECT * FROM lab EMIT WITHIN INTERVAL '2' SECOND;
"""


KEYED = "key = (value = 'k'), time = (column = 't', unit = 'us')"


def statement(of: Random) -> str:
    """Return a valid statement over these streams."""
    seconds = of.choice((1, 5, 10))
    within = f"EMIT WITHIN INTERVAL '{of.randint(1, 9)}' SECOND"
    name = of.choice(("q", '"q-1"', "climate"))
    if of.random() < 0.2:
        return of.choice(
            (
                "SHOW QUERIES;", "SHOW STREAMS;", "DROP QUERY read;", "PAUSE QUERY read;",
                "RESUME QUERY read;", "DESCRIBE read;", "SHOW CREATE QUERY read;",
                f"SELECT key, x FROM read WHERE x > {seconds} EMIT FINAL;",
                "SELECT * FROM read EMIT CHANGES;", "SET prefix = 'p.';",
                f"CREATE ALERT hot WITH (query = 'read', when = 'x > {seconds}', for = 2);",
                "CREATE ALERT mute WITH (stream = 'lab', missing = '30s');",
                f"CREATE STREAM s WITH ({KEYED}, fields = (x = 'X'), disorder = '1.5s');",
            )
        )  # fmt: skip
    source = of.choice(("TABLE lab", 'TABLE lab UNION ALL TABLE "b-1"'))
    where = of.choice(("", " WHERE x > -40", " WHERE NOT x IS NULL AND (key <> 'a' OR x < 3)"))
    more = of.choice(
        ("", " WITH (replicas = 1)", " WITH (policy = (failure = 'delay'), parts = 2)")
    )
    create = f"CREATE {of.choice(('', 'OR REPLACE '))}QUERY {name} AS SELECT"
    if of.random() < 0.2:
        columns = of.choice(
            ("*", "x, x * 2 + 1 AS more", "CASE WHEN x > 1 THEN 1 ELSE 0 END AS up")
        )
        return f"{create} {columns} FROM ({source}){where} {within}{more};"
    columns = of.choice(
        (
            "count(x), avg(x)", "avg(COLUMNS(*)), max(COLUMNS(*))", "quantile(x, 0.99)",
            "avg(x * 1.8 + 32) AS f_avg, count(x * 1.8 + 32) AS f_count", "min(x), top(x, 3)",
        )
    )  # fmt: skip
    size = f"INTERVAL '{seconds}' SECOND"
    window = of.choice(
        (
            f"TUMBLE({source}, {size})", f"HOP({source}, INTERVAL '1' SECOND, {size})",
            f"TUMBLE({source}, INTERVAL '1' DAY, ZONE => 'Europe/Berlin')",
            f"HOP({source}, INTERVAL '1' SECOND, {size}, OFFSET => INTERVAL '500' MILLISECOND)",
        )
    )  # fmt: skip
    having = " HAVING count(x) >= 3" if columns == "count(x), avg(x)" else ""
    by = "GROUP BY window_start, key"
    return (
        f"{create} window_start, key, {columns} FROM {window}{where} {by}{having} {within}{more};"
    )


@pytest.mark.parametrize(
    "count",
    [pytest.param(5, id="few"), pytest.param(500, id="all", marks=pytest.mark.drill)],
)
@pytest.mark.timeout(7_200)
def test_each_token_of_valid_statements_is_deleted_doubled_and_swapped(count: int) -> None:
    drawn, valid, others = Random(0), dict[str, None](), 0
    while len(valid) < count:
        valid[statement(drawn)] = None
    for text in valid:
        given = parsed(STREAMS + text)
        assert not given.errors, text
        assert not text.startswith("CREATE") or why_refused(given) is None, text
        for other in damaged(text):
            found = parsed(STREAMS + other)
            others += 1
            if (reported := why_refused(found)) is not None:
                assert re.match(r"d\.sql:\d+:\d+: .+\n    .*\n +\^", reported), (other, reported)
    assert others > 40 * count


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_a_damaged_character_is_an_error_with_its_place_or_another_statement(number: int) -> None:
    text = TEXTS[number]
    for at in range(0, len(text), 3):
        for other in (
            text[:at] + text[at + 1 :],
            text[:at] + "'" + text[at:],
            text[:at] + "\0" + text[at:],
        ):
            found = parsed(other)
            assert found.errors or found.statements


PARTS = [
    *dict.fromkeys(text[t.start : t.end] for text in TEXTS for t in tokenize(Source(text, "")))
]


@given(st.lists(st.sampled_from([*PARTS, "/*", "*/", "--", "\n", "'", '"', "[", "\\", "é", "\0"])))
def test_any_row_of_tokens_is_refused_or_statements(parts: list[str]) -> None:
    text = " ".join(parts)
    found = parsed(text)
    why_refused(found)
    assert found.source.reports(list(found.errors)).count("\n    ") == 2 * len(found.errors)


@given(st.text())
def test_any_text_is_refused_or_statements(text: str) -> None:
    why_refused(parsed(text))
