"""The last reading of a stream whose proxy is stopped: found in its source logs."""

from __future__ import annotations

from collections.abc import Collection

from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker
from tests.unit.cli.test_summary import NOW, START, S, definition, picture, proxy, root, shown
from tests.unit.registration.test_beginning import encoded

from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import Names
from slackwater.status.last_readings import (
    FIRST_RECORDS,
    KEPT_US,
    RECORDS_MAX,
    LastReadings,
    is_source_log,
)
from slackwater.status.processes import Picture


def broker_with(**logs: list[bytes]) -> tuple[MemoryBroker, list[str]]:
    """The source logs with these records, and the names of all topics."""
    broker = MemoryBroker()
    writer = broker.writer(no_failure, in_flight_bytes_max=2**30)
    topics = {f"sw.source.{log.replace('_', '.')}": records for log, records in logs.items()}
    for topic, records in topics.items():
        broker.create_topic(topic)
        for record in records:
            writer.append(topic, 0, record)
    writer.close()
    return broker, list(topics)


def without_lab(name: str = "lab") -> Picture:
    """A running query; the proxy of one of its streams sends no heartbeats."""
    return picture(
        [definition("climate", "a", name)],
        root("climate", NOW - 40 * S, NOW - 10 * S, "UP_FAILURE"),
        proxy("a", NOW),
        without=(f"proxy/{name}",),
    )


def line_of_lab(kafka: tuple[MemoryBroker, list[str]]) -> str:
    broker, topics = kafka
    completed = LastReadings(broker, lambda: topics, lambda: 0).complete(without_lab())
    return next(line for line in shown(completed) if line.startswith("lab "))


def test_a_stopped_proxy_has_the_last_reading_of_its_log() -> None:
    read = [encoded("lab", START, START, NOW - 65 * S), encoded("lab", NOW - 60 * S, NOW - 70 * S)]
    line = line_of_lab(broker_with(lab=read))
    assert "last reading 12:25:35, 65 s ago; its proxy is stopped" in line
    assert "no reading yet" not in line


def test_of_several_partitions_the_latest_counts() -> None:
    logs = {f"lab_{n}": [encoded(f"lab.{n}", START, NOW - n * S)] for n in (3, 1, 2)}
    line = line_of_lab(broker_with(**logs, lab_x=[encoded("lab.x", START, NOW)]))
    assert "last reading 12:26:39, 1.0 s ago" in line


def test_it_is_found_behind_the_watermarks_of_a_silence() -> None:
    silence = [encoded("lab", START + n) for n in range(12 * FIRST_RECORDS)]
    line = line_of_lab(broker_with(lab=[encoded("lab", START, NOW - 65 * S), *silence]))
    assert "last reading 12:25:35" in line


def test_only_a_log_that_is_read_whole_has_no_reading() -> None:
    none = "MISSING: no reading yet; its proxy is stopped"
    unknown = "MISSING: the time of its last reading is unknown; its proxy is stopped"
    assert none in line_of_lab(broker_with(lab=[encoded("lab", START)]))
    assert none in line_of_lab(broker_with()), "a log that is not made yet"
    long = [encoded("lab", START, START), *[encoded("lab", START)] * RECORDS_MAX]
    assert unknown in line_of_lab(broker_with(lab=long))
    assert unknown in line_of_lab(broker_with(lab=[b"damaged"] * (RECORDS_MAX + 1)))


def test_without_kafka_it_is_not_known() -> None:
    def no_answer() -> Collection[str]:
        raise EnvironmentProblem("no broker answers")

    completed = LastReadings(MemoryBroker(), no_answer, lambda: 0).complete(without_lab())
    assert any("its last reading is unknown" in line for line in shown(completed))


def test_a_reading_that_a_proxy_reports_is_not_looked_up() -> None:
    asked = []

    def topics() -> Collection[str]:
        asked.append(True)
        return []

    readings = LastReadings(MemoryBroker(), topics, lambda: 0)
    all_report = picture([definition("climate", "a")], root("climate", NOW, NOW), proxy("a", NOW))
    assert readings.complete(all_report) == all_report
    assert asked == []


def test_who_watches_asks_kafka_once_in_ten_seconds() -> None:
    asked, now_us = list[int](), [S]

    def topics() -> Collection[str]:
        asked.append(now_us[0])
        return ["sw.source.lab"]

    read, _ = broker_with(lab=[encoded("lab", START, NOW - 65 * S)])
    readings = LastReadings(read, topics, lambda: now_us[0])
    for later_us in (0, S, KEPT_US - 1, KEPT_US, KEPT_US + S):
        now_us[0] = S + later_us
        readings.complete(without_lab())
    assert asked == [S, S + KEPT_US]
    readings.complete(without_lab("other"))
    assert len(asked) == 3, "another stream is not known yet"


def test_a_source_log_is_that_of_the_stream_or_of_a_partition() -> None:
    topics = ["p-sw.source.lab", "p-sw.source.lab.12", "p-sw.source.lab.x", "p-sw.source.lab2"]
    names = Names("p-")
    assert [is_source_log(topic, "lab", names) for topic in topics] == [True, True, False, False]
