"""The aggregator's process on a real broker: killed, restarted, with damaged input.

The roots rely on rule-19: every ordered record gives one delta with its offset as seq, for any
faults in between. Repeats are allowed (rule-10 drops them), holes are not.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
import psutil
import pytest
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.codec import decode_delta, encode_ordered, encode_root_state
from slackwater.model.deployment import QuerySpec, WindowSpec
from slackwater.model.names import Names
from slackwater.model.records import (
    DeltaRecord,
    Kind,
    LogPosition,
    LogState,
    OrderedRecord,
    Position,
    RootState,
)
from slackwater.runtime.logs.incarnation import append_and_wait
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import QueryTopics, ensure_topics, topics_for
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry

pytestmark = [pytest.mark.slow]

DEPLOYMENT = """
apiVersion: slackwater/v1
clock: wall
streams:
  s: {key: {column: k}, time: {column: t, unit: us}, fields: [v], disorder: 100ms}
queries:
  q: {from: [s], window: {size: 1s}, aggregate: [count], bound: 2s}
"""
"""An aggregator uses only its names of topics; the queries are those of the registry."""


@pytest.fixture(scope="module")
def transport(bootstrap: str) -> KafkaTransport:
    return KafkaTransport(bootstrap)


def registered(bootstrap: str, transport: KafkaTransport) -> str:
    """Register a query with two parts and one replica."""
    name = f"q{uuid4().hex[:8]}"
    ensure_topics(bootstrap, topics_for([], [QueryTopics(name, 1, 1, 2)]), WAIT_S_MAX)
    spec = QuerySpec(
        name=name,
        sources=("s",),
        where=None,
        select=None,
        window=WindowSpec(1_000_000, 1_000_000),
        aggregate=("count",),
        bound_us=2_000_000,
        replicas=1,
        parts=2,
    )
    Registry(transport).publish_queries(QueryDefinition(name, 1, 0, 100_000, spec))
    return name


@contextmanager
def aggregator(
    bootstrap: str, queries: Sequence[str], folder: Path, *options: str
) -> Iterator[psutil.Process]:
    """Return an aggregator, named after the first query."""
    fragments = ",".join(f"{query}.0.a" for query in queries)
    deployment = folder / "deployment.yaml"
    deployment.write_text(DEPLOYMENT)
    with (folder / "aggregator.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "slackwater_spark.app", f"{queries[0]}-agg"),
                *("--fragments", fragments, "--deployment", str(deployment)),
                *("--bootstrap", bootstrap, "--data-dir", str(folder), *options),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


class Deltas:
    """The output in one part's stable log."""

    def __init__(self, transport: KafkaTransport, query: str, part: int) -> None:
        self._reader = transport.reader()
        self._reader.assign({(Names().deltas(query, part), 0): 0})
        self.seen: list[DeltaRecord] = []

    def wait_for(self, seq: int, timeout_s: float = WAIT_S_MAX) -> list[DeltaRecord]:
        """Wait for everything up to the first delta with this seq."""
        deadline = time.monotonic() + timeout_s
        while seq not in {delta.seq for delta in self.seen}:
            assert time.monotonic() < deadline, f"seq {seq} is missing after {timeout_s} s"
            self.seen += [decode_delta(r.value, r) for r in self._reader.poll(1000, 0.2)]
        return self.seen

    def in_order(self) -> list[DeltaRecord]:
        """Return the deltas as read by a root: seq = next, all others dropped (rule-10)."""
        accepted: list[DeltaRecord] = []
        for delta in self.seen:
            if delta.seq == len(accepted):
                accepted.append(delta)
        return accepted


def bucket(number: int) -> bytes:
    keys = tuple(f"k{i}" for i in range(4))
    values = np.arange(8, dtype=float) + number
    return encode_ordered(
        OrderedRecord(
            kind=Kind.INSERTION,
            child=0,
            replica=0,
            inc=0,
            bucket_start=number * 100,
            bucket_end=number * 100 + 100,
            keys=keys,
            offsets=np.arange(0.0, 10.0, 2.0),
            fields=("t",),
            values=(values,),
            last_id=7,
        )
    )


def append(transport: KafkaTransport, query: str, *values: bytes) -> int:
    """Append to the stable log; return the last record's offset."""
    failures: list[str] = []
    writer = transport.writer(failures.append)
    log = (Names().ordered(query, 0), 0)
    offset = -1
    for value in values:
        offset = append_and_wait(writer, log, value)
    writer.close()
    assert not failures
    return offset


def roots_are_at(transport: KafkaTransport, query: str, *contiguous_seq: int) -> None:
    """Write the state records of its roots, by part, with their read positions."""
    failures: list[str] = []
    writer = transport.writer(failures.append)
    for part, seq in enumerate(contiguous_seq):
        at = LogPosition(0, 0, -1, Position(0))
        state = RootState(
            fragment=f"root/{query}.{part}",
            placement=1,
            next_seq=0,
            epoch=0,
            stable_from=0,
            answered_to=0,
            child_frontiers=(Position(0),),
            logs=tuple(LogState(0, 0, line, at, at, seq) for line in (0, 1)),
        )
        log = (Names().state(query), part)
        append_and_wait(writer, log, encode_root_state(state), state.fragment.encode())
    writer.close()
    assert not failures


def ready_and_stopped(transport: KafkaTransport, process: psutil.Process) -> None:
    """Check that it reports ready, and ends with its JVM when stopped."""
    name = f"aggregator/{process.cmdline()[3]}"
    listener = HeartbeatListener(transport).start()
    assert listener.wait_for(lambda view: view.ready(name, time.monotonic()), WAIT_S_MAX)
    listener.stop()
    jvm = jvm_of(process)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(WAIT_S_MAX) == 0
    eventually(lambda: is_gone(jvm), "the JVM has ended with its aggregator")


def jvm_of(process: psutil.Process) -> psutil.Process:
    """Return the JVM of an aggregator, which may have helpers for a moment."""
    children = process.children(recursive=True)
    (jvm,) = (child for child in children if child.name() == "java")
    return jvm


def is_gone(process: psutil.Process) -> bool:
    """Return whether it has ended; its new parent may not have reaped it yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module", name="lives")
def _lives(
    bootstrap: str, transport: KafkaTransport, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Deltas]]:
    """Run two lives of one aggregator; return the output of its queries, by part.

    In the first it has the query ``killed``, and is killed. Then damage is written for it. In the
    second it also has the query ``behind``, whose roots have different positions; it is stopped.
    """
    folder = tmp_path_factory.mktemp("aggregator")
    names = {what: registered(bootstrap, transport) for what in ("killed", "behind")}
    killed, behind = names.values()
    out = {what: [Deltas(transport, q, part) for part in (0, 1)] for what, q in names.items()}
    start = encode_ordered(OrderedRecord(Kind.START, 0, 0, 0, 0, 0, frontier=Position(0)))
    with aggregator(bootstrap, [killed], folder) as process:
        append(transport, killed, start, *map(bucket, range(1, 20)))
        for part in out["killed"]:
            part.wait_for(19)
        jvm = jvm_of(process)
        process.kill()
        eventually(lambda: is_gone(process) and is_gone(jvm), "the JVM has ended with it")
    # One damaged record, and a foreign one, while no reader is running.
    append(transport, killed, bucket(20)[:-9], b"not a record", *map(bucket, range(22, 30)))
    append(transport, behind, *map(bucket, range(10)))
    roots_are_at(transport, behind, 7, 5)
    with aggregator(bootstrap, [killed, behind], folder) as process:
        for query, last in (("killed", 29), ("behind", 9)):
            for part in out[query]:
                part.wait_for(last)
        ready_and_stopped(transport, process)
    return out


def test_killed_at_any_moment_it_leaves_no_hole(lives: dict[str, list[Deltas]]) -> None:
    parts = [part.in_order() for part in lives["killed"]]
    for deltas in parts:
        assert [delta.kind for delta in deltas] == [
            Kind.START,
            *[Kind.INSERTION] * 19,
            *[Kind.VOID] * 2,
            *[Kind.INSERTION] * 8,
        ]
    sums = sum(float(delta.sum.sum()) for deltas in parts for delta in deltas if delta.seq == 25)
    assert sums == sum(range(8)) + 8 * 25


def test_goes_on_where_the_slowest_root_is(lives: dict[str, list[Deltas]]) -> None:
    assert [[delta.seq for delta in part.seen] for part in lives["behind"]] == [[5, 6, 7, 8, 9]] * 2


def test_in_micro_batches_too(bootstrap: str, transport: KafkaTransport, tmp_path: Path) -> None:
    query = registered(bootstrap, transport)
    with aggregator(bootstrap, [query], tmp_path, "--mode", "micro-batch") as process:
        append(transport, query, bucket(0))
        Deltas(transport, query, 1).wait_for(0)
        ready_and_stopped(transport, process)
