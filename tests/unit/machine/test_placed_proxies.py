"""The processes of placed proxies: what is restarted when a stream is added or ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.machine.test_layout import stream

from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch
from slackwater.machine.placed_proxies import PlacedProxies
from slackwater.model.deployment import Deployment, HttpInputSpec, TopicSpec


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


STREAMS = Deployment(
    "wall",
    {
        name: replace(stream(name), http=HttpInputSpec() if name.startswith("h") else None)
        for name in ("a", "b", "c", "h1", "h2", "h3")
    },
    {},
)


@pytest.fixture(name="proxies")
def _proxies(processes: Processes, tmp_path: Path) -> PlacedProxies:
    return PlacedProxies(processes, Launch(tmp_path / "d.yaml", "broker:1", tmp_path), "n1")


def named(streams: str) -> list[str]:
    return [f"proxy/{name}" for name in streams.split()]


async def test_a_stream_that_is_added_restarts_no_other(
    processes: Processes, proxies: PlacedProxies
) -> None:
    await proxies.settle(named("a b"), STREAMS)
    await proxies.settle(named("a b c"), STREAMS)
    await proxies.settle(named("a b c"), STREAMS)
    assert processes.by_process() == [["a", "b"], ["c"]]
    assert len(processes.started) == 2
    await proxies.settle(named("b c"), STREAMS)
    assert processes.by_process() == [["b"], ["c"]], "the other one of its process goes on"
    await proxies.settle([], STREAMS)
    assert processes.by_process() == []


async def test_all_streams_over_http_are_in_one_process_which_has_the_port(
    processes: Processes, proxies: PlacedProxies
) -> None:
    await proxies.settle(named("a"), STREAMS)
    await proxies.settle(named("a h1"), STREAMS)
    assert processes.by_process() == [["a"], ["h1"]], "the port is free"
    await proxies.settle(named("a h1 b"), STREAMS)
    assert processes.by_process() == [["a"], ["b"], ["h1"]]
    await proxies.settle(named("a h1 b h2 h3"), STREAMS)
    assert processes.by_process() == [["a"], ["b"], ["h1", "h2", "h3"]]
    count = len(processes.started)
    await proxies.settle(named("a h1 b h2 h3"), STREAMS)
    assert len(processes.started) == count
    await proxies.settle(named("a b h3"), STREAMS)
    assert processes.by_process() == [["a"], ["b"], ["h3"]]


async def test_one_that_ends_as_the_next_one_comes_leaves_it_the_port(
    processes: Processes, proxies: PlacedProxies
) -> None:
    await proxies.settle(named("h1"), STREAMS)
    await proxies.settle(named("h2"), STREAMS)
    assert processes.by_process() == [["h2"]]


async def test_under_up_the_first_process_has_the_name_of_all_proxies(
    processes: Processes, tmp_path: Path
) -> None:
    """And with one that serves a stream over HTTP, only what has the port moves."""
    proxies = PlacedProxies(processes, Launch(tmp_path / "d.yaml", "broker:1", tmp_path), "")
    await proxies.settle(named("a h1"), STREAMS)
    assert processes.parts == {"proxy": ["a", "h1"]}
    await proxies.settle(named("a h1 b"), STREAMS)
    await proxies.settle(named("a h1 b h2"), STREAMS)
    assert processes.parts == {
        "proxy": ["a"],
        "proxy/added-0": ["b"],
        "proxy/added-1": ["h1", "h2"],
    }


async def test_each_share_of_a_topic_has_a_process(processes: Processes, tmp_path: Path) -> None:
    shared = replace(stream("s"), topic=TopicSpec("t", proxies=2))
    deployment = replace(STREAMS, streams={**STREAMS.streams, "s": shared})
    launch = Launch(tmp_path / "d.yaml", "broker:1", tmp_path)
    for node, expected in (("", ["proxy", "proxy/1"]), ("n1", ["proxy/n1-0", "proxy/n1-1"])):
        processes.parts.clear()
        proxies = PlacedProxies(processes, launch, node)
        await proxies.settle(named("a s s.1"), deployment)
        assert processes.parts == dict(zip(expected, (["a", "s"], ["s.1"]), strict=True))
