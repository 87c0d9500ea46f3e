"""Requests at the limits: unusual bytes of a sender end no stream, and the queue is bounded."""

from __future__ import annotations

import io
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.proxy_world import S
from tests.unit.proxy.test_pushed import POSTED, PushWorld, reading

from slackwater.proxy import pushed, requests
from slackwater.proxy.http.bodies import JSON, NDJSON, reader_for
from slackwater.proxy.http.parts import READINGS_MAX
from slackwater.proxy.http.senml import MEDIA_TYPE as SENML
from slackwater.proxy.http.tables import ARROW, CSV
from slackwater.proxy.pushed import PushedInput
from slackwater.proxy.quarantine import DETAIL_CHARS_MAX
from slackwater.proxy.remembered import Brought
from slackwater.proxy.requests import Outcome, Pushed, UnusableBody
from slackwater.proxy.shell import turn
from slackwater.proxy.spool import PushBackError, Spool


def posted(world: PushWorld, proxy: PushedInput, body: bytes, kind: str) -> Outcome:
    reader = reader_for(world.spec, kind, world.now_us)
    assert reader is not None
    request = Pushed(body, reader)
    assert world.queue.put(request) is None
    turn(world.context_now, proxy, world.now_us)
    return request.answer.result(timeout=0)


def quarantined(world: PushWorld, proxy: PushedInput) -> list[dict[str, Any]]:
    world.run(proxy, 1)
    return world.quarantined()


def arrow(table: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("is_dictionary", [False, True])
@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        (pa.timestamp("s"), 2**62),
        (pa.timestamp("ms", tz="UTC"), 2**61),
        (pa.timestamp("us"), 2**62),
        (pa.timestamp("ns"), 1_000_000_000_001),
        (pa.timestamp("us", tz="Nowhere/Near"), 1_000_000_000),
    ],
    ids=str,
)
def test_a_timestamp_that_is_no_datetime_is_quarantined_as_its_number(
    tmp_path: Path, kind: Any, odd: int, is_dictionary: bool
) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    times = pa.array([1_000 * second, odd], pa.int64()).cast(kind)
    table = pa.table(
        {
            "node": ["n", "n"],
            "ts": times.dictionary_encode() if is_dictionary else times,
            "t": [1.0, float("inf")],
        }
    )
    assert posted(world, proxy, arrow(table), ARROW).counts == {"accepted": 1, "malformed": 1}
    (entry,) = quarantined(world, proxy)
    assert json.loads(entry["payload"])["ts"] == odd


def test_lines_that_end_in_many_ways_are_named_by_their_number(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    body = b"node,ts,t\n" + b"\n" * 5 + b"\r" * 5 + b"n,1000,1\r\nn,1001,warm\r"
    found = posted(world, proxy, body, CSV)
    assert found.counts == {"accepted": 1, "malformed": 1}
    (entry,) = quarantined(world, proxy)
    assert found.errors[0]["line"] == 13
    assert (entry["position"], entry["payload"]) == ("request:1:13", "n,1001,warm")


@pytest.mark.parametrize("name", ["\ud800_", "x" * 500_000 + "_"], ids=["surrogate", "long"])
def test_an_error_quotes_what_can_be_written(tmp_path: Path, name: str) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    pack = [{"bn": "n:", "n": "t", "v": 1, "bt": 1_700_000_000}, {"n": "t", "v": 2, name: 1}]
    found = posted(world, proxy, json.dumps(pack).encode(), SENML)
    assert found.counts["malformed"] == 1
    (entry,) = [e for e in quarantined(world, proxy) if e["reason"] == "malformed"]
    assert len(entry["detail"]) <= DETAIL_CHARS_MAX


def test_a_number_of_many_digits_costs_its_element_only(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    body = b"[%b, 1%b]" % (json.dumps(reading(1000)).encode(), b"0" * 5_000)
    found = posted(world, world.proxy(), body, JSON)
    assert found.counts == {"accepted": 1, "malformed": 1}


def test_a_body_of_too_many_lines_is_refused_before_it_takes_memory() -> None:
    reader = reader_for(POSTED, NDJSON[0], 0)
    assert reader is not None
    body = b"{}\n" * (20 * READINGS_MAX)
    tracemalloc.start()
    try:
        with pytest.raises(UnusableBody, match="more than 100000 readings"):
            reader(body)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(body)
    finally:
        tracemalloc.stop()


def test_refused_readings_of_many_requests_are_several_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushed, "REFUSED_BYTES_MAX", 1_000)
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    body = [reading(1000), *([1] * 10)]
    answers = [world.put(body) for _ in range(3)]
    for done in range(1, 4):
        assert turn(world.context_now, proxy, world.now_us) > world.now_us or done < 3
        assert [answer.done() for answer in answers] == [i < done for i in range(3)]
    assert len(quarantined(world, proxy)) == 30
    assert len(world.readings()) == 3


def test_a_stream_that_fails_answers_what_it_has_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushed, "REFUSED_BYTES_MAX", 1)
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    answers = [world.put([reading(1000), 1]) for _ in range(2)]
    turn(world.context_now, proxy, world.now_us)
    proxy.close()
    assert [answer.result(timeout=0).status for answer in answers] == [200, 503]


def test_a_boundary_of_the_clock_waits_for_requests_that_came_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More bodies wait than fit one transaction; each was in time on arrival (trace-10)."""
    monkeypatch.setattr(requests, "BYTES_AT_ONCE_MAX", 1)
    world = PushWorld(tmp_path)
    world.spec = replace(POSTED, expect_every_us=None)
    world.deployment = replace(world.deployment, streams={world.spec.name: world.spec})
    proxy = world.proxy()
    world.run(proxy, 1)
    now = world.now_us / S
    answers = [world.put(reading(now)) for _ in range(3)]
    for _ in range(3):
        world.now_us += S
        turn(world.context_now, proxy, world.now_us)
    assert [answer.result(timeout=0).counts for answer in answers] == [{"accepted": 1}] * 3
    # The clock continues once they are read, also if the last one has no readings.
    world.put([1])
    world.run(proxy, 1)
    assert world.raw()[-1][1].boundary >= world.now_us - S


def test_a_boundary_of_the_clock_waits_for_requests_that_a_full_spool_refused(
    tmp_path: Path,
) -> None:
    world = PushWorld(tmp_path)
    world.spec = replace(POSTED, expect_every_us=None)
    world.deployment = replace(world.deployment, streams={world.spec.name: world.spec})
    proxy = world.proxy(spool_bytes_max=400)
    world.run(proxy, 1)
    refused_us = world.now_us
    now = refused_us / S
    assert world.post(proxy, [reading(now + i / 1000) for i in range(1000)]).status == 429
    for _ in range(10):  # as long as a sender backs off, at most
        world.now_us += S
        assert turn(world.context_now, proxy, world.now_us) > world.now_us
    assert world.post(proxy, reading(now)).counts == {"accepted": 1}
    assert world.raw()[-1][1].boundary <= refused_us
    # A sender that does not return delays the stream no longer than this.
    world.now_us = refused_us + pushed.HOLD_US
    world.run(proxy, 2)
    assert world.raw()[-1][1].boundary > refused_us + S


@pytest.mark.parametrize("deletes", ["acknowledge", "acknowledge_refused"])
def test_a_disk_too_full_to_delete_stops_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: str
) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()

    def full(*_: object) -> None:
        raise PushBackError("the spool cannot grow")

    with monkeypatch.context() as patched:
        patched.setattr(Spool, deletes, full)
        assert world.post(proxy, [reading(1000), 1]).counts == {"accepted": 1, "malformed": 1}
        world.run(proxy, 3)
        assert world.context_now.spool.bytes_held > 0
        if deletes == "acknowledge":  # a start finds the records in the log, and deletes them later
            world.context_now.spool.close()
            proxy = world.proxy()
    world.run(proxy, 3)
    assert world.context_now.spool.bytes_held == 0
    assert len(world.readings()) == 1
    assert len(world.quarantined()) == 1


def test_a_request_that_nobody_waits_for_is_taken_out(tmp_path: Path) -> None:
    world = PushWorld(tmp_path)
    proxy = world.proxy()
    reader = reader_for(world.spec, JSON, 0)
    assert reader is not None
    first, second = (Pushed(json.dumps(reading(1000)).encode(), reader) for _ in range(2))
    world.queue.put(first)
    world.queue.put(second)
    assert world.queue.withdraw(first)
    assert not world.queue.withdraw(first)
    turn(world.context_now, proxy, world.now_us)
    assert not world.queue.withdraw(second)
    assert len(world.readings()) == 1


def test_the_spool_counts_what_it_holds_as_it_is_sent(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path / "spool.sqlite")
    entries = [(f"request:1:{i}", bytes(10 + i)) for i in range(10)]
    brought = Brought(0, refused=entries)
    spool.append((), 0, {}, lambda _: spool.remembered.add(brought))
    spool.bytes_held += brought.bytes
    for up_to in (3, 3, 10):
        spool.acknowledge_refused(up_to)
        assert spool.bytes_held == sum(len(value) for _, value in entries[up_to:])
    assert np.sum([len(v) for _, v in entries]) == brought.bytes
    spool.close()
    assert Spool.open(tmp_path / "spool.sqlite").bytes_held == 0
