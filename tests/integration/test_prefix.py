"""Two deployments on one Kafka, distinguished only by their prefix.

They have the same stream, query and field names. Each must answer from its own readings alone, also
when one of them is stopped and restarted beside the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.integration.test_plain_topic import Results, Stranger
from tests.support.starting import asked, make_topics, started
from tests.support.waiting import WAIT_S_MAX

from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.errors import DeploymentError
from slackwater.runtime.logs.admin import Admin
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]

PREFIXES = ("plant-7.", "plant-8.")
FILTERED = """\
  lab-warm:
    from: [lab]
    where: temperature > -300
    bound: 2s
    replicas: 1
"""
"""A query of the eighth plant alone. No query has a window: Spark takes long to start."""
EVERY_S = {"plant-7.": 0.02, "plant-8.": 0.05}
"""They differ, so that a reading of the other one shows in the counts."""


def file(prefix: str, topic: str) -> str:
    line = f"prefix: {prefix}\n" if prefix else ""
    return f"""\
apiVersion: slackwater/v1
{line}streams:
  lab:
    topic: {{name: {topic}, format: json}}
    key: {{field: mote}}
    time: {{field: at.us, unit: us}}
    fields: {{temperature: t.celsius}}
    expect_every: auto  # readings alone promise: however busy the machine is, none is late
queries:
  lab-rows:
    from: [lab]
    bound: 2s
    replicas: 1
{FILTERED if prefix == "plant-8." else ""}"""


def _is_past(results: Results, second: int) -> bool:
    return max(results.counts(), default=0) > second


@dataclass
class Plant:
    """One of the two deployments, with its producer and its consumer."""

    prefix: str
    folder: Path
    bootstrap: str
    stranger: Stranger
    results: list[Results]
    """Answers of each query."""

    @property
    def topic(self) -> str:
        return f"readings-of-{self.prefix}x"

    def stack(self, prefix: str) -> StackThread:
        """Return its stack, with this prefix in its file."""
        path = self.folder / "deployment.yaml"
        path.write_text(file(prefix, self.topic))
        data = self.folder / "data"
        return StackThread(
            StackOptions(path, load_deployment(path), data, bootstrap=self.bootstrap)
        )

    def start(self) -> StackThread:
        return started(self.stack(self.prefix))

    def answers_until(self, second: int) -> None:
        """Wait for stable answers with readings later than this."""
        for results in self.results:
            results.read_until(
                partial(_is_past, results, second), f"{self.prefix} has answered beyond {second}"
            )

    def refused(self, prefix: str) -> str:
        """Return the refusal of another prefix with the same data directory."""
        stack = self.stack(prefix)
        try:
            with pytest.raises(DeploymentError) as caught:
                stack.open()
        finally:
            stack.stop()
        return caught.value.message

    def is_exact(self) -> None:
        sent = self.stranger.sent
        for results in self.results:
            counts = results.counts()
            complete = [second for second in sent if min(counts) < second < max(counts)]
            assert len(complete) >= 3
            assert {s: counts[s] for s in complete} == {s: sent[s] for s in complete}
            seqs = [line["seq"] for line in results.lines]
            assert len(seqs) == len(set(seqs))


@pytest.fixture(name="plants")
def _plants(tmp_path: Path) -> Iterator[list[Plant]]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        plants = []
        for prefix in PREFIXES:
            folder = tmp_path / prefix
            folder.mkdir()
            topic = f"readings-of-{prefix}x"
            where = broker.bootstrap
            stranger = Stranger(where, topic, partitions=1, every_s=EVERY_S[prefix])
            path = folder / "names.yaml"
            path.write_text(file(prefix, topic))
            own = load_deployment(path)
            results = [Results(where, own.names, query) for query in own.queries]
            plants.append(Plant(prefix, folder, where, stranger, results))
        make_topics(broker.bootstrap, [plant.topic for plant in plants])
        yield plants
        for plant in plants:
            for each in plant.results:
                each.close()


@pytest.mark.drill
def test_two_deployments_share_a_broker_and_nothing_else(plants: list[Plant]) -> None:
    seventh, eighth = plants
    stacks = []
    try:
        for plant in (eighth, seventh):
            plant.stranger.start()
            stacks.append(plant.start())
        seventh.answers_until(min(seventh.stranger.sent) + 2)
        stacks[1].stop()
        stopped = max(seventh.stranger.sent)
        reported = [seventh.refused(prefix) for prefix in ("plant-9.", "")]
        stacks[1] = seventh.start()
        for plant in plants:
            plant.answers_until(stopped + 1)
            plant.stranger.stop()
        topics, groups = created(seventh.bootstrap)
    finally:
        for stack in stacks:
            stack.stop()
    for plant in plants:
        plant.is_exact()
    assert [text.partition("holds a deployment with ")[2] for text in reported] == [
        f"prefix plant-7., but the file has {other}: choose another --data-dir, or restore the"
        " prefix in the file"
        for other in ("prefix plant-9.", "no prefix")
    ]
    own = {seventh.topic, eighth.topic}
    assert own <= topics
    assert {name for name in topics - own if not name.startswith(("__", *PREFIXES))} == set()
    assert {name for name in groups if not name.startswith(PREFIXES)} == set()
    bare = [{n.removeprefix(p) for n in topics if n.startswith(p)} for p in PREFIXES]
    assert bare[0] < bare[1], "the same names after the prefix, and those of one more query"


def created(bootstrap: str) -> tuple[set[str], set[str]]:
    """Return the names of all topics and consumer groups of the broker."""
    topics = set(Admin(bootstrap).list_topics(WAIT_S_MAX))
    groups = asked(bootstrap, lambda admin: admin.list_consumer_groups())
    return topics, {group.group_id for group in groups.valid}
