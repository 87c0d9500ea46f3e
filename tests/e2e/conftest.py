"""The stack of compose.yaml, started from its images, used only through its published ports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engine import KAFKA_IMAGE, ROOT, docker, require
from tests.support.gateway_site import Reader
from tests.support.ports import free_port

HERE = Path(__file__).parent
SERVICES_IMAGE = os.environ.get("SLACKWATER_SERVICES_IMAGE", "slackwater/services:dev")
NODE_IMAGE = os.environ.get("SLACKWATER_NODE_IMAGE", "slackwater/node:dev")
IMAGES = (SERVICES_IMAGE, NODE_IMAGE, KAFKA_IMAGE)
UP_S_MAX = 420


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.containers)


class Compose:
    """One project of these files in compose/, with its own ports and volumes."""

    def __init__(self, project: str, *files: str, **variables: str) -> None:
        self.project = project
        self._files = [option for file in files for option in ("-f", f"compose/{file}")]
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.page = Reader(free_port())
        self._env = os.environ | {
            "SLACKWATER_PROJECT": project,
            "SLACKWATER_KAFKA_PORT": str(self.port),
            "SLACKWATER_GATEWAY_PORT": str(self.page.port),
            **variables,
        }

    def run(self, *arguments: str, timeout_s: float = 600.0) -> str:
        """Run a `docker compose` command; return its output, and show it if the command fails."""
        command = ["docker", "compose", "--progress", "quiet", *self._files]
        done = subprocess.run(
            [*command, *arguments],
            check=False,
            cwd=ROOT,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def up(self) -> None:
        """Start everything and wait until all are healthy; show the logs if that fails."""
        try:
            self.run("up", "-d", "--wait", "--wait-timeout", str(UP_S_MAX), timeout_s=UP_S_MAX + 60)
        except AssertionError:
            sys.stderr.write(self.run("logs", "--no-color", "--tail", "40"))
            raise

    def down(self, *, volumes: bool = False) -> None:
        """Stop everything."""
        self.run("down", "--remove-orphans", *(["--volumes"] if volumes else []))

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        return self.run("ps", "-aq", service).strip()

    def signal(self, name: str, process: str) -> None:
        """Send a signal to a process of the node, as ``status -v`` names processes."""
        kind, _, number = process.partition("/")
        self.run("exec", "-T", "node", "pkill", f"-{name}", "-f", f"slackwater.{kind} {number} ")

    def all_run(self) -> bool:
        """Return whether all fragments run on the node."""
        command = ["docker", "exec", self.container("node"), "slackwater", "node", "list"]
        return not subprocess.run(command, check=False, capture_output=True, timeout=60).returncode

    @property
    def network(self) -> str:
        """Return the network of all services."""
        return f"{self.project}_default"

    def left(self) -> list[str]:
        """Return the containers of the project that exist."""
        label = f"label=com.docker.compose.project={self.project}"
        return docker("ps", "-aq", "--filter", label).split()


@pytest.fixture(scope="module", name="compose")
def _compose() -> Iterator[Compose]:
    require(IMAGES, compose=True)
    yield from project("e2e", "compose.yaml")


@pytest.fixture(scope="module", name="secured")
def _secured() -> Iterator[Compose]:
    require(IMAGES, compose=True)
    yield from project("secured", "compose.yaml", "secured.yaml")


def project(
    name: str, *files: str, of: type[Compose] = Compose, **variables: str
) -> Iterator[Compose]:
    """A project with a name of its own, which is ended with its volumes."""
    compose = of(f"slackwater-{name}-{os.getpid()}", *files, **variables)
    try:
        yield compose
    finally:
        compose.down(volumes=True)
