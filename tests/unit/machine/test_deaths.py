"""Reports that a process has ended: of each part that it served, under the part's name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException

from slackwater.codec import decode_heartbeat
from slackwater.machine import deaths
from slackwater.machine.deaths import DeathReports
from slackwater.model.names import Names
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.clock import SystemClock

ROOT = Heartbeat(
    "root/q.0.a", 7, 1_000, 2_000, 3, ready=True, states={"r": "STABLE"}, detail={"term": 4}
)
ORDERER = replace(ROOT, process="orderer/q.0.a", detail={})


class Sent:
    """A producer, and the listener of heartbeats."""

    def __init__(self, *beats: Heartbeat) -> None:
        self.names, self.cluster = Names(), Cluster("127.0.0.1:9")
        self.beats = {beat.process: beat for beat in beats}
        self.records: list[tuple[str, Heartbeat]] = []
        self.refuses: Exception | None = None

    def latest(self, process: str) -> Heartbeat | None:
        return self.beats.get(process)

    def produce(self, topic: str, value: bytes, key: bytes, *, partition: int) -> None:
        if self.refuses is not None:
            raise self.refuses
        assert partition == 0
        self.records.append((topic, decode_heartbeat(value)))

    def poll(self, _timeout_s: float) -> int:
        return 0


def reports(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> DeathReports:
    monkeypatch.setattr(deaths, "Producer", lambda _settings: sent)
    stand_in = cast("Any", sent)
    made = DeathReports(
        stand_in, stand_in, SystemClock(wall_us=lambda: 9_000, monotonic_us=lambda: 0)
    )
    made.connect()
    return made


def test_each_part_of_a_process_is_reported_as_it_was_last(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(ROOT, ORDERER)
    reports(sent, monkeypatch).report("host/0", ["root/q.0.a", "orderer/q.0.a", "root/q.1.b"], 7)
    ((topic, record),) = sent.records
    assert (topic, record.process, record.pid) == ("sw.heartbeats", "host/0", 7)
    assert list(record.each()) == [replace(of.as_dead(), at=9_000) for of in (ROOT, ORDERER)]


def test_parts_that_run_elsewhere_since_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(replace(ROOT, pid=8), ORDERER)
    made = reports(sent, monkeypatch)
    made.report("host/0", ["root/q.0.a", "orderer/q.0.a"], 7)
    made.report("host/0", ["root/q.0.a"], 7)
    assert [[beat.process for beat in of.each()] for _, of in sent.records] == [["orderer/q.0.a"]]


@pytest.mark.parametrize("error", [BufferError(), KafkaException("away")])
def test_a_report_that_cannot_be_sent_is_dropped(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    sent = Sent(ROOT)
    sent.refuses = error
    reports(sent, monkeypatch).report("host/0", ["root/q.0.a"], 7)
    assert sent.records == []


def test_nothing_is_sent_before_kafka_is_there() -> None:
    stand_in = cast("Any", Sent(ROOT))
    DeathReports(stand_in, stand_in).report("host/0", ["root/q.0.a"], 7)
    assert stand_in.records == []
