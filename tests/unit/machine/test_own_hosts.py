"""Fragments that are moved to hosts of their own, by heartbeats."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch
from slackwater.machine.ownhosts import OWN_HOSTS_MAX, OwnHosts
from slackwater.model.records import Heartbeat
from slackwater.runtime.service.parts import ENDLESS_TURN, LONG_TURN_MS

LAUNCH = Launch(Path("/d.yaml"), "127.0.0.1:9092", Path("/data"), python="python")
PARTS = tuple(f"root/q{number}.0" for number in range(OWN_HOSTS_MAX + 3))


class Kept:
    """A supervisor of one host with many parts; each process has its own pid."""

    def __init__(self) -> None:
        self.of = dict.fromkeys(PARTS, "host/0") | {"root/alone.0": "host/1", "proxy/s": "proxy"}
        self.of |= {"proxy/t": "proxy"}
        self.moved: list[tuple[str, ProcessSpec, ProcessSpec]] = []
        self.emitted: list[tuple[str, str]] = []
        self.killed: list[str] = []
        self.is_full = False

    def pids(self) -> dict[str, int]:
        return {name: zlib.crc32(name.encode()) for name in self.of.values()}

    def process_of(self, part: str) -> str | None:
        return self.of.get(part)

    def parts(self, process: str) -> list[str]:
        return [part for part, of in self.of.items() if of == process]

    def record(self, part: str, event: str) -> None:
        self.emitted.append((part, event))

    def kill(self, process: str) -> None:
        self.killed.append(process)

    async def move(
        self, part: str, kept: Callable[[Sequence[str]], ProcessSpec], to: ProcessSpec
    ) -> None:
        if self.is_full:
            raise OSError(errno.EAGAIN, "no more processes")
        stay = [each for each in self.parts(self.of[part]) if each != part]
        self.moved.append((part, kept(stay), to))
        self.of[part] = to.name


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def hosts(kept: Kept) -> OwnHosts:
    return OwnHosts(cast(Any, kept), cast(Any, None), LAUNCH)


def beat(part: str, pid: int, detail: dict[str, int]) -> Heartbeat:
    return Heartbeat(part, pid, 1, 2, 0, True, {}, (), detail)


def slow(kept: Kept, *parts: str) -> dict[str, Heartbeat]:
    """Set the present reports of these in the process that serves them."""
    pids = kept.pids()
    return {
        part: beat(part, pids.get(kept.of.get(part, ""), 1), {LONG_TURN_MS: 200}) for part in parts
    }


async def test_one_that_is_too_slow_gets_a_host_of_its_own_and_its_host_goes_on_without(
    kept: Kept, hosts: OwnHosts
) -> None:
    latest = slow(kept, PARTS[1])
    await hosts.look(latest)
    ((part, rest, own),) = kept.moved
    assert part == PARTS[1]
    assert (rest.name, rest.parts) == ("host/0", (PARTS[0], *PARTS[2:]))
    assert PARTS[1] not in ",".join(rest.command)
    assert (own.name, own.parts) == ("host/own-0", (PARTS[1],))
    assert own.command[-1] == "--own"
    assert kept.emitted == [(PARTS[1], "turns take up to 200 ms")]
    await hosts.look(latest)  # the last one of its former life
    await hosts.look(slow(kept, PARTS[1]))  # and of the new one: it is alone
    assert len(kept.moved) == 1


async def test_a_host_is_killed_only_for_a_turn_that_does_not_end_and_behind_the_move(
    kept: Kept, hosts: OwnHosts
) -> None:
    await hosts.look(slow(kept, PARTS[0]))
    assert kept.killed == []
    stuck = {part: beat(part, kept.pids()["host/0"], {ENDLESS_TURN: 1}) for part in PARTS}
    await hosts.look({PARTS[1]: stuck[PARTS[1]]})
    assert kept.killed == ["host/0"]
    assert [part for part, *_ in kept.moved] == [PARTS[0], PARTS[1]]
    assert kept.emitted[-1] == (PARTS[1], "a turn does not end")
    for _ in range(3):  # a sender of heartbeats in all names ends no more hosts than may be moved
        await hosts.look(stuck)
    assert len(kept.killed) == OWN_HOSTS_MAX - 1


async def test_a_part_that_is_alone_unknown_or_no_fragment_is_not_moved(
    kept: Kept, hosts: OwnHosts
) -> None:
    await hosts.look(slow(kept, "root/alone.0", "root/unknown.0", "proxy/s"))
    await hosts.look({PARTS[0]: beat(PARTS[0], kept.pids()["host/0"], {})})
    assert (kept.moved, kept.emitted) == ([], [])


async def test_own_hosts_are_bounded_and_an_excess_is_reported_once(
    kept: Kept, hosts: OwnHosts
) -> None:
    for _ in range(3):
        await hosts.look(slow(kept, *PARTS))
    assert [own.name for _, _, own in kept.moved] == [f"host/own-{n}" for n in range(OWN_HOSTS_MAX)]
    excess = [part for part, event in kept.emitted if "held back" in event]
    assert excess == list(PARTS[OWN_HOSTS_MAX:])


async def test_one_that_cannot_be_moved_stays_and_is_reported_once(
    kept: Kept, hosts: OwnHosts
) -> None:
    kept.is_full = True
    for _ in range(3):
        await hosts.look(slow(kept, PARTS[0]))
    assert kept.of[PARTS[0]] == "host/0"
    assert [event for _, event in kept.emitted] == [
        "turns take up to 200 ms",
        "cannot be moved: [Errno 11] no more processes",
    ]
