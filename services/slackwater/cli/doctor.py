"""``slackwater doctor``: what this machine lacks, and how to mend it.

Each check is a function that returns what it found, or raises what is wrong; it changes nothing and
starts nothing that stays. All are run, so that one visit finds everything.
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
    """What is wrong, and how to repair it."""

    def __init__(self, what: str, repair: str) -> None:
        super().__init__(what)
        self.what, self.repair = what, repair


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: ``repair`` is empty when all is well."""

    subject: str
    text: str
    repair: str = ""

    @property
    def ok(self) -> bool:
        """Nothing to repair."""
        return not self.repair


def examine(data_dir: Path) -> Iterator[Finding]:
    """All checks, one after the other."""
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
            yield Finding(subject, trouble.what, trouble.repair)
        except SlackwaterError as error:
            yield Finding(subject, error.message, "see the message")


def python() -> str:
    """Which Python runs this; one that is too old would not have come so far."""
    return f"{'.'.join(map(str, sys.version_info[:3]))} in {sys.prefix}"


def packages() -> str:
    """The libraries that the pipeline is made of."""
    try:
        return ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    except PackageNotFoundError as error:
        raise Trouble(f"{error.name} is not installed", "run make setup") from error


def java() -> str:
    """Java 17 (or 21), which Kafka and Spark both run on."""
    from slackwater.runtime.local.paths import java_executable

    executable = java_executable()
    shown = subprocess.run(
        [executable, "-version"], capture_output=True, text=True, timeout=30, check=False
    ).stderr
    match = re.search(r'version "(\d+)', shown)
    if match is None:
        raise Trouble(f"{executable} does not say its version", "install Java 17")
    if int(match[1]) not in JAVA_VERSIONS:
        raise Trouble(
            f"{executable} is Java {match[1]}",
            "install Java 17 and point JAVA_HOME at it (Debian: openjdk-17-jre-headless)",
        )
    return f"{executable}, version {match[1]}"


def broker_jars() -> str:
    """The embedded broker's jars."""
    from slackwater.runtime.local.paths import broker_jars as jars

    found = jars()
    return f"{len(found)} in {found[0].parent}"


def spark_jars() -> str:
    """Spark's Kafka and Avro connectors."""
    from slackwater.runtime.local.paths import spark_jars as jars

    return f"{len(jars())} connectors"


def ports() -> str:
    """A port on loopback can be had."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return f"free ports on 127.0.0.1, such as {server.getsockname()[1]}"
    except OSError as error:
        raise Trouble(
            f"no port on 127.0.0.1 can be opened: {error.strerror}",
            "allow this user to listen on loopback",
        ) from error


def disk(data_dir: Path) -> str:
    """Room for logs and spools, in a directory that can be written."""
    there = data_dir.absolute()
    while not there.exists():
        there = there.parent
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
    """Enough for a broker, a Spark and some Python processes."""
    import psutil

    available = int(psutil.virtual_memory().available)
    if available < MEMORY_BYTES_MIN:
        raise Trouble(
            f"only {available / 1e9:.1f} GB of memory available",
            "end other programs; the pipeline needs about 3 GB",
        )
    return f"{available / 1e9:.1f} GB available"


def broker(data_dir: Path) -> str:
    """If ``slackwater up`` left its address, whether it answers."""
    from slackwater.cli.common import reach_kafka
    from slackwater.runtime.local.datadir import RUN_FILE

    if not (data_dir / RUN_FILE).exists():
        return f"none is running from {data_dir}"
    try:
        return f"answers at {reach_kafka(None, None, data_dir)}"
    except SlackwaterError as error:
        raise Trouble(
            error.message, f"start `slackwater up`, or remove {data_dir / RUN_FILE}"
        ) from error
