"""Errors in statements: each with its place, the line and the right form."""

# ruff: noqa: E501 -- a case is one line

from __future__ import annotations

import re
import time

import pytest

from slackwater.model.errors import DeploymentError
from slackwater.sql.document import parse_deployment_sql
from slackwater.sql.parser import parse
from slackwater.sql.tokens import TEXT_CHARS_MAX

LAB = "CREATE STREAM lab WITH (key = (column = 'k'), time = (column = 't', unit = 's'), fields = ['x', 'y']);\n"
END = " GROUP BY window_start, key EMIT WITHIN INTERVAL '2' SECOND"
WINDOWS = "FROM TUMBLE(TABLE lab, INTERVAL '1' MINUTE)"


def query(select: str = "count(x)", from_: str = WINDOWS, end: str = END) -> str:
    return f"CREATE QUERY q AS SELECT {select} {from_}{end}"


def failure(text: str) -> str:
    with pytest.raises(DeploymentError) as error:
        parse_deployment_sql(text, "d.sql")
    return error.value.message


# `^` marks where the error is.
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("^SELEC 1", "SELEC begins no statement; did you mean 'SELECT'?"),
        ("^1", "1 begins no statement; statements begin with CREATE, DROP"),
        ("CREATE ^THING x", "THING is not expected here: CREATE STREAM name WITH"),
        ("CREATE ALERT a ^AS SELECT x", "CREATE [OR REPLACE] ALERT name WITH (query ="),
        ("CREATE ^TABLE t (x int)", "a source is a stream, CREATE STREAM name WITH"),
        ("CREATE ^MATERIALIZED VIEW v AS SELECT 1", "results are a query"),
        ("CREATE STREAM ^IF NOT EXISTS a WITH ()", "IF is not needed"),
        ("CREATE OR REPLACE ^STREAM a WITH ()", ""),
        ("CREATE STREAM a ^(x INT)", "fields are declared in WITH"),
        ("CREATE STREAM ^room-1 WITH ()", 'a name with - needs double quotes: "room-1"'),
        ("CREATE STREAM a WITH (key = ^)", ") is not expected here: a value is a 'text'"),
        ("CREATE STREAM a WITH (key = ('b'^))", ""),
        ("CREATE STREAM a WITH (x = 1, ^x = 2)", "'x' is defined twice"),
        ("CREATE STREAM a WITH (x = 1 ^y = 2)", "y is not expected here: , or ) is missing"),
        ("CREATE STREAM a WITH (d = ^INTERVAL '1' SECOND)", "in WITH a duration is a text"),
        ("CREATE STREAM a WITH (x = 1) ^y", "y is not expected here: a statement ends with ;"),
        ("CREATE STREAM a WITH (x = ^'a)", "the quote is not closed: '"),
        ("CREATE STREAM a WITH (x = 'a') ^/* b", "the comment is not closed"),
        ('CREATE STREAM a WITH (x = \'"\', /* \' */ -- "\n y = ^"b)', 'the quote is not closed: "'),
        ("DROP ^STREAM lab", "a stream is there as long as a query reads it"),
        ("DROP ^lab", "lab is not expected here: DROP QUERY name"),
        ("PAUSE QUERY^", "the end of the statement is not expected here"),
        ("SHOW ^TABLES", "TABLES is not expected here: SHOW QUERIES, STREAMS or ALERTS"),
        ("SET ^klock = 'wall'", "there is no setting 'klock', only clock, prefix, http"),
        ("EXPLAIN ^SELECT 1", "SELECT is not expected here: EXPLAIN CREATE QUERY"),
        ("SELECT ^count(x) FROM q", "count(...) is for CREATE QUERY"),
        ("SELECT x ^AS y FROM q", "under their own names: leave AS out"),
        ("SELECT x FROM ^HOP(TABLE lab)", "windows are for CREATE QUERY"),
        ("SELECT x FROM q EMIT ^ON", "EMIT FINAL, the exact answers that are there"),
        ("SELECT x FROM q ^LIMIT 3", "SELECT reads the results of a query: SELECT ... FROM q"),
        (query("^count(*)"), "count(temperature), or of all: count(COLUMNS(*))"),
        (query("count(^DISTINCT x)"), "distinct(temperature)"),
        (query("^median(x)"), "there is no aggregate median, only count, sum"),
        (query("^coun(x)"), "did you mean 'count'?"),
        (query("avg(x) ^* 2 AS twice"), "a column is an aggregate of an expression, as in"),
        (query("^x"), "SELECT of windows has window_start, key and aggregates, as in avg(x)"),
        (query("^avg(x + 1)"), "an expression needs a name: avg(x + 1) AS name_avg"),
        (query("avg(x + 1) AS ^mean"), "after its field and its aggregate: AS mean_avg"),
        (query("avg(x), ^avg(x)"), "avg(x) is selected twice"),
        (query("avg(x) AS a_avg, ^max(y) AS a_max"), "'a' is x before: write max(y) AS other_max"),
        (query("avg(COLUMNS(*)), ^max(x)"), "COLUMNS(*) is for all aggregates of a SELECT"),
        (query("avg(COLUMNS(*)) AS ^x_avg"), "COLUMNS(*) keeps the names of the fields"),
        (query("quantile(x^)"), "the parameter is missing: quantile(temperature, 0.99)"),
        (query("quantile(x, ^2)"), "quantile: must be between 0 and 1, as 0.99, not '2'"),
        (query("quantile(x, ^'a')"), "the parameter is a number: quantile(temperature, 0.99)"),
        (query("top(x, ^101)"), "top: must be a whole number from 1 to 100, not '101'"),
        (query("avg(x, ^2)"), ""),
        (query("^window_start"), "select an aggregate, as in count(temperature)"),
        (query("key ^AS k, avg(x)"), "key is in every row, and keeps its name"),
        (query("^DISTINCT key, avg(x)"), "leave DISTINCT out"),
        (query("count(x), ^avg(z)"), "there is no field 'z'"),
        (query("avg(x),^ "), ""),
        (query(from_="FROM TUMBLE(TABLE lab, ^TABLE b, INTERVAL '1' MINUTE)"), "UNION ALL"),
        (query(from_="FROM lab^, b"), "a comma in FROM: several sources are TABLE a UNION ALL"),
        (query(from_="FROM lab ^WINDOW TUMBLING (SIZE 1 MINUTE)"), "windows are in FROM: FROM TUMBLE"),
        (query(from_="FROM lab ^JOIN b ON a.key = b.key"), "a join pairs readings of one key"),
        (query(from_="FROM lab ^UNION ALL TABLE b"), "in brackets: FROM (TABLE a UNION ALL TABLE b)"),
        (query(from_="FROM ^HOPPING(TABLE lab)"), "windows are TUMBLE and HOP"),
        (query(from_="FROM TUMBLE(^lab, INTERVAL '1' MINUTE)"), "a source in brackets is TABLE name"),
        (query(from_="FROM TUMBLE(TABLE lab, ^DESCRIPTOR(t), INTERVAL '1' MINUTE)"), "leave it out"),
        (query(from_="FROM TUMBLE(TABLE lab, ^'1m')"), "'1m' is not expected here: write INTERVAL"),
        (query(from_="FROM TUMBLE(TABLE lab, INTERVAL ^1 MINUTE)"), "has its number in quotes"),
        (query(from_="FROM TUMBLE(TABLE lab, INTERVAL ^'1 minute')"), "has its number in quotes"),
        (query(from_="FROM TUMBLE(TABLE lab, INTERVAL '1' ^MINUT)"), "did you mean 'MINUTE'?"),
        (query(from_="FROM HOP(TABLE lab, INTERVAL '1' MINUTE^)"), "slide before size"),
        (query(from_="FROM TUMBLE(TABLE lab UNION ^TABLE b, INTERVAL '1' MINUTE)"), "UNION ALL"),
        (query(from_="FROM TUMBLE(TABLE lab, INTERVAL '1' DAY, ^ZON => 'UTC')"), "ZONE => '...'"),
        (query(end=f"{END.replace('SECOND', 'SECOND HAVING')} count(x) > 1").replace("HAVING", "^HAVING"), "a condition on windows follows the groups: GROUP BY window_start, key HAVING"),
        (query(end=" GROUP BY window_start, key HAVING count(x) > 1 AND ^max(x) > 1" + END[27:]), "HAVING is of columns that SELECT has: add max(x) to SELECT"),
        (query(end=" GROUP BY window_start, key HAVING count(x) > 1 AND ^max(y) > 1" + END[27:]), "HAVING is of columns that SELECT has: add max(y) to SELECT"),
        (query(end=" GROUP BY window_start, key HAVING count(x) > 1 AND ^y_min > 1" + END[27:]), "query q, HAVING: 'count_x"[:16]),
        (query(end=" GROUP BY window_start, key HAVING ^median(x) > 1" + END[27:]), "query q, HAVING: "),
        (query(end=" GROUP BY window_start, key HAVING ^" + END[28:]), "the condition of HAVING is missing"),
        (query("x", "FROM lab", " ^HAVING x > 1 EMIT WITHIN INTERVAL '2' SECOND"), "a condition on windows follows the groups"),
        (query(end=" GROUP BY window_start, key EMIT ^ON WINDOW CLOSE"), "a query has EMIT WITHIN INTERVAL '2' SECOND"),
        (query(end=" GROUP BY window_start, key EMIT ^CHANGES"), "A reader chooses: SELECT * FROM q EMIT CHANGES"),
        (query(end=" GROUP BY window_start, key^"), "a query needs EMIT WITHIN INTERVAL '2' SECOND"),
        (query(end=" ^EMIT WITHIN INTERVAL '2' SECOND"), "windows need GROUP BY window_start, key"),
        (query(end=" GROUP BY key ^EMIT WITHIN INTERVAL '2' SECOND"), "rows are of windows and keys"),
        (query(end=" GROUP BY ^x EMIT WITHIN INTERVAL '2' SECOND"), "x is not expected here"),
        (query("x", "FROM lab", " ^GROUP BY key EMIT WITHIN INTERVAL '2' SECOND"), "groups are of windows"),
        (query("^avg(x)", "FROM lab", " EMIT WITHIN INTERVAL '2' SECOND"), "avg(...) is of windows"),
        (query("^x + 1", "FROM lab", " EMIT WITHIN INTERVAL '2' SECOND"), "x + 1 AS name"),
        (query("x, ^x", "FROM lab", " EMIT WITHIN INTERVAL '2' SECOND"), "'x' is selected twice"),
        (query("^(x", "FROM lab", " EMIT WITHIN INTERVAL '2' SECOND"), ") is missing"),
        (query(end=f"{END} WITH (^part = 4)"), "'part'; did you mean 'parts'?"),
        (query(end=f"{END} WITH (^where = 'x')"), "'where' is a clause of the statement"),
        (query(end=f"{END} ^LIMIT 4"), "a query has no end: leave LIMIT out"),
        # What the checks of the file find:
        (query("count(^z)"), "query q, SELECT.z: 'z': there is no field 'z', only x, y, key"),
        (query(end=f" WHERE z > 1{END}").replace("z >", "^z >"), "query q, WHERE: 'z > 1': there is no field 'z'"),
        (query(end=f' WHERE x > 1 -- one\n  AND (y\n < 2 OR /* no */ ^"z" > 1){END}'), "there is no field 'z', only x, y, key"),
        (query("avg(x), avg(y + ^foo(y)) AS y2_avg"), "query q, SELECT.y2: 'y + foo(y)': "),
        (query(from_="FROM TUMBLE(TABLE ^lap, INTERVAL '1' MINUTE)"), "query q, FROM[0]: there is no stream or query 'lap'; did you mean 'lab'?"),
        (query(from_="FROM HOP(TABLE lab, ^INTERVAL '2' MINUTE, INTERVAL '1' MINUTE)"), "query q, window.slide: 2m is larger than size, 1m"),
        (query(from_="FROM HOP(TABLE lab, ^INTERVAL '2' MONTH, INTERVAL '1' MINUTE)"), "query q, window.slide: '2mo' is not a duration"),
        (query(end=END.replace("INTERVAL '2'", "^INTERVAL '0.01'")), "query q, EMIT WITHIN: 10ms cannot be kept"),
        (query(end=f"{END} WITH (^parts = 'many')"), "query q, parts: 'many' is not a whole number"),
        (query(end=f"{END} WITH (policy = (^failur = 'delay'))"), "query q, policy.failur: unknown field; did you mean 'failure'?"),
        ("CREATE STREAM ^s WITH (key = (column = 'k'), fields = ['x']);" + query(), "stream s, time: is required"),
        ("CREATE STREAM s WITH (key = (column = 'k'), time = (column = 't', ^unit = 'years'), fields = ['x']);" + query(), "stream s, time.unit: must be 's', 'ms'"),
        ("SET ^clock = 'sun';" + query(), "clock: must be 'wall' or 'data', not 'sun'"),
        ("CREATE STREAM ^lab WITH (key = (value = 'k'));" + query(), "stream lab is created twice, first in line 1"),
        (query() + ";" + query().replace("QUERY q", "QUERY ^q"), "query q is created twice, first in line 2"),
        ("^SHOW QUERIES;" + query(), "declares nothing"),
    ],
)  # fmt: skip
def test_an_error_has_its_place_and_the_right_form(text: str, reason: str) -> None:
    text = LAB + text
    at = text.index("^")
    text = text.replace("^", "")
    if not reason:
        assert "d.sql:" in failure(text)
        return
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    found = failure(text).splitlines()

    assert found[0].startswith(f"d.sql:{line}:{column}: "), found
    assert reason in found[0]
    assert len(found) == 3, "there is one error"
    assert found[1].strip()
    assert found[2].strip() == "^"
    pointed = found[1][found[2].index("^") :]
    rest = text[text.rfind("\n", 0, at) + 1 :].splitlines() or [""]
    wanted = rest[line - (text.count("\n", 0, at) + 1)][column - 1 :]
    assert pointed == wanted[: len(pointed)]


def test_a_text_without_a_query_is_no_deployment() -> None:
    assert failure(LAB).startswith("d.sql:1:1: there is no CREATE QUERY")


def test_all_errors_of_a_text_are_reported_in_its_order() -> None:
    text = (
        f"{LAB}CREATE QUERY a AS SELEC x;\nDROP TABLE b;\n"
        "CREATE QUERY c AS SELECT z FROM lab EMIT WITHIN INTERVAL '2' SECOND;\n"
    )
    found = [line for line in failure(text).splitlines() if line.startswith("d.sql:")]
    # DROP has no name: what could follow from it is not reported.
    assert [line.split(": ")[0] for line in found] == ["d.sql:2:19", "d.sql:3:6"]
    found = [
        line
        for line in failure(text.replace("DROP TABLE b;", "")).splitlines()
        if line.startswith("d.sql:")
    ]
    assert [line.split(": ")[0] for line in found] == ["d.sql:2:19", "d.sql:4:26"]


def test_a_broken_stream_causes_no_errors_in_what_reads_it() -> None:
    text = f"CREATE STREAM lab WITH (key = );\n{query('count(x + y) AS z_count')};"
    assert re.findall(r"(?m)^d\.sql:\d+:\d+", failure(text)) == ["d.sql:1:31"]


@pytest.mark.parametrize("nested", ["(a = ", "["])
def test_deep_nesting_is_an_error(nested: str) -> None:
    text = f"CREATE STREAM a WITH (x = {nested * 1_000}"
    assert "values are nested more than 20 levels deep" in failure(text)


def test_deep_brackets_in_an_expression_are_an_error() -> None:
    text = LAB + query(end=f" WHERE {'(' * 1_000}x > 1{')' * 1_000}{END}")
    assert "nests brackets more than 24 deep" in failure(text)
    assert ") is missing" in failure(LAB + query(end=f" WHERE {'(' * 1_000}x > 1{END}"))
    assert ") is missing" in failure("EXPLAIN " * 1_000 + LAB + query("((" * 1_000))


@pytest.mark.parametrize("part", ["(", "x, ", "'a' ", "a ", "SELECT ", "a = 1, ", "\n"])
def test_a_megabyte_ends_with_an_error(part: str) -> None:
    begun = time.monotonic()
    text = f"{LAB}CREATE STREAM a WITH (" + part * (200_000 // len(part))
    assert failure(text).startswith("d.sql:2:")
    assert time.monotonic() - begun < 60
    too_long = failure(part * (TEXT_CHARS_MAX // len(part) + 1))
    assert "the text has" in too_long
    assert len(too_long) < 1_000


def test_many_errors_are_bounded() -> None:
    found = failure("x;\n" * 1_000)
    assert found.endswith("d.sql: 900 more errors")
    assert len(parse("x;" * 20_000, "d.sql").errors) == 10_001


def test_windows_line_ends_and_characters_that_are_not_printable() -> None:
    found = failure(f"{LAB}\r\nDROP\t\x1b[2J x;\r\n").splitlines()
    assert found[0].startswith("d.sql:3:6: ")
    assert "\x1b" not in found[1]
