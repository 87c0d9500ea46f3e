"""A data directory of an earlier version continues with this one.

The test runs that version's own code, from the repository's history: a source falls silent, the
deployment is stopped during the silence, and today's code is started with the directory. It first
refuses the file, for a line that was not required then; with that line it continues, exact.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from tests.integration.test_plain_topic import Results

from slackwater.codec.results import parse_time
from slackwater.deployment.parse import load_deployment
from slackwater.model.errors import DeploymentError
from slackwater.runtime.logs.cluster import confluent_client

pytestmark = [pytest.mark.drill, pytest.mark.timeout(2_400)]

ROOT = Path(__file__).parents[2]
OLD = "7cba2ed"
"""The last commit before silence had to be declared and proxies served many streams."""
START_S_MAX = 600.0
STREAMS = ("steady", "cut-off", "undeclared")
DECLARED = "    expect_every: auto\n"


def deployment(*, undeclared: str = "") -> str:
    """Three streams with topics; the meaning of silence is undeclared for one of them."""
    streams = "".join(
        f"  {name}:\n"
        f"    topic: {{name: {name}-readings, format: json}}\n"
        "    key: {field: mote}\n"
        "    time: {field: at, unit: us}\n"
        "    fields: [temperature]\n"
        "    disorder: 5s\n" + (undeclared if name == "undeclared" else "    expect_every: 1s\n")
        for name in STREAMS
    )
    return (
        "apiVersion: slackwater/v1\nstreams:\n"
        + streams
        + f"queries:\n  lab-seconds:\n    from: [{', '.join(STREAMS)}]\n"
        + "    window: {size: 1s}\n    aggregate: [count, avg]\n    bound: 2s\n"
    )


@dataclass
class Source:
    """An external producer: a reading every 50 ms, which it keeps while it is disconnected."""

    name: str
    bootstrap: str
    sent: dict[tuple[int, str], int] = field(default_factory=dict)
    """Readings by second and key, including kept ones."""

    def __post_init__(self) -> None:
        config = {"enable.idempotence": True, "log_level": 0}
        self._producer = Producer(confluent_client(self.bootstrap) | config)
        self._kept: list[bytes] = []
        self._is_cut_off = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut_off(self) -> None:
        self._is_cut_off.set()

    def restored(self) -> None:
        """The kept readings come first, with their own times."""
        self._is_cut_off.clear()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(30) == 0

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            at = int(time.time() * 1e6)
            key = (at // 1_000_000, self.name)
            self.sent[key] = self.sent.get(key, 0) + 1
            self._kept.append(orjson.dumps({"mote": self.name, "at": at, "temperature": 20.5}))
            if not self._is_cut_off.is_set():
                for reading in self._kept:
                    self._producer.produce(f"{self.name}-readings", reading)
                self._kept.clear()
            self._producer.poll(0)


@dataclass
class Place:
    """The deployment's file and data directory, and the code that runs them."""

    folder: Path

    def __post_init__(self) -> None:
        self.file, self.data = self.folder / "rooms.yaml", self.folder / "data"
        self.old = self.folder / "old"

    def environment(self, *, old: bool) -> dict[str, str]:
        code = [self.old / "services", self.old / "spark"] if old else []
        more = {"PYTHONPATH": ":".join(map(str, code)), "SLACKWATER_HOME": str(self.old)}
        return os.environ | (more if old else {})

    def python(self, script: str, *arguments: str) -> None:
        """Run a command with the old code."""
        command = [sys.executable, "-c", script, *arguments]
        subprocess.run(command, env=self.environment(old=True), check=True, timeout=START_S_MAX)

    @contextlib.contextmanager
    def up(self, *, old: bool = False) -> Iterator[str]:
        """Run ``slackwater up`` until the end of the block; yield the broker's address."""
        command = [sys.executable, "-m", "slackwater.cli.app", "up"]
        command += ["--deployment", str(self.file), "--data-dir", str(self.data)]
        running = subprocess.Popen(
            command,
            env=self.environment(old=old),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        shown: list[str] = []
        assert running.stdout is not None
        reading = threading.Thread(target=shown.extend, args=(running.stdout,), daemon=True)
        reading.start()
        try:
            _wait(lambda: any("processes are ready" in line for line in shown), running, shown)
            (first,) = [line for line in shown if line.startswith("bootstrap ")]
            yield first.split()[1]
        finally:
            running.send_signal(signal.SIGTERM)
            try:
                running.wait(60)
            finally:
                running.kill()
                reading.join()
                running.stdout.close()


def _wait(holds: Callable[[], bool], running: subprocess.Popen[str], shown: list[str]) -> None:
    give_up = time.monotonic() + START_S_MAX
    while not holds():
        assert running.poll() is None, "".join(shown)
        assert time.monotonic() < give_up, "".join(shown)
        time.sleep(0.1)


# The old code, in which the broker had another module.
MAKES_TOPICS = """
import sys
from pathlib import Path
from confluent_kafka.admin import AdminClient, NewTopic
from slackwater.runtime.broker import EmbeddedBroker

with EmbeddedBroker(Path(sys.argv[1])) as broker:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in sys.argv[2:]]).values():
        future.result(30)
    print(broker.bootstrap)
"""


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Place:
    """Return the old code and its empty broker, with the streams' topics."""
    place = Place(tmp_path)
    place.old.mkdir()
    archive = subprocess.run(
        ["git", "archive", "--format=tar", OLD, "services", "spark", "schemas"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        pytest.skip(f"the history of this checkout does not reach back to {OLD}")
    subprocess.run(["tar", "-x"], input=archive.stdout, cwd=place.old, check=True)
    (place.old / ".slackwater-jars").symlink_to(ROOT / ".slackwater-jars")
    topics = [f"{name}-readings" for name in STREAMS]
    place.python(MAKES_TOPICS, str(place.data / "broker"), *topics)
    return place


def test_what_was_written_by_an_earlier_version_goes_on_exact(place: Place) -> None:
    place.file.write_text(deployment())
    with place.up(old=True) as bootstrap:
        sources = {name: Source(name, bootstrap) for name in STREAMS}
        results = Results(bootstrap)
        # Windows before the first reading are stable too, and empty.
        results.read_until(lambda: len(results.counts()) >= 3, "readings are in stable windows")
        sources["cut-off"].cut_off()
        cut_us = time.time_ns() // 1_000

        def lacking() -> list[dict[str, Any]]:
            # On a busy machine others may be late as well, and this one before it is disconnected.
            return [
                line
                for line in results.boundaries("tentative")
                if "cut-off" in line["missing"] and parse_time(line["window_start"]) > cut_us
            ]

        results.read_until(lambda: len(lacking()) >= 3, "windows lack what is cut off")
        results.close()
    before = max(parse_time(line["window_end"]) for line in results.boundaries("stable"))
    assert before < parse_time(lacking()[-1]["window_start"]), "it is stopped during the silence"
    stopped = time.time()

    line = place.file.read_text().split("  undeclared:")[0].count("\n") + 1
    with pytest.raises(DeploymentError) as caught:
        load_deployment(place.file)
    assert caught.value.message.startswith(f"{place.file}:{line}: streams.undeclared")
    assert f"`{DECLARED.strip()}`" in caught.value.message
    place.file.write_text(deployment(undeclared=DECLARED))

    with place.up() as again:
        assert again == bootstrap
        results = Results(bootstrap)
        sources["cut-off"].restored()
        results.read_until(
            lambda: (
                max(results.counts(), default=0) > stopped + 10
                and any(line["kind"] == "rec_done" for line in results.lines)
            ),
            "all is corrected, and it goes on",
        )
        for source in sources.values():
            source.end()
        results.close()
    is_exact(results, sources.values(), before)


def is_exact(results: Results, sources: Iterable[Source], before: int) -> None:
    """Check each window once against the readings sent; some are older than the stop."""
    stable = [
        (parse_time(line["window_start"]) // 1_000_000, line["key"], line["fields"]["temperature"])
        for line in results.lines
        if line["kind"] == "stable"
    ]
    counts = {(second, key): figures["count"] for second, key, figures in stable}
    assert len(counts) == len(stable), "none is answered twice"
    seconds = [second for second, _ in counts]
    first, last = min(seconds), max(seconds)
    assert first < before // 1_000_000 < last
    sent = {at: n for source in sources for at, n in source.sent.items() if first < at[0] < last}
    assert {at: n for at, n in counts.items() if first < at[0] < last} == sent
    seqs = [line["seq"] for line in results.lines]
    assert len(seqs) == len(set(seqs))
