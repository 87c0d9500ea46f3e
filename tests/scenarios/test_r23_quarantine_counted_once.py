"""trace-23: only the proxy quarantines, and a restart does not count twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.proxy_world import World, anchored

from slackwater.proxy.sourcelog import SourceLog


def unexpected(*_: object) -> None:
    raise AssertionError("a record was sent before the entries that it passes")


ROWS = [
    "n,0,0",
    "n,5,5",
    "n,1,1",  # late
    "n,x,6",  # malformed
    ",6,6",  # no key
    "n,7,inf",  # no number
    "",
    "n,8,",  # missing: a reading
    "n,9,9",
    "n,2,2",  # late
    "n,10,10",
]


def test_counts_are_the_same_however_often_the_proxy_is_restarted(tmp_path: Path) -> None:
    for kills in ([], [0.5], [5.5, 1.2], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]):
        folder = tmp_path / str(len(kills))
        folder.mkdir()
        world = World(folder, anchored())
        path = world.file(ROWS)
        for seconds in kills:
            world.run(world.replay(path), seconds)
        last = world.replay(path)
        world.run(last, 20)
        assert world.counts() == {"late": 2, "malformed": 3}
        assert [r[1] for r in world.readings()] == [0, 5, 8, 9, 10]
        detail = last.detail()
        assert (detail["late"], detail["malformed"], detail["blank"]) == (2, 3, 1)
        world.check()


def test_an_entry_has_content_place_and_reason(tmp_path: Path) -> None:
    world = World(tmp_path, anchored())
    world.run(world.replay(world.file(ROWS)), 20)
    late = next(e for e in world.quarantined() if e["reason"] == "late")
    assert late["stream"] == "room"
    assert late["position"] == "4"
    assert late["stime"] == "1970-01-01T00:00:01.000000Z"
    assert late["payload"] == "n,1,1"
    malformed = [e for e in world.quarantined() if e["reason"] == "malformed"]
    assert [(e["position"], e["detail"]) for e in malformed] == [
        ("5", "time"),
        ("6", "empty key"),
        ("7", "field t"),
    ]


def test_entries_are_in_the_topic_before_the_record_that_passes_them(tmp_path: Path) -> None:
    world = World(tmp_path, anchored())
    proxy = world.replay(world.file(ROWS))
    world.run(proxy, 4.9)
    known = len(world.raw())
    position = proxy.logs[0].core.position
    world.broker.go_away()
    world.run(proxy, 0.2)
    assert proxy.logs[0].core.position > position, "it has processed the unusable ones"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SourceLog, "append", unexpected)
        world.run(proxy, 0.1)
    world.broker.come_back()
    world.run(proxy, 20)
    assert len(world.raw()) > known
    assert world.counts() == {"late": 2, "malformed": 3}
    world.check()
