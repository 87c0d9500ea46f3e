"""A link between two containers, made thin: a token bucket on its interface at each end.

The interface is in the network namespace of a container, and is looked for by its address there. It
needs root, and ``tc``, ``ip`` and ``nsenter`` of the machine: images have none of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest
from tests.support.engine import docker

TOOLS = ("tc", "ip", "nsenter")


def require_shaping() -> None:
    """Skip without what it needs."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() or lacking:
        pytest.skip(f"links are made thin by root, with {', '.join(TOOLS)}")


class LinkEnd:
    """The interface of a container in a network."""

    def __init__(self, container: str, network: str) -> None:
        (inspected,) = json.loads(docker("inspect", container))
        self._pid = str(inspected["State"]["Pid"])
        address = inspected["NetworkSettings"]["Networks"][network]["MacAddress"]
        links: list[dict[str, Any]] = json.loads(self._inside("ip", "-j", "link"))
        (self.name,) = (each["ifname"] for each in links if each["address"] == address)

    def _inside(self, *command: str) -> str:
        there = ["nsenter", "--target", self._pid, "--net", *command]
        return subprocess.run(there, check=True, capture_output=True, text=True, timeout=60).stdout

    def make_thin(self, kbit_per_s: int) -> None:
        """Send at most so much, with a queue of half a second."""
        bucket = ("tbf", "rate", f"{kbit_per_s}kbit", "burst", "16kb", "latency", "500ms")
        self._inside("tc", "qdisc", "add", "dev", self.name, "root", *bucket)

    def sent_bytes(self) -> int:
        """Return what it has sent in all."""
        (found,) = json.loads(self._inside("ip", "-j", "-s", "link", "show", "dev", self.name))
        return int(found["stats64"]["tx"]["bytes"])
