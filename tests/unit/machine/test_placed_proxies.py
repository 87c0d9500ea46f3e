"""The processes of placed proxies: what is restarted when a stream is added or ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch
from slackwater.machine.placed_proxies import PlacedProxies


class Processes:
    """Processes that start and end at once."""

    def __init__(self) -> None:
        self.parts: dict[str, list[str]] = {}
        self.started: list[str] = []

    async def start(self, spec: ProcessSpec) -> None:
        assert spec.name not in self.parts
        self.parts[spec.name] = [part.removeprefix("proxy/") for part in spec.parts]
        self.started.append(spec.name)

    async def end(self, name: str) -> None:
        del self.parts[name]

    def by_process(self) -> list[list[str]]:
        return sorted(self.parts.values())


@pytest.fixture(name="processes")
def _processes() -> Processes:
    return Processes()


@pytest.fixture(name="proxies")
def _proxies(processes: Processes, tmp_path: Path) -> PlacedProxies:
    return PlacedProxies(processes, Launch(tmp_path / "d.yaml", "broker:1", tmp_path), "n1")


def named(streams: str) -> list[str]:
    return [f"proxy/{name}" for name in streams.split()]


async def test_a_stream_that_is_added_restarts_no_other(
    processes: Processes, proxies: PlacedProxies
) -> None:
    await proxies.settle(named("a b"))
    await proxies.settle(named("a b c"))
    await proxies.settle(named("a b c"))
    assert processes.by_process() == [["a", "b"], ["c"]]
    assert len(processes.started) == 2
    await proxies.settle(named("b c"))
    assert processes.by_process() == [["b"], ["c"]], "the other one of its process goes on"
    await proxies.settle([])
    assert processes.by_process() == []


async def test_all_streams_over_http_are_in_one_process_which_has_the_port(
    processes: Processes, proxies: PlacedProxies
) -> None:
    http = named("h1 h2 h3")
    await proxies.settle(named("a"), http)
    await proxies.settle(named("a h1"), http)
    assert processes.by_process() == [["a"], ["h1"]], "the port is free"
    await proxies.settle(named("a h1 b"), http)
    assert processes.by_process() == [["a"], ["b"], ["h1"]]
    await proxies.settle(named("a h1 b h2 h3"), http)
    assert processes.by_process() == [["a"], ["b"], ["h1", "h2", "h3"]]
    count = len(processes.started)
    await proxies.settle(named("a h1 b h2 h3"), http)
    assert len(processes.started) == count
    await proxies.settle(named("a b h3"), http)
    assert processes.by_process() == [["a"], ["b"], ["h3"]]


async def test_one_that_ends_as_the_next_one_comes_leaves_it_the_port(
    processes: Processes, proxies: PlacedProxies
) -> None:
    await proxies.settle(named("h1"), named("h1"))
    await proxies.settle(named("h2"), named("h2"))
    assert processes.by_process() == [["h2"]]
