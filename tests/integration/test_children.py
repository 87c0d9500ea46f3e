"""One topic of eight partitions with four children and mergers, on real processes.

A second query over the same stream has one child. On each of these two trees there is a second
query, with longer windows (Fargo, Definition 25), and on the tree of four children a third one,
with mergers. One deployment runs them all, for both tests.

- The mergers are killed while readings flow (rule-36). The query that reads them, and its twin that
  does not, have equal rows in each figure, bit for bit, and no answer is tentative.
- All must agree with a plain computation: counts, minima and maxima bit for bit, sums as the judge
  compares them. Meanwhile an orderer of one child is killed, with its host and its aggregator, and
  a partition is added.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions
from tests.integration.test_plain_topic import Results
from tests.support.starting import SENDS_ONCE, asked, make_topics
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.codec import decode_ordered, decode_source
from slackwater.codec.pane_records import decode_merged
from slackwater.codec.results import parse_time
from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.child_logs import ChildLogs
from slackwater.model.records import Kind
from slackwater.runtime.logs.cluster import Where, confluent_client
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.registry import Registry
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]

TOPIC = "lab-readings"
PARTITIONS, ADDED = 8, (8, 9)
DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [x]
    disorder: 5s  # a reading may be sent seconds before its partition is taken in
    expect_every: 1s
queries:
  four: {window: {size: 1s}, children: 4, COMMON}
  four-long: {window: {size: 2s, slide: 1s}, children: 4, COMMON}
  merged: {window: {size: 2s, slide: 1s}, children: 4, mergers: 2, COMMON}
  one: {window: {size: 1s}, replicas: 1, COMMON}
  one-long: {window: {size: 2s}, replicas: 1, COMMON}
""".replace("COMMON", "from: [lab], aggregate: [count, sum, min, max, stddev], bound: 8s")
TREES = {"four": "four", "four-long": "four", "merged": "four", "one": "one", "one-long": "one"}
"""By query: the one after which its children are named."""
TWINS = ("merged", "four-long")
Rows = dict[tuple[int, str], dict[str, float]]


class Sender:
    """Sends numbered readings of seven motes to all partitions in turn, and keeps them."""

    def __init__(self, bootstrap: Where, partitions: int = PARTITIONS) -> None:
        self._bootstrap, self._known = bootstrap, partitions
        self._producer = Producer(confluent_client(bootstrap) | SENDS_ONCE)
        self._stop = threading.Event()
        self.partitions = partitions
        self.sent: dict[tuple[int, str], list[float]] = defaultdict(list)
        self.number = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            if self._known != self.partitions:  # a client learns of added ones after minutes
                assert self._producer.flush(WAIT_S_MAX) == 0
                self._producer = Producer(confluent_client(self._bootstrap) | SENDS_ONCE)
                self._known = self.partitions
            for _ in range(8):
                at, mote = int(time.time() * 1e6), f"m{self.number % 7}"
                x = self.number * 0.1 - 5
                message = orjson.dumps({"mote": mote, "at": at, "x": x})
                partition = self.number % self._known
                self._producer.produce(TOPIC, message, partition=partition)
                self.sent[at // 1_000_000, mote].append(x)
                self.number += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S_MAX) == 0


class Running:
    """The deployment with its results and its sender."""

    def __init__(self, stack: StackThread) -> None:
        self.stack, self.bootstrap = stack, stack.stack.bootstrap
        self.transport = KafkaTransport(self.bootstrap)
        self.results = {name: Results(self.bootstrap, query=name) for name in TREES}
        self.sender = Sender(self.bootstrap)

    def rows(self, query: str) -> Rows:
        """Return the stable rows of a query; none is there twice."""
        found: Rows = {}
        for line in self.results[query].lines:
            if line["kind"] != "stable":
                continue
            at = int(parse_time(line["window_start"]) // 1_000_000), line["key"]
            assert at not in found, f"{query}: {at} is answered twice"
            found[at] = line["fields"]["x"]
        return found

    def await_stable(self, seconds: int, queries: Iterable[str] = tuple(TREES)) -> None:
        """Wait until queries have answered what was sent until now and some seconds more."""
        until = int(time.time()) + seconds
        for name in queries:
            results = self.results[name]

            def holds(name: str = name) -> bool:
                return max((second for second, _ in self.rows(name)), default=0) >= until

            results.read_until(holds, f"query {name} has answered")

    def child_logs(self) -> ChildLogs:
        logs = Registry(self.transport).all_queries()["four"].child_logs
        assert logs is not None
        return logs

    def readings_of(self, child: int) -> int:
        """Return how many readings the stable log of a child's first replica has."""
        topic = self.transport.names.ordered("four", child)
        records = [decode_ordered(raw.value) for raw in read_to_end(self.transport, (topic, 0))]
        return sum(len(r.values[0]) for r in records if r.kind is Kind.INSERTION)

    def source_readings(self, partition: int) -> int:
        log = (self.transport.names.source(f"lab.{partition}"), 0)
        records = read_to_end(self.transport, log)
        return sum(decode_source(raw.value).readings for raw in records)

    def merged_panes(self) -> int:
        """Return how many records the log of the first child's merged panes has had."""
        log = (self.transport.names.merged("merged", 0), 0)
        for raw in read_to_end(self.transport, log):
            assert decode_merged(raw.value).pane.ref.child == 0
        return self.transport.end_offsets([log])[log]

    def refused(self) -> list[bytes]:
        return [raw.value for raw in read_to_end(self.transport, ("sw.quarantine.lab", 0))]

    def close(self) -> None:
        self.sender.stop()
        for results in self.results.values():
            results.close()


@pytest.fixture(name="running", scope="module")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tmp_path = tmp_path_factory.mktemp("children")
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, [TOPIC], PARTITIONS)
        path = tmp_path / "deployment.yaml"
        path.write_text(DEPLOYMENT)
        stack = StackThread(
            StackOptions(path, load_deployment(path), tmp_path / "data", bootstrap=broker.bootstrap)
        )
        try:
            stack.open()
            stack.start_up()
            running = Running(stack)
            yield running
            running.close()
        finally:
            stack.stop()


def plain(values: list[float]) -> dict[str, Any]:
    return {"count": len(values), "min": min(values), "max": max(values)}


def test_mergers_that_die_in_turn_change_no_answer(running: Running) -> None:
    running.await_stable(2, TWINS)
    eventually(lambda: running.merged_panes() > 0, "panes are merged")
    for letter in ("a", "b", "a"):
        names = [f"merger/merged.{child}.{letter}" for child in range(4)]
        for name in names:
            assert running.stack.kill(name) == [name]
        running.await_stable(2, TWINS)
    assert sorted(running.stack.kill("merger/merged")) == sorted(
        f"merger/merged.{child}.{letter}" for child in range(4) for letter in "ab"
    )
    before = running.merged_panes()
    running.await_stable(3, TWINS)
    eventually(lambda: running.merged_panes() > before, "panes are merged again")

    merged, plain = (running.rows(name) for name in TWINS)
    both = merged.keys() & plain.keys()
    assert len({start for start, _ in both}) >= 10
    assert {at: merged[at] for at in both} == {at: plain[at] for at in both}
    lines = [line for name in TWINS for line in running.results[name].lines]
    assert [line for line in lines if line["kind"] == "tentative"] == []


def test_four_children_of_one_topic_answer_as_one_does(running: Running) -> None:
    logs = running.child_logs()
    assert dict(logs.logs) == {"lab": tuple(partition // 2 for partition in range(PARTITIONS))}
    queries = Registry(running.transport).all_queries()
    assert {name: queries[name].spec.child_query for name in TREES} == TREES
    running.await_stable(3)

    assert running.stack.kill("orderer/four.2.a") == ["orderer/four.2.a"]
    running.await_stable(3)
    running.stack.kill("aggregator/1")
    running.await_stable(3)

    asked(
        running.bootstrap,
        lambda client: client.create_partitions([NewPartitions(TOPIC, PARTITIONS + 2)])[TOPIC],
    )
    running.sender.partitions = PARTITIONS + 2
    running.await_stable(5)
    eventually(
        lambda: Registry(running.transport).partitions("lab") == PARTITIONS + 2, "they are read"
    )
    running.await_stable(3)
    running.sender.stop()

    four, one = running.rows("four"), running.rows("one")
    seconds = sorted({second for second, _ in four} & {second for second, _ in one})
    inner = [at for at in running.sender.sent if seconds[0] < at[0] < seconds[-1]]
    assert len({second for second, _ in inner}) >= 12
    for at in inner:
        values = running.sender.sent[at]
        assert {name: four[at][name] for name in ("count", "min", "max")} == plain(values)
        assert {name: one[at][name] for name in ("count", "min", "max")} == plain(values)
        for found in (four, one):
            assert math.isclose(found[at]["sum"], math.fsum(values), rel_tol=1e-12, abs_tol=1e-12)
    longer = {name: running.rows(name) for name in TREES if name not in {"four", "one"}}
    ends = min(max(second for second, _ in rows) for rows in longer.values())
    compared = {(second - second % 2, mote) for second, mote in inner if second < ends}
    sent = running.sender.sent
    for second, mote in (at for at in compared if at[0] > seconds[0]):
        values = [*sent.get((second, mote), ()), *sent.get((second + 1, mote), ())]
        for name, rows in longer.items():
            row = rows[second, mote]
            assert {each: row[each] for each in plain(values)} == plain(values), name
            assert math.isclose(row["sum"], math.fsum(values), rel_tol=1e-12, abs_tol=1e-12)
    assert running.refused() == [], "none is late"
    added = [running.source_readings(partition) for partition in ADDED]
    assert min(added) > 0
    assert [logs.child_of("lab", partition) for partition in ADDED] == [0, 1]
    assert all(running.readings_of(child) for child in range(4))
