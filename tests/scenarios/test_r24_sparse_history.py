"""trace-24 in a history with ``clock: data``: one record may span a year of event time.

A proxy sends a file as fast as its log accepts it: 10,000 readings are one record. With a reading
an hour there are 14,400 empty buckets between two of them, which are one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.paper.stage import MS, Orderer, Root, Settings, Source, labels, readings, stable_answers

from slackwater.model.records import Kind, OrderedRecord
from slackwater.primitives.eventclock import DataClock
from slackwater.protocols.common.line import LineName, Schedule

HOUR_MS = 3_600_000
DAYS = 40
HOURS = range(1, 24 * DAYS)
BY_DAY = Settings(bucket_ms=250, window_ms=24 * HOUR_MS)
BY_HOUR = Settings(bucket_ms=250, window_ms=HOUR_MS)
ROWS = Settings(bucket_ms=10, rows=True)
READ_AT_MS = 5
"""When the logs have been read: all of the history is due at once, and none of it is overdue."""


def history(name: str, per_record: int, hours: Sequence[int] = HOURS) -> Source:
    """A reading an hour, at half past, with its hour as value."""
    source = Source(name)
    for first in range(0, len(hours), per_record):
        times = [hour * HOUR_MS for hour in hours[first : first + per_record]]
        source.emit([at - HOUR_MS / 2 for at in times], times[-1])
    source.emit([], 24 * DAYS * HOUR_MS)
    return source


def stages(settings: Settings, sources: list[Source]) -> tuple[Orderer, Root]:
    """An orderer and a root whose clock has seen the ends of the sources."""
    clock = DataClock()
    clock.observe(24 * DAYS * HOUR_MS * MS, READ_AT_MS * MS)

    def schedule(stage: int) -> Schedule:
        return Schedule(clock.wall, settings.schedule(stage).answer_within_us)

    orderer = Orderer(sources, settings)
    orderer.config = replace(orderer.config, schedule=schedule(1))
    orderer.crash()
    root = Root([orderer], settings)
    root.config = replace(root.config, schedule=schedule(2), is_history=True)
    root.crash()
    return orderer, root


def answered(settings: Settings, per_record: int) -> tuple[Orderer, Root]:
    """The stages after all of a history has been answered."""
    orderer, root = stages(settings, [history("s1", per_record)])
    orderer.listen()
    orderer.step(READ_AT_MS)
    root.listen()
    root.step(READ_AT_MS)
    return orderer, root


def written(orderer: Orderer, line: LineName) -> list[OrderedRecord]:
    """The buckets in one of an orderer's logs."""
    return [record for record in orderer.logs[line] if record.kind is not Kind.START]


@pytest.mark.parametrize("settings", [BY_DAY, ROWS], ids=["windows", "rows"])
@pytest.mark.parametrize("per_record", [1, 500])
def test_a_history_takes_two_records_for_each_reading(settings: Settings, per_record: int) -> None:
    orderer, _ = stages(settings, [history("s1", per_record)])
    orderer.listen()
    orderer.step(READ_AT_MS)
    assert orderer.core.line.stable_next == 24 * DAYS * HOUR_MS * MS
    log = written(orderer, LineName.STABLE)
    # For each reading its bucket and the run of empty ones before it. What has been read of the
    # source may end a run, too.
    assert len(log) <= 2 * len(HOURS) + len(HOURS) // per_record + 1
    assert all(one.bucket_end == two.bucket_start for one, two in pairwise(log))
    assert sum(record.kind is Kind.INSERTION for record in log) == len(HOURS)
    assert not written(orderer, LineName.LIVE)


@pytest.mark.parametrize("per_record", [1, 500])
def test_a_history_takes_few_transactions(per_record: int) -> None:
    orderer, root = answered(BY_DAY, per_record)
    counts = {
        at // (24 * HOUR_MS): count for at, (count, _) in stable_answers(root.emitted).items()
    }
    assert counts == {day: 24 if day < DAYS - 1 else 23 for day in range(DAYS)}
    # The root reads 200 records before it decides, and more than that are not too far ahead.
    assert root.transactions <= len(written(orderer, LineName.STABLE)) // 200 + 1


@pytest.mark.parametrize("per_record", [1, 500])
def test_rows_of_a_history_take_few_transactions(per_record: int) -> None:
    _, root = answered(ROWS, per_record)
    assert [at for _, at, _, _ in readings(root, root.emitted)] == [
        (hour - 0.5) * HOUR_MS for hour in HOURS
    ]
    # A transaction corrects a hundred rows or runs, which alternate.
    assert root.transactions <= len(HOURS) // 50 + 1


@pytest.mark.parametrize("per_record", [1, 500])
def test_the_live_line_takes_no_more_records_either(per_record: int) -> None:
    """One of two streams is silent, so that all of the other one is answered without it."""
    orderer, _ = stages(BY_DAY, [history("s1", per_record), Source("s2")])
    orderer.listen()
    orderer.step(BY_DAY.bound_ms + READ_AT_MS)
    assert orderer.core.line.live_next == 24 * DAYS * HOUR_MS * MS
    log = written(orderer, LineName.LIVE)
    assert len(log) <= 2 * len(HOURS) + len(HOURS) // per_record + 1
    assert sum(record.kind is Kind.TENTATIVE for record in log) == len(HOURS)
    assert {record.missing for record in log} == {("s2",)}


def test_readings_out_of_order_in_a_record_are_in_their_buckets() -> None:
    hours = [hour + 1 if hour % 2 else hour - 1 for hour in range(1, 401)]
    orderer, _ = stages(BY_DAY, [history("s1", 100, hours)])
    orderer.listen()
    orderer.step(READ_AT_MS)
    found = [
        record.bucket_start
        for record in written(orderer, LineName.STABLE)
        if record.kind is Kind.INSERTION
    ]
    assert found == sorted(round((hour - 0.5) * HOUR_MS * MS) for hour in hours)


def test_no_more_than_h_is_read_ahead_of_a_child_that_waits() -> None:
    """Child 1 has no readings yet: 100 buckets and runs of child 0 are taken, not 1,900."""
    hourly = Settings(bucket_ms=250, window_ms=HOUR_MS, bound_ms=10_000_000)
    sources = [history("s1", 500), Source("s2")]
    clock = DataClock()
    schedule = Schedule(clock.wall, hourly.schedule(1).answer_within_us)
    orderers = [Orderer([of], hourly, child=child) for child, of in enumerate(sources)]
    for orderer in orderers:
        orderer.config = replace(orderer.config, schedule=schedule)
        orderer.crash()
    root = Root(orderers, hourly)
    root.config = replace(root.config, schedule=schedule, ahead_buckets_max=100)
    root.crash()
    for round_ in range(1, 20):
        for orderer in orderers:
            orderer.listen()
            orderer.step(READ_AT_MS + round_)
        root.listen()
        root.step(READ_AT_MS + round_)
    assert root.core.held_slices < 800
    sources[1].emit([], 24 * DAYS * HOUR_MS)
    for orderer in orderers:
        orderer.listen()
        orderer.step(READ_AT_MS + 20)
    root.listen()
    root.step(READ_AT_MS + 20)
    assert len(stable_answers(root.emitted)) == 24 * DAYS


def test_a_history_that_takes_longer_than_the_bound_is_answered_once() -> None:
    """All windows are due at once, so after X all others are overdue: none is more present."""
    orderer, root = stages(BY_HOUR, [history("s1", 500)])
    orderer.listen()
    orderer.step(READ_AT_MS)
    root.listen()
    root.step(READ_AT_MS, transactions_max=1)
    root.step(BY_HOUR.bound_ms + 10_000)
    assert len(stable_answers(root.emitted)) == 24 * DAYS
    assert labels(root.emitted) == ["stable"]


def test_a_slow_broker_makes_transactions_larger_not_more() -> None:
    """A commit takes a second, more than a transaction should, however few windows it has."""
    orderer, root = stages(BY_HOUR, [history("s1", 500)])
    orderer.listen()
    orderer.step(READ_AT_MS)
    root.listen()
    root.commit_ms = 1_000
    root.step(READ_AT_MS)
    assert len(stable_answers(root.emitted)) == 24 * DAYS
    assert labels(root.emitted) == ["stable"]
    assert root.transactions < 20
