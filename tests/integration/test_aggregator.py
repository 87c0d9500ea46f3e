"""The aggregator's process on a real broker: killed, restarted, fed with damage.

What the roots rely on is rule 19: every ordered record comes out as one delta with its offset as
seq, whatever happened in between. Doubles are allowed (rule 10 drops them), holes are not.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
import psutil
import pytest

from slackwater.codec import decode_delta, encode_ordered, encode_root_state
from slackwater.model.deployment import QuerySpec, WindowSpec
from slackwater.model.records import (
    DeltaRecord,
    Kind,
    LogPosition,
    LogState,
    OrderedRecord,
    Position,
    RootState,
)
from slackwater.runtime.heartbeats import HeartbeatListener
from slackwater.runtime.incarnation import append_and_wait
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.registry import QueryDefinition, Registry
from slackwater.runtime.topics import (
    QueryShape,
    deltas_topic,
    ensure_topics,
    ordered_topic,
    state_topic,
    topics_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

START_S_MAX = 90


@pytest.fixture(scope="module")
def transport(bootstrap: str) -> KafkaTransport:
    return KafkaTransport(bootstrap)


@pytest.fixture
def query(bootstrap: str, transport: KafkaTransport) -> str:
    """A registered query of its own, with two parts and one replica."""
    name = f"q{uuid4().hex[:8]}"
    ensure_topics(bootstrap, topics_for([], [QueryShape(name, 1, 1, 2)]))
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
def aggregator(bootstrap: str, query: str, folder: Path, *options: str) -> Iterator[psutil.Process]:
    with (folder / "aggregator.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "slackwater_spark.app", f"{query}-agg"),
                *("--fragments", f"{query}.0.a", "--deployment", "none.yaml"),
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
    """What has come out, of one part's stable log."""

    def __init__(self, transport: KafkaTransport, query: str, part: int) -> None:
        self._reader = transport.reader()
        self._reader.assign({(deltas_topic(query, part), 0): 0})
        self.seen: list[DeltaRecord] = []

    def wait_for(self, seq: int, timeout_s: float = START_S_MAX) -> list[DeltaRecord]:
        """Everything up to the first delta with this seq."""
        deadline = time.monotonic() + timeout_s
        while seq not in {delta.seq for delta in self.seen}:
            assert time.monotonic() < deadline, f"seq {seq} is missing after {timeout_s} s"
            self.seen += [decode_delta(r.value, r) for r in self._reader.poll(1000, 0.2)]
        return self.seen

    def in_order(self) -> list[DeltaRecord]:
        """As a root reads them: seq = next, all else dropped (rule 10)."""
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
    """Append to the stable log; the last record's offset."""
    failures: list[str] = []
    writer = transport.writer(failures.append)
    log = (ordered_topic(query, 0), 0)
    offset = -1
    for value in values:
        offset = append_and_wait(writer, log, value)
    writer.close()
    assert not failures
    return offset


def test_killed_at_any_moment_it_leaves_no_hole(
    bootstrap: str, transport: KafkaTransport, query: str, tmp_path: Path
) -> None:
    parts = [Deltas(transport, query, part) for part in (0, 1)]
    start = encode_ordered(OrderedRecord(Kind.START, 0, 0, 0, 0, 0, frontier=Position(0)))
    with aggregator(bootstrap, query, tmp_path) as process:
        append(transport, query, start, *map(bucket, range(1, 20)))
        for part in parts:
            part.wait_for(19)
        (jvm,) = process.children(recursive=True)
        process.kill()
        gone, _ = psutil.wait_procs([process, jvm], timeout=10)
        assert len(gone) == 2, "the JVM outlived its aggregator"
    # One damaged record, and one that was never ours, while nobody reads.
    append(transport, query, bucket(20)[:-9], b"not a record", *map(bucket, range(22, 30)))
    with aggregator(bootstrap, query, tmp_path):
        for part in parts:
            part.wait_for(29)
    for part in parts:
        kinds = [delta.kind for delta in part.in_order()]
        assert kinds == [
            Kind.START,
            *[Kind.INSERTION] * 19,
            *[Kind.VOID] * 2,
            *[Kind.INSERTION] * 8,
        ]
    sums = sum(
        float(delta.sum.sum()) for part in parts for delta in part.in_order() if delta.seq == 25
    )
    assert sums == sum(range(8)) + 8 * 25


def test_goes_on_where_the_slowest_root_is(
    bootstrap: str, transport: KafkaTransport, query: str, tmp_path: Path
) -> None:
    append(transport, query, *map(bucket, range(10)))
    failures: list[str] = []
    writer = transport.writer(failures.append)
    for part, whole in enumerate((7, 5)):
        at = LogPosition(0, 0, -1, Position(0))
        state = RootState(
            fragment=f"root/{query}.{part}",
            placement=1,
            next_seq=0,
            epoch=0,
            stable_from=0,
            answered_to=0,
            child_frontiers=(Position(0),),
            logs=tuple(LogState(0, 0, line, at, at, whole) for line in (0, 1)),
        )
        log = (state_topic(query), 0)
        append_and_wait(writer, log, encode_root_state(state), state.fragment.encode())
    writer.close()
    parts = [Deltas(transport, query, part) for part in (0, 1)]
    with aggregator(bootstrap, query, tmp_path):
        for deltas in parts:
            deltas.wait_for(9)
    assert [[delta.seq for delta in deltas.seen] for deltas in parts] == [[5, 6, 7, 8, 9]] * 2


@pytest.mark.parametrize("mode", ["real-time", "micro-batch"])
def test_says_that_it_is_ready_and_stops_when_told(
    bootstrap: str, transport: KafkaTransport, query: str, tmp_path: Path, mode: str
) -> None:
    listener = HeartbeatListener(transport).start()
    name = f"aggregator/{query}-agg"
    with aggregator(bootstrap, query, tmp_path, "--mode", mode) as process:
        append(transport, query, bucket(0))
        assert listener.wait_for(lambda view: view.ready(name, time.monotonic()), START_S_MAX)
        deltas = Deltas(transport, query, 1)
        deltas.wait_for(0)
        (jvm,) = process.children(recursive=True)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(3) == 0
        assert not jvm.is_running(), "the JVM outlived its aggregator"
    listener.stop()
