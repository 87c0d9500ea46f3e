"""The stack: phases, registration, readiness, faults, end; with stand-ins on a real broker."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.contracts.transport import no_failure
from tests.support.starting import make_topics
from tests.support.waiting import WAIT_S_MAX, eventually
from tests.unit.machine.test_layout import query, stream
from tests.unit.registration.test_beginning import encoded

from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.deployment import Deployment, TopicSpec
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.model.names import Names
from slackwater.model.records import Heartbeat
from slackwater.primitives.eventclock import AnchoredClock, DataClock, WallClock
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import read_run
from slackwater.runtime.service.parts import FAILED_CODE, FAILURES
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.stack.stack import Stack, StackOptions
from slackwater.stack.stack_thread import StackThread

FAKE = Path(__file__).with_name("fake_process.py")
FILE = """\
apiVersion: slackwater/v1
streams:
  s1: {key: {value: a}, time: {column: t, unit: s}, fields: [x]}
queries:
  q: {from: [s1], window: {size: 1s}, aggregate: [count], copies: 1, bound: 1s}
"""


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("stacks")) as own:
        yield own.bootstrap


@pytest.fixture
def bootstrap_of_its_own(shared_broker: str) -> str:
    """A broker without a deployment: there is one registry per broker."""
    admin = Admin(shared_broker)

    def is_empty() -> bool:
        left = [name for name in admin.list_topics(WAIT_S_MAX) if name.startswith("sw.")]
        if left:  # one that is gone already is refused
            admin.ask(lambda client: client.delete_topics(left), WAIT_S_MAX)
        return not left

    eventually(is_empty, "there are no topics of a deployment")
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
    # The stand-ins use only the prefix of names from the file: none.
    (tmp_path / "d.yaml").write_text(FILE)
    return StackOptions(
        tmp_path / "d.yaml", what, tmp_path / "data", bootstrap=bootstrap, python=str(python)
    )


def running(stack: Stack) -> set[str]:
    """Return its processes by the names that their supervisor uses."""
    hosted = ("orderer/", "root/")
    own = [n for n in stack.process_names if not n.startswith(("proxy/", *hosted))]
    return {*own, "proxy", "host/0", "host/1"}


async def latest(stack: Stack, holds: Callable[[dict[str, Heartbeat]], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
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
        await stack.wait_ready([n for n in stack.process_names if n != "broker"], WAIT_S_MAX)
        emitted = read_run(tmp_path / "data")
        assert emitted is not None
        assert emitted.bootstrap == bootstrap
        assert sorted(emitted.processes) == sorted(running(stack))
        registry = Registry(stack.transport)
        assert registry.clock() == WallClock()
        registered = registry.queries()["q"]
        assert registered.w_us == 250_000
        # There are no readings: the event clock less the lateness (0 here).
        assert before_us < registered.e0_us < SystemClock().now_us()
        with pytest.raises(EnvironmentProblem, match="another slackwater"):
            await Stack(options(tmp_path, deployment(), None)).open()
        # A broker that is killed ends no other process, and restarts at its port.
        stack.supervisor.kill("broker")
        await stack.wait_ready(["root/q.0"], 60)
        assert stack.supervisor.kill("root") == ["root/q.0"]
        await latest(stack, lambda beats: beats["root/q.0"].detail.get("killed") == 1)
        assert "killed" not in stack.listener.all()["orderer/q.0.a"].detail
        was = stack.supervisor.pids()["host/0"]
        assert stack.supervisor.kill("host/0") == ["host/0"]
        await latest(stack, lambda beats: beats["root/q.0"].pid != was and beats["root/q.0"].ready)
    finally:
        pids = stack.supervisor.pids()
        await stack.stop()
    await stack.stop()
    assert not any(psutil.pid_exists(pid) for pid in pids.values())
    emitted = read_run(tmp_path / "data")
    assert emitted is not None
    assert (emitted.bootstrap, emitted.processes) == (bootstrap, {})

    changed = deployment(queries={"q": replace(query("q", "s1", "s2"), bound_us=1_000_000)})
    refused = Stack(options(tmp_path, changed, None))
    assert await refused.open() == bootstrap, "the port is kept"
    with pytest.raises(DeploymentError, match=r"query q .* start anew with another --data-dir"):
        await refused.start_up()
    await refused.stop()
    again = Stack(options(tmp_path, deployment(), None))
    await again.open()
    await again.start_up()
    assert Registry(again.transport).queries()["q"] == registered, "E0 is fixed at registration"
    await again.stop()


@pytest.mark.slow
async def test_queries_share_children_unless_they_are_registered_without(
    tmp_path: Path, bootstrap_of_its_own: str
) -> None:
    """A deployment of an earlier version continues with its fragments and topics."""
    before = query("q", "s1", "s2")
    known = {"q": before, "old": replace(before, name="old")}
    many = {**known, "new": replace(before, name="new"), "newer": replace(before, name="newer")}

    def orderers(stack: Stack) -> list[str]:
        names = stack.process_names
        return [n for n in names if n.startswith("orderer/") and n.endswith(".a")]

    old = Stack(options(tmp_path, deployment(queries=known), bootstrap_of_its_own))
    await old.open()
    assert orderers(old) == ["orderer/q.0.a"], "nothing is registered yet"
    assert partition_counts(bootstrap_of_its_own, ["sw.ordered.old.0"]) == {}
    registry = Registry(old.transport)
    # An earlier version registered them in this way.
    registry.publish_queries(*(QueryDefinition(n, 0, 1_000, 250_000, q) for n, q in known.items()))
    await old.stop()
    again = Stack(options(tmp_path, deployment(queries=many), bootstrap_of_its_own))
    await again.open()
    try:
        assert orderers(again) == ["orderer/q.0.a", "orderer/old.0.a", "orderer/new.0.a"]
        assert partition_counts(bootstrap_of_its_own, ["sw.ordered.old.0"]).keys()
        await again.start_up()
        registered = registry.queries()
        assert {n: d.spec.child_query for n, d in registered.items()} == {
            "q": "q",
            "old": "old",
            "new": "new",
            "newer": "new",
        }
        assert registered["q"].e0_us == registered["old"].e0_us == 1_000
        assert registered["new"].e0_us == registered["newer"].e0_us > 1_000
        await again.wait_ready([n for n in again.process_names if n != "broker"], WAIT_S_MAX)
    finally:
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
        assert registry.queries() == {}, "its start cannot be known yet"
        writer = stack.transport.writer(no_failure)
        writer.append(Names().source("s2"), 0, encoded("s2", 1_000_000, 1_500_000))
        registered = await asyncio.to_thread(registry.wait_for_query, "q", WAIT_S_MAX)
        assert registered.e0_us == 1_000_000
        await stack.wait_ready([n for n in stack.process_names if n != "broker"], WAIT_S_MAX)
        writer.close()
    finally:
        await stack.stop()
    other = Stack(options(tmp_path, deployment(), bootstrap_of_its_own))
    await other.open()
    with pytest.raises(UsageError, match="another event clock") as caught:
        await other.start_up()
    await other.stop()
    assert "prefix" in caught.value.message
    assert "another --data-dir does not help" in caught.value.message
    changed = deployment(
        clock="data", queries={"q": replace(query("q", "s1", "s2"), bound_us=1_000_000)}
    )
    other = Stack(options(tmp_path, changed, bootstrap_of_its_own))
    await other.open()
    with pytest.raises(DeploymentError, match="another --data-dir does not help"):
        await other.start_up()
    await other.stop()


async def test_topics_that_are_missing_on_another_cluster_are_all_named(
    tmp_path: Path, bootstrap_of_its_own: str
) -> None:
    streams = {
        name: replace(stream(name), topic=TopicSpec(f"in-{name}")) for name in ("s1", "s2", "s3")
    }
    what = options(tmp_path, deployment(streams=streams), bootstrap_of_its_own)
    stack = Stack(what)
    with pytest.raises(EnvironmentProblem) as caught:
        await stack.open()
    await stack.stop()

    reported = caught.value.message
    assert f"in-s1, in-s2, in-s3 of {what.deployment_path} do not exist" in reported
    assert (
        f"slackwater topics --deployment {what.deployment_path} --bootstrap {bootstrap_of_its_own}"
        " --inputs PARTITIONS"
    ) in reported
    there = Admin(bootstrap_of_its_own).list_topics(WAIT_S_MAX)
    assert not {"in-s1", "in-s2", "in-s3"} & there.keys()


@pytest.mark.slow
def test_a_rehearsal_from_a_thread(tmp_path: Path, bootstrap_of_its_own: str) -> None:
    stack = StackThread(options(tmp_path, deployment(), bootstrap_of_its_own))
    try:
        stack.open()
        stack.start_rehearsal(5_000_000, 60.0)
        registered = Registry(stack.stack.transport).queries()["q"]
        assert (registered.e0_us, registered.w_us) == (5_000_000, 15_000_000)
        assert Registry(stack.stack.transport).clock() is None, "all wait for the clock"
        now_us = SystemClock().now_us()
        anchor_us = stack.begin(5_000_000, 60.0)
        assert now_us < anchor_us <= SystemClock().now_us() + 1_000_000
        event_clock = Registry(stack.stack.transport).clock()
        assert event_clock == AnchoredClock(anchor_us, 5_000_000, 60.0)
        assert stack.kill("orderer/q.0") == ["orderer/q.0.a", "orderer/q.0.b"]
        assert stack.pause("proxy/s1") == ["proxy/s1"]
        assert stack.resume("proxy/*") == ["proxy"], "the process of all streams"
        stack.check()
        emitted = [event.event for event in stack.events() if event.process == "orderer/q.0.a"]
        assert "killed" in emitted
        assert set(stack.pids()) <= running(stack.stack)
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


async def test_processes_that_are_not_ready_are_named(
    tmp_path: Path, bootstrap_of_its_own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE", json.dumps({"proxy/s2": "slow"}))
    wait_ready = Stack.wait_ready

    async def others_first(stack: Stack, names: Iterable[str], within_s: float) -> None:
        """For any time that they take on a busy machine."""
        names = list(names)
        await wait_ready(stack, [name for name in names if name != "proxy/s2"], within_s)
        await wait_ready(stack, names, 0.5)

    monkeypatch.setattr(Stack, "wait_ready", others_first)
    stack = Stack(options(tmp_path, deployment(), bootstrap_of_its_own))
    await stack.open()
    with pytest.raises(
        EnvironmentProblem, match=r"not ready after 0\.5 s: .*proxy/s2 \(see .*logs"
    ):
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
    make_topics(bootstrap, ["their-readings"], 3)
    stack = Stack(options(tmp_path, with_topic, bootstrap))
    await stack.open()
    ends = await KafkaTransport(bootstrap).end_offsets_async(
        [(f"sw.source.s2.{p}", 0) for p in range(3)], timeout_s=WAIT_S_MAX
    )
    assert ends is not None
    assert len(ends) == 3
    await stack.stop()


async def test_an_unreachable_broker_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slackwater.stack.stack.BROKER_S_MAX", 1.0)
    stack = Stack(options(tmp_path, deployment(), "127.0.0.1:1"))
    with pytest.raises(EnvironmentProblem, match=r"no broker answers on 127\.0\.0\.1:1") as caught:
        await stack.open()
    assert caught.value.exit_code == 3
    await stack.stop()


async def status(*options: str) -> tuple[int, str]:
    """Run the command as a user does; return exit code and output."""
    command = (sys.executable, "-m", "slackwater.cli.app", "status", *options)
    running = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    shown, _ = await running.communicate()
    return await running.wait(), shown.decode()


async def shown_with(code: int, *options: str) -> str:
    """Return the output of status once it ends in this way.

    A heartbeat may be late on a busy machine.
    """
    give_up = time.monotonic() + WAIT_S_MAX
    while (ended := await status(*options))[0] != code:
        assert time.monotonic() < give_up, ended[1]
    return ended[1]


async def test_status_compares_with_what_should_run(
    tmp_path: Path, bootstrap_of_its_own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segfault is reported once it is over.

    A process that cannot restart is listed as missing.
    """
    stack = Stack(options(tmp_path, deployment(), bootstrap_of_its_own))
    here = ("--data-dir", str(tmp_path / "data"))
    try:
        await stack.open()
        await stack.start_up()
        names = [name for name in stack.process_names if name != "broker"]
        await stack.wait_ready(names, WAIT_S_MAX)
        shown = await shown_with(0, *here, "-v")
        rows = [line.split()[0] for line in shown.splitlines()]
        expected = ["broker", "controller", *names]
        assert rows[rows.index("broker") :] == expected
        people = await shown_with(0, *here)
        assert people.startswith(("all is well at ", "all runs at ", "all processes run at ")), (
            people
        )

        dead = stack.supervisor.pids()["proxy"]
        os.kill(dead, signal.SIGSEGV)
        await latest(
            stack,
            lambda beats: all(
                beats[part].pid != dead and beats[part].ready for part in ("proxy/s1", "proxy/s2")
            ),
        )
        shown = await shown_with(0, *here)
        assert shown.count("restarts: 1, last exit SIGSEGV") == 2, "that of both streams"
        assert "Fatal Python error: Segmentation fault" in shown
        log = stack.supervisor.log_path("proxy/s1").read_text()
        assert "CRITICAL proxy slackwater.machine.kept_process: ended by SIGSEGV" in log
        assert "fake_process.py" in log, "the traceback shows the place"

        monkeypatch.setenv("FAKE", json.dumps({"proxy/s2": "fail"}))
        stack.supervisor.kill("proxy")
        await latest(stack, lambda beats: FAILURES in beats["proxy/s2"].detail)
        shown = await shown_with(1, *here)
        assert "not working: proxy/s2" in shown
        assert "proxy/s1," not in shown
        assert f"{FAILED_CODE}=3" in await shown_with(1, *here, "-v")

        # The expected processes are in the registry.
        shown = await shown_with(1, "--bootstrap", bootstrap_of_its_own, "--data-dir", "/nowhere")
        assert "proxy/s2" in shown
        assert "restarts" not in shown
    finally:
        await stack.stop()
