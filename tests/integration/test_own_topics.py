"""Topics of the deployment that a stranger deletes and makes again: an error that names them.

While the deployment runs, the fragments that use the topic end with the sentence, and no answer
follows. At the next start the command ends with it, also if the topic is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_topic_changes import DEPLOYMENT, TOPIC, Changing
from tests.support.starting import make_topics, started
from tests.support.waiting import eventually

from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.errors import EnvironmentProblem
from slackwater.registration.topics import topic_specs
from slackwater.runtime.logs.topics import delete_topics, ensure_topics, partition_counts
from slackwater.runtime.service.parts import FAILED_CODE, FAILURES
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]

STATE, REGISTRY = "sw.state.rows", "sw.registry"


class Deployed:
    """A deployment on a broker that outlives it."""

    def __init__(self, folder: Path, broker: EmbeddedBroker) -> None:
        self.folder, self.bootstrap = folder, broker.bootstrap
        self.path = folder / "deployment.yaml"
        self.path.write_text(DEPLOYMENT)
        self.deployment = load_deployment(self.path)
        self.stack = self.started()

    def started(self) -> StackThread:
        """Start it; after a failure it is stopped again."""
        data = self.folder / "data"
        options = StackOptions(self.path, self.deployment, data, bootstrap=self.bootstrap)
        return started(StackThread(options))

    def delete(self, topic: str) -> None:
        delete_topics(self.bootstrap, [topic])
        eventually(lambda: not partition_counts(self.bootstrap, [topic]), "it is deleted")

    def make_again(self, topic: str) -> None:
        self.delete(topic)
        layouts = topic_specs(self.deployment, {"lab": 1})
        ensure_topics(self.bootstrap, [each for each in layouts if each.name == topic])

    def failed(self, process: str) -> bool:
        """Return whether the process has failed twice, both times for want of something."""
        beat = self.stack.stack.listener.latest(process)
        if beat is None or beat.detail.get(FAILURES, 0) < 2:
            return False
        return beat.detail[FAILED_CODE] == EnvironmentProblem.exit_code

    def logged(self, text: str) -> bool:
        return any(text in log.read_text() for log in (self.folder / "data/logs").glob("*.log"))


@pytest.fixture(name="deployed")
def _deployed(tmp_path: Path) -> Iterator[Deployed]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, [TOPIC])
        deployed = Deployed(tmp_path, broker)
        try:
            yield deployed
        finally:
            deployed.stack.stop()


def test_a_topic_that_is_made_again_while_it_is_used_ends_those_that_use_it(
    deployed: Deployed,
) -> None:
    changing = Changing(deployed.stack)
    changing.send()
    changing.await_all()
    deployed.make_again(STATE)
    users = ["root/rows.0.a", "root/rows.0.b", "orderer/rows.0.a", "orderer/rows.0.b"]
    eventually(lambda: all(map(deployed.failed, users)), "its users fail")
    assert deployed.logged(f"topic {STATE} was deleted and made again")
    beat = deployed.stack.stack.listener.latest("proxy/lab")
    assert beat is not None
    assert beat.detail.get(FAILURES, 0) == 0, "the proxy does not use it"
    changing.results.close()
    assert {*changing.numbers().values()} == {1}

    deployed.stack.stop()
    with pytest.raises(EnvironmentProblem, match=f"topic {STATE} was deleted and made again"):
        deployed.started()


@pytest.mark.drill
def test_a_source_log_that_is_deleted_is_not_made_at_the_next_start(deployed: Deployed) -> None:
    deployed.stack.stop()
    deployed.delete("sw.source.lab.0")
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match=r"topic sw\.source\.lab\.0 was deleted, "):
            deployed.started()
    assert not partition_counts(deployed.bootstrap, ["sw.source.lab.0"])


def test_a_registry_that_is_deleted_is_not_taken_for_a_new_one(deployed: Deployed) -> None:
    changing = Changing(deployed.stack)
    changing.send()
    changing.await_all()
    changing.results.close()
    deployed.stack.stop()
    deployed.delete(REGISTRY)
    for _ in range(2):  # the first start makes the topic
        with pytest.raises(EnvironmentProblem, match=f"{REGISTRY} does not have the deployment"):
            deployed.started()
