"""Queries that are applied, paused, resumed and deleted while a stack runs on real processes.

A sender writes readings all the time. Every window of every query is compared with the sum of what
was sent: a window that a change lost, doubled or answered in part differs.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.counted_sender import TOPIC, Sender, check_sums, generations, sums
from tests.support.shared_deployment import FIRST, LAB, WIDE, SharedDeployment
from tests.support.starting import make_topics
from tests.support.waiting import eventually

from slackwater.control.control_object import DeleteQuery, PauseQuery, ResumeQuery
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.names import Names
from slackwater.registration.retired import retired_topics
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import delete_topics, partition_counts
from slackwater.runtime.logs.transport import Log
from slackwater.runtime.service.registry import Registry

ATTIC = "attic-readings"

pytestmark = [pytest.mark.slow]

STREAMS = f"apiVersion: slackwater/v1\nstreams:\n{LAB}queries:\n"
WITH_ATTIC = STREAMS.replace(LAB, LAB + LAB.replace("lab", "attic"))
HALVED = "  second: {from: [lab], window: {size: 2s}, aggregate: {x: [sum, max]}, bound: 2s}\n"
CHAIN = "  chain: {from: [second], window: {size: 4s}, aggregate: [sum], bound: 6s, replicas: 1}\n"
JOINED = "  joined: {from: [lab], window: {size: 3s}, aggregate: [sum], bound: 2s}\n"
OWN = ("first", "wide", "second", "chain", "joined", "far")
FAR = "  far: {from: [attic], window: {size: 1s}, aggregate: [sum], bound: 2s, replicas: 1}\n"


@pytest.fixture(name="broker")
def _broker(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, [TOPIC])
        yield broker.bootstrap


class Up:
    """`slackwater up` as a process, and its commands."""

    def __init__(self, folder: Path, bootstrap: str, file: str) -> None:
        self._folder = folder
        self.path = folder / "d.yaml"
        self.path.write_text(file)
        command = [*(sys.executable, "-m", "slackwater.cli.app", "up", "--bootstrap", bootstrap)]
        command += ["--deployment", str(self.path), "--data-dir", str(folder / "data")]
        with (folder / "up.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def command(self, *words: str, code: int | None = 0) -> str:
        """Return the output of a command, which must exit with ``code``; None: with any."""
        where = ("--data-dir", str(self._folder / "data"))
        command = [sys.executable, "-m", "slackwater.cli.app", *words, *where]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert code in {done.returncode, None}, done.stdout + done.stderr
        return done.stdout + done.stderr

    def wait_accepts(self) -> None:
        """Wait until its controller accepts commands."""
        address = self._folder / "data" / "controller" / "address"
        eventually(address.exists, "its controller accepts commands")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


class Changing:
    """The shared deployment: ``first`` and ``wide``, which share children, and what is applied."""

    def __init__(self, shared: SharedDeployment) -> None:
        self.shared, self.transport = shared, shared.transport

    def apply(self, name: str, *queries: str, streams: str = STREAMS) -> None:
        text = streams + FIRST + WIDE + "".join(queries)
        assert self.shared.apply(text, name) == [name]

    def wait_ended(self, query: str) -> None:
        eventually(lambda: not self.shared.fragments(query), f"{query} has ended")

    def wait_windows(self, query: str, size_s: int, after_s: float, count: int = 2) -> None:
        """Wait for so many windows that begin after a time."""
        eventually(
            lambda: sum(at > after_s for at in sums(self.transport, query, size_s)) >= count,
            f"{count} windows of {query} after {after_s:.0f}",
        )


def test_queries_change_while_the_others_run(shared: SharedDeployment) -> None:
    changing, transport, bootstrap = Changing(shared), shared.transport, shared.bootstrap
    sender = Sender(bootstrap)
    senders = [sender]
    try:
        changing.wait_windows("first", 1, 0)
        # Applied: with two replicas, and a chain on it that has one.
        begun = time.time()
        changing.apply("second", HALVED)
        changing.wait_windows("second", 2, begun)
        changing.apply("chain", HALVED, CHAIN)
        assert min(sums(transport, "second", 2)) >= int(begun)
        # Applied, and joined to the children of first and wide, whose logs have been truncated.
        deltas = ("sw.deltas.first.0", 0)

        def beginning(log: Log) -> int:
            return transport.beginning_offsets([log])[log]

        eventually(lambda: beginning(deltas) > 0, "its logs have been truncated")
        changing.apply("joined", JOINED)
        # Applied with a stream that the deployment file does not have; its topic is created.
        changing.apply("far", FAR, streams=WITH_ATTIC)
        eventually(lambda: partition_counts(bootstrap, {ATTIC}) == {ATTIC: 1}, "the topic is there")
        attic = Sender(bootstrap, ATTIC)
        senders.append(attic)
        changing.wait_windows("far", 1, begun)
        changing.wait_windows("joined", 3, begun)
        assert {*shared.fragments("joined")} == {"root/joined.0.a", "root/joined.0.b"}
        changing.wait_windows("chain", 4, begun)
        # Paused for some windows, and resumed: these windows are answered afterwards.
        shared.request(PauseQuery("second"))
        changing.wait_ended("second")
        changing.wait_windows("first", 1, time.time())
        paused = max(sums(transport, "second", 2))
        shared.request(ResumeQuery("second"))
        changing.wait_windows("second", 2, time.time())
        assert sums(transport, "second", 2).keys() >= {paused + 2, paused + 4}
        # Deleted: the reader first; then the query whose children another one reads.
        shared.request(DeleteQuery("chain"))
        changing.wait_ended("chain")
        changing.wait_windows("first", 1, time.time())
        shared.request(DeleteQuery("first"))
        orderers = {"orderer/first.0.a", "orderer/first.0.b"}
        eventually(
            lambda: {*shared.fragments("first")} == orderers,
            "its roots have ended; wide and joined read its children",
        )
        changing.wait_windows("wide", 2, time.time())
        changing.wait_windows("joined", 3, time.time())
        # A restart with the file of before: what was applied stays, and what was deleted.
        shared.restart()
        assert shared.fragments("second")
        changing.wait_windows("far", 1, time.time())
        assert not shared.fragments("chain")
        assert not {"chain", "first"} & shared.queries()
        changing.wait_windows("second", 2, time.time())
        changing.wait_windows("wide", 2, time.time())
        changing.wait_windows("joined", 3, time.time())
        for each in senders:
            each.stop()
        check_sums(transport, sender, "first", 1)
        check_sums(transport, sender, "wide", 2)
        check_sums(transport, sender, "second", 2)
        check_sums(transport, sender, "joined", 3)
        check_sums(transport, attic, "far", 1)
        shared.request(DeleteQuery("far"))
        changing.wait_ended("far")
        names = shared.stack.stack.supervisor.names
        eventually(lambda: "proxy/attic" not in shared.stack.call(names), "its proxy has ended")
        # Topics that only deleted queries have used; ``wide`` reads the children of ``first``.
        registry = Registry(transport)
        # A query's deletion is registered after its fragments have been told to end.
        eventually(lambda: registry.all_queries()["far"].state == "deleted", "far is deleted")
        found = retired_topics(registry.all_queries(), Names())
        assert found.keys() & {*OWN} == {"chain", "far"}
        retired = found["chain"]
        assert retired == {"sw.ordered.chain.0", "sw.deltas.chain.0", "sw.panes.chain"}
        # The stack deletes them itself a minute after its start, which may have been before this.
        assert {*delete_topics(bootstrap, retired)} <= retired
        eventually(lambda: not partition_counts(bootstrap, retired), "they are gone")
        assert delete_topics(bootstrap, retired) == []
    finally:
        for each in senders:
            each.stop()


BOTH = (
    "  first: {from: [lab, attic], window: {size: 1s}, aggregate: [sum], bound: 2s, replicas: 1}\n"
)
ONLY = (
    "  first: {from: [lab], window: {size: 1s}, aggregate: [sum, count], bound: 2s, replicas: 1}\n"
)
OTHER = ONLY.replace("sum, count", "sum, max")


@pytest.mark.drill
def test_a_query_is_changed_when_one_of_its_sources_is_gone(tmp_path: Path, broker: str) -> None:
    """The windows that lack the source become exact with the definition that does not read it."""
    make_topics(broker, [ATTIC])
    transport = KafkaTransport(broker)
    lab, attic = Sender(broker), Sender(broker, ATTIC)
    up = Up(tmp_path, broker, WITH_ATTIC + BOTH)

    def count(generation: int) -> int:
        return sum(of == generation for of in generations(transport, "first").values())

    try:
        eventually(lambda: count(0) >= 3, "three windows of generation 0")
        attic.stop()
        up.wait_accepts()
        changed = tmp_path / "changed.yaml"
        changed.write_text(WITH_ATTIC + ONLY)
        assert "generation 1 is accepted" in up.command("query", "apply", str(changed), "--wait")
        eventually(lambda: count(1) >= 3, "three windows of generation 1")
        assert "query first runs already" in up.command("query", "apply", str(changed))
        # A query that waits for a topic, which nobody but the user creates, harms no other one.
        waiting = tmp_path / "waiting.yaml"
        loft = LAB.replace("lab", "loft")
        waiting.write_text(STREAMS.replace(LAB, LAB + loft) + FAR.replace("attic", "loft"))
        up.command("query", "apply", str(waiting))
        eventually(
            lambda: "topic loft-readings does not exist" in up.command("status", code=None),
            "the status names the topic",
        )
        up.command("query", "delete", "far")
        # A change is cancelled before it is complete; the next one has a number of its own.
        other = tmp_path / "other.yaml"
        other.write_text(WITH_ATTIC + OTHER)
        assert "generation 2 is accepted" in up.command("query", "apply", str(other))
        up.command("query", "delete", "first.g2")
        before = count(1)
        eventually(lambda: count(1) >= before + 3, "generation 1 goes on")
        up.stop()
        up = Up(tmp_path, broker, WITH_ATTIC + BOTH)  # the file has the definition of before
        before = count(1)
        eventually(lambda: count(1) >= before + 3, "it is generation 1 that is started")
        assert "generation 1" in up.command("query", "list")
    finally:
        lab.stop()
        attic.stop()
        up.stop()
    checked_across_the_cut(transport, lab, attic)


def checked_across_the_cut(
    transport: KafkaTransport, lab: Sender, attic: Sender
) -> dict[int, float]:
    """Return the sums of ``first``: of both streams in generation 0, then of `lab` alone."""
    found, by = sums(transport, "first", 1), generations(transport, "first")
    assert sorted(found) == list(range(min(found), max(found) + 1)), "each window once"
    assert sorted(by.values()) == [by[at] for at in sorted(by)], "one cut"
    assert {*by.values()} == {0, 1}
    # Without the window within which the query's time begins.
    begun = {at: found[at] for at in found if at > min(found)}
    wanted = {at: lab.sum_of[at] + (0 if by[at] else attic.sum_of[at]) for at in begun}
    assert begun == wanted
    return found


READER = (
    "  chain: {from: [first], select: {x: x_sum}, window: {size: 4s}, aggregate: [sum], bound: 6s,"
    " replicas: 1}\n"
)


@pytest.mark.drill
def test_a_query_that_another_one_reads_is_changed_and_the_reader_goes_on(
    tmp_path: Path, broker: str
) -> None:
    """The reader's windows are the sums of the rows of both generations, each row once."""
    make_topics(broker, [ATTIC])
    transport = KafkaTransport(broker)
    lab, attic = Sender(broker), Sender(broker, ATTIC)
    up = Up(tmp_path, broker, WITH_ATTIC + BOTH + READER)

    def wait_windows(query: str, generation: int, count: int = 2) -> None:
        """Wait for so many more windows of a query's generation."""

        def found() -> int:
            return sum(of == generation for of in generations(transport, query).values())

        before = found()
        what = f"{count} more windows of generation {generation} of {query}"
        eventually(lambda: found() >= before + count, what)

    try:
        wait_windows("chain", 0)
        up.wait_accepts()
        narrow = tmp_path / "narrow.yaml"
        narrow.write_text(WITH_ATTIC + ONLY.replace("sum, count", "max"))
        assert "needs x_sum" in up.command("query", "apply", str(narrow), code=2)
        attic.stop()
        changed = tmp_path / "changed.yaml"
        changed.write_text(WITH_ATTIC + ONLY + READER)
        reported = up.command("query", "apply", str(changed), "--wait")
        assert "query first is changed: generation 1 is accepted" in reported
        assert "query chain runs already" in reported
        wait_windows("chain", 0)
        assert "is read by chain" in up.command("query", "delete", "first", code=2)
        # A restart with the file of now; the reader is still that of the first file.
        up.stop()
        up = Up(tmp_path, broker, WITH_ATTIC + ONLY + READER)
        wait_windows("chain", 0)
        up.wait_accepts()
        # The reader is deleted, applied again, and continues.
        up.command("query", "delete", "chain")
        wait_windows("first", 1, 5)
        reported = up.command("query", "apply", str(changed), "--wait")
        assert "query chain was deleted: generation 1 is accepted" in reported
        wait_windows("chain", 1)
    finally:
        lab.stop()
        attic.stop()
        up.stop()
    first = checked_across_the_cut(transport, lab, attic)
    chain = sums(transport, "chain", 4)
    assert sorted(chain) == list(range(min(chain), max(chain) + 4, 4)), "each window once"
    assert {*generations(transport, "chain").values()} == {0, 1}
    assert chain == {at: sum(first.get(s, 0) for s in range(at, at + 4)) for at in chain}
