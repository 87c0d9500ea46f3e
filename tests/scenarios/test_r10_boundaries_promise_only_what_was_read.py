"""trace-10: a boundary covers only input that the proxy has read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.proxy_world import SPEC, S, World, anchored, grids
from tests.support.topic_world import replace_broker

from slackwater.codec import decode_source
from slackwater.model.deployment import TopicSpec
from slackwater.model.limits import NEVER
from slackwater.model.records import NO_EPOCH, SourceRecord
from slackwater.primitives.windows import Grid
from slackwater.proxy.shell import Silence
from slackwater.proxy.topic import input as topic_input
from slackwater.proxy.topic.client import NO_EPOCHS, Fetched, Notice
from slackwater.runtime.logs.described import TopicState
from slackwater.runtime.logs.transport import read_to_end


def test_with_expect_every_the_boundary_comes_from_readings_alone(tmp_path: Path) -> None:
    spec = replace(SPEC, expect_every_us=5 * S, disorder_us=S)
    world = World(tmp_path, anchored(), spec=spec)
    proxy = world.replay(world.file(["n,0,1", "n,3,1", "n,40,1"]))
    world.run(proxy, 30)
    assert world.boundary_s() == 2, "no watermark advances in 30 s without readings"
    world.run(proxy, 15)
    assert world.boundary_s() == 39
    assert len(world.readings()) == 3
    world.check()


def test_a_silence_holds_readings_and_boundaries_back_and_makes_none_late(tmp_path: Path) -> None:
    world = World(tmp_path, anchored())
    rows = [f"n,{t},{t}" for t in [0, 1, 2, 4, 3, 5, 6, 7, 8, 9]]
    world.silences = (Silence(2 * S + S // 2, 4 * S),)
    path = world.file(rows)
    proxy = world.replay(path)
    world.run(proxy, 2.49)
    before = len(world.raw())
    world.run(proxy, 4)
    assert len(world.raw()) == before
    assert world.boundary_s() < 2.5
    world.run(proxy, 0.02)
    assert world.boundary_s() >= 6
    world.run(proxy, 10)
    assert [r[1] for r in world.readings()] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert world.counts() == {"late": 1}, "the one that is late by the file's order"
    world.check()


def test_a_restart_in_the_middle_promises_nothing_about_its_backlog(tmp_path: Path) -> None:
    world = World(tmp_path, anchored(speed=10))
    path = world.file([f"n,{t / 10},{t}" for t in range(500)])
    world.run(world.replay(path), 1)
    world.now_us += 2 * S  # the proxy is down while 20 s of readings become due
    successor = world.replay(path)
    world.run(successor, 0)
    world.check()
    world.run(successor, 5)
    assert len(world.readings()) == 500
    assert world.counts() == {}


def test_all_streams_boundaries_arrive_at_the_cut_points_plus_disorder(tmp_path: Path) -> None:
    spec = replace(SPEC, disorder_us=S // 4)
    world = World(tmp_path, anchored(), spec=spec)
    proxy = world.replay(world.file(["n,0,0", "n,100,0"]))
    grids(proxy, Grid(S, None))
    sent: list[float] = []
    for _ in range(12):
        known = len(world.raw())
        wake = proxy.step(world.now_us)
        if len(world.raw()) > known:
            sent.append((world.now_us - 1_000 * S) / S)
        world.now_us = max(wake, world.now_us)
    assert sent[0] == 0, "once at the start"
    assert len(sent) > 4
    assert all(at % 1 == 0.25 for at in sent[1:])
    assert world.boundary_s() == round(world.boundary_s())


def test_nothing_is_promised_when_the_disk_could_not_keep_the_promise(tmp_path: Path) -> None:
    world = World(tmp_path)
    proxy = world.sensors()
    world.run(proxy, 1)
    watermark_made = world.boundary_s()
    stored = proxy._context.spool.spooled().watermark / S
    assert watermark_made <= stored, "stored before it is sent"


@dataclass
class Client:
    """Reads such a topic; messages are returned only after ``bring``."""

    waiting: list[Fetched | Notice] = field(default_factory=list)
    ends: Callable[[], Mapping[int, int]] | None = None
    """Responds to a request for end offsets; no response by default."""
    paused: int = 0
    """The number of pauses."""
    metadata: int = 0
    """The number of metadata responses."""
    assignments: list[tuple[dict[int, int], dict[int, int]]] = field(default_factory=list)
    """Positions and epochs of each assignment."""

    def assign(self, positions: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS) -> None:
        self.assignments.append((dict(positions), dict(epochs)))

    def pause(self) -> None:
        self.paused += 1

    def resume(self, _timeout_s: float) -> Mapping[int, int] | None:
        return None if self.ends is None else self.ends()

    def read(self, _wait_s: float) -> list[Fetched | Notice]:
        brought, self.waiting = self.waiting, []
        return brought

    def release(self) -> None: ...

    def metadata_count(self) -> int:
        return self.metadata

    def close(self) -> None: ...


class AtOnce:
    """Executes each submitted call before it returns."""

    def submit(self, act: Callable[..., Any], *arguments: object) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(act(*arguments))
        return done

    def shutdown(self, **_: object) -> None: ...


THEIRS = TopicSpec("theirs")


@dataclass
class Fed:
    """A proxy that reads an existing topic, with one reading per second in its first partition."""

    world: World
    monkeypatch: pytest.MonkeyPatch
    client: Client = field(default_factory=Client)
    brought: int = 0
    partitions: int = 1
    topic: TopicSpec = THEIRS
    epoch: int = NO_EPOCH
    """The leader epoch of the messages that are brought."""

    def __post_init__(self) -> None:
        self.world.broker.create_topic(THEIRS.name, self.partitions)
        self.world.broker.create_topic("sw.registry")
        self.world.topics.states[THEIRS.name] = TopicState("first", self.partitions)
        replace_broker(self.monkeypatch, self.world.broker, lambda: self.client, AtOnce)
        self.client.ends = self.ends
        self.proxy = topic_input.TopicInput(self.world.context(), self.topic)

    def ends(self) -> Mapping[int, int]:
        """Return the topic's end offsets."""
        logs = [(THEIRS.name, number) for number in range(self.partitions)]
        found = self.world.broker.end_offsets(logs)
        return {number: end for (_, number), end in found.items()}

    def put(self, times: Iterable[int], partition: int = 0) -> None:
        """Write to the topic; the consumer does not return it yet."""
        writer = self.world.broker.writer(self.world.failures.append)
        for at in times:
            message = b'{"node": "n", "ts": %d, "t": 1}' % at
            writer.append(THEIRS.name, partition, message)

    def bring(self) -> None:
        """Let the consumer return the messages in the topic."""
        raw = list(read_to_end(self.world.broker, (THEIRS.name, 0)))
        if new := raw[self.brought :]:
            offsets = np.array([r.offset for r in new], np.int64)
            self.client.waiting = [Fetched(0, offsets, [r.value for r in new], epoch=self.epoch)]
        self.brought = len(raw)

    def log(self, partition: int = 0) -> Sequence[SourceRecord]:
        raw = read_to_end(self.world.broker, (f"sw.source.room.{partition}", 0))
        return [decode_source(record.value) for record in raw]

    def readings(self) -> int:
        return sum(record.readings for record in self.log())


def test_a_message_that_the_client_returns_again_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a change of the leader the client returns the last two messages, and a new one."""
    world = World(tmp_path, spec=replace(SPEC, topic=THEIRS, expect_every_us=5 * S))
    fed = Fed(world, monkeypatch)
    fed.put(range(900, 910))
    fed.proxy.begin()
    fed.bring()
    world.run(fed.proxy, 2)
    fed.put([910])
    fed.brought -= 2
    fed.bring()
    world.run(fed.proxy, 2)
    assert fed.readings() == 11
    fed.brought -= 1
    fed.bring()
    world.run(fed.proxy, 2)
    assert fed.readings() == 11


def test_what_an_existing_topic_holds_is_read_before_the_clock_promises_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy starts, and its clock is far beyond the unread messages in the topic."""
    world = World(tmp_path, spec=replace(SPEC, topic=THEIRS))
    fed = Fed(world, monkeypatch)
    fed.put(range(900, 1_000))
    fed.proxy.begin()
    world.run(fed.proxy, 2)
    assert [r.boundary for r in fed.log()] == [NEVER, NEVER], "nothing was read: no watermark"

    fed.bring()
    world.run(fed.proxy, 2)
    assert fed.readings() == 100
    assert world.counts() == {}, "none is late"
    assert fed.log()[-1].boundary > 1_000 * S, "now it follows the clock"


@pytest.mark.parametrize("declared", [{}, {"expect_every_us": 5 * S}], ids=["sporadic", "declared"])
def test_a_paused_topic_is_read_to_its_end_before_the_watermark_advances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: dict[str, Any]
) -> None:
    """The client, paused after a cut point, returns messages some time after the next one."""
    world = World(tmp_path, spec=replace(SPEC, topic=THEIRS, disorder_us=S, **declared))
    fed = Fed(world, monkeypatch)
    fed.put(range(900, 1_000))
    fed.bring()
    fed.proxy.begin()
    world.run(fed.proxy, 0.2)
    assert fed.client.paused == 1
    sent, watermark_made = fed.readings(), fed.log()[-1].boundary
    assert sent == 100

    fed.put([1_000] * 50)
    world.run(fed.proxy, 5)
    assert (fed.readings(), fed.log()[-1].boundary) == (sent, watermark_made), "not read yet"
    fed.bring()
    world.run(fed.proxy, 0.01)
    assert fed.readings() == sent + 50, "sent as soon as they are read"
    assert fed.log()[-1].boundary > watermark_made
    world.run(fed.proxy, 5)
    assert fed.client.paused == 1, "an idle topic is not paused"
    assert world.counts() == {}


@pytest.mark.parametrize(
    ("declared", "lost"),
    [
        ({}, 15),
        ({"expect_every_us": 5 * S}, 0),
        ({"expect_every_us": 5 * S, "learns_gaps": True}, 0),
    ],
    ids=["sporadic", "expect_every", "auto"],
)
def test_a_source_that_was_cut_off_sends_its_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: dict[str, Any], lost: int
) -> None:
    """The effect of a silence of 16 s depends on the declaration.

    Only `sporadic` follows the clock.
    """
    world = World(tmp_path, spec=replace(SPEC, topic=THEIRS, disorder_us=S, **declared))
    fed = Fed(world, monkeypatch)
    fed.put(range(900, 1_000))
    fed.proxy.begin()
    fed.bring()
    world.run(fed.proxy, 16)
    watermark_made = fed.log()[-1].boundary / S
    assert watermark_made > 1_014 if lost else watermark_made == 998, (
        "by the clock, or by readings alone"
    )

    fed.put(range(1_000, 1_020))
    fed.bring()
    world.run(fed.proxy, 2)
    assert fed.readings() == 120 - lost
    assert world.counts() == ({"late": lost} if lost else {}), "below the watermark: quarantine"
    assert not world.failures


@pytest.mark.parametrize("learns_gaps", [False, True], ids=["expect_every", "auto"])
def test_a_log_that_followed_the_clock_goes_on_by_its_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learns_gaps: bool
) -> None:
    """The meaning of silence is declared during a silence, over existing logs."""
    world = World(tmp_path, spec=replace(SPEC, topic=THEIRS, disorder_us=S))
    fed = Fed(world, monkeypatch)
    fed.put(range(900, 1_000))
    fed.proxy.begin()
    fed.bring()
    world.run(fed.proxy, 10.5, hints=True)
    watermark_made = fed.log()[-1].boundary
    assert watermark_made > 1_009 * S

    world.spec = replace(world.spec, expect_every_us=5 * S, learns_gaps=learns_gaps)
    successor = topic_input.TopicInput(world.context(), THEIRS)
    successor.begin()
    world.run(successor, 15)
    assert fed.log()[-1].boundary == watermark_made, (
        "kept, and the clock no longer advances the watermark"
    )

    fed.put(range(1_000, 1_025))
    fed.bring()
    world.run(successor, 2)
    late = sum(at * S < watermark_made for at in range(1_000, 1_025))
    assert late == 10
    assert fed.readings() == 125 - late
    assert world.counts() == {"late": late}, "earlier watermarks remain in effect"
    assert fed.log()[-1].boundary == 1_023 * S
    assert not world.failures
