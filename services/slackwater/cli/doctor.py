"""``slackwater doctor``: checks this machine's prerequisites, and prints repairs.

Each check is a function that returns its result or raises an error with the repair; it changes
nothing and leaves no process running. All checks run, so that one call reports all errors.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from slackwater.model.errors import SlackwaterError

DISK_FREE_BYTES_MIN: Final = 2 * 1024**3
MEMORY_BYTES_MIN: Final = 3 * 1024**3
JAVA_VERSIONS: Final = (17, 21)
PACKAGES: Final = ("pyspark", "faust-streaming", "aiokafka", "confluent-kafka", "numpy", "pyarrow")


class Trouble(Exception):
    """An error and its repair."""

    def __init__(self, what: str, repair: str) -> None:
        super().__init__(what)
        self.what, self.repair = what, repair


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check; ``repair`` is empty if it passed, or if the text names the repair."""

    subject: str
    text: str
    repair: str = ""
    ok: bool = True
    """Whether there is nothing to repair."""


def examine(data_dir: Path) -> Iterator[Finding]:
    """Run all checks in order."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("Python", python),
        ("packages", packages),
        ("Java", java),
        ("broker jars", broker_jars),
        ("Spark jars", spark_jars),
        ("ports", ports),
        ("disk", lambda: disk(data_dir)),
        ("memory", memory),
        ("broker", lambda: broker(data_dir)),
    ]
    for subject, check in checks:
        try:
            yield Finding(subject, check())
        except Trouble as trouble:
            yield Finding(subject, trouble.what, trouble.repair, ok=False)
        except SlackwaterError as error:
            yield Finding(subject, error.message, ok=False)


def python() -> str:
    """Return the version of Python; too old a version would have failed earlier."""
    return f"{'.'.join(map(str, sys.version_info[:3]))} in {sys.prefix}"


def packages() -> str:
    """Check the libraries the pipeline depends on."""
    try:
        return ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    except PackageNotFoundError as error:
        raise Trouble(f"{error.name} is not installed", "run make setup") from error


def java() -> str:
    """Check for Java 17 (or 21), which both Kafka and Spark run on."""
    from slackwater.machine.paths import java_executable

    executable = java_executable()
    shown = subprocess.run(
        [executable, "-version"], capture_output=True, text=True, timeout=30, check=False
    ).stderr
    match = re.search(r'version "(\d+)', shown)
    if match is None:
        raise Trouble(f"{executable} prints no version", "install Java 17")
    if int(match[1]) not in JAVA_VERSIONS:
        raise Trouble(
            f"{executable} is Java {match[1]}",
            "install Java 17 and point JAVA_HOME at it (Debian: openjdk-17-jre-headless)",
        )
    return f"{executable}, version {match[1]}"


def broker_jars() -> str:
    """Check for the embedded broker's jars."""
    from slackwater.machine.paths import broker_jars as jars

    found = jars()
    return f"{len(found)} in {found[0].parent}"


def spark_jars() -> str:
    """Check for Spark's Kafka and Avro connectors."""
    from slackwater.machine.paths import spark_jars as jars

    return f"{len(jars())} connectors"


def ports() -> str:
    """Check that a port on loopback is available."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return f"free ports on 127.0.0.1, such as {server.getsockname()[1]}"
    except OSError as error:
        raise Trouble(
            f"no port on 127.0.0.1 can be opened: {error.strerror}",
            "allow this user to listen on loopback",
        ) from error


def disk(data_dir: Path) -> str:
    """Check for disk space for logs and spools, in a writable directory."""
    there = data_dir.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise Trouble(f"{there} is a file", "choose a directory with --data-dir")
    if not os.access(there, os.W_OK):
        raise Trouble(f"{there} cannot be written", "choose another one with --data-dir")
    free = shutil.disk_usage(there).free
    if free < DISK_FREE_BYTES_MIN:
        raise Trouble(
            f"only {free / 1e9:.1f} GB free in {there}",
            "make room, or choose another disk with --data-dir",
        )
    return f"{free / 1e9:.1f} GB free for {data_dir}"


def memory() -> str:
    """Check for memory for a broker, a Spark and some Python processes."""
    import psutil

    available = int(psutil.virtual_memory().available)
    if available < MEMORY_BYTES_MIN:
        raise Trouble(
            f"only {available / 1e9:.1f} GB of memory available",
            "end other programs; the pipeline needs about 3 GB",
        )
    return f"{available / 1e9:.1f} GB available"


def broker(data_dir: Path) -> str:
    """Check that the broker of a running ``slackwater up`` answers; a stopped one is no fault."""
    from slackwater.cli.common import reach_kafka
    from slackwater.runtime.service.datadir import is_running, read_run

    run = read_run(data_dir)
    if run is None or not is_running(data_dir):
        return f"no `slackwater up` runs from {data_dir}"
    try:
        return f"answers at {reach_kafka(None, None, data_dir)}"
    except SlackwaterError as error:
        raise Trouble(
            f"`slackwater up` runs, but {error.message}",
            f"see {data_dir / 'logs'} and {data_dir / 'broker'}; stop it with Ctrl-C and start it"
            " again, and it continues",
        ) from error
