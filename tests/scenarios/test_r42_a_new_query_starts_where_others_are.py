"""trace-42: a query is applied when the source logs have the readings of days.

Its orderer needs the readings from the query's start on. It continues at the position that another
query's orderer has in the log, and not at the log's beginning. A position whose line has passed the
start lies after readings that the new query needs: with it they would be lost without a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.paper.stage import MS, Orderer, Settings, Source

from slackwater.model.records import Kind, OrderedRecord, OrdererState, SourcePosition
from slackwater.protocols.common.line import LineName

SETTINGS = Settings()
APPLIED, END = 10_000, 13_000
"""Times in ms: 100 records per source before the new query, and 30 after it."""


class Day:
    """Two sources, and the orderer of a query that has read them from the beginning."""

    def __init__(self) -> None:
        self.now = 0
        self.sources = [Source("s1"), Source("s2")]
        self.first = Orderer(self.sources, SETTINGS)

    def run_to(self, end: int, *followers: Orderer) -> None:
        """Emit a reading per source and 100 ms, some of them stamped 250 ms ahead.

        No two readings have the same value.
        """
        while self.now < end:
            self.now += 100
            ahead = 250 if self.now % 1_000 == 0 else 0
            for i, source in enumerate(self.sources):
                source.emit([self.now - 50 + ahead * i], self.now, self.now + i / 2)
            for orderer in (self.first, *followers):
                orderer.listen()
                orderer.step(self.now)

    def state(self) -> OrdererState:
        """The state record of the first query's orderer."""
        self.first.save()
        return self.first.saved

    def new(self, *others: OrdererState, start_time: int = APPLIED) -> Orderer:
        """Start the orderer of a new query."""
        return Orderer(
            self.sources, SETTINGS, query="new", start_time=start_time * MS, others=others
        )


def offsets(orderer: Orderer) -> list[int]:
    """The positions of the stable line in the source logs."""
    return [of.next.offset for of in orderer.core.snapshot(0, 0).streams]


def written(orderer: Orderer) -> list[OrderedRecord]:
    """The stable log without its START."""
    records = orderer.logs[LineName.STABLE]
    return [replace(r, inc=0) for r in records if r.kind is not Kind.START]


def values(records: Sequence[OrderedRecord]) -> list[float]:
    """The readings, by their values."""
    return [value for record in records for value in np.concatenate(record.values or [[]]).tolist()]


def test_it_continues_where_another_query_is_and_orders_the_same() -> None:
    day = Day()
    day.run_to(APPLIED)
    within_a_bucket = APPLIED + 60
    from_beginning = day.new(start_time=within_a_bucket)
    new = day.new(day.state(), start_time=within_a_bucket)
    assert offsets(from_beginning) == [0, 0]
    assert min(offsets(new)) > 90, "one record in 100 ms, less those that are stamped ahead"

    day.run_to(END, from_beginning, new)
    wanted, found = written(from_beginning), written(new)
    assert len(wanted) >= 29
    assert [r.bucket_start for r in found] == [r.bucket_start for r in wanted]
    assert [r.last_id for r in found] == [r.last_id for r in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert (one.kind, one.gap) == (other.kind, other.gap)
        assert values([one]) == values([other])


def test_the_latest_of_several_positions_is_taken_for_each_log() -> None:
    day = Day()
    day.run_to(APPLIED // 2)
    early = day.state()
    day.run_to(APPLIED)
    late = day.state()
    assert offsets(day.new(early, late)) == offsets(day.new(late)) > offsets(day.new(early))


def test_a_line_that_has_passed_the_start_is_no_help() -> None:
    """The new query starts two seconds before the time that the other one has reached."""
    day = Day()
    day.run_to(APPLIED)
    new = day.new(day.state(), start_time=APPLIED - 2_000)
    assert offsets(new) == [0, 0]
    day.run_to(END, new)
    end = max(record.bucket_end for record in written(new))
    wanted = []
    for source in day.sources:
        for columns in (record.columns.load() for record in source.log if record.columns):
            is_due = (columns.stimes >= (APPLIED - 2_000) * MS) & (columns.stimes < end)
            wanted += columns.values[0][is_due].tolist()
    assert sorted(values(written(new))) == sorted(wanted)


def test_a_line_that_has_passed_the_start_is_no_help_though_its_log_has_not() -> None:
    """A reading is stamped ahead, and then the watermark rises over the start and the reading."""
    day = Day()
    day.run_to(9_900)
    ahead, other = day.sources
    ahead.emit([9_950, 10_040], 9_960, -1.0)
    ahead.emit([], 10_400)
    other.emit([10_150], 10_200, -2.0)
    day.first.listen()
    day.first.step(10_200)
    state, start = day.state(), 10_000
    assert state.frontier > start * MS > state.streams[0].rebuild.boundary
    new, from_beginning = day.new(state, start_time=start), day.new(start_time=start)
    day.now = 10_400
    day.run_to(END, new, from_beginning)
    assert values(written(new)) == values(written(from_beginning))
    assert -1.0 in values(written(new))


def test_another_query_that_begins_later_in_the_same_bucket_is_no_help() -> None:
    """Its line has dropped readings below its own start, and its frontier does not show that."""
    day = Day()
    later = Orderer(day.sources, SETTINGS, query="later", start_time=(APPLIED + 90) * MS)
    day.run_to(APPLIED, later)
    for _ in range(8):
        day.now += 10
        for i, source in enumerate(day.sources):
            source.emit([day.now - 5], day.now, day.now + i / 2)
    later.listen()
    later.step(day.now)
    later.save()
    new = day.new(later.saved, start_time=APPLIED + 10)
    assert later.saved.frontier == APPLIED * MS, "the bucket of both starts"
    assert offsets(new) == [0, 0]
    from_beginning = day.new(start_time=APPLIED + 10)
    day.run_to(END, from_beginning, new)
    assert values(written(new)) == values(written(from_beginning))


def test_a_replica_that_continues_where_its_peer_is_takes_no_position_of_others() -> None:
    """A join's replica needs what the peer looks back to; a query without a join does not."""
    day = Day()
    joining = Settings(join_within_ms=1_000)
    a = Orderer(day.sources, joining, query="join", replicas=2)
    day.run_to(APPLIED, a)
    a.save()
    b = Orderer(
        day.sources, joining, query="join", replica=1, replicas=2, peers=(a,), others=[day.state()]
    )
    day.run_to(END, a, b)
    begun = min(record.bucket_start for record in written(b))
    wanted = [record for record in written(a) if record.bucket_start >= begun]
    assert values(written(b)) == values(wanted)
    assert values(wanted)


@pytest.mark.parametrize(
    ("what", "position"),
    [
        ("beyond the end of the log", SourcePosition(1_000, 999, 0, 0)),
        ("of a line that has read nothing", SourcePosition(50, 0, -1, 0)),
        ("of a line that has skipped", SourcePosition(50, -1, 0, 0)),
    ],
)
def test_a_position_that_cannot_be_continued_is_not_used(
    what: str, position: SourcePosition
) -> None:
    day = Day()
    day.run_to(APPLIED)
    state = day.state()
    first, second = state.streams
    other = replace(state, streams=(replace(first, rebuild=position), second))
    assert offsets(day.new(other)) == [0, offsets(day.new(state))[1]], what


def test_a_log_that_another_query_does_not_read_is_read_from_its_beginning() -> None:
    day = Day()
    day.run_to(APPLIED)
    state = day.state()
    of_one = replace(state, streams=state.streams[:1])
    assert offsets(day.new(of_one)) == [offsets(day.new(state))[0], 0]
