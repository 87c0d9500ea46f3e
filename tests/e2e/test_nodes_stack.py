"""The stack of nodes.yaml: a node is killed, another one drained, a controller cut off.

A sender writes readings all the time; every window is compared with the sum of what was sent.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import IMAGES, Compose, project
from tests.support.counted_sender import TOPIC, Sender, check_sums, sums
from tests.support.engine import docker, require
from tests.support.waiting import eventually

from slackwater.runtime.logs.kafka import KafkaTransport

FILE = f"""\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {{name: {TOPIC}, format: json}}
    key: {{field: mote}}
    time: {{field: at, unit: ms}}
    fields: [x]
    expect_every: 1s
    site: hall
queries:
  each: {{from: [lab], window: {{size: 1s}}, aggregate: [sum], bound: 2s}}
"""
CONTROLLERS = ("controller-1", "controller-2", "controller-3")


@pytest.fixture(name="stack")
def _stack(tmp_path: Path) -> Iterator[Compose]:
    require(IMAGES, compose=True)
    file = tmp_path / "d.yaml"
    file.write_text(FILE)
    file.chmod(0o644)
    tmp_path.chmod(0o755)
    yield from project("nodes", "nodes.yaml", SLACKWATER_NODES_DEPLOYMENT=str(file))


def listed(stack: Compose, asked: str = "controller-1") -> tuple[int, str]:
    """Return the exit code and the output of `slackwater node list`, with single spaces."""
    command = ["docker", "exec", stack.container(asked), "slackwater", "node", "list"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, "\n".join(" ".join(line.split()) for line in done.stdout.splitlines())


def views(stack: Compose, asked: str = "controller-1") -> list[str]:
    """Return the members of each view of the controllers that answer."""
    lines = (line.partition(" (view ")[0] for line in listed(stack, asked)[1].splitlines())
    return [line.removeprefix("controllers ") for line in lines if line.startswith("controllers ")]


def where(stack: Compose, fragment: str) -> str:
    """Return the service of the node that has a fragment."""
    node = ""
    for line in listed(stack)[1].splitlines():
        if line.startswith("node "):
            node = line.split()[1]
        elif line.split(" ")[0] == fragment:
            return node.replace("n", "node-")
    raise AssertionError(f"{fragment} is on no node")


@pytest.mark.drill
def test_nodes_that_fail_and_drain_and_a_controller_that_is_cut_off(stack: Compose) -> None:
    stack.up()
    transport, sender = KafkaTransport(stack.bootstrap), Sender(stack.bootstrap)

    def answers_on() -> None:
        before = len(sums(transport, "each", 1))
        eventually(lambda: len(sums(transport, "each", 1)) > before + 3, "it answers on")

    def all_run() -> None:
        eventually(lambda: listed(stack)[0] == 0, "all fragments run")

    try:
        all_run()
        assert where(stack, "proxy/lab") == "node-1", "it has the label of the stream's site"
        answers_on()

        victim = where(stack, "root/each.0")
        docker("kill", stack.container(victim))
        all_run()
        assert where(stack, "root/each.0") != victim
        answers_on()
        docker("start", stack.container(victim))

        docker("network", "disconnect", stack.network, stack.container("controller-3"))
        eventually(lambda: views(stack) == ["a, b"], "a view without it")
        drained = where(stack, "root/each.0")
        name = drained.replace("node-", "n")
        stack.run("exec", "-T", "controller-2", "slackwater", "node", "drain", name, "--wait")
        answers_on()
        cut_off = stack.container("controller-3")
        docker("network", "connect", "--alias", "controller-3", stack.network, cut_off)
        eventually(
            lambda: all(views(stack, each) == ["a, b, c"] for each in CONTROLLERS),
            "one view of all",
        )
        assert f"node {name} steady, drains" in listed(stack, "controller-3")[1]
        answers_on()
    finally:
        sender.stop()
    check_sums(transport, sender, "each", 1)
    inspected = json.loads(docker("inspect", *stack.left()))
    assert not [c["Name"] for c in inspected if c["State"]["OOMKilled"]]
