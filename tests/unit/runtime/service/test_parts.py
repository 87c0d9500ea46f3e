"""Commands to the parts of a process, and a part's heartbeats over its lives."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from slackwater.runtime.service.beat import HeartbeatState
from slackwater.runtime.service.parts import FAILURES, PartBeat, follow, of_parts


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
        follow(lines, of_parts(verbs))
    assert done == ["kill proxy/b", "pause proxy/a", "kill proxy/a"]
    assert len(caplog.records) == 5
    assert all(len(record.getMessage()) < 300 for record in caplog.records)


class Sender:
    """Keeps the heartbeats of a part: one for each of its lives."""

    def __init__(self) -> None:
        self.beats: list[HeartbeatState] = []
        self.updates: list[bool] = []

    def add_part(self, name: str, *, owner_updates: bool = False) -> HeartbeatState:
        self.beats.append(
            HeartbeatState(name, len(self.beats), lambda: None, owner_updates=owner_updates)
        )
        self.updates.append(owner_updates)
        return self.beats[-1]


def test_a_part_that_begins_again_is_not_what_it_was() -> None:
    sender = Sender()
    beat = PartBeat(cast(Any, sender), "orderer/q.0.a", owner_updates=True)
    beat.update(inc=4, ready=True, states={"out": "STABLE"}, detail={"readings": 3})
    beat.begin_again({FAILURES: 1})
    assert len(sender.beats) == 2
    reported = sender.beats[-1].to_heartbeat(5, {})
    assert (reported.inc, reported.ready, reported.states, reported.detail) == (
        -1,
        False,
        {},
        {FAILURES: 1},
    )
    beat.update(detail={"readings": 1})
    assert sender.beats[-1].to_heartbeat(5, {}).detail == {"readings": 1, FAILURES: 1}
    assert sender.updates == [True, True], "it is believed no longer than before"


def test_a_part_that_stands_still_is_silent_over_its_lives() -> None:
    sender = Sender()
    beat = PartBeat(cast(Any, sender), "orderer/q.0.a")
    beat.hold()
    beat.begin_again()
    assert [each.is_silent for each in sender.beats] == [True, True]
    beat.release()
    assert not sender.beats[-1].is_silent
    beat.begin_again()
    assert not sender.beats[-1].is_silent
