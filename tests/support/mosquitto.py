"""A real MQTT broker, Mosquitto, for tests; it keeps sessions and messages over a restart."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import pytest
from tests.support.ports import free_port
from tests.support.waiting import eventually

TOOLS: Final = ("mosquitto", "mosquitto_pub")
SETTINGS: Final = """
allow_zero_length_clientid true
persistence true
autosave_interval 0
max_queued_messages 0
"""


MESSAGES_AT_ONCE: Final = 2_000


def batched(messages: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield runs of this many messages; the last one may be shorter."""
    left = iter(messages)
    while some := list(islice(left, size)):
        yield some


def require() -> None:
    """Skip the test if Mosquitto is not installed; fail if CI requires it."""
    missing = [tool for tool in TOOLS if _found(tool) is None]
    if not missing:
        return
    lacking = f"{', '.join(missing)} missing: apt-get install mosquitto mosquitto-clients"
    if os.environ.get("CI"):
        pytest.fail(lacking)
    pytest.skip(lacking)


def _found(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Mosquitto:
    """One broker on a free port of this machine."""

    def __init__(self, folder: Path, settings: Sequence[str] = (), *, anonymous: bool = True):
        require()
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        own = [f"listener {self.port} 127.0.0.1", f"persistence_location {folder}/"]
        own += [f"allow_anonymous {str(anonymous).lower()}", *settings]
        (folder / "mosquitto.conf").write_text(SETTINGS + "\n".join(own) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        tool = _found("mosquitto")
        assert tool is not None
        # If started by root it switches to the user mosquitto, who may not write into the folder.
        as_root = ["user root"] if os.geteuid() == 0 else []
        config = self._folder / "mosquitto.conf"
        text = config.read_text()
        if as_root and as_root[0] not in text:
            config.write_text(text + as_root[0] + "\n")
        with (self._folder / "mosquitto.log").open("ab") as log:
            self._process = subprocess.Popen([tool, "-c", str(config)], stdout=log, stderr=log)
        eventually(self._answers, "Mosquitto answers")

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Stop it in order: it stores its sessions."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def publish(
        self,
        topic: str,
        messages: Iterable[bytes],
        *options: str,
        host: str = "127.0.0.1",
    ) -> None:
        """Publish each message with QoS 1; return when the broker has acknowledged all.

        Mosquitto 2.0.11 once disconnected a publisher of 68,229 messages as "out of memory" after
        2,708 of them, and mosquitto_pub ended without an error. A publisher therefore sends few
        messages, and a disconnected one fails the test.
        """
        for some in batched(messages, MESSAGES_AT_ONCE):
            lines = b"\n".join(some) + b"\n"
            subprocess.run([*self._command(topic, host), "-l", *options], input=lines, check=True)
        log = (self._folder / "mosquitto.log").read_text()
        assert "out of memory" not in log, "Mosquitto has disconnected a publisher"

    def publish_file(self, topic: str, file: Path) -> None:
        """Publish a file as one message."""
        subprocess.run([*self._command(topic, "127.0.0.1"), "-f", str(file)], check=True)

    def _command(self, topic: str, host: str) -> list[str]:
        return ["mosquitto_pub", "-h", host, "-p", str(self.port), "-t", topic, "-q", "1"]
