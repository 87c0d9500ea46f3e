"""The page `docs/howto/ask-it.md`: its statements are valid, what it shows is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slackwater.deployment.parse import parse_deployment
from slackwater.model.errors import DeploymentError
from slackwater.sql.document import parse_deployment_sql
from slackwater.sql.parser import parse
from slackwater.sql.printer import yaml_text

PAGE = (Path(__file__).parents[3] / "docs/howto/ask-it.md").read_text()
DECLARED, *OTHERS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
(SHOWN,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_file_shown_is_what_the_statements_are() -> None:
    declared = parse_deployment_sql(DECLARED, "climate.sql")
    assert yaml_text(declared.content) == SHOWN
    assert parse_deployment(SHOWN, "climate.yaml").deployment == declared.deployment


def test_all_other_statements_are_valid() -> None:
    assert len(OTHERS) == 3
    for text in OTHERS:
        parsed = parse(text, "page")
        assert not parsed.errors
        assert len(parsed.statements) == text.count(";")


def test_the_forms_of_the_table_are_valid() -> None:
    rows = re.findall(r"^\| `((?:FROM|TUMBLE|SELECT)[^|]*)` \|", PAGE, re.MULTILINE)
    end = " EMIT WITHIN INTERVAL '2' SECOND"
    group = " GROUP BY window_start, key"
    assert len(rows) >= 7
    for row in rows:
        for form in row.split("`, `"):
            text = form.removesuffix(" ... GROUP BY window_start, key")
            text = text if text.startswith("SELECT") else f"SELECT * {text}"
            text = text.replace("* TUMBLE", "* FROM TUMBLE")
            if "TUMBLE" in text or "HOP" in text:
                text = text.replace("*", "avg(COLUMNS(*))", 1) + group
            elif "FROM" not in text:
                text += " FROM TUMBLE(TABLE s, INTERVAL '1' MINUTE)" + group
            parsed = parse(f"CREATE QUERY q AS {text}{end}", "table")
            assert not parsed.errors, (text, parsed.errors)


def test_the_error_shown_is_printed() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    line, column = map(int, re.findall(r":(\d+):(\d+):", shown)[0])
    statement = shown.splitlines()[1].strip()
    before = "\n" * (line - 2) + "CREATE QUERY q AS\n"
    after = "FROM TUMBLE(TABLE lab, INTERVAL '1' MINUTE)\nGROUP BY window_start, key"
    text = f"{before}{statement}\n{after}"
    with pytest.raises(DeploymentError) as error:
        parse_deployment_sql(text, "climate.sql")
    assert error.value.message == shown.rstrip("\n")
    assert column == statement.index("avg") + 1
