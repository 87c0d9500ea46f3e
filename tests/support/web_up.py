"""A real `slackwater up --web` with two streams, each of which a test can cut off."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from tests.support.gateway_site import Reader
from tests.support.ports import free_port
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.runtime.service.datadir import read_run

STREAMS: Final = ("room-1", "room-2")
EVERY_S: Final = 0.1
STREAM: Final = """\
  {name}:
    topic: {{name: {name}-readings, format: json}}
    key: {{field: room}}
    time: {{field: at, unit: us}}
    fields: [temperature]
    disorder: 100ms
    expect_every: 1s
"""
DEPLOYMENT: Final = f"""\
apiVersion: slackwater/v1
clock: wall
streams:
{"".join(STREAM.format(name=name) for name in STREAMS)}\
queries:
  climate:
    from: [room-1, room-2]
    window: {{size: 1s}}
    aggregate: [count, avg]
    bound: 2s
    replicas: 1
"""
WITHOUT_SPARK: Final = DEPLOYMENT.replace("    window: {size: 1s}\n", "").replace(
    "    aggregate: [count, avg]\n", ""
)
"""The query has no window: each reading is a result, and no aggregator runs."""


class Sender:
    """Sends a reading of each stream every ``EVERY_S``; what is cut off is sent afterwards."""

    def __init__(self, bootstrap: str) -> None:
        # In order, also while the broker is stopped: what comes behind later readings is late.
        config = {"enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap} | config)
        self._cut: dict[str, list[bytes]] = {}
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.temperature = 20.0
        """The least that is measured."""

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S_MAX)
        self._producer.purge()

    def cut(self, stream: str) -> None:
        """Keep what the stream measures from now on."""
        with self._lock:
            self._cut[stream] = []

    def connect(self, stream: str) -> None:
        """Send what was kept, and all that follows."""
        with self._lock:
            for reading in self._cut.pop(stream):
                self._producer.produce(f"{stream}-readings", reading)

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(EVERY_S):
            number += 1
            with self._lock:
                for name in STREAMS:
                    at = time.time_ns() // 1_000
                    reading = {
                        "room": name,
                        "at": at,
                        "temperature": self.temperature + number % 50 / 10,
                    }
                    if (kept := self._cut.get(name)) is not None:
                        kept.append(json.dumps(reading).encode())
                    else:
                        self._producer.produce(f"{name}-readings", json.dumps(reading).encode())
            self._producer.poll(0)


class Up(Reader):
    """The running command; as a reader, of its page."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(port)
        self.folder, self.data = folder, folder / "data"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def printed(self) -> str:
        """All that it has printed."""
        return (self.folder / "up.log").read_text()

    def pid(self, process: str) -> int | None:
        """The pid of one of its processes now; None if it does not run."""
        run = read_run(self.data)
        return None if run is None else run.processes.get(process)

    def slackwater(self, *words: str) -> tuple[int, str]:
        """Run another command in its folder; return its exit code and its output."""
        command = [sys.executable, "-m", "slackwater.cli", *words, "--data-dir", str(self.data)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def stop(self) -> int:
        """Stop it as Ctrl-C does; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_S_MAX)


@contextlib.contextmanager
def running_up(folder: Path, deployment: str = DEPLOYMENT) -> Iterator[tuple[Up, Sender]]:
    """Run `up --web` and a sender; all processes are ready on entry."""
    up = Up(folder, free_port())
    (folder / "rooms.yaml").write_text(deployment)
    command = [sys.executable, "-m", "slackwater.cli", "up", str(folder / "rooms.yaml")]
    command += ["--data-dir", str(up.data), "--web", f"127.0.0.1:{up.port}"]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    up.process = process
    try:
        eventually(
            lambda: "processes are ready" in up.printed or process.poll() is not None,
            "all processes are ready",
        )
        assert process.poll() is None, up.printed
        run = read_run(up.data)
        assert run is not None
        with Sender(run.bootstrap) as sender:
            yield up, sender
    finally:
        if process.poll() is None:
            up.stop()
