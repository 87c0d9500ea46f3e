"""Queries that are applied, paused, resumed and deleted while a stack runs on real processes.

A sender writes readings all the time. Every window of every query is compared with the sum of what
was sent: a window that a change lost, doubled or answered in part differs.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.making import make_topics
from tests.waiting import eventually

from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import Deployment
from slackwater.runtime.local.broker import EmbeddedBroker
from slackwater.runtime.local.query_changes import QueryChanges
from slackwater.runtime.local.stack import StackOptions
from slackwater.runtime.local.stack_thread import StackThread
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.registry import Registry

pytestmark = [pytest.mark.slow]

STREAMS = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: ms}
    fields: [x]
    expect_every: 1s
queries:
"""
EACH = "  first: {from: [lab], window: {size: 1s}, aggregate: [sum], bound: 2s}\n"
WIDE = "  wide: {from: [lab], window: {size: 4s}, aggregate: [sum], bound: 2s}\n"
HALVED = "  second: {from: [lab], window: {size: 2s}, aggregate: [sum, max], bound: 2s}\n"
CHAIN = "  chain: {from: [second], window: {size: 4s}, aggregate: [sum], bound: 6s, replicas: 1}\n"


def deployment(*queries: str) -> Deployment:
    return parse_deployment(STREAMS + "".join(queries), "d.yaml").deployment


class Sender:
    """Sends fifty readings a second, by one sensor, and knows the sum of each second."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self.sum_of: dict[int, float] = defaultdict(float)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        sent = 0
        while not self._stopping.wait(0.02):
            sent += 1
            at_ms = int(time.time() * 1000)
            self.sum_of[at_ms // 1000] += sent
            self._producer.produce(
                "lab-readings", json.dumps({"mote": "m", "at": at_ms, "x": sent}).encode()
            )
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush()


@pytest.fixture(name="broker")
def _broker(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, ["lab-readings"])
        yield broker.bootstrap


class Running:
    """A stack of ``first`` and ``wide``, which share children, or of what its directory has."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        path = folder / "d.yaml"
        path.write_text(STREAMS + EACH + WIDE)
        self.thread = StackThread(
            StackOptions(path, deployment(EACH, WIDE), folder / "data", bootstrap=bootstrap)
        )
        self.changes = QueryChanges(self.thread.stack)
        self.transport = KafkaTransport(bootstrap)
        self.thread.open()
        self.thread.start_up()

    def fragments(self, query: str) -> list[str]:
        names = self.thread.call(self.thread.stack.supervisor.names)
        return [name for name in names if f"/{query}." in name]

    def wait_ready(self, query: str) -> None:
        ready = self.thread.stack.listener.ready
        eventually(lambda: all(map(ready, self.fragments(query))), f"{query} is ready")

    def sums(self, query: str, size_s: int) -> dict[int, float]:
        """The sum of each window of a query, by the window's start in seconds."""
        found: dict[int, float] = {}
        log = (f"sw.results.{query}.stable", 0)
        for raw in read_to_end(self.transport, log, isolation="read_committed"):
            row = json.loads(raw.value)
            if row["kind"] != "stable":
                continue
            start = int(datetime.fromisoformat(row["window_start"]).timestamp())
            figures = row["fields"].get("x") or row["fields"]["x_sum"]
            assert start not in found, f"{query}: the window of {start} is answered twice"
            assert start % size_s == 0
            found[start] = figures["sum"]
        return found

    def wait_windows(self, query: str, size_s: int, after_s: float, count: int = 3) -> None:
        """Wait for so many windows that begin after a time."""
        eventually(
            lambda: sum(at > after_s for at in self.sums(query, size_s)) >= count,
            f"{count} windows of {query} after {after_s:.0f}",
        )


def check(running: Running, sender: Sender, query: str, size_s: int) -> None:
    """Every window from the start to the last is there and exact."""
    found = running.sums(query, size_s)
    assert sorted(found) == list(range(min(found), max(found) + 1, size_s))
    start_us = Registry(running.transport).all_queries()[query].e0_us
    if start_us % (size_s * 1_000_000):
        del found[min(found)]  # the query's time begins within this window
    wanted = {at: sum(sender.sum_of[s] for s in range(at, at + size_s)) for at in found}
    assert found == wanted


def test_queries_change_while_the_others_run(tmp_path: Path, broker: str) -> None:
    sender = Sender(broker)
    running = Running(tmp_path, broker)
    try:
        running.wait_windows("first", 1, 0)
        # Applied: with two replicas, and a chain on it that has one.
        begun = time.time()
        assert running.thread.run(running.changes.apply(deployment(EACH, WIDE, HALVED), "second"))
        running.wait_windows("second", 2, begun)
        added = deployment(EACH, WIDE, HALVED, CHAIN)
        assert running.thread.run(running.changes.apply(added, "chain"))
        running.wait_windows("chain", 4, begun)
        assert min(running.sums("second", 2)) >= int(begun)
        # Paused for some windows, and resumed: these windows are answered afterwards.
        running.thread.run(running.changes.change_state("second", "paused"))
        assert running.fragments("second") == []
        running.wait_windows("first", 1, time.time())
        paused = max(running.sums("second", 2))
        running.thread.run(running.changes.change_state("second", "running"))
        running.wait_windows("second", 2, time.time())
        assert running.sums("second", 2).keys() >= {paused + 2, paused + 4}
        # Deleted: the reader first; then the query whose children another one reads.
        running.thread.run(running.changes.change_state("chain", "deleted"))
        assert running.fragments("chain") == []
        running.wait_windows("first", 1, time.time())
        running.thread.run(running.changes.change_state("first", "deleted"))
        assert [name for name in running.fragments("first") if name.startswith("root/")] == []
        running.wait_windows("wide", 4, time.time(), 2)
        running.thread.stop()
        # A restart with the file of before: what was applied stays, and what was deleted.
        running = Running(tmp_path, broker)
        assert running.fragments("second")
        assert not running.fragments("chain")
        assert "chain" not in Registry(running.transport).queries()
        running.wait_windows("second", 2, time.time())
        running.wait_windows("wide", 4, time.time(), 2)
        sender.stop()
        check(running, sender, "first", 1)
        check(running, sender, "wide", 4)
        check(running, sender, "second", 2)
    finally:
        sender.stop()
        running.thread.stop()
