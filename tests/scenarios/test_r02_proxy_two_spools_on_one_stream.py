"""trace-2 for proxies: a second spool on the stream, and acknowledged readings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.proxy_world import AHEAD, S, World

from slackwater.proxy.spool import Spool


def test_unaccepted_readings_follow_the_other_spools_under_new_ids(tmp_path: Path) -> None:
    world = World(tmp_path, spec=AHEAD)
    first = world.sensors("a")
    world.ingest([1100, 1101, 1102], "mine")
    first._spooled.log.append = lambda *_: None  # type: ignore[method-assign]
    world.run(first, 1)
    assert first._context.spool.bytes_held > 0
    first.close()

    other = world.sensors("b")
    world.ingest([1200, 1201], "theirs", "b")
    world.run(other, 1)
    assert [r[0] for r in world.readings()] == [0, 1]

    again = world.sensors("a")
    world.run(again, 1)
    assert world.readings() == [
        (0, 1200.0, 1200.0),
        (1, 1201.0, 1201.0),
        (2, 1100.0, 1100.0),
        (3, 1101.0, 1101.0),
        (4, 1102.0, 1102.0),
    ]
    assert world.counts() == {}
    world.check()


def test_what_the_other_spools_promise_forbids_is_superseded_and_counted(tmp_path: Path) -> None:
    world = World(tmp_path, spec=AHEAD)
    first = world.sensors("a")
    world.ingest([1001, 1002, 1100], "mine")
    first._spooled.log.append = lambda *_: None  # type: ignore[method-assign]
    world.run(first, 1)
    first.close()

    other = world.sensors("b")
    world.ingest([1200], "theirs", "b")
    world.run(other, 60)  # its clock boundary is now at 1061
    assert 1060 < world.boundary_s() <= 1061

    again = world.sensors("a")
    world.run(again, 1)
    assert [r[1] for r in world.readings()] == [1200.0, 1100.0]
    assert world.counts() == {"superseded": 2}
    assert {json.loads(e["payload"])["t"] for e in world.quarantined()} == {1001.0, 1002.0}
    world.check()


@pytest.mark.parametrize("hinted", [False, True])
def test_own_readings_that_were_accepted_are_not_sent_again(tmp_path: Path, hinted: bool) -> None:
    """This also holds where the log is not read, because a hint has its position."""
    world = World(tmp_path, spec=AHEAD)
    first = world.sensors("a")
    world.ingest([1100, 1101], "mine")
    first._spooled.acknowledge = lambda: None  # type: ignore[method-assign]
    world.run(first, 1)
    assert first._context.spool.bytes_held > 0, "killed before the delivery report was stored"
    if hinted:
        first._context.spool.keep_hints({"room": first.logs[0].hint or {}})
    first._context.spool.close()

    again = world.sensors("a")
    world.run(again, 1)
    assert len(world.readings()) == 2
    assert again._context.spool.bytes_held == 0
    assert world.now_us > 1000 * S
    world.check()


def test_a_report_that_comes_while_another_is_noted_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports arrive in the writer's thread; storing one in the spool takes milliseconds."""
    world = World(tmp_path, spec=AHEAD)
    proxy = world.sensors("a")
    world.ingest([1100, 1101], "mine")
    monkeypatch.setattr(proxy._spooled, "acknowledge", lambda: None)
    world.run(proxy, 1)
    monkeypatch.undo()
    last, acknowledge = proxy._spooled._acknowledged, Spool.acknowledge
    assert last == 1
    proxy._spooled._acknowledged = 0

    def slow(spool: Spool, last_id: int) -> None:
        monkeypatch.undo()
        proxy._spooled._acknowledged = last
        acknowledge(spool, last_id)

    monkeypatch.setattr(Spool, "acknowledge", slow)
    world.run(proxy, 1)
    assert proxy._context.spool.bytes_held == 0


def test_a_record_delivered_after_another_spool_s_start_is_kept(tmp_path: Path) -> None:
    """Readers drop the record.

    The heartbeat that reports this may not have arrived yet (rule-6).
    """
    world = World(tmp_path, spec=AHEAD)
    first = world.sensors("a")
    context = world.contexts[-1]
    world.sensors("b")
    world.ingest([1100, 1101], "mine")
    world.contexts.append(context)
    world.run(first, 1, hints=True)
    assert world.readings() == []
    assert context.spool.bytes_held > 0
    assert first.logs[0].is_superseded()
    first.close()

    again = world.sensors("a")
    world.run(again, 1)
    assert [r[1] for r in world.readings()] == [1100.0, 1101.0]
    assert again._context.spool.bytes_held == 0
    world.check()


def test_a_zombie_s_records_disturb_nobody(tmp_path: Path) -> None:
    """The successor finds them between its own records, checks them, and continues."""
    world = World(tmp_path, spec=AHEAD)
    first = world.sensors("a")
    second = world.sensors("a")
    (late,) = first.logs[0].core.flush(first.logs[0].inc, world.now_us)
    world.write(late)
    world.ingest([1100, 1101], "mine")
    world.run(second, 1, hints=True)
    assert second._context.spool.bytes_held > 0, "nothing is accepted before it has checked"
    assert not second.logs[0].is_superseded()
    world.run(second, 1, hints=True)
    assert second._context.spool.bytes_held == 0
    assert len(world.readings()) == 2
