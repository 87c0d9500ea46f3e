"""What a command prints while it works without a word."""

from __future__ import annotations

import threading

import pytest
from tests.support.waiting import WAIT_S_MAX

from slackwater.cli import meanwhile
from slackwater.machine import starting


def test_what_is_awaited_is_told_until_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "SILENT_S_MAX", 0.0)
    lines: list[str] = []
    thrice = threading.Event()

    def emit(line: str) -> None:
        lines.append(line)
        if len(lines) >= 3:
            thrice.set()

    monkeypatch.setattr(meanwhile, "emit", emit)
    with meanwhile.report_meanwhile("the batch job", look_s=0.001):
        assert thrice.wait(WAIT_S_MAX)
    assert all(line.endswith(" s: waiting for the batch job") for line in lines)
