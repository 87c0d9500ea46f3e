"""A Spark cluster with a shared secret: the profile ``cluster`` without containers.

Master and worker are started by the script of the image, from this checkout's jars.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from tests.support.children import running_children
from tests.support.files import files
from tests.support.ports import free_port
from tests.support.waiting import WAIT_S_MAX

from slackwater.machine.paths import java_executable
from slackwater_spark.aggregate import task_slots
from slackwater_spark.session import SessionSettings, start_spark

pytestmark = [
    pytest.mark.slow,
    pytest.mark.drill,
    # Objects that py4j leaves to the collector when its JVM has ended.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "compose" / "images" / "spark" / "spark"
SLOTS = 3
"""Of the worker; not two, which Spark reports for fewer."""
HOST = socket.gethostbyname(socket.gethostname())


@dataclass
class Process:
    """A master or a worker, and its log of errors."""

    process: subprocess.Popen[bytes]
    log: Path


def eventually(holds: Callable[[], bool], process: Process) -> None:
    give_up = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert process.process.poll() is None, process.log.read_text()[-2_000:]
        assert time.monotonic() < give_up, process.log.read_text()[-2_000:]
        time.sleep(0.1)


def launch(folder: Path, secret: Path, port: int, *arguments: str) -> Process:
    folder.mkdir()
    java = Path(java_executable()).resolve().parents[1]
    environment = os.environ | {
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SLACKWATER_HOME": str(ROOT),
        "SLACKWATER_DATA_DIR": str(folder),
        "TMPDIR": str(folder),
        "SPARK_PORT": str(port),
        "SPARK_SECRET_FILE": str(secret),
        "SPARK_WORKER_CORES": str(SLOTS),
        "SPARK_WORKER_MEMORY": "600m",
    }
    log = folder / "log"
    with log.open("wb") as out:
        command = [str(SCRIPT), *arguments]
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    return Process(process, log)


@dataclass
class Cluster:
    """A master and one worker with the secret."""

    folder: Path
    secret: Path
    port: int
    page: int
    processes: list[Process]

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def worker(self, name: str, secret: Path) -> Process:
        more = ("worker", self.master, "--webui-port", "0")
        made = launch(self.folder / name, secret, free_port(), *more)
        self.processes.append(made)
        return made

    def page_json(self) -> dict[str, Any]:
        """Return the master's public page; raises until it is available."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.page}/json/", timeout=10) as answer:
                found: dict[str, Any] = json.loads(answer.read())
        except OSError:
            return {}
        return found

    def workers(self) -> int:
        """Return the number of registered workers."""
        return len(self.page_json().get("workers", []))


@pytest.fixture(name="cluster", scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("spark")
    secret = folder / "secret"
    secret.write_text(secrets.token_urlsafe(48))
    port, page = free_port(), free_port()
    master = launch(folder / "master", secret, port, "master", "--webui-port", str(page))
    cluster = Cluster(folder, secret, port, page, [master])
    try:
        eventually(lambda: cluster.page_json().get("status") == "ALIVE", master)
        worker = cluster.worker("worker", secret)
        eventually(lambda: cluster.workers() == 1, worker)
        yield cluster
    finally:
        for each in cluster.processes:
            each.process.kill()
            each.process.wait()


def test_a_driver_that_knows_the_secret_computes_and_no_command_line_has_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = SessionSettings(
        "secured",
        tmp_path / "driver",
        cluster.master,
        heap_mib=512,
        workers_alike=True,
        secret_file=cluster.secret,
        conf={"spark.executor.memory": "512m", "spark.cores.max": str(SLOTS)},
    )
    secret = cluster.secret.read_text()
    with start_spark(settings) as spark:
        assert spark.session.range(1_000).selectExpr("sum(id)").collect()[0][0] == 499_500
        assert task_slots(spark.session) == SLOTS
        executors = 0
        for process in running_children(recursive=True):
            line = " ".join(process.cmdline())
            assert secret not in line
            executors += "CoarseGrainedExecutorBackend" in line
        assert executors
    left = {path for path, content in files(cluster.folder) if secret.encode() in content}
    assert {path.name for path in left} == {"secret", "spark.properties"}
    modes = {oct(path.stat().st_mode)[-3:] for path in left if path.name == "spark.properties"}
    assert modes == {"600"}


def test_a_worker_with_another_secret_is_not_taken(cluster: Cluster, tmp_path: Path) -> None:
    """It retries; each time the master closes the connection in the handshake."""
    other = tmp_path / "secret"
    other.write_text(secrets.token_urlsafe(48))
    stranger = cluster.worker("stranger", other)

    def refusals() -> int:
        assert cluster.workers() == 1
        return stranger.log.read_text().count("Exception while bootstrapping client")

    eventually(lambda: refusals() >= 3, stranger)
    assert cluster.workers() == 1
