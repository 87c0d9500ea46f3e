"""A host that leaks is drained into a new one: in virtual time, over stand-ins."""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

from tests.support.virtual_loop import run_virtually

from slackwater.host.decoding import REMEMBERED_BYTES_MAX
from slackwater.host.host import IN_FLIGHT_BYTES_MAX, PREFETCH_KIB_MAX
from slackwater.machine.draining import AGAIN_S, FRAGMENT_MIB_MAX, HOST_MIB_MAX, Draining
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.recent import RECENT_BYTES_MAX

LAUNCH = Launch(Path("/d.yaml"), "127.0.0.1:9092", Path("/data"), python="python")
PARTS = ("orderer/q.0.a", "orderer/r.0.a", "root/q.0")
BOUND_MIB = HOST_MIB_MAX + len(PARTS) * FRAGMENT_MIB_MAX
BEGINS_S = 0.5


class Kept:
    """Supervisor and listener: a fragment is ready half a second after it was added."""

    def __init__(self) -> None:
        self.of = dict.fromkeys(PARTS, "host/0") | {"orderer/q.0.b": "host/1"}
        self.run = ["broker", "host/0", "host/1"]
        self.at = dict(self.of)
        """The true hosts of the fragments."""
        self.mib = dict.fromkeys(self.run, 0.0)
        self.away: set[str] = set()
        self.away_max = 0
        self.emitted: list[tuple[str, str]] = []
        self.comes_up = self.can_start = True

    def _pid(self, process: str) -> int:
        return zlib.crc32(process.encode())

    def mib_of(self, pid: int) -> float:
        return next((mib for name, mib in self.mib.items() if self._pid(name) == pid), 0.0)

    # The supervisor.

    def pids(self) -> dict[str, int]:
        return {name: self._pid(name) for name in self.run}

    def process_of(self, part: str) -> str | None:
        return self.of.get(part)

    def parts(self, process: str) -> list[str]:
        return [part for part, of in self.of.items() if of == process] or [process]

    def record(self, process: str, event: str) -> None:
        self.emitted.append((process, event))

    async def start(self, spec: ProcessSpec) -> None:
        assert spec.takes_commands
        if not self.can_start:
            raise OSError(errno.EAGAIN, "no more processes")
        await asyncio.sleep(0.01)
        self.run.append(spec.name)

    async def end(self, name: str) -> None:
        assert name not in self.of.values(), "it has been emptied"
        await asyncio.sleep(0.01)
        self.run.remove(name)

    def serve(self, spec: ProcessSpec) -> None:
        assert spec.name in self.run
        for part in self.parts(spec.name):
            if part not in spec.parts and part in self.of:
                del self.of[part], self.at[part]
                self.away.add(part)
        for part in spec.parts:
            if self.of.get(part) != spec.name:
                self.of[part] = spec.name
                asyncio.get_running_loop().call_later(BEGINS_S, self._begin, part, spec.name)
        self.away_max = max(self.away_max, len(self.away))

    def _begin(self, part: str, process: str) -> None:
        self.at[part] = process
        self.away.remove(part)

    # The listener.

    def ready(self, process: str) -> bool:
        return process in self.run and self.comes_up

    def latest(self, part: str) -> Heartbeat | None:
        at = self.at.get(part)
        return None if at is None else Heartbeat(part, self._pid(at), 1, 2, 0, True, {}, (), {})


def during(kept: Kept, work: Coroutine[Any, Any, None], within_s: float) -> None:
    """Let it run for a time."""

    async def limited() -> None:
        task = asyncio.create_task(work)
        await asyncio.sleep(within_s)
        task.cancel()

    run_virtually(limited())


def draining(kept: Kept) -> Draining:
    both = cast(Any, kept)
    return Draining(both, both, LAUNCH, kept.mib_of)


def test_a_host_beyond_its_bound_is_emptied_one_fragment_at_a_time_and_ended() -> None:
    kept = Kept()
    kept.mib["host/0"] = BOUND_MIB + 1
    during(kept, draining(kept).run(), 60.0)
    assert kept.at == dict.fromkeys(PARTS, "host/new-1") | {"orderer/q.0.b": "host/1"}
    assert kept.run == ["broker", "host/1", "host/new-1"]
    assert kept.away_max == 1, "the others answer meanwhile"
    assert kept.emitted == [("host/0", "uses 1,665 MiB; moving its fragments")]


def test_a_host_within_its_bound_and_whatever_is_no_host_stay() -> None:
    kept = Kept()
    kept.mib |= {"host/0": BOUND_MIB, "broker": 1e6}
    during(kept, draining(kept).run(), 60.0)
    assert kept.run == ["broker", "host/0", "host/1"]


def test_what_a_host_may_hold_fits_its_allowance_with_a_reserve() -> None:
    """Its caches fill with the input, so a host grows for minutes after its start, and no more."""
    caches = RECENT_BYTES_MAX + 2 * REMEMBERED_BYTES_MAX
    held_mib = 100 + (IN_FLIGHT_BYTES_MAX + PREFETCH_KIB_MAX * 1024 + caches) / 2**20
    assert held_mib <= HOST_MIB_MAX - 100


def test_a_host_without_fragments_has_the_allowance_of_none() -> None:
    """Its fragments were moved to hosts of their own; the host itself is no fragment."""
    kept = Kept()
    kept.run.append("host/2")
    kept.mib["host/2"] = HOST_MIB_MAX + 1
    during(kept, draining(kept).run(), 60.0)
    assert kept.run == ["broker", "host/0", "host/1", "host/new-1"]
    assert kept.at["orderer/q.0.a"] == "host/0"


def test_what_is_full_again_at_once_is_no_leak_and_is_drained_again_much_later() -> None:
    kept = Kept()
    kept.mib |= dict.fromkeys(("host/0", "host/new-1", "host/new-2"), BOUND_MIB + 1)
    drain = draining(kept)
    during(kept, drain.run(), AGAIN_S - 10)
    assert kept.run == ["broker", "host/1", "host/new-1"]
    kept = Kept()
    kept.mib |= dict.fromkeys(("host/0", "host/new-1"), BOUND_MIB + 1)
    during(kept, draining(kept).run(), AGAIN_S + 60)
    assert kept.run == ["broker", "host/1", "host/new-2"]


def test_a_host_that_cannot_be_replaced_keeps_its_fragments() -> None:
    for fault in ("can_start", "comes_up"):
        kept = Kept()
        setattr(kept, fault, False)
        kept.mib["host/0"] = BOUND_MIB + 1
        during(kept, draining(kept).run(), AGAIN_S - 10)
        assert kept.run == ["broker", "host/0", "host/1"]
        assert [kept.at[part] for part in PARTS] == ["host/0"] * 3
        assert "drained" in kept.emitted[-1][1]
