"""Valid statements with a damaged token are refused with a place, or are other statements."""

from __future__ import annotations

import re

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
