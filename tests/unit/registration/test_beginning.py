"""trace-24: the start of a query that is registered over existing logs."""

import numpy as np
import pytest
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker

from slackwater.codec.source_records import encode_source
from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.registration.beginning import (
    BUCKET_READINGS_MAX,
    await_first_readings,
    beginning,
    first_event_time,
    history_speed,
)

NEVER = -(2**62)


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic("sw.source.s1")
    broker.create_topic("sw.source.s2")
    return broker


def encoded(source: str, boundary: int, *stimes: int, kind: Kind = Kind.INSERTION) -> bytes:
    columns = SourceColumns(
        stimes=np.array(stimes, np.int64),
        key_index=np.zeros(len(stimes), np.int32),
        keys=("k",),
        fields=("f",),
        values=(np.zeros(len(stimes)),),
    )
    record = SourceRecord(
        kind=kind,
        stream=source,
        inc=0,
        first_id=0,
        last_id=len(stimes) - 1,
        boundary=boundary,
        stime_min=min(stimes, default=boundary),
        stime_max=max(stimes, default=boundary),
        columns=columns if stimes else None,
    )
    return encode_source(record)


def write(broker: MemoryBroker, source: str, kind: Kind, boundary: int, *stimes: int) -> None:
    value = encoded(source, boundary, *stimes, kind=kind)
    broker.writer(no_failure).append(f"sw.source.{source}", 0, value)


def test_an_empty_log_and_a_start_without_a_promise_tell_nothing(broker: MemoryBroker) -> None:
    assert first_event_time(broker, "s1") is None
    write(broker, "s1", Kind.START, NEVER)
    assert first_event_time(broker, "s1") is None


def test_the_smallest_time_before_the_first_promise_or_in_it(broker: MemoryBroker) -> None:
    write(broker, "s1", Kind.START, NEVER)
    write(broker, "s1", Kind.INSERTION, NEVER, 700, 900)
    assert first_event_time(broker, "s1") == 700
    write(broker, "s1", Kind.INSERTION, 650, 800, 660)
    assert first_event_time(broker, "s1") == 650
    write(broker, "s1", Kind.INSERTION, 2_000, 1_000)  # no record below 650 can follow
    assert first_event_time(broker, "s1") == 650


def test_a_boundary_alone_tells_it(broker: MemoryBroker) -> None:
    write(broker, "s1", Kind.BOUNDARY, 5_000)
    assert first_event_time(broker, "s1") == 5_000


def test_over_the_logs_of_a_query(broker: MemoryBroker) -> None:
    assert beginning(broker, ["s1", "s2"], 10_000, 300) == 9_700
    assert beginning(broker, ["s1", "s2"], None, 300) is None
    write(broker, "s2", Kind.INSERTION, 4_000, 4_500)
    assert beginning(broker, ["s1", "s2"], 10_000, 300) == 4_000
    write(broker, "s1", Kind.INSERTION, 3_000, 2_000)
    assert beginning(broker, ["s1", "s2"], 10_000, 300) == 2_000


SLEEP = "slackwater.registration.beginning.time.sleep"
INPUTS = {"s1": ("in", 0), "s2": ("in", 1)}


def test_a_partition_that_holds_messages_is_waited_for(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy has sent the readings of one partition; those of the other are older."""
    broker.create_topic("in", 2)
    for partition in range(2):
        broker.writer(no_failure).append("in", partition, b"{}")
    write(broker, "s1", Kind.INSERTION, 3_000, 3_500)
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            write(broker, "s2", Kind.INSERTION, 2_000, 2_500)

    monkeypatch.setattr(SLEEP, sleep)
    await_first_readings(broker, INPUTS)
    assert beginning(broker, INPUTS, None, 0) == 2_000
    assert len(waits) == 2


def test_an_empty_partition_is_not_waited_for(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("in", 2)
    broker.writer(no_failure).append("in", 0, b"{}")
    write(broker, "s1", Kind.INSERTION, 3_000, 3_500)
    monkeypatch.setattr(SLEEP, None)  # calls fail
    await_first_readings(broker, INPUTS)


def test_a_partition_without_a_usable_message_is_waited_for_no_longer_than_the_limit(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("in", 2)
    broker.writer(no_failure).append("in", 1, b"no reading")
    await_first_readings(broker, INPUTS, within_s=0)
    assert "no reading of s2 after 0 s" in caplog.text


def test_of_files_that_are_read_together_any_may_have_the_oldest_reading(
    broker: MemoryBroker,
) -> None:
    write(broker, "s1", Kind.INSERTION, 800, 800)
    assert beginning(broker, ["s1", "s2"], None, 0, True) is None
    assert beginning(broker, ["s1", "s2"], None, 0) == 800
    write(broker, "s2", Kind.INSERTION, 300, 300)
    assert beginning(broker, ["s1", "s2"], None, 0, True) == 300


# The width of the buckets of a history.

S = 1_000_000


def every(us: int, readings: int = 5_000) -> list[int]:
    return [number * us for number in range(readings)]


@pytest.mark.parametrize(
    ("us", "speed"),
    [
        (3_600 * S, 14_400),
        (60 * S, 14_400),
        (S, 14_400),
        (S // 50, 240),
        (S // 1_000, 20),
        (S // 100_000, 1),
    ],
    ids=["hour", "minute", "second", "20 ms", "1 ms", "10 us"],
)
def test_buckets_of_a_history_hold_as_many_readings_as_fit(
    broker: MemoryBroker, us: int, speed: int
) -> None:
    write(broker, "s1", Kind.START, NEVER)
    write(broker, "s1", Kind.INSERTION, 0, *every(us))
    assert history_speed(broker, ["s1", "s2"]) == speed
    assert speed == 1 or speed * 250_000 / us <= BUCKET_READINGS_MAX


def test_readings_of_all_logs_are_in_one_bucket(broker: MemoryBroker) -> None:
    write(broker, "s1", Kind.INSERTION, 0, *every(S // 10))
    assert history_speed(broker, ["s1"]) == 3_600
    write(broker, "s2", Kind.INSERTION, 0, *every(S // 10))
    assert history_speed(broker, ["s1", "s2"]) == 1_200


def test_the_densest_of_the_first_readings_decide(broker: MemoryBroker) -> None:
    """A reading an hour, and after half a year 5,000 a second."""
    sparse, dense = every(3_600 * S, 4_000), every(200, 12_000)
    write(broker, "s1", Kind.INSERTION, 0, *sparse, *(sparse[-1] + at for at in dense))
    assert history_speed(broker, ["s1"]) == 4


def test_pairs_of_a_join_count_instead_of_readings(broker: MemoryBroker) -> None:
    write(broker, "s1", Kind.INSERTION, 0, *every(S))
    assert history_speed(broker, ["s1"], within_us=S) == 14_400
    assert history_speed(broker, ["s1"], within_us=3_600 * S) == 4


def test_without_two_readings_buckets_are_those_of_the_present(broker: MemoryBroker) -> None:
    assert history_speed(broker, ["s1", "s2"]) == 1
    write(broker, "s1", Kind.INSERTION, 0, 7 * S)
    write(broker, "s2", Kind.BOUNDARY, 9 * S)
    assert history_speed(broker, ["s1", "s2"]) == 1
    write(broker, "s2", Kind.INSERTION, 9 * S, 10 * S, 70 * S)
    assert history_speed(broker, ["s1", "s2"]) == 14_400
