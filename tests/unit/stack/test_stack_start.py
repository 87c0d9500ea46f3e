"""The order in which a stack starts its processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.launchers import ProcessSpec
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.logs.cluster import Cluster
from slackwater.stack import stack as module
from slackwater.stack.stack import Stack, StackOptions

DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  s: {key: {column: k}, time: {column: t, unit: us}, fields: [v]}
queries:
  q: {from: [s], window: {size: 1s}, aggregate: [count], bound: 2s, replicas: 2}
"""


class Starting:
    """A supervisor that records its starts; its broker does not come up."""

    def __init__(self, *_: object, **__: object) -> None:
        self.reported: list[str] = []
        self.commands: list[tuple[str, ...]] = []

    def begin(self) -> None: ...

    async def start(self, spec: ProcessSpec) -> None:
        self.reported.append(spec.name)
        self.commands.append(tuple(spec.command))

    async def start_broker(self, _: EmbeddedBroker) -> None:
        self.reported.append("broker")
        raise EnvironmentProblem("no Java")

    def pids(self) -> dict[str, int]:
        return {}

    def lives(self) -> dict[str, object]:
        return {}

    async def stop_all(self) -> None: ...


async def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Starting:
    """Return the processes started before the broker has responded."""
    path = tmp_path / "deployment.yaml"
    path.write_text(DEPLOYMENT)
    supervisor = Starting()
    monkeypatch.setattr(module, "Supervisor", lambda *_, **__: supervisor)
    stack = Stack(StackOptions(path, load_deployment(path), tmp_path / "data", **options))
    with pytest.raises(EnvironmentProblem, match="no Java"):
        await stack.open()
    await stack.stop()
    return supervisor


async def test_what_takes_longest_starts_beside_a_broker_whose_port_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = await started(tmp_path, monkeypatch, port=19_092)
    assert supervisor.reported == ["aggregator/0", "broker"]
    assert all("127.0.0.1:19092" in command for command in supervisor.commands)


async def test_a_port_that_the_broker_has_kept_is_known_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = tmp_path / "data" / "broker"
    broker.mkdir(parents=True)
    (broker / "ports.json").write_text('{"broker": 19093, "controller": 19094}')
    supervisor = await started(tmp_path, monkeypatch)
    assert supervisor.reported == ["aggregator/0", "broker"]
    assert all("127.0.0.1:19093" in command for command in supervisor.commands)


async def test_while_no_port_has_been_chosen_the_broker_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the choice and the broker's bind another process may take the port."""
    assert (await started(tmp_path, monkeypatch)).reported == ["broker"]


@pytest.mark.parametrize(
    ("options", "partitions", "has_directory"),
    [
        ({}, 1, True),
        ({"bootstrap": "127.0.0.1:9092"}, None, False),
        ({"kafka_config": Path("client.properties")}, None, False),
    ],
)
async def test_input_topics_are_created_on_its_own_broker_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    partitions: int | None,
    has_directory: bool,
) -> None:
    """Also if the options name a broker in a file of client settings alone (decision 56)."""
    given: list[object] = []

    class Registering:
        def __init__(self, *_: object, data_dir: Path | None, **__: object) -> None:
            given.append(data_dir is not None)

        def share(self) -> Deployment:
            return load_deployment(path)

        def make_topics(self, *, input_partitions: int | None) -> None:
            given.append(input_partitions)
            raise EnvironmentProblem("no Java")

    async def find(_: Stack) -> Cluster:
        return Cluster("127.0.0.1:1")

    path = tmp_path / "deployment.yaml"
    path.write_text(DEPLOYMENT)
    monkeypatch.setattr(module, "Supervisor", Starting)
    monkeypatch.setattr(module, "Registration", Registering)
    monkeypatch.setattr(Stack, "_find_broker", find)
    stack = Stack(StackOptions(path, load_deployment(path), tmp_path / "data", **options))
    with pytest.raises(EnvironmentProblem, match="no Java"):
        await stack.open()
    await stack.stop()
    assert given == [has_directory, partitions]
