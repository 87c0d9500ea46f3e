"""Mergers on real processes: four children, two copies each, killed while readings flow (rule-36).

Two queries read the same four children, one with mergers and one without. Their stable rows must be
equal in each figure, bit for bit, and no answer may be tentative.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_children import TOPIC, Sender
from tests.integration.test_plain_topic import Results
from tests.support.starting import make_topics
from tests.support.waiting import eventually

from slackwater.codec.pane_records import decode_merged
from slackwater.codec.results import parse_time
from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import read_to_end
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]

PARTITIONS = 16
QUERIES = ("merged", "plain")
DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [x]
    disorder: 500ms
    expect_every: 1s
queries:
  merged:
    from: [lab]
    window: {size: 2s, slide: 1s}
    aggregate: [count, avg, min, max, stddev]
    bound: 8s
    children: 4
    mergers: 2
  plain:
    from: [lab]
    window: {size: 2s, slide: 1s}
    aggregate: [count, avg, min, max, stddev]
    bound: 8s
    children: 4
"""
Rows = dict[tuple[str, str], dict[str, float]]


class Running:
    """The deployment with its results and its sender."""

    def __init__(self, stack: StackThread) -> None:
        self.stack, self.transport = stack, KafkaTransport(stack.stack.bootstrap)
        self.results = {name: Results(stack.stack.bootstrap, query=name) for name in QUERIES}
        self.sender = Sender(stack.stack.bootstrap)

    def rows(self, query: str) -> Rows:
        """Return the stable rows of a query; none is there twice."""
        found: Rows = {}
        for line in self.results[query].lines:
            if line["kind"] == "stable":
                at = line["window_start"], line["key"]
                assert at not in found, f"{query}: {at} is answered twice"
                found[at] = line["fields"]["x"]
        return found

    def await_stable(self, seconds: int) -> None:
        """Wait until both queries have answered what was sent until now and some seconds more."""
        until = (time.time() + seconds) * 1e6
        for name, results in self.results.items():

            def holds(name: str = name) -> bool:
                return any(parse_time(start) >= until for start, _ in self.rows(name))

            results.read_until(holds, f"query {name} has answered")

    def merged_panes(self) -> int:
        """Return how many records the log of the first child's merged panes has had."""
        log = (self.transport.names.merged("merged", 0), 0)
        for raw in read_to_end(self.transport, log):
            assert decode_merged(raw.value).pane.ref.child == 0
        return self.transport.end_offsets([log])[log]

    def close(self) -> None:
        self.sender.stop()
        for results in self.results.values():
            results.close()


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Running]:
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


def test_mergers_that_die_in_turn_change_no_answer(running: Running) -> None:
    running.await_stable(2)
    eventually(lambda: running.merged_panes() > 0, "panes are merged")
    for letter in ("a", "b", "a"):
        names = [f"merger/merged.{child}.{letter}" for child in range(4)]
        for name in names:
            assert running.stack.kill(name) == [name]
        running.await_stable(2)
    assert sorted(running.stack.kill("merger/merged")) == sorted(
        f"merger/merged.{child}.{letter}" for child in range(4) for letter in "ab"
    )
    before = running.merged_panes()
    running.await_stable(3)
    eventually(lambda: running.merged_panes() > before, "panes are merged again")

    merged, plain = (running.rows(name) for name in QUERIES)
    both = merged.keys() & plain.keys()
    assert len({start for start, _ in both}) >= 10
    assert {at: merged[at] for at in both} == {at: plain[at] for at in both}
    tentative = [line for of in running.results.values() for line in of.lines]
    assert [line for line in tentative if line["kind"] == "tentative"] == []
