"""Docker for tests: a check for an engine, and a Kafka of the official image in a container.

Without an engine these tests are skipped with an instruction; if SLACKWATER_DOCKER is ``required``
(CI guarantees an engine) they fail instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.ports import free_port

# Read when testcontainers is imported. Its reaper is an image that a machine without a registry
# does not have. A CI job in a container has its ports on the loopback nevertheless, if the engine
# runs beside it.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
os.environ.setdefault("TESTCONTAINERS_CONNECTION_MODE", "docker_host")

from docker.errors import APIError
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

ROOT = Path(__file__).parents[2]
KAFKA_IMAGE = os.environ.get("SLACKWATER_KAFKA_IMAGE", "apache/kafka:4.3.1")
INSTRUCTION = (
    "start Docker's engine; as root, and also without an image registry: compose/offline/prepare.sh"
)


def docker(*arguments: str, timeout_s: float = 180.0) -> str:
    """Return the output of a docker command; raises ``CalledProcessError`` if it fails."""
    done = subprocess.run(
        ["docker", *arguments], check=True, capture_output=True, text=True, timeout=timeout_s
    )
    return done.stdout


def require(images: Sequence[str] = (), *, compose: bool = False) -> None:
    """Skip, or fail if CI requires it, unless there are an engine and these images."""
    lacking = _lacking(images, compose=compose)
    if lacking is None:
        return
    if os.environ.get("SLACKWATER_DOCKER") == "required":
        pytest.fail(f"SLACKWATER_DOCKER is required, but {lacking}")
    pytest.skip(f"{lacking}: {INSTRUCTION}")


def _lacking(images: Sequence[str], *, compose: bool) -> str | None:
    if shutil.which("docker") is None:
        return "there is no docker command"
    try:
        docker("info", timeout_s=20.0)
    except (subprocess.SubprocessError, OSError):
        return "no Docker engine answers"
    if compose:
        try:
            docker("compose", "version", timeout_s=20.0)
        except subprocess.SubprocessError:
            return "docker compose is not installed"
    for image in images:
        try:
            docker("image", "inspect", image, timeout_s=20.0)
        except subprocess.SubprocessError:
            return f"there is no image {image} (docker compose -f compose/compose.yaml build)"
    return None


class KafkaContainer(DockerContainer):
    """One KRaft node. Its address is fixed before the start, so it is the same after a kill.

    testcontainers' own Kafka is another vendor's image, and gets another port at each start.
    """

    tries_max = 5

    def __init__(self, image: str = KAFKA_IMAGE) -> None:
        super().__init__(image)
        self.bootstrap = ""
        replicated_once = {
            f"KAFKA_{name}": "1"
            for name in (
                "OFFSETS_TOPIC_REPLICATION_FACTOR",
                "OFFSETS_TOPIC_NUM_PARTITIONS",
                "TRANSACTION_STATE_LOG_REPLICATION_FACTOR",
                "TRANSACTION_STATE_LOG_MIN_ISR",
                "TRANSACTION_STATE_LOG_NUM_PARTITIONS",
            )
        }
        self.with_envs(
            KAFKA_NODE_ID="1",
            KAFKA_PROCESS_ROLES="broker,controller",
            KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9093",
            KAFKA_LISTENERS="HOST://:9092,INSIDE://:19092,CONTROLLER://:9093",
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=",".join(
                f"{name}:PLAINTEXT" for name in ("HOST", "INSIDE", "CONTROLLER")
            ),
            # For transactions a broker connects to itself, and it cannot reach the host's port.
            KAFKA_INTER_BROKER_LISTENER_NAME="INSIDE",
            KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
            KAFKA_LOG_DIRS="/var/lib/kafka/data",
            KAFKA_AUTO_CREATE_TOPICS_ENABLE="false",
            KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
            # A killed broker is accepted again when its session has expired.
            KAFKA_BROKER_SESSION_TIMEOUT_MS="3000",
            KAFKA_BROKER_HEARTBEAT_INTERVAL_MS="500",
            **replicated_once,
        )

    def start(self) -> KafkaContainer:
        """Start the container and wait until the broker serves."""
        for tried in range(1, self.tries_max + 1):
            port = free_port()
            self.bootstrap = f"127.0.0.1:{port}"
            # The library forwards it; its own annotation has only a port without an address.
            self.ports = {"9092/tcp": ("127.0.0.1", port)}  # type: ignore[dict-item]
            advertised = f"HOST://{self.bootstrap},INSIDE://localhost:19092"
            self.with_env("KAFKA_ADVERTISED_LISTENERS", advertised)
            try:
                super().start()
            except APIError as error:  # another process has taken the port
                self.discard()
                if tried == self.tries_max or "already in use" not in str(error):
                    raise
            else:
                self.wait_until_it_serves()
                return self
        raise AssertionError("not reached")

    def wait_until_it_serves(self) -> None:
        """Wait for the line in its log."""
        serves = LogMessageWaitStrategy("Kafka Server started")
        serves.with_startup_timeout(120).with_poll_interval(0.2).wait_until_ready(self)

    def kill_and_start(self) -> None:
        """SIGKILL the container, and start it again."""
        wrapped = self.get_wrapped_container()
        wrapped.kill()
        wrapped.wait()
        wrapped.start()

    def discard(self) -> None:
        """Remove it with its anonymous volumes."""
        if self._container is not None:
            self._container.remove(force=True, v=True)
            self._container = None
