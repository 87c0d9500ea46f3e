"""Data written by an earlier version is read, and continued, by this one.

The short form of ``integration/test_data_directory.py``: the records of its internal topics, in
``tests/data/written_before``. It was stopped during a silence, with forked lines.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.support.memory import MemoryBroker
from tests.unit.host.test_driver import Others, stop, until

from slackwater.codec import encode_source
from slackwater.codec.delta_records import decode_delta
from slackwater.codec.ordered_records import decode_ordered
from slackwater.codec.source_records import decode_source
from slackwater.codec.state_records import (
    decode_heartbeat,
    decode_orderer_state,
    decode_registry,
    decode_root_state,
)
from slackwater.deployment.parse import load_deployment, parse_deployment
from slackwater.host.driven import Driven
from slackwater.host.driver import Driver
from slackwater.host.orderer import SourceInput, config_of, operators_of
from slackwater.host.wake_signal import WakeSignal
from slackwater.model.errors import DeploymentError
from slackwater.model.names import OrdererName
from slackwater.model.records import (
    Kind,
    OrderedRecord,
    OrdererState,
    RootState,
    SourceColumns,
    SourceRecord,
)
from slackwater.primitives.eventclock import WallClock
from slackwater.runtime.logs.transport import Log, read_to_end
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.runtime.service.state import read_states
from slackwater.sessions.events import LiveAt
from slackwater.sessions.orderer import OrdererSession

FOLDER = Path(__file__).parents[2] / "data" / "written_before"
DEPLOYMENT = load_deployment(FOLDER / "deployment.yaml")
QUERY = "lab-seconds"
S = 1_000_000
SILENT = "cut-off"


def recorded() -> dict[Log, list[tuple[bytes | None, bytes]]]:
    """Return the keys and values of its records by log."""
    with gzip.open(FOLDER / "logs.json.gz") as file:
        found: dict[str, list[tuple[int, str | None, str]]] = json.load(file)
    return {
        (place.rpartition(":")[0], int(place.rpartition(":")[2])): [
            (None if key is None else key.encode(), base64.b64decode(value))
            for _, key, value in records
        ]
        for place, records in found.items()
    }


LOGS = recorded()
ORDERED = [(f"sw.ordered.{QUERY}.0", partition) for partition in range(4)]
SOURCES = {stream: (f"sw.source.{stream}.0", 0) for stream in DEPLOYMENT.streams}


@pytest.fixture(name="broker")
def _broker() -> MemoryBroker:
    """Return a broker with the complete logs."""
    broker = MemoryBroker()
    writer = broker.writer(pytest.fail)
    complete = [*ORDERED, *SOURCES.values(), ("sw.registry", 0), (f"sw.state.{QUERY}", 0)]
    partitions = Counter(topic for topic, _ in complete)
    for topic, count in partitions.items():
        broker.create_topic(topic, count)
    for log in complete:
        for key, value in LOGS[log]:
            writer.append(*log, value, key)
    return broker


def test_every_record_is_read() -> None:
    readers: dict[str, Callable[[bytes], Any]] = {
        "source": decode_source,
        "ordered": decode_ordered,
        "deltas": decode_delta,
        "heartbeats": decode_heartbeat,
        "registry": decode_registry,
    }
    read: Counter[str] = Counter()
    for (topic, _), records in LOGS.items():
        kind = topic.split(".")[1]
        for key, value in records:
            if kind == "results":
                assert json.loads(value)["query"] == QUERY
            elif kind == "state":
                assert key is not None
                is_root = key.startswith(b"root/")
                (decode_root_state if is_root else decode_orderer_state)(value)
            else:
                readers[kind](value)
            read[kind] += 1
    assert read.keys() == {*readers, "results", "state"}
    assert min(read.values()) >= 2


def test_the_registered_query_is_the_one_of_the_file(broker: MemoryBroker) -> None:
    """With the line that is required now; without it a start would be refused.

    It keeps its one copy until it is changed: two are the default of new definitions.
    """
    registry = Registry(broker)
    assert registry.clock() == WallClock()
    definition = registry.queries()[QUERY]
    assert definition.spec == replace(DEPLOYMENT.queries[QUERY], copies=1)
    assert registry.restore() == []


def test_a_file_that_was_taken_then_is_refused_with_the_line_to_add() -> None:
    line = "    expect_every: auto\n"
    text = (FOLDER / "deployment.yaml").read_text()
    assert text.count(line) == 1
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(text.replace(line, ""), "rooms.yaml")
    assert re.match(r"rooms\.yaml:\d+: streams\.undeclared\.expect_every: ", caught.value.message)
    assert f"Add one line to this stream: `{line.strip()}`" in caught.value.message


class Time:
    """The normal time of the deployment, on a wall clock that continues where the logs end."""

    def of(self, e: int) -> int:
        return e + self.lateness_us(e)

    def lateness_us(self, e: int) -> int:
        return 10 * S


class Backlog:
    """The backlog of the disconnected stream, as its proxy would send it."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._log = SOURCES[SILENT]
        records = [
            decode_source(raw.value, "", raw.offset) for raw in read_to_end(broker, self._log)
        ]
        self._last = [record for record in records if record.kind is not Kind.START][-1]
        self._writer = broker.writer(pytest.fail)

    def send(self, to: int) -> None:
        """Send a reading every 50 ms, up to ``to``."""
        last = self._last
        stimes = np.arange(last.boundary + 50_000, to, 50_000, dtype=np.int64)
        columns = SourceColumns(
            stimes, np.zeros(len(stimes), np.int32), [SILENT], ("temperature",),
            (np.full(len(stimes), 20.5),),
        )  # fmt: skip
        first = last.last_id + 1
        record = SourceRecord(
            Kind.INSERTION, last.stream, last.inc, first, first + len(stimes) - 1, to,
            int(stimes[0]), int(stimes[-1]), columns=columns,
        )  # fmt: skip
        self._writer.append(*self._log, encode_source(record))


def readings(broker: MemoryBroker, until_us: int) -> Counter[tuple[int, str]]:
    """Return the source logs' readings below this time, by second and key."""
    counts: Counter[tuple[int, str]] = Counter()
    for log in SOURCES.values():
        for raw in read_to_end(broker, log):
            record = decode_source(raw.value, "", raw.offset)
            if record.columns is not None:
                columns = record.columns.load()
                keys = [columns.keys[i] for i in columns.key_index.tolist()]
                counts.update(
                    (at // S, key)
                    for at, key in zip(columns.stimes.tolist(), keys, strict=True)
                    if at < until_us
                )
    return counts


def sessions(broker: MemoryBroker, definition: QueryDefinition, now_us: int) -> tuple[Any, Any]:
    """Run this version's orderer ``a``."""
    inputs = [SourceInput(f"{name}.0", name, 5 * S) for name in DEPLOYMENT.streams]
    name = OrdererName(QUERY, 0, 0)
    config = config_of(name, DEPLOYMENT, definition, cast(Any, Time()), inputs, broker.names)
    session = OrdererSession(
        QUERY,
        config,
        operators_of(DEPLOYMENT, definition.spec, config.names),
        sources=[log.place(broker.names) for log in inputs],
        own=(ORDERED[0], ORDERED[1]),
        start_time=definition.e0_us,
        parts=1,
    )
    turns, others, began = WakeSignal(), cast(Any, Others()), time.monotonic_ns() // 1_000
    clock = SystemClock(wall_us=lambda: now_us + time.monotonic_ns() // 1_000 - began)
    driven = Driven(
        session,
        broker,
        others,
        others,
        end_timeout_us=S,
        wake=turns.wake,
        clock=clock,
    )
    return driven, Driver(turns, clock)


def stable(broker: MemoryBroker) -> list[OrderedRecord]:
    found = [decode_ordered(raw.value) for raw in read_to_end(broker, ORDERED[0])]
    return [record for record in found if record.kind is not Kind.START]


async def test_an_orderer_goes_on_exact_where_it_was_stopped(broker: MemoryBroker) -> None:
    definition = Registry(broker).queries()[QUERY]
    state = read_states(broker, QUERY, 1)[f"orderer/{QUERY}.0.a"]
    assert isinstance(state, OrdererState)
    assert isinstance(read_states(broker, QUERY, 1)[f"root/{QUERY}.0"], RootState)
    others = [decode_source(raw.value) for raw in read_to_end(broker, SOURCES["steady"])]
    end = others[-1].boundary // S * S
    before = stable(broker)
    stopped_at = before[-1].bucket_end
    assert stopped_at < end, "it lacked the disconnected stream"
    driven, driver = sessions(broker, definition, end + 5 * S)
    await driven.start()
    driver.add(driven)
    running = asyncio.create_task(driver.run())
    Backlog(broker).send(end)
    # All records are from the catch-up reader: there is no live consumer.
    for log in SOURCES.values():
        driven.session.take(LiveAt(log, broker.end_offsets([log])[log]))
    await until(lambda: stable(broker)[-1].bucket_end >= end, running)
    await stop(running)
    written = stable(broker)
    assert len(written) > len(before)
    assert all(a.bucket_end == b.bucket_start for a, b in pairwise(written)), "without a hole"
    counts: Counter[tuple[int, str]] = Counter()
    for record in written:
        for key, first, last in zip(record.keys, record.offsets, record.offsets[1:], strict=False):
            counts[record.bucket_start // S, key] += int(last - first)
    assert counts == readings(broker, written[-1].bucket_end)
    assert any(second * S >= stopped_at and key == SILENT for second, key in counts)
