"""One running deployment for all tests that only add to one.

A start costs a minute of CPU time: the broker's JVM, two of Spark, and a dozen Python processes.
Queries and streams come and go at run time, so tests that kill and stop nothing that they do not
mend share one start: each applies queries over streams of its own, under names that no other test
uses, since a query with the name of a deleted one would continue its results.

The deployment has the broker, the controller and the node of `slackwater up`. Its file has two
queries with two replicas, so that both aggregators run all the time; their stream is that of
``test_query_changes.py``.

A failure stays with the test that caused it. After each test its queries are deleted, and a process
that is not ready then is an error of this test. The next test gets a new deployment, and the output
says so.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.support.starting import started
from tests.support.waiting import eventually

from slackwater.cli.controls import Reach, reach_controllers
from slackwater.cli.query_changes import apply_queries, request, request_each
from slackwater.control.control_object import DeleteQuery, Operation
from slackwater.deployment.parse import load_deployment, parse_deployment
from slackwater.model.names import base_of
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.registry import Registry
from slackwater.runtime.service.settings import settings
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

STREAM: Final = """\
  {name}:
    topic: {{name: {name}-readings, format: json}}
    key: {{field: mote}}
    time: {{field: at, unit: ms}}
    fields: [x]
    expect_every: 1s
"""
LAB: Final = STREAM.format(name="lab")
FIRST: Final = "  first: {from: [lab], window: {size: 1s}, aggregate: [sum], bound: 2s}\n"
WIDE: Final = "  wide: {from: [lab], window: {size: 2s}, aggregate: [sum], bound: 2s}\n"
ROOM: Final = "room-1"
"""A stream of the file that no query of the file reads."""
FILE: Final = (
    f"apiVersion: slackwater/v1\nstreams:\n{LAB}{STREAM.format(name=ROOM)}queries:\n{FIRST}{WIDE}"
)
TRUNCATE_EVERY_S: Final = "1"
"""Tests join the children of queries whose logs have been truncated."""


class SharedDeployment:
    """The deployment, as one test after the other uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self._path = folder / "deployment.yaml"
        self._path.write_text(FILE)
        self._used: list[str] = []
        self.stack = self._started()
        self.bootstrap = self.stack.stack.bootstrap
        self.transport = KafkaTransport(self.bootstrap)

    def apply(self, text: str, *names: str) -> list[str]:
        """Apply queries of a deployment's text, all if none is named; return what was accepted.

        Missing input topics are created, with one partition.
        """
        deployment = parse_deployment(text, "deployment.yaml").deployment
        chosen = [q.name for q in deployment.in_order() if not names or q.name in names]
        self.will_have(*chosen)
        return apply_queries(self.reach(), deployment, chosen, "now")

    def wait_begun(self, *queries: str) -> None:
        """Wait until all processes of these queries are ready, and their event time has begun."""
        registry = Registry(self.transport)

        def have_begun() -> bool:
            if not registry.begins().keys() >= {*queries}:
                return False
            last_us = max(registry.queries()[name].e0_us for name in queries)
            return time.time() * 1_000_000 > last_us

        eventually(have_begun, f"{', '.join(queries)}: begun")

    def will_have(self, *queries: str) -> None:
        """Delete these queries after the test, which applies them in a way of its own."""
        self._used += queries

    def reach(self) -> Reach:
        """Return the way to its controller."""
        return reach_controllers(None, None, None, self.data)

    def request(self, operation: Operation) -> None:
        """Send an operation to its controller."""
        request(self.reach(), operation)

    def slackwater(self, *words: str) -> tuple[int, str]:
        """Run a command on this deployment; return its exit code and its output."""
        command = [sys.executable, "-m", "slackwater.cli", *words, "--data-dir", str(self.data)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def queries(self) -> set[str]:
        """Return the names of the queries that are not deleted, without generations."""
        return {base_of(name) for name in Registry(self.transport).queries()}

    def fragments(self, query: str) -> list[str]:
        """Return the names of a query's fragments that run."""
        names = self.stack.call(self.stack.stack.supervisor.names)
        return [name for name in names if f"/{query}." in name]

    def restart(self) -> None:
        """Stop everything, and start it again with the file of before."""
        self.stack.stop()
        self.stack = self._started()
        assert self.stack.stack.bootstrap == self.bootstrap

    def clean(self) -> None:
        """Delete the queries of a test, its last one first, and wait until all else is ready."""
        left = self.queries()
        deleted = [name for name in dict.fromkeys(reversed(self._used)) if name in left]
        for name in deleted:
            request_each(self.reach(), DeleteQuery, name)
        self._used.clear()
        self.stack.check()
        # A deletion is accepted before it is carried out.
        eventually(lambda: not self.queries() & {*deleted}, f"{', '.join(deleted)}: deleted")
        eventually(lambda: not self.not_ready(), f"all is ready again: {self.not_ready()}")

    def not_ready(self) -> list[str]:
        """Return the names of processes that should be ready, and are not."""
        return [name for name, is_ready in self.stack.ready().items() if not is_ready]

    def stop(self) -> None:
        """Stop everything; allowed repeatedly."""
        self.stack.stop()

    def _started(self) -> StackThread:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLACKWATER_TRUNCATE_EVERY_S", TRUNCATE_EVERY_S)
            settings.cache_clear()
            options = StackOptions(self._path, load_deployment(self._path), self.data)
            try:
                return started(StackThread(options))
            finally:
                settings.cache_clear()


class Keeper:
    """Starts the deployment for the first test that uses it, and another one if it is broken."""

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self._deployment: SharedDeployment | None = None
        self._broken_by = ""

    @contextmanager
    def lent(self, test: str, report: Callable[[str], None]) -> Iterator[SharedDeployment]:
        """Lend it to a test for the block.

        A failure within the block does not break it, unless what is left afterwards is not well.
        ``report`` is called with a sentence if a new one is started in place of a broken one.
        """
        if self._deployment is None:
            if self._broken_by:
                report(f"{test} has a new deployment: {self._broken_by} left the shared one broken")
            self._deployment = SharedDeployment(self._new_folder())
            self._broken_by = ""
        try:
            yield self._deployment
        finally:
            try:
                self._deployment.clean()
            except BaseException:
                self._broken_by = test
                self.end()
                raise

    def end(self) -> None:
        """Stop it: no further test uses it."""
        if self._deployment is not None:
            deployment, self._deployment = self._deployment, None
            deployment.stop()
