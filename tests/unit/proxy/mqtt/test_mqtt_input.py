"""A stream read from an MQTT broker: killed, disconnected, full; nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.mqtt_world import MqttWorld, mqtt_spec
from tests.support.proxy_world import S

from slackwater.model.records import SourceRecord
from slackwater.proxy.spool import PushBackError, Spool


def test_a_message_is_acknowledged_when_its_reading_is_in_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    append = Spool.append

    def full(*_: object, **__: object) -> None:
        raise PushBackError("full")

    monkeypatch.setattr(Spool, "append", full)
    for _ in range(9):
        world.publish()
    world.run(proxy)
    assert len(world.broker.unacknowledged) == 4  # the window is full, and remains so
    assert len(world.broker.queue) == 5
    assert world.values() == []
    monkeypatch.setattr(Spool, "append", append)
    world.run(proxy)
    assert world.broker.holds == 0
    assert world.values() == list(range(1, 10))


def test_a_full_spool_pushes_back_to_the_broker_and_nothing_is_lost(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy(spool_bytes_max=2_000)
    world.world.broker.go_away()  # Kafka, so that the spool is not emptied
    for _ in range(200):
        world.publish()
    world.run(proxy, 5)
    assert world.broker.holds > 100
    assert len(world.broker.unacknowledged) == 4
    world.world.broker.come_back()
    world.run(proxy, 20)
    assert world.broker.holds == 0
    assert world.values() == list(range(1, 201))
    world.world.check()


def test_while_kafka_is_away_readings_go_to_the_spool_and_are_acknowledged(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    world.world.broker.go_away()
    for _ in range(50):
        world.publish()
    world.run(proxy)
    assert world.broker.holds == 0
    again = world.proxy  # killed: they are in the spool
    world.world.broker.come_back()
    world.run(again())
    assert world.values() == list(range(1, 51))


def test_messages_are_committed_in_groups_before_the_window_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MqttWorld(tmp_path, mqtt_spec(in_flight=100), window=100)
    proxy = world.proxy()
    world.run(proxy)
    commits: list[int] = []
    append = Spool.append

    def counted(spool: Spool, records: Sequence[SourceRecord], *rest: Any) -> None:
        commits.append(sum(record.readings for record in records))
        append(spool, records, *rest)

    monkeypatch.setattr(Spool, "append", counted)
    for _ in range(100):
        world.publish()
    world.broker.pump(world.world.now_us)
    world.turn(proxy)
    assert commits == [100]
    world.publish()
    world.run(proxy)
    assert commits == [100, 1]


def test_malformed_messages_are_quarantined_with_their_topic_and_acknowledged(
    tmp_path: Path,
) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    world.publish()
    world.broker.publish("lab/x", b"\xff\x00 no JSON")
    world.publish()
    world.run(proxy)
    assert world.broker.holds == 0
    assert world.values() == [1, 2]
    (entry,) = world.world.quarantined()
    assert entry["position"] == "lab/x#1"
    assert (entry["reason"], entry["detail"]) == ("malformed", "not UTF-8")


def test_a_message_that_cannot_be_quarantined_is_not_acknowledged(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    world.world.broker.go_away()
    world.broker.publish("lab/x", b"no JSON")
    world.run(proxy, 0.01)
    assert world.broker.holds == 1
    world.world.broker.come_back()
    world.run(proxy)
    assert world.broker.holds == 0
    assert world.world.counts() == {"malformed": 1}


def test_the_number_of_a_message_goes_on_after_a_restart(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    world.publish()
    world.run(world.proxy())
    world.broker.publish("lab/x", b"bad")
    world.run(world.proxy())
    assert [entry["position"] for entry in world.world.quarantined()] == ["lab/x#1"]


# Duplicates.


def test_without_a_counter_an_unacknowledged_message_may_count_twice(tmp_path: Path) -> None:
    """The documented limit: a crash between the spool and the acknowledgement."""
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    world.publish()
    world.publish()
    world.broker.pump(world.world.now_us)
    world.turn(proxy)  # in the spool; the broker has not received the acknowledgements
    assert len(world.broker.unacknowledged) == 2
    world.run(world.proxy())
    assert world.values() == [1, 2, 1, 2]


def test_with_a_counter_it_counts_once(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path, mqtt_spec(sequence=True))
    proxy = world.proxy()
    world.publish()
    world.publish()
    world.broker.pump(world.world.now_us)
    world.turn(proxy)
    proxy = world.proxy()
    world.run(proxy)
    assert world.values() == [1, 2]
    assert proxy.detail()["repeated"] == 2
    assert world.world.quarantined() == []  # the broker has marked it


def test_what_a_device_sends_again_is_kept_in_quarantine(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path, mqtt_spec(sequence=True))
    proxy = world.proxy()
    at_us = world.world.now_us
    world.publish(at_us=at_us, n=7)
    world.publish(at_us=at_us, n=7)
    world.publish(device="other", at_us=at_us, n=7)
    world.run(proxy)
    assert world.values() == [1, 3]
    assert world.world.counts() == {"duplicate": 1}


act = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from("ab"), st.booleans()),
    st.tuples(st.sampled_from(["pump", "turn", "wait", "cut", "connect", "kill", "away", "back"])),
)


@pytest.mark.parametrize("with_counter", [True, False])
@settings(max_examples=40)
@given(acts=st.lists(act, max_size=40))
def test_killed_and_cut_off_anywhere_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory, with_counter: bool, acts: list[tuple[object, ...]]
) -> None:
    spec = mqtt_spec(sequence=with_counter, disorder_us=3_600 * S)
    world = MqttWorld(tmp_path_factory.mktemp("w"), spec)
    proxy = world.proxy()
    published = []
    for what, *how in acts:
        match what:
            case "publish":
                published.append(world.publish(str(how[0])))
                if how[1]:
                    world.broker.publish("lab/a", b"rubbish")
            case "pump":
                world.broker.pump(world.world.now_us)
            case "turn":
                world.turn(proxy)
            case "wait":
                world.world.now_us += 300_000
            case "cut":
                world.broker.disconnect()
            case "connect":
                world.broker.connect(world.link)
            case "kill":
                world.world.broker.come_back()
                proxy = world.proxy()
            case "away":
                world.world.broker.go_away()
            case "back":
                world.world.broker.come_back()
    world.world.broker.come_back()
    world.broker.connect(world.link)
    world.run(proxy, 2)
    assert world.broker.holds == 0
    values = world.values()
    assert set(values) == set(published)
    assert not with_counter or sorted(values) == published
    world.world.check()


# Boundaries.


def test_expected_readings_alone_move_the_boundary(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path, mqtt_spec(expect_every_us=5 * S))
    proxy = world.proxy()
    at_us = world.world.now_us
    world.publish()
    world.run(proxy, 3)
    assert world.world.boundary_s() * S == at_us


def test_the_clock_moves_the_boundary_of_a_sporadic_stream(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    world.run(proxy, 3)
    assert 0 <= world.world.now_us - world.world.boundary_s() * S < 0.5 * S


def test_no_clock_moves_it_while_the_broker_is_away(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    world.run(proxy, 1)
    world.broker.disconnect()
    cut_us = world.world.now_us
    world.run(proxy, 5)
    assert world.world.boundary_s() * S <= cut_us
    world.broker.connect(world.link)
    world.run(proxy, 1)
    assert world.world.boundary_s() * S > cut_us + 4 * S


@settings(max_examples=40)
@given(
    acts=st.lists(
        st.tuples(st.sampled_from(["publish", "cut", "connect", "kill"]), st.integers(0, 600)),
        max_size=40,
    )
)
def test_it_never_passes_a_message_that_the_broker_holds(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
) -> None:
    """Readings have the time of their publication, and there is no disorder."""
    world = MqttWorld(tmp_path_factory.mktemp("w"), mqtt_spec(sequence=True))
    proxy = world.proxy()
    for what, then_ms in acts:
        match what:
            case "publish":
                for _ in range(1 + then_ms % 7):
                    world.publish()
            case "cut":
                world.broker.disconnect()
            case "connect":
                world.broker.connect(world.link)
            case "kill":
                proxy = world.proxy()
        world.run(proxy, then_ms / 1_000)
    world.broker.connect(world.link)
    world.run(proxy, 2)
    assert world.world.counts() == {}
    assert world.values() == list(range(1, world.sent + 1))


def test_a_backlog_is_worked_off_before_the_clock_moves_it(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    world.run(proxy, 1)
    world.broker.disconnect()
    for _ in range(500):
        world.publish()
        world.world.now_us += 10_000
    world.broker.connect(world.link)
    world.run(proxy, 3)
    assert len(world.values()) == 500
    assert world.world.counts() == {}
    assert world.world.now_us - world.world.boundary_s() * S < 0.5 * S


# The session.


def test_filters_that_the_file_no_longer_has_are_left(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    began = world.connector
    world.run(proxy, 0.1)
    world.proxy()
    went_on = world.connector
    assert (began.expects_session, went_on.expects_session) == (False, True)
    assert (began.left, went_on.left) == ([], [])
    spec = world.world.spec
    assert spec.mqtt is not None
    world.world.spec = replace(spec, mqtt=replace(spec.mqtt, topics=("else/+",)))
    proxy = world.proxy()
    assert world.connector.left == ["lab/+"]
    world.run(proxy, 0.1)
    world.proxy()
    assert world.connector.left == []


def test_the_spool_of_a_killed_proxy_is_sent_by_the_next(tmp_path: Path) -> None:
    world = MqttWorld(tmp_path)
    proxy = world.proxy()
    world.publish()
    world.run(proxy)
    proxy.leave()
    proxy.close()
    assert not world.broker.is_connected
    world.publish()
    world.run(world.proxy())
    assert world.values() == [1, 2]
