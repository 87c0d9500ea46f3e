"""trace-1 for a proxy: it resumes at the end of the contiguous prefix, not at the log's end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.proxy_world import World, anchored

from slackwater.model.records import SourceRecord
from slackwater.proxy.sourcelog import SourceLog

ROWS = [f"n,{i},{i}" for i in range(20)]


def hold_back(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    """Let the record with this first id fail in the client; later records are written."""
    append = SourceLog.append

    def lossy(self: SourceLog, records: list[SourceRecord], *args: object) -> None:
        append(self, [r for r in records if not r.first_id <= lost <= r.last_id], *args)  # type: ignore[arg-type]

    monkeypatch.setattr(SourceLog, "append", lossy)


def test_a_lost_batch_is_sent_again_and_what_lies_beyond_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, anchored())
    path = world.file(ROWS)
    with monkeypatch.context() as patch:
        hold_back(patch, lost=5)
        world.run(world.replay(path), 10)
    tail = max(record.last_id for _, record in world.raw())
    assert tail > 5, "later batches were written"
    assert len(world.readings()) == 5, "readers wait at the hole"

    successor = world.replay(path)
    assert successor.logs[0].core.next_id == 5
    world.run(successor, 30)
    assert world.readings() == [(i, float(i), float(i)) for i in range(20)]
    world.check()


def test_killed_after_any_record_the_log_is_the_same(tmp_path: Path) -> None:
    complete = World(tmp_path, anchored())
    path = complete.file(ROWS)
    complete.run(complete.replay(path), 30)
    for kill_after_s in (0, 0.05, 1, 3.3, 7, 12, 19, 25):
        world = World(tmp_path / str(kill_after_s), anchored())
        (tmp_path / str(kill_after_s)).mkdir()
        world.run(world.replay(path), kill_after_s)
        world.run(world.replay(path), 30)
        assert world.readings() == complete.readings()
        world.check()


def test_a_successor_does_not_believe_a_hint_that_the_log_contradicts(tmp_path: Path) -> None:
    world = World(tmp_path, anchored())
    path = world.file(ROWS)
    first = world.replay(path)
    world.run(first, 8)
    hint = first.logs[0].hint
    assert hint is not None
    spool = world.context().spool
    spool.keep_hints({"room": hint})
    world.run(world.replay(path), 4)
    spool.keep_hints({"room": dict(hint, next_id=3)})
    world.run(world.replay(path), 30)
    assert world.readings() == [(i, float(i), float(i)) for i in range(20)]


def test_a_zombies_records_behind_start_are_dropped(tmp_path: Path) -> None:
    world = World(tmp_path, anchored())
    path = world.file(ROWS)
    zombie = world.replay(path)
    world.run(zombie, 5)
    successor = world.replay(path)
    world.now_us += 2_000_000
    zombie.step(world.now_us)
    zombies = [r for _, r in world.raw() if r.inc == zombie.logs[0].inc and r.first_id >= 5]
    assert zombies, "it continued to write"
    world.run(successor, 30)
    assert world.readings() == [(i, float(i), float(i)) for i in range(20)]
    assert replace(zombies[0], inc=0).inc < successor.logs[0].inc
