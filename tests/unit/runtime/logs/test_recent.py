"""Recent records of a host's logs: the same records, none omitted, within a bound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory import MemoryBroker

from slackwater.model.names import UNPREFIXED
from slackwater.runtime.logs.catchup import CatchUpReader, Gone
from slackwater.runtime.logs.recent import RECENT_RECORD_BYTES, RecentRecords
from slackwater.runtime.logs.transport import Log, RawRecord, Transport

LOG: Final[Log] = (UNPREFIXED.source("s1"), 0)
OTHER: Final[Log] = (UNPREFIXED.source("s2"), 0)
RECORD_BYTES: Final = RECENT_RECORD_BYTES + 1


def seen(records: list[RawRecord] | None) -> list[tuple[int, bytes]] | None:
    return None if records is None else [(each.offset, each.value) for each in records]


def test_hands_out_what_came_from_an_offset_on() -> None:
    recent = RecentRecords()
    recent.begin(LOG, 3)
    for offset in (3, 4, 6):  # 5 is a foreign marker
        recent.note(LOG, offset, b"%d" % offset)
    assert seen(recent.read(LOG, 3, 10)) == [(3, b"3"), (4, b"4"), (6, b"6")]
    assert seen(recent.read(LOG, 5, 10)) == [(6, b"6")]
    assert seen(recent.read(LOG, 4, 1)) == [(4, b"4")]
    assert recent.read(LOG, 7, 10) == []
    assert recent.read(LOG, 8, 10) is None, "the live consumer is not there yet"
    assert recent.read(LOG, 2, 10) is None, "it began behind that"
    assert recent.read(OTHER, 0, 10) is None


def test_what_is_dropped_is_asked_of_the_broker() -> None:
    recent = RecentRecords(bytes_max=4 * RECORD_BYTES)
    recent.begin(LOG, 0)
    recent.begin(OTHER, 0)
    for offset in range(3):
        recent.note(LOG, offset, b"x")
        recent.note(OTHER, offset, b"y")
    assert recent.bytes == 4 * RECORD_BYTES
    assert recent.read(LOG, 0, 10) is None
    assert seen(recent.read(LOG, 1, 10)) == [(1, b"x"), (2, b"x")]
    assert seen(recent.read(OTHER, 1, 10)) == [(1, b"y"), (2, b"y")]


def test_a_log_that_is_left_keeps_no_bytes_while_others_have_many_records() -> None:
    recent = RecentRecords()
    recent.begin(OTHER, 0)
    for offset in range(100):
        recent.note(OTHER, offset, b"y")
    recent.begin(LOG, 0)
    recent.note(LOG, 0, bytes(1000))
    held = recent._logs[LOG]
    recent.forget(LOG)
    assert held in recent._arrivals
    assert not held.values


def test_a_log_that_is_left_gives_its_memory_back_and_begins_empty() -> None:
    recent = RecentRecords()
    recent.begin(LOG, 0)
    recent.note(LOG, 0, b"x")
    recent.forget(LOG)
    assert recent.bytes == 0
    recent.note(LOG, 1, b"nobody reads it")
    assert recent.bytes == 0
    recent.begin(LOG, 2)
    assert recent.read(LOG, 1, 10) is None
    assert recent.read(LOG, 2, 10) == []


def test_a_cursor_with_another_reader_does_not_change_for_records_that_are_soon_dropped() -> None:
    recent = RecentRecords()
    recent.begin(LOG, 0)
    for offset in range(10):
        recent.note(LOG, offset, b"x")
    assert recent.read(LOG, 2, 10, also_older_half=False) is None
    assert recent.read(LOG, 6, 10, also_older_half=False) is not None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), st.sampled_from([LOG, OTHER]), st.integers(1, 3)),
        st.tuples(st.just("begin"), st.sampled_from([LOG, OTHER]), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.sampled_from([LOG, OTHER]), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 12))
def test_holds_the_last_records_whatever_comes_and_goes(
    steps: list[tuple[str, Log, int]], records_max: int
) -> None:
    """Compared with a simple model: all records since the log began, of which the last are kept."""
    recent = RecentRecords(bytes_max=records_max * RECORD_BYTES)
    ends: dict[Log, int] = {}
    since: dict[Log, list[int]] = {}
    for step, log, number in steps:
        match step:
            case "begin":
                ends[log] = ends.get(log, 0) + number
                since[log] = []
                recent.begin(log, ends[log])
            case "forget":
                since.pop(log, None)
                recent.forget(log)
            case "note":
                offset = ends.get(log, 0) + number
                ends[log] = offset
                if log in since:
                    since[log].append(offset)
                recent.note(log, offset, b"x")
        assert recent.bytes <= records_max * RECORD_BYTES
        held = 0
        for each, offsets in since.items():
            first = next(
                at for at in range(ends[each] + 2) if recent.read(each, at, 99) is not None
            )
            kept = [record.offset for record in recent.read(each, first, 99) or []]
            assert kept == [at for at in offsets if at >= first], "none is omitted"
            held += len(kept)
        assert recent.bytes == held * RECORD_BYTES
        assert len(recent._arrivals) <= 2 * held + 1, "dropped records soon take no memory"
    for log in (LOG, OTHER):
        recent.forget(log)
    assert recent.bytes == 0


def broker_with(count: int) -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic(LOG[0])
    writer = broker.writer(pytest.fail)
    for offset in range(count):
        writer.append(*LOG, b"%d" % offset)
    return broker


def test_a_catch_up_reader_asks_the_broker_only_for_what_is_older() -> None:
    broker, recent = broker_with(10), RecentRecords()
    reader = CatchUpReader(broker, recent=recent)
    recent.begin(LOG, 4)
    for offset in range(4, 10):
        recent.note(LOG, offset, b"%d" % offset)
    found: list[int] = []
    while len(found) < 10:
        records = reader.read({LOG: len(found)}, 2)
        assert not isinstance(records, Gone)
        found += [int(record.value) for record in records]
        if len(found) > 8:
            assert not reader.wanted, "from the newer half on it is read from memory"
    assert found == list(range(10))


def test_a_cursor_ahead_of_the_live_consumer_is_fed_by_the_broker() -> None:
    """rule-13: the live line seeks to the end of a backlog."""
    recent = RecentRecords()
    recent.begin(LOG, 0)
    recent.note(LOG, 0, b"0")
    records = CatchUpReader(broker_with(10), recent=recent).read({LOG: 9}, 10)
    assert not isinstance(records, Gone)
    assert [record.offset for record in records] == [9]


def test_a_catch_up_reader_of_what_is_held_makes_no_client() -> None:
    recent = RecentRecords()
    recent.begin(LOG, 0)
    recent.note(LOG, 0, b"0")
    reader = CatchUpReader(cast(Transport, SimpleNamespace(reader=pytest.fail)), recent=recent)
    records = reader.read({LOG: 0}, 10)
    assert not isinstance(records, Gone)
    assert [record.value for record in records] == [b"0"]
