"""trace-5, rule-12: a session that holds more than H without need ends; a correct one does not.

H bounds the data ahead of the next bucket. The size of the bucket itself, and of the data that a
join looks back to, depends on the number of readings: it may exceed H without ending a session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.paper.stage import MS, Orderer, Settings, Source
from tests.simulator.story import Story

from slackwater.model.errors import HeldTooMuchError
from slackwater.model.records import DeltaRecord, Kind, Position
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog, initial_state
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.sunion.core import OrdererCore

TICK = 50
H_BYTES = 2_000
SHARE = H_BYTES // 2


class Bounded(Orderer):
    """An orderer of two sources with a small H."""

    def __init__(self, sources: list[Source], join_ms: int | None = None) -> None:
        super().__init__(sources, Settings(join_within_ms=join_ms))
        self.config = replace(self.config, ahead_bytes_max=H_BYTES)
        self.crash()


# Correct sessions.

ACTS = st.lists(
    st.tuples(
        st.sampled_from(["say", "cut", "heal", "deaf", "hear", "crash", "skip"]),
        st.integers(0, 1),
        st.integers(0, 60),
    ),
    max_size=120,
)


@given(acts=ACTS, join_ms=st.sampled_from([None, 100, 2_000]))
@settings(max_examples=60, deadline=None)
def test_a_right_session_never_ends_by_it(
    acts: list[tuple[str, int, int]], join_ms: int | None
) -> None:
    """For any input: each step checks, and any excess over H is gone a turn later."""
    sources = [Source("s1"), Source("s2")]
    orderer, now = Bounded(sources, join_ms), 0
    for act, which, much in [*acts, ("heal", 0, 0), ("heal", 1, 0), ("hear", 0, 0)]:
        source = sources[which]
        match act:
            case "say" | "skip":
                now += TICK * (1 if act == "say" else 1 + much)
                source.emit([now - 1 - i / 100 for i in range(much)], now)
                sources[1 - which].emit([now - 1], now)
            case "cut" if source.held is None:
                source.disconnect()
            case "heal" if source.held is not None:
                source.reconnect()
            case "deaf":
                orderer.deaf_to = {source.name}
            case "hear":
                orderer.deaf_to = set()
            case "crash":
                orderer.save()
                orderer.crash()
        orderer.listen()
        orderer.step(now)


def test_a_bucket_that_is_larger_than_h_ends_nobody() -> None:
    one, two = Source("s1"), Source("s2")
    orderer = Bounded([one, two])
    for now in range(100, 1_001, 100):
        for part in range(10):
            one.emit([now - 90 + part * 9 + i / 100 for i in range(20)], now - 88 + part * 9)
        one.emit([], now)
        orderer.listen()
        orderer.step(now)
    two.emit([], 1_000)
    orderer.listen()
    orderer.step(1_000)
    assert SHARE < 10 * 20 * 24
    assert orderer.core.counters.readings == 10 * 10 * 20


def test_what_a_join_looks_back_to_ends_nobody() -> None:
    one, two = Source("s1"), Source("s2")
    orderer = Bounded([one, two], join_ms=10_000)
    held = []
    for now in range(100, 10_001, 100):
        one.emit([now - 50], now)
        two.emit([now - 50], now)
        orderer.listen()
        orderer.step(now)
        held.append(orderer.core.held_bytes - orderer.core.logs.ahead_bytes)
    assert max(held) > 2 * H_BYTES


# Sessions that leak.


def never_lets_go(core: OrdererCore) -> None:
    """Never release records that the lines have passed."""
    for cursor in (*core.logs.stable, *core.logs.live):
        cursor.pass_to = lambda start: None  # type: ignore[method-assign]


def never_parks(core: OrdererCore) -> None:
    """Never park cursors that run ahead of the others."""
    core.logs._bound = lambda stream: None  # type: ignore[method-assign]


def reads_on(core: OrdererCore) -> None:
    """Read all parked logs, however far ahead."""

    def wanted() -> dict[tuple[LineName, int], int]:
        return {
            (line, stream): cursor.offset
            for line in LineName
            for stream, cursor in core.logs.inputs.parked(line)
        }

    core.wanted = wanted  # type: ignore[method-assign]


LEAKS: Final[Mapping[str, Callable[[OrdererCore], None]]] = {
    "it releases nothing": never_lets_go,
    "it parks nothing": never_parks,
    "it reads on what is parked": reads_on,
    "nothing": lambda core: None,
}


@pytest.mark.parametrize(
    ("leak", "is_silent"),
    [
        ("it releases nothing", False),
        ("it parks nothing", True),
        ("it reads on what is parked", True),
    ],
)
def test_a_session_that_leaks_ends(leak: str, is_silent: bool) -> None:
    ended = while_readings_come(leak, is_silent=is_silent)
    assert ended is not None
    assert str(ended).startswith("orderer/q.0.a keeps")
    assert ended.bound == SHARE
    assert SHARE < ended.held < 3 * SHARE


@pytest.mark.parametrize("is_silent", [False, True])
def test_one_that_does_not_leak_goes_on(is_silent: bool) -> None:
    assert while_readings_come("nothing", is_silent=is_silent) is None


def while_readings_come(leak: str, *, is_silent: bool) -> HeldTooMuchError | None:
    """Return the error that ends the session; the second of its inputs may be silent."""
    one, two = Source("s1"), Source("s2")
    orderer = Bounded([one, two])
    LEAKS[leak](orderer.core)
    for now in range(100, 20_001, 100):
        one.emit([now - 50], now)
        if not is_silent:
            two.emit([now - 50], now)
        try:
            orderer.listen()
            orderer.step(now)
        except HeldTooMuchError as error:
            return error
    return None


@pytest.mark.parametrize(
    "leak", ["soutput.core.settle", "soutput.live_input.LiveInput.forget_before"]
)
def test_a_root_that_leaks_ends(leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It chooses nothing, or releases none of its chosen buckets."""
    monkeypatch.setattr(f"slackwater.protocols.dpc.{leak}", lambda *_given: None)
    with pytest.raises(HeldTooMuchError, match=r"root/q\.0 keeps") as ended:
        while_buckets_come()
    assert ended.value.bound == 100_000 < ended.value.held < 200_000


def test_a_root_that_does_not_leak_goes_on() -> None:
    while_buckets_come()


def while_buckets_come() -> None:
    """All data of a window of an hour is tentative, and H is a few buckets."""
    hour_us = 3_600_000 * MS
    story = Story(replicas=1, window_us=hour_us, slide_us=hour_us, bound_us=1_000 * MS)
    config = replace(story.world.q.root_config(0, 1), ahead_bytes_max=100_000)
    core = RootCore(config, initial_state(config), suppress_until={})
    first, live = config.grid.bucket_start(config.start_time), DeltaLog(0, 0, LineName.LIVE)
    for log in config.logs:
        start = Position(first)
        core.receive(log, 0, DeltaRecord(Kind.START, 0, 0, log.line - 1, 0, 0, 0, frontier=start))
    keys, ones = tuple(f"k{i}" for i in range(300)), np.ones((1, 300))
    figures: dict[str, Any] = dict.fromkeys(("count", "sum", "m2", "min", "max"), ones)
    for n in range(100):
        at, w = first + n * config.grid.w_us, config.grid.w_us
        bucket = DeltaRecord(
            Kind.TENTATIVE, 0, 0, 0, at, at + w, n + 1, missing=("s1",),
            keys=keys, keys_hash=5, fields=config.fields, **figures,
        )  # fmt: skip
        core.receive(live, n + 1, bucket)
        now = config.schedule.normal_time(at + w)
        assert now is not None
        core.step(now)
