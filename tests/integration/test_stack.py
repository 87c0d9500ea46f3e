"""The stack: phases, registration, readiness, faults, end; over stand-ins on a real broker."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.contracts.transport import no_failure
from tests.unit.test_beginning import encoded
from tests.unit.test_layout import query, stream

from slackwater.model.deployment import Deployment, TopicSpec
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.model.records import Heartbeat
from slackwater.primitives.eventclock import AnchoredClock, DataClock, WallClock
from slackwater.runtime.broker import EmbeddedBroker
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.datadir import read_run
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.registry import Registry
from slackwater.runtime.stack import Stack, StackOptions, StackThread
from slackwater.runtime.topics import source_topic

pytestmark = pytest.mark.timeout(240)  # several brokers are started in a row

FAKE = Path(__file__).with_name("fake_process.py")


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("stacks")) as own:
        yield own.bootstrap


@pytest.fixture
def bootstrap_of_its_own(shared_broker: str) -> str:
    """A broker without a deployment: there is one registry a broker."""
    admin = AdminClient({"bootstrap.servers": shared_broker})

    def left() -> list[str]:
        topics = admin.list_topics(timeout=20).topics
        return [name for name in topics if name.startswith("sw.")]

    if left():
        for future in admin.delete_topics(left()).values():
            future.result(20)
    while left():
        time.sleep(0.05)
    return shared_broker


def deployment(**more: object) -> Deployment:
    made = Deployment(
        "wall", {"s1": stream("s1"), "s2": stream("s2")}, {"q": query("q", "s1", "s2")}
    )
    return replace(made, **more)  # type: ignore[arg-type]


def options(tmp_path: Path, what: Deployment, bootstrap: str | None) -> StackOptions:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    python.chmod(0o755)
    return StackOptions(
        tmp_path / "d.yaml", what, tmp_path / "data", bootstrap=bootstrap, python=str(python)
    )


async def heard(stack: Stack, holds: Callable[[dict[str, Heartbeat]], bool]) -> None:
    deadline = time.monotonic() + 40
    while not holds(stack.listener.all()):
        assert time.monotonic() < deadline, f"only heard {sorted(stack.listener.all())}"
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_up_with_an_embedded_broker_and_again(tmp_path: Path) -> None:
    stack = Stack(options(tmp_path, deployment(), None))
    before_us = SystemClock().now_us()
    try:
        bootstrap = await stack.open()
        await stack.start_up()
        await stack.wait_ready([n for n in stack.process_names if n != "broker"], 60)
        said = read_run(tmp_path / "data")
        assert said is not None
        assert said["bootstrap"] == bootstrap
        assert sorted(said["processes"]) == sorted(stack.process_names)
        registry = Registry(stack.transport)
        assert registry.clock() == WallClock()
        registered = registry.queries()["q"]
        assert registered.w_us == 100_000
        # Nobody has sent anything: the event clock less the lateness (none here).
        assert before_us < registered.e0_us < SystemClock().now_us()
        with pytest.raises(EnvironmentProblem, match="another slackwater"):
            await Stack(options(tmp_path, deployment(), None)).open()
        # A broker that dies takes nobody along, and comes back where it was.
        stack.supervisor.kill("broker")
        stack.supervisor.kill("root")
        await heard(stack, lambda beats: beats["root/q.0"].detail.get("placement") == 2)
    finally:
        pids = stack.supervisor.pids()
        await stack.stop()
    await stack.stop()
    assert not any(psutil.pid_exists(pid) for pid in pids.values())
    said = read_run(tmp_path / "data")
    assert said is not None
    assert (said["bootstrap"], said["processes"]) == (bootstrap, {})

    changed = deployment(queries={"q": replace(query("q", "s1", "s2"), bound_us=1_000_000)})
    refused = Stack(options(tmp_path, changed, None))
    assert await refused.open() == bootstrap, "the port is kept"
    with pytest.raises(DeploymentError, match="query q"):
        await refused.start_up()
    await refused.stop()
    again = Stack(options(tmp_path, deployment(), None))
    await again.open()
    await again.start_up()
    assert Registry(again.transport).queries()["q"] == registered, "E0 is fixed at registration"
    await again.stop()


@pytest.mark.slow
async def test_up_over_logs_that_are_there_and_a_clock_that_follows_the_data(
    tmp_path: Path, bootstrap_of_its_own: str
) -> None:
    stack = Stack(options(tmp_path, deployment(clock="data"), bootstrap_of_its_own))
    await stack.open()
    try:
        await stack.start_up()
        registry = Registry(stack.transport)
        assert isinstance(registry.clock(), DataClock)
        assert registry.queries() == {}, "nobody can know yet where it begins"
        writer = stack.transport.writer(no_failure)
        writer.append(source_topic("s2"), 0, encoded("s2", 1_000_000, 1_500_000))
        registered = await asyncio.to_thread(registry.wait_for_query, "q", 30)
        assert registered.e0_us == 1_000_000
        await stack.wait_ready([n for n in stack.process_names if n != "broker"], 60)
        writer.close()
    finally:
        await stack.stop()
    other = Stack(options(tmp_path, deployment(), bootstrap_of_its_own))
    await other.open()
    with pytest.raises(UsageError, match="another event clock"):
        await other.start_up()
    await other.stop()


@pytest.mark.slow
def test_a_rehearsal_from_a_thread(tmp_path: Path, bootstrap_of_its_own: str) -> None:
    stack = StackThread(options(tmp_path, deployment(), bootstrap_of_its_own))
    try:
        stack.open()
        stack.start_rehearsal(5_000_000, 60.0)
        registered = Registry(stack.stack.transport).queries()["q"]
        assert (registered.e0_us, registered.w_us) == (5_000_000, 6_000_000)
        assert Registry(stack.stack.transport).clock() is None, "all wait for the clock"
        now_us = SystemClock().now_us()
        anchor_us = stack.begin(5_000_000, 60.0)
        assert now_us < anchor_us <= SystemClock().now_us() + 1_000_000
        event_clock = Registry(stack.stack.transport).clock()
        assert event_clock == AnchoredClock(anchor_us, 5_000_000, 60.0)
        assert stack.kill("orderer/q.0") == ["orderer/q.0.a", "orderer/q.0.b"]
        assert stack.pause("proxy/s1") == ["proxy/s1"]
        assert stack.resume("proxy") == ["proxy/s1", "proxy/s2"]
        stack.check()
        said = [event.event for event in stack.events() if event.process == "orderer/q.0.a"]
        assert "killed" in said
        assert set(stack.pids()) <= set(stack.stack.process_names)
    finally:
        stack.stop()
    stack.stop()


async def test_a_process_that_no_restart_mends_ends_the_start_with_its_sentence(
    tmp_path: Path, bootstrap_of_its_own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE", json.dumps({"proxy/s2": "fail"}))
    stack = Stack(options(tmp_path, deployment(), bootstrap_of_its_own))
    await stack.open()
    with pytest.raises(EnvironmentProblem, match="proxy/s2: no room on the disk") as caught:
        await stack.start_rehearsal(0, 1.0)
    assert caught.value.exit_code == 3
    with pytest.raises(EnvironmentProblem, match="no room on the disk"):
        stack.raise_what_gave_up()
    await stack.stop()


async def test_who_is_not_ready_is_named(
    tmp_path: Path, bootstrap_of_its_own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE", json.dumps({"proxy/s2": "slow"}))
    monkeypatch.setattr("slackwater.runtime.stack.ready_s_max", 8.0)
    stack = Stack(options(tmp_path, deployment(), bootstrap_of_its_own))
    await stack.open()
    with pytest.raises(EnvironmentProblem, match=r"not ready after 8 s: proxy/s2 \(see .*logs\)"):
        await stack.start_rehearsal(0, 1.0)
    await stack.stop()


async def test_topics_of_users(tmp_path: Path, bootstrap: str) -> None:
    with_topic = deployment(
        streams={"s1": stream("s1"), "s2": stream("s2", TopicSpec("their-readings"))}
    )
    stack = Stack(options(tmp_path, with_topic, bootstrap))
    with pytest.raises(EnvironmentProblem, match="topic their-readings") as caught:
        await stack.open()
    assert caught.value.exit_code == 3
    await stack.stop()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("their-readings", 3, 1)])["their-readings"].result(20)
    stack = Stack(options(tmp_path, with_topic, bootstrap))
    await stack.open()
    ends = await KafkaTransport(bootstrap).end_offsets_async(
        [(f"sw.source.s2.{p}", 0) for p in range(3)], timeout_s=10
    )
    assert ends is not None
    assert len(ends) == 3
    await stack.stop()


async def test_an_unreachable_broker_is_told(tmp_path: Path) -> None:
    stack = Stack(options(tmp_path, deployment(), "127.0.0.1:1"))
    with pytest.raises(EnvironmentProblem, match=r"no broker answers on 127\.0\.0\.1:1") as caught:
        await stack.open()
    assert caught.value.exit_code == 3
    await stack.stop()
