"""The progress of a rehearsal: lines in a pipe, a bar with an estimate on a terminal."""

from __future__ import annotations

import io
import re
from typing import Any, cast

import pytest
from rich.console import Console

from slackwater.cli.rehearse import Bar, Progress
from slackwater.rehearsal.plan import RehearsalPlan

S = 1_000_000
ANCHOR = 1_000 * S


class Plan:
    """Readings for 20 s; the last window is due 10 s later."""

    replay_us, start = 20 * S, 0

    @staticmethod
    def done_us(anchor_wall: int) -> int:
        return anchor_wall + 30 * S


PLAN = cast(RehearsalPlan, Plan())


def play(watcher: Progress) -> None:
    watcher.phase("starting Kafka, Spark and the processes")
    watcher.phase("ready after  2.1 s: Kafka")
    watcher.waits("5 s: waiting for roots")
    watcher.phase("replaying")
    watcher.began(PLAN, ANCHOR)
    boundary: dict[str, Any] = {"kind": "boundary", "label": "stable", "windows": 3}
    watcher.saw(boundary, ANCHOR)
    watcher.happened("silence room-2", ANCHOR + 2 * S)
    for second in range(30):
        watcher.tick(ANCHOR + second * S)


def test_in_a_pipe_no_three_seconds_pass_without_a_line() -> None:
    lines: list[str] = []
    play(Progress(lines.append))
    assert lines[:4] == [
        "... starting Kafka, Spark and the processes",
        "... ready after  2.1 s: Kafka",
        "... 5 s: waiting for roots",
        "... replaying",
    ]
    assert "...    2.0 s  silence room-2" in lines
    ticks = [line for line in lines if " of 30 s" in line]
    assert ticks[0] == "...    3.0 s of 30 s  3 stable"
    assert len(ticks) == 9


@pytest.mark.parametrize("width", [80, 40])
def test_on_a_terminal_a_bar_has_an_estimate_and_lines_stay_above_it(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has lines
    written = io.StringIO()
    with Bar(Console(file=written, force_terminal=True, width=width)) as bar:
        play(bar)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue())
    assert "... ready after  2.1 s: Kafka" in text
    assert "...    2.0 s  silence room-2" in text
    assert "about 1 s left" in text or width < 80
    assert max(map(len, re.split(r"[\r\n]", text))) <= width
