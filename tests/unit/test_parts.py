"""Commands to the parts of a process."""

from __future__ import annotations

import logging

import pytest

from slackwater.runtime.parts import follow


def test_each_command_reaches_its_part_and_nonsense_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []
    verbs = {
        name: {verb: lambda what=f"{verb} {name}": done.append(what) for verb in ("kill", "pause")}
        for name in ("proxy/a", "proxy/b")
    }
    lines = [
        b"kill proxy/b\n", b"pause proxy/a\n", b"resume proxy/a\n", b"kill proxy/c\n", b"\n",
        b"kill\n", b"\xff\xfe " + b"x" * 1_000 + b"\n", b"kill proxy/a",
    ]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        follow(lines, verbs)
    assert done == ["kill proxy/b", "pause proxy/a", "kill proxy/a"]
    assert len(caplog.records) == 5
    assert all(len(record.getMessage()) < 300 for record in caplog.records)
