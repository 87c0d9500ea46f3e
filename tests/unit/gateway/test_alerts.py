"""The alerts that the gateway pushes: sentences, bounds, and what is read from their topics."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest
from tests.support.memory import MemoryBroker
from tests.support.waiting import eventually
from tests.unit.machine.test_layout import query

from slackwater.delivery.records import AlertRecord, AlertState, Firing
from slackwater.delivery.view import AlertView
from slackwater.gateway import alert_source
from slackwater.gateway.alert_source import AlertSource
from slackwater.gateway.alerts import (
    SHOWN_BYTES_MAX,
    SHOWN_MAX,
    alerts_frame,
    alerts_json,
    sentence_of,
)
from slackwater.gateway.hub import Hub
from slackwater.gateway.outbox import Outbox
from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import QuerySpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import Names
from slackwater.runtime.service.registry import Registry

S = 1_000_000
HOT = AlertSpec("hot", "t_avg > 26", 2, "act")
SILENT_STREAM = AlertSpec("mute", stream="lab", missing_us=30 * S)
TOPIC = Names().alerts("climate")


def record(
    state: AlertState = "firing", key: str = "oven", at: int = 60, **more: Any
) -> AlertRecord:
    began = Firing(f"{key}{at}", (at - 10) * S, at * S, {"t_avg": 27.5, "h_max": None})
    rule = more.pop("rule", "hot")
    return AlertRecord(rule, "climate", key, state, began, (at + 20) * S, 0, 0, **more)


def tentative(of: AlertRecord) -> AlertRecord:
    return replace(of, began=replace(of.began, tentative=True, missing=("lab", "roof")))


@pytest.mark.parametrize(
    ("expected", "given", "rule"),
    [
        ("fires since 1970-01-01 00:01:00: t_avg 27.5, h_max null", record(), HOT),
        (
            "fires since 1970-01-01 00:01:00, tentative without lab, roof: t_avg 27.5, h_max null",
            tentative(record()),
            HOT,
        ),
        ("pending at 1970-01-01 00:01:20: t_avg 27.5, h_max null", record("pending"), HOT),
        (
            "ended: fired from 1970-01-01 00:01:00 to 1970-01-01 00:01:20; w",
            replace(record("ended", reason="w"), began=Firing("", 50 * S, 60 * S)),
            HOT,
        ),
        (
            "withdrawn: t_avg 27.5, h_max null tentatively without lab, roof, t_avg 20 exactly",
            tentative(record("withdrawn", exact={"t_avg": 20.0})),
            HOT,
        ),
        ("lab is missing since 1970-01-01 00:00:50", record(key="", rule="mute"), SILENT_STREAM),
        (
            "ended: lab was missing from 1970-01-01 00:00:50 to 1970-01-01 00:01:20",
            record("ended", key="", rule="mute"),
            SILENT_STREAM,
        ),
    ],
)
def test_an_alert_is_one_sentence(expected: str, given: AlertRecord, rule: AlertSpec) -> None:
    assert sentence_of(given, rule) == expected


def pushed(frame: bytes) -> dict[str, Any]:
    event, data = frame.decode().removesuffix("\n\n").split("\n")
    assert event == "event: alerts"
    found: dict[str, Any] = orjson.loads(data.removeprefix("data: "))
    return found


def test_what_is_pushed_is_bounded_and_the_newest_comes_first() -> None:
    view = AlertView()
    for number in range(1_000):
        view.take(record(key=f"k{number}", at=number + 10))
        view.take(record("pending", "x" * 65_536 + str(number), number + 10))
    found = pushed(alerts_frame(view, {}))
    assert [len(found["firing"]), found["left_off"]["firing"]] == [SHOWN_MAX, 1_000 - SHOWN_MAX]
    assert found["firing"][0]["key"] == "k999"
    assert len(found["pending"]) + found["left_off"]["pending"] == 1_000
    assert len(orjson.dumps(found["pending"])) < SHOWN_BYTES_MAX + 10
    assert len(alerts_json(view, {})["firing"]) == 1_000, "the API has all"


def test_a_reader_begins_with_the_latest_alerts() -> None:
    hub, first, second = Hub(), Outbox(), Outbox()
    hub.join(first, None, None)
    hub.set_alerts(b"one ")
    hub.set_alerts(b"two ")
    assert first.take() == b"two "
    assert hub.join(second, None, None) == [b"two "]


class Following:
    """A source in a thread; ``states`` are what it has reported."""

    def __init__(self, memory: MemoryBroker) -> None:
        self.states: list[dict[str, Any]] = []
        self.source = AlertSource(memory)
        self._thread = threading.Thread(
            target=self.source.run, args=(lambda frame: self.states.append(pushed(frame)),)
        )

    def __enter__(self) -> Following:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.source.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def shows(self, **expected: list[str]) -> None:
        """Wait until the last state has these keys."""

        def has() -> bool:
            if not self.states:
                return False
            last = self.states[-1]
            return all([of.get("key") for of in last[kind]] == expected[kind] for kind in expected)

        eventually(has, f"the alerts are {expected}")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    made = MemoryBroker()
    made.create_topic(Names().registry)
    monkeypatch.setattr(alert_source, "POLL_S", 0.05)
    monkeypatch.setattr(alert_source, "AGAIN_S", 0.05)
    monkeypatch.setattr(alert_source, "SETTLE_S_MAX", 0.05)
    return made


def make_topic(memory: MemoryBroker, id_: str = "a") -> None:
    memory.create_topic(TOPIC)
    Registry(memory).publish_topics({TOPIC: id_})


def write(memory: MemoryBroker, *records: AlertRecord) -> None:
    with memory.transaction() as transaction:
        for each in records:
            transaction.append(TOPIC, 0, each.encode(), each.log_key)


def named(*rules: AlertSpec) -> Mapping[str, QuerySpec]:
    return {"climate": replace(query("climate", "lab"), alerts=rules)}


def test_alerts_are_read_from_the_begin_and_each_change_is_reported(memory: MemoryBroker) -> None:
    make_topic(memory)
    write(memory, record(key="a"), record(key="b"))
    with Following(memory) as of:
        of.source.set_queries(named(HOT))
        of.shows(firing=["a", "b"], ended=[])
        assert of.states[0]["rules"] == [
            {
                "alert": "hot",
                "query": "climate",
                "stream": None,
                "sentence": "t_avg > 26 in 2 windows in a row; tentative answers, too",
            }
        ]
        assert len(of.states) == 1, "nothing is reported before all of it has been read"
        write(memory, record("ended", "a"))
        of.shows(firing=["b"], ended=["a"])
        assert [each["key"] for each in of.source.to_json()["firing"]] == ["b"]


def test_an_empty_topic_is_known_at_once_and_damage_is_passed_over(memory: MemoryBroker) -> None:
    make_topic(memory)
    with Following(memory) as of:
        of.source.set_queries(named(HOT))
        of.shows(firing=[], pending=[])
        with memory.transaction() as transaction:
            transaction.append(TOPIC, 0, b"<html>", b"x")
        write(memory, record(key="a"))
        of.shows(firing=["a"])


def test_a_topic_may_come_later_and_may_go(memory: MemoryBroker) -> None:
    with Following(memory) as of:
        with pytest.raises(EnvironmentProblem, match="have not been read"):
            of.source.to_json()
        of.source.set_queries(named())
        of.shows(firing=[])
        of.source.set_queries(named(HOT, SILENT_STREAM))
        eventually(lambda: len(of.states[-1]["rules"]) == 2, "the rules are shown")
        make_topic(memory)
        write(memory, record(key="a"))
        of.shows(firing=["a"])
        of.source.set_queries({})
        of.shows(firing=[], rules=[])


def test_while_kafka_is_away_what_is_known_stays(memory: MemoryBroker) -> None:
    make_topic(memory)
    write(memory, record(key="a"))
    with Following(memory) as of:
        of.source.set_queries(named(HOT))
        of.shows(firing=["a"])
        memory.go_away()
        assert [each["key"] for each in of.source.to_json()["firing"]] == ["a"]
        memory.come_back()
        write(memory, record(key="b"))
        of.shows(firing=["a", "b"])
