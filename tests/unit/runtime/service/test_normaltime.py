"""Normal times as computed by processes, over the broker in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker
from tests.support.waiting import eventually

from slackwater.codec.state_records import encode_registry
from slackwater.model.deployment import (
    Deployment,
    FieldSpec,
    KeySpec,
    QuerySpec,
    StreamSpec,
    TimeSpec,
    WindowSpec,
)
from slackwater.model.records import RegistryRecord
from slackwater.primitives.eventclock import WallClock
from slackwater.primitives.lateness import Step
from slackwater.runtime.logs.incarnation import append_and_wait
from slackwater.runtime.service.normaltime import NormalTime
from slackwater.runtime.service.registry import Registry
from slackwater.runtime.service.registry_entries import expectation_record

S = 1_000_000
LAB = StreamSpec(
    "lab", KeySpec(value="k"), TimeSpec(field="t", unit="us"), (FieldSpec("x", "x"),),
    disorder_us=S, expect_every_us=5 * S, learns_gaps=True,
)  # fmt: skip
QUERY = QuerySpec("climate", ("lab",), None, None, WindowSpec(S, S), ("count",), 2 * S)


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic("sw.registry")
    return broker


def record(broker: MemoryBroker, step: Step) -> None:
    entry = expectation_record("lab", step)
    writer = broker.writer(no_failure)
    append_and_wait(writer, ("sw.registry", 0), encode_registry(entry), entry.name.encode())


def test_what_is_learned_is_recovered_whoever_wrote_it_and_never_taken_back(
    broker: MemoryBroker,
) -> None:
    registry = Registry(broker)
    steps = (Step(10, 7_000_000), Step(20, 6_000_000), Step(20, 9_000_000))
    for step in (steps[2], steps[0], steps[1], steps[0]):
        record(broker, step)
    assert registry.expected() == {"lab": steps}, "an older writer's value replaces no newer one"


def test_a_step_that_nobody_can_have_written_is_skipped(broker: MemoryBroker) -> None:
    writer = broker.writer(no_failure)
    name = expectation_record("lab", Step(10, 7_000_000)).name
    for key, definition in (
        (name, {"stream": "lab", "from_us": 10, "expect_every_us": 8_000_000}),
        (name, {"stream": "lab", "from_us": "10", "expect_every_us": 7_000_000}),
        (f"{name}0", {"stream": "lab", "from_us": 10, "expect_every_us": 70_000_000}),
    ):
        value = encode_registry(RegistryRecord(key, json.dumps(definition)))
        append_and_wait(writer, ("sw.registry", 0), value, key.encode())
    assert Registry(broker).expected() == {}


def test_normal_time_waits_for_the_clock_and_then_follows_what_is_learned(
    broker: MemoryBroker,
) -> None:
    registry = Registry(broker)
    deployment = Deployment("wall", {"lab": LAB}, {"climate": QUERY})
    record(broker, Step(100 * S, 7 * S))
    normal = NormalTime(registry, deployment, QUERY)
    assert normal.of(0) is None
    registry.publish_clock(WallClock())
    eventually(lambda: normal.of(0) is not None)
    assert [normal.of(e * S) for e in (99, 100)] == [105 * S, 108 * S], "from the start"
    record(broker, Step(200 * S, 60 * S))
    eventually(lambda: normal.of(200 * S) == 261 * S)
    assert [normal.lateness_us(e * S) // S for e in (99, 199, 200)] == [6, 8, 61]


def test_nothing_is_due_before_the_begin_of_a_query_that_awaits_one(broker: MemoryBroker) -> None:
    registry = Registry(broker)
    plain = replace(LAB, learns_gaps=False)
    registry.publish_clock(WallClock())
    registry.publish_begins({"another": 3})
    times = [
        NormalTime(registry, Deployment("wall", {"lab": lab}, {}), QUERY, awaits_begin=True)
        for lab in (plain, LAB)
    ]
    at_once = NormalTime(registry, Deployment("wall", {"lab": plain}, {}), QUERY)
    eventually(lambda: at_once.of(0) == 6 * S)
    assert [time.of(0) for time in times] == [None, None]
    registry.publish_begins({"climate": 100 * S})
    for time in times:
        eventually(partial(_is_due_at, time, 100 * S))
        assert [time.of(e * S) for e in (94, 95)] == [100 * S, 101 * S]
        assert time.of(1_000 * S) == 1_006 * S
        time.close()


def _is_due_at(time: NormalTime, us: int) -> bool:
    return time.of(0) == us
