"""Duplicate readings are detected by the device's counter, also after a crash."""

from __future__ import annotations

import sqlite3

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slackwater.proxy.mqtt.sequences import TABLES, Sequences, device_of

A, B = device_of("t", "a"), device_of("t", "b")


def database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(TABLES)
    return db


def fresh(
    sequences: Sequences,
    readings: list[tuple[bytes, int, int]],
    in_messages: list[int] | None = None,
) -> list[bool]:
    devices = [device for device, _, _ in readings]
    numbers = np.array([n for _, n, _ in readings], np.int64)
    stimes = np.array([t for _, _, t in readings], np.int64)
    messages = list(range(len(readings))) if in_messages is None else in_messages
    found: list[bool] = sequences.fresh(messages, devices, numbers, stimes).tolist()
    return found


def stored(sequences: Sequences, db: sqlite3.Connection) -> None:
    sequences.store(db)
    sequences.stored()


def test_devices_are_distinguished_by_topic_and_key() -> None:
    assert len({device_of("ab", "c"), device_of("a", "bc"), device_of("a:b", "c"), A, B}) == 5


def test_a_reading_that_comes_again_is_not_fresh() -> None:
    sequences = Sequences(database())
    assert fresh(sequences, [(A, 1, 10), (A, 2, 20), (B, 1, 10)]) == [True] * 3
    assert fresh(sequences, [(A, 1, 10), (A, 2, 20), (B, 1, 10), (B, 2, 20)]) == [False] * 3 + [
        True
    ]


def test_a_counter_that_begins_again_goes_on_with_the_time() -> None:
    sequences = Sequences(database())
    fresh(sequences, [(A, 65_534, 10), (A, 65_535, 20)])
    assert fresh(sequences, [(A, 0, 30), (A, 1, 40)]) == [True, True]
    assert fresh(sequences, [(A, 65_535, 20), (A, 0, 30), (A, 1, 40)]) == [False] * 3
    assert fresh(sequences, [(A, 2, 50), (A, 65_535, 60)]) == [True, True]


def test_out_of_order_times_repeat_nothing_twice() -> None:
    sequences = Sequences(database())
    assert fresh(sequences, [(A, 1, 50), (A, 2, 20)]) == [True, True]
    assert fresh(sequences, [(A, 1, 50), (A, 2, 20)]) == [False, False]


def test_a_message_with_several_readings_may_have_one_counter() -> None:
    sequences = Sequences(database())
    readings = [(A, 5, 10), (A, 5, 10), (A, 5, 9), (B, 5, 10), (A, 6, 10)]
    assert fresh(sequences, readings, [0, 0, 0, 0, 1]) == [True] * 5
    assert fresh(sequences, readings, [0, 0, 0, 0, 1]) == [False] * 5


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 1)), max_size=30),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=6),
)
def test_each_reading_is_taken_once_whatever_comes_again(
    steps: list[tuple[bytes, int]], crashes: list[tuple[int, int, bool]]
) -> None:
    """Any part of the input is repeated; changes that were not stored before a crash are lost."""
    readings, counters = [], dict.fromkeys((A, B), 0)
    for at, (device, restarts) in enumerate(steps):
        counters[device] = 0 if restarts else counters[device] + 1
        readings.append((device, counters[device], at))
    db = database()
    sequences = Sequences(db)
    taken: set[int] = set()
    acknowledged = 0
    for first, behind, is_crash in [*crashes, (0, len(readings), False)]:
        # A broker repeats from the first message that is not acknowledged, or from an earlier one.
        start = min(first, acknowledged)
        some = range(start, max(start, min(behind, len(readings))))
        found = [
            at
            for at, new in zip(some, fresh(sequences, [readings[i] for i in some]), strict=True)
            if new
        ]
        if is_crash:
            sequences = Sequences(db)
            continue
        assert taken.isdisjoint(found)
        taken.update(found)
        acknowledged = max(acknowledged, some.stop)
        stored(sequences, db)
    if not any(restarts for _, restarts in steps):
        assert taken == set(range(len(readings)))


def test_the_devices_that_came_last_are_kept() -> None:
    db = database()
    sequences = Sequences(db, devices_max=2)
    devices = [device_of("t", str(i)) for i in range(4)]
    for i, device in enumerate(devices):
        assert fresh(sequences, [(device, 5, i)]) == [True]
    stored(sequences, db)
    assert db.execute("SELECT count(*) FROM mqtt_sequences").fetchone() == (2,)
    again = Sequences(db, devices_max=2)
    assert fresh(again, [(devices[2], 5, 2), (devices[3], 5, 3)]) == [False, False]
    assert fresh(again, [(devices[0], 5, 0)]) == [True]  # evicted
    stored(again, db)
    assert fresh(Sequences(db), [(devices[0], 5, 0)]) == [False]
