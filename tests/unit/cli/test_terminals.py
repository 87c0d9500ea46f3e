"""A dumb terminal, as CI and editors have, shows lines: rich draws nothing in place there."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

import slackwater.cli
from slackwater.cli import rehearse as command
from slackwater.cli.terminals import repaints

CLI = Path(slackwater.cli.__file__).parent


def console(term: str, *, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, _environ={"TERM": term})


def test_a_dumb_terminal_and_a_pipe_do_not_repaint() -> None:
    assert repaints(console("xterm"))
    assert not repaints(console("dumb"))
    assert not repaints(console("xterm", terminal=False))


@pytest.mark.parametrize(("term", "bar"), [("xterm", True), ("dumb", False)])
def test_a_rehearsal_shows_its_phases_on_each(
    term: str, bar: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    its = console(term)
    monkeypatch.setattr(command, "Console", lambda: its)
    with command.progress() as watcher:
        assert isinstance(watcher, command.Bar) == bar
        watcher.waits("5 s: waiting for roots")
    assert isinstance(its.file, io.StringIO)
    assert "waiting for roots" in its.file.getvalue() + capsys.readouterr().out


def test_all_that_is_drawn_in_place_asks_whether_it_can_be() -> None:
    """Whoever draws in place has one condition, not the one of rich that a dumb terminal meets."""
    drawing = [
        path
        for path in CLI.rglob("*.py")
        if re.search(r"^from rich\.(live|progress) import", path.read_text(), re.MULTILINE)
    ]
    assert {path.name for path in drawing} >= {"watch.py", "demo.py", "show.py", "rehearse.py"}
    assert [path.name for path in drawing if "repaints(" not in path.read_text()] == []
