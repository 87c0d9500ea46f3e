"""The prompt of `slackwater sql`: several lines, completion, history, errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from tests.unit.cli.test_sql import AVERAGES, READINGS, STREAM, Session

from slackwater.cli.statements.prompt import HISTORY, StatementCompleter, run_prompt
from slackwater.sql.tokens import is_complete

CTRL_C, CTRL_D = "\x03", "\x04"


def typed(session: Session, folder: Path, text: str) -> None:
    with create_pipe_input() as input_, create_app_session(input=input_, output=DummyOutput()):
        input_.send_text(text)
        run_prompt(session.runner, folder)


def test_a_statement_of_several_lines_is_run_at_its_semicolon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session(keeps_streams=True)
    lines = STREAM.strip().replace(" WITH", "\rWITH")
    typed(session, tmp_path, f"{lines}\rCREATE {AVERAGES}\r;\rSHOW\rSTREAMS;\r{CTRL_D}")
    assert session.live == ("averages",)
    assert "averages" in capsys.readouterr().out.splitlines()[-1]
    history = (tmp_path / HISTORY).read_text()
    assert "+SHOW\n+STREAMS;\n" in history


def test_an_error_and_an_interrupt_do_not_end_the_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session(keeps_streams=True)
    text = f"SELEC;\rhalf a statement {CTRL_C}{STREAM.strip()}\r{READINGS};\r{CTRL_D}"
    typed(session, tmp_path / "not-there", text)
    assert "sql:1:1: SELEC begins no statement" in capsys.readouterr().err
    assert session.live == ("readings",)
    assert not (tmp_path / "not-there").exists()


@pytest.mark.parametrize(
    ("begun", "completed"),
    [
        ("SELECT * FROM roo", ['"room-1"']),
        ('SELECT * FROM "roo', ['"room-1"']),
        ("DROP QUERY cl", ["climate"]),
        ("desc", ["DESCRIBE"]),
        ("SELECT av", ["avg("]),
        ("FROM TUMBLE(TAB", ["TABLE"]),
        ("SELECT ", []),
    ],
)
def test_names_and_keywords_are_completed(begun: str, completed: list[str]) -> None:
    completer = StatementCompleter(["room-1", "climate"])
    found = completer.get_completions(Document(begun), CompleteEvent())
    assert [each.text for each in found] == completed


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SHOW QUERIES;", True),
        ("SHOW QUERIES; -- all", True),
        ("", True),
        ("SHOW QUERIES", False),
        ("SELECT ';", False),
        ("SELECT /* ;", False),
        ("SHOW QUERIES; SHOW", False),
    ],
)
def test_a_text_is_complete_at_a_semicolon(text: str, complete: bool) -> None:
    assert is_complete(text) is complete
