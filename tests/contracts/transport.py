"""The common transport suite, run on the broker in memory and on a real Kafka.

These tests use only ``slackwater.runtime.logs.transport``; operations that differ (how a topic is
created, how another program writes a transaction) are in the ``World`` of each.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Protocol

import pytest
from tests.support.waiting import WAIT_S_MAX

from slackwater.runtime.logs.catchup import CatchUpReader, Gone
from slackwater.runtime.logs.incarnation import append_and_wait, start_incarnation
from slackwater.runtime.logs.transport import (
    Log,
    NoAnswerError,
    PositionGoneError,
    RawRecord,
    Reader,
    Transport,
    Writer,
    WriterFailedError,
    last_records,
    read_range,
    read_to_end,
)


class World(Protocol):
    """A transport, and the operations that the suite needs."""

    @property
    def transport(self) -> Transport:
        """The transport under test."""
        ...

    def create(self, partitions: int = 1, bytes_max: int = 16 * 2**20) -> str:
        """Create a topic."""
        ...

    def transact(self, log: Log, values: Sequence[bytes], *, commit: bool) -> None:
        """Write a whole transaction and end it."""
        ...

    def open_transaction(self, log: Log, value: bytes) -> Callable[[], None]:
        """Write to an open transaction; the result commits it."""
        ...


def no_failure(why: str) -> None:
    raise AssertionError(why)


def drain(
    reader: Reader | CatchUpReader,
    count: int,
    within_s: float = WAIT_S_MAX,
    records_max: int = 1000,
) -> list[RawRecord]:
    """Poll until this number of records has arrived."""
    records: list[RawRecord] = []
    deadline = time.monotonic() + within_s
    while len(records) < count and time.monotonic() < deadline:
        if isinstance(reader, CatchUpReader):
            records += reader.poll(100.0, records_max)
        else:
            records += reader.poll(records_max, 0.1)
    assert len(records) >= count, f"{len(records)} of {count} records came"
    return records


def reach(reader: Reader, log: Log, position: int, within_s: float = WAIT_S_MAX) -> list[RawRecord]:
    """Poll until the position is reached."""
    records: list[RawRecord] = []
    deadline = time.monotonic() + within_s
    while reader.position(log) < position and time.monotonic() < deadline:
        records += reader.poll(1000, 0.1)
    assert reader.position(log) == position
    return records


def eventually_ends(world: World, log: Log, end: int, within_s: float = WAIT_S_MAX) -> bool:
    """Return whether a committed reader's end offset becomes this one."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if world.transport.end_offsets([log], isolation="read_committed") == {log: end}:
            return True
    return False


def fill(writer: Writer, log: Log, values: Sequence[bytes]) -> None:
    for value in values:
        writer.append(*log, value)
    writer.await_delivered(WAIT_S_MAX)


class TransportContract:
    """Subclasses provide the fixture ``world``."""

    @pytest.fixture
    def writer(self, world: World) -> Writer:
        return world.transport.writer(no_failure)

    def test_records_come_back_in_order_with_what_they_carried(
        self, world: World, writer: Writer
    ) -> None:
        topic = world.create()
        writer.append(topic, 0, b"one", b"k1")
        writer.append(topic, 0, b"two")
        writer.append(topic, 0, b"three", b"k3")
        writer.await_delivered(WAIT_S_MAX)
        records = list(read_to_end(world.transport, (topic, 0)))
        assert [(r.offset, r.key, r.value) for r in records] == [
            (0, b"k1", b"one"),
            (1, None, b"two"),
            (2, b"k3", b"three"),
        ]
        assert {r.log for r in records} == {(topic, 0)}

    def test_delivery_reports_name_offsets_in_order(self, world: World, writer: Writer) -> None:
        topic = world.create()
        offsets: list[int] = []
        assert writer.delivered_to(topic, 0) is None
        for i in range(100):
            writer.append(topic, 0, b"%d" % i, on_delivery=offsets.append)
        writer.await_delivered(WAIT_S_MAX)
        assert offsets == list(range(100))
        assert writer.delivered_to(topic, 0) == 100
        assert writer.in_flight_bytes == 0

    def test_a_record_that_is_refused_ends_the_writer_once(self, world: World) -> None:
        topic = world.create(bytes_max=1000)
        why: list[str] = []
        failed = Event()

        def on_fatal(reason: str) -> None:
            why.append(reason)
            failed.set()

        writer = world.transport.writer(on_fatal)
        fill(writer, (topic, 0), [b"fits"])
        writer.append(topic, 0, bytes(5000))
        assert failed.wait(WAIT_S_MAX)
        with pytest.raises(WriterFailedError, match=topic):
            writer.append(topic, 0, b"later")
        with pytest.raises(WriterFailedError):
            writer.await_delivered(1)
        writer.close()
        assert len(why) == 1
        assert topic in why[0]
        assert [r.value for r in read_to_end(world.transport, (topic, 0))] == [b"fits"]

    def test_of_the_writers_of_one_producer_each_fails_and_waits_for_itself(
        self, world: World
    ) -> None:
        """Two streams of one process: the broker refuses a record of one of them."""
        topic, other = world.create(bytes_max=1000), world.create()
        failed = Event()
        producer = world.transport.producer(in_flight_bytes_max=2**20)
        poisoned = producer.writer(lambda _: failed.set(), in_flight_bytes_max=2**19)
        healthy = producer.writer(no_failure, in_flight_bytes_max=2**19)
        fill(poisoned, (topic, 0), [b"fits"])
        fill(healthy, (other, 0), [b"one"])
        poisoned.append(topic, 0, bytes(5000))
        assert failed.wait(WAIT_S_MAX)
        with pytest.raises(WriterFailedError, match=topic):
            poisoned.append(topic, 0, b"later")
        fill(healthy, (other, 0), [b"two"])
        poisoned.close()
        successor = producer.writer(no_failure, in_flight_bytes_max=2**19)
        fill(successor, (topic, 0), [b"again"])
        fill(healthy, (other, 0), [b"three"])
        values = [r.value for r in read_to_end(world.transport, (topic, 0))]
        assert values == [b"fits", b"again"]
        values = [r.value for r in read_to_end(world.transport, (other, 0))]
        assert values == [b"one", b"two", b"three"]
        successor.close()
        healthy.close()
        producer.close()

    def test_the_bytes_in_flight_are_bounded(self, world: World) -> None:
        topic = world.create()
        writer = world.transport.writer(no_failure, in_flight_bytes_max=10_000)
        for _ in range(200):
            writer.append(topic, 0, bytes(1000))
            assert writer.in_flight_bytes <= 10_000
        writer.append(topic, 0, bytes(50_000))  # larger than the bound: sent alone
        writer.await_delivered(WAIT_S_MAX)
        assert world.transport.end_offsets([(topic, 0)]) == {(topic, 0): 201}
        writer.close()

    def test_ends_and_beginnings_of_several_logs(self, world: World, writer: Writer) -> None:
        topic = world.create(partitions=3)
        fill(writer, (topic, 1), [b"a", b"b"])
        logs = [(topic, p) for p in range(3)]
        assert world.transport.end_offsets(logs) == dict(zip(logs, [0, 2, 0], strict=True))
        world.transport.delete_records({(topic, 1): 1})
        assert world.transport.beginning_offsets(logs) == dict(zip(logs, [0, 1, 0], strict=True))
        assert world.transport.end_offsets([]) == {}

    def test_an_event_loop_asks_for_ends(self, world: World, writer: Writer) -> None:
        topic = world.create()
        fill(writer, (topic, 0), [b"a", b"b"])
        ends = asyncio.run(world.transport.end_offsets_async([(topic, 0)], timeout_s=WAIT_S_MAX))
        assert ends == {(topic, 0): 2}

    def test_a_reader_starts_where_it_is_placed_and_is_woken_by_new_records(
        self, world: World, writer: Writer
    ) -> None:
        topic = world.create()
        fill(writer, (topic, 0), [b"0", b"1", b"2"])
        reader = world.transport.reader()
        reader.assign({(topic, 0): 2})
        assert reader.position((topic, 0)) == 2
        assert [r.value for r in drain(reader, 1)] == [b"2"]
        fill(writer, (topic, 0), [b"3"])
        assert [r.value for r in drain(reader, 1)] == [b"3"]
        assert reader.position((topic, 0)) == 4
        reader.close()

    def test_poll_returns_no_more_than_was_asked_for(self, world: World, writer: Writer) -> None:
        topic = world.create()
        fill(writer, (topic, 0), [b"%d" % i for i in range(10)])
        reader = world.transport.reader()
        reader.assign({(topic, 0): 0})
        seen: list[bytes] = []
        while len(seen) < 10:
            records = reader.poll(3, WAIT_S_MAX)
            assert 1 <= len(records) <= 3
            seen += [r.value for r in records]
            assert reader.position((topic, 0)) == len(seen)
        assert seen == [b"%d" % i for i in range(10)]
        reader.close()

    def test_a_position_that_retention_took_away_is_an_error_that_names_it(
        self, world: World, writer: Writer
    ) -> None:
        topic = world.create()
        fill(writer, (topic, 0), [b"0", b"1", b"2", b"3"])
        world.transport.delete_records({(topic, 0): 3})
        reader = world.transport.reader()
        reader.assign({(topic, 0): 1})
        with pytest.raises(PositionGoneError) as gone:
            drain(reader, 1)
        assert (gone.value.topic, gone.value.partition, gone.value.offset) == (topic, 0, 1)
        reader.assign({(topic, 0): 3})
        assert [r.offset for r in drain(reader, 1)] == [3]
        reader.close()

    def test_a_position_beyond_the_end_is_gone_too(self, world: World, writer: Writer) -> None:
        topic = world.create()
        fill(writer, (topic, 0), [b"0"])
        reader = world.transport.reader()
        reader.assign({(topic, 0): 100})
        with pytest.raises(PositionGoneError):
            drain(reader, 1)
        reader.close()

    def test_each_position_that_is_gone_is_reported(self, world: World, writer: Writer) -> None:
        topic = world.create(partitions=4)
        logs = [(topic, p) for p in range(4)]
        for log in logs:
            fill(writer, log, [b"0", b"1"])
        world.transport.delete_records(dict.fromkeys(logs, 1))
        reader = world.transport.reader()
        reader.assign(dict.fromkeys(logs, 0))
        gone: set[Log] = set()
        while len(gone) < len(logs):
            with pytest.raises(PositionGoneError) as caught:
                drain(reader, 1)
            gone.add(caught.value.log)
            reader.assign({caught.value.log: 2})
        reader.close()

    def test_another_log_is_read_on_when_one_is_gone(self, world: World, writer: Writer) -> None:
        topic = world.create(partitions=2)
        fill(writer, (topic, 0), [b"0", b"1"])
        world.transport.delete_records({(topic, 0): 2})
        reader = world.transport.reader()
        reader.assign({(topic, 0): 0, (topic, 1): 0})
        with pytest.raises(PositionGoneError):
            drain(reader, 1)
        reader.unassign([(topic, 0)])
        fill(writer, (topic, 1), [b"there"])
        assert [r.value for r in drain(reader, 1)] == [b"there"]
        assert reader.assigned == {(topic, 1)}
        reader.close()

    def test_committed_readers_see_whole_transactions_only(
        self, world: World, writer: Writer
    ) -> None:
        topic = world.create()
        log = (topic, 0)
        fill(writer, log, [b"plain"])
        world.transact(log, [b"c1", b"c2"], commit=True)
        world.transact(log, [b"aborted"], commit=False)
        # One, two and a marker, one and a marker. A broker writes the marker shortly after the
        # writer has received the response.
        assert eventually_ends(world, log, 6)
        committed = read_to_end(world.transport, log, isolation="read_committed")
        assert [r.value for r in committed] == [b"plain", b"c1", b"c2"]
        everything = read_to_end(world.transport, log)
        assert [r.value for r in everything] == [b"plain", b"c1", b"c2", b"aborted"]

    def test_an_open_transaction_hides_what_follows(self, world: World, writer: Writer) -> None:
        topic = world.create()
        log = (topic, 0)
        fill(writer, log, [b"before"])
        commit = world.open_transaction(log, b"open")
        fill(writer, log, [b"after"])
        assert world.transport.end_offsets([log], isolation="read_committed") == {log: 1}
        assert world.transport.end_offsets([log]) == {log: 3}
        reader = world.transport.reader(isolation="read_committed")
        reader.assign({log: 0})
        assert [r.value for r in reach(reader, log, 1)] == [b"before"]
        commit()
        assert [r.value for r in drain(reader, 2)] == [b"open", b"after"]
        reader.close()

    def test_markers_tell_when_a_transaction_could_be_read(
        self, world: World, writer: Writer
    ) -> None:
        log = (world.create(), 0)
        fill(writer, log, [bytes(2_000_000)] * 4)  # more than one fetch returns
        assert world.transport.markers(log) == []
        world.transact(log, [b"c1", b"c2"], commit=True)
        assert eventually_ends(world, log, 7)
        commit = world.open_transaction(log, b"open")
        assert [marker.offset for marker in world.transport.markers(log)] == [6]
        before_ms = time.time_ns() // 1_000_000
        commit()
        assert eventually_ends(world, log, 9)
        (_, last) = world.transport.markers(log)
        assert last.offset == 8
        assert before_ms <= last.at_ms <= time.time_ns() // 1_000_000
        world.transport.delete_records({log: 7})
        assert world.transport.markers(log) == [last]

    def test_positions_pass_markers(self, world: World) -> None:
        topic = world.create()
        log = (topic, 0)
        world.transact(log, [b"r"], commit=True)
        reader = world.transport.reader(isolation="read_committed")
        reader.assign({log: 0})
        assert [r.offset for r in reach(reader, log, 2)] == [0]
        reader.close()

    def test_a_range_is_read_whole_and_no_further(self, world: World, writer: Writer) -> None:
        topic = world.create()
        log = (topic, 0)
        fill(writer, log, [b"%d" % i for i in range(50)])
        assert [r.offset for r in read_range(world.transport, log, 10, 13)] == [10, 11, 12]
        assert list(read_range(world.transport, log, 7, 7)) == []
        with pytest.raises(NoAnswerError):
            list(read_range(world.transport, log, 49, 51, idle_s_max=0.3))

    def test_the_last_record_lies_before_markers_and_what_was_given_up(
        self, world: World, writer: Writer
    ) -> None:
        topic = world.create(partitions=4)
        fill(writer, (topic, 0), [b"plain"])
        world.transact((topic, 1), [b"a", b"b"], commit=True)
        world.transact((topic, 1), [b"aborted"] * 50, commit=False)
        world.transact((topic, 2), [b"aborted"], commit=False)
        logs = [(topic, p) for p in range(4)]
        assert eventually_ends(world, logs[1], 54)
        assert eventually_ends(world, logs[2], 2)
        ends = world.transport.end_offsets(logs, isolation="read_committed")
        found = last_records(
            world.transport, dict.fromkeys(logs, 0), ends, isolation="read_committed"
        )
        assert {raw.partition: raw.value for raw in found} == {0: b"plain", 1: b"b"}

    def test_a_new_incarnation_reads_its_log_up_to_its_start(
        self, world: World, writer: Writer
    ) -> None:
        topic = world.create()
        log = (topic, 0)
        zombie = world.transport.writer(no_failure)
        fill(zombie, log, [b"a", b"b"])
        seen: list[bytes] = []

        def make_start() -> bytes:
            assert seen == [b"a", b"b"], "the log is read before START is written"
            fill(zombie, log, [b"c"])  # between reading and START (trace-2)
            return b"START"

        inc = start_incarnation(
            world.transport, writer, log, make_start, visit=lambda r: seen.append(r.value)
        )
        assert inc == 3
        assert seen == [b"a", b"b", b"c"]
        again = start_incarnation(world.transport, writer, log, lambda: b"START", read_from=1)
        assert again == 4
        assert append_and_wait(writer, log, b"data") == 5

    def test_the_first_incarnation_of_an_empty_log(self, world: World, writer: Writer) -> None:
        topic = world.create()
        assert start_incarnation(world.transport, writer, (topic, 0), lambda: b"START") == 0


class CatchUpContract:
    """The catch-up reader on a transport; subclasses provide the fixture ``world``."""

    def test_what_is_unchanged_goes_on_without_repeat_or_hole(self, world: World) -> None:
        topic = world.create(partitions=2)
        writer = world.transport.writer(no_failure)
        a, b = (topic, 0), (topic, 1)
        fill(writer, a, [b"a%d" % i for i in range(6)])
        fill(writer, b, [b"b%d" % i for i in range(6)])
        reader = CatchUpReader(world.transport)
        assert reader.poll() == []
        reader.want({a: 1})
        first = drain(reader, 2, records_max=2)
        assert [r.value for r in first] == [b"a1", b"a2"]
        reader.want({a: 3, b: 4})  # a continues, b joins
        rest = drain(reader, 5)
        assert [r.value for r in rest if r.log == a] == [b"a3", b"a4", b"a5"]
        assert [r.value for r in rest if r.log == b] == [b"b4", b"b5"]
        assert reader.position(a) == 6
        reader.close()

    def test_a_position_moved_back_or_on_is_read_from_there(self, world: World) -> None:
        topic = world.create()
        log = (topic, 0)
        writer = world.transport.writer(no_failure)
        fill(writer, log, [b"%d" % i for i in range(6)])
        reader = CatchUpReader(world.transport)
        reader.want({log: 0})
        assert [r.offset for r in drain(reader, 6)] == [0, 1, 2, 3, 4, 5]
        reader.want({log: 2})
        assert [r.offset for r in drain(reader, 4)] == [2, 3, 4, 5]
        reader.want({log: 5})
        assert [r.offset for r in drain(reader, 1)] == [5]
        reader.close()

    def test_what_is_not_wanted_any_more_is_not_delivered(self, world: World) -> None:
        topic = world.create(partitions=2)
        writer = world.transport.writer(no_failure)
        a, b = (topic, 0), (topic, 1)
        fill(writer, a, [b"a%d" % i for i in range(100)])
        reader = CatchUpReader(world.transport)
        reader.want({a: 0})
        drain(reader, 1, records_max=1)
        reader.want({b: 0})
        fill(writer, b, [b"b0"])
        assert [r.value for r in drain(reader, 1)] == [b"b0"]
        assert reader.wanted == {b}
        reader.want({})
        assert reader.poll(50.0) == []
        reader.want({a: 7})
        assert drain(reader, 1)[0].value == b"a7"
        reader.close()

    def test_an_end_behind_a_marker_is_no_change(self, world: World) -> None:
        topic = world.create()
        log = (topic, 0)
        world.transact(log, [b"r"], commit=True)
        reader = CatchUpReader(world.transport, isolation="read_committed")
        reader.want({log: 0})
        assert [r.offset for r in drain(reader, 1)] == [0]
        deadline = time.monotonic() + WAIT_S_MAX
        while reader.position(log) < 2 and time.monotonic() < deadline:
            reader.poll(50.0)
        reader.want({log: 1})  # its owner counts records, not markers
        assert reader.position(log) == 2
        reader.close()

    def test_a_gone_position_is_reported_and_can_be_replaced(self, world: World) -> None:
        topic = world.create()
        log = (topic, 0)
        writer = world.transport.writer(no_failure)
        fill(writer, log, [b"0", b"1", b"2"])
        world.transport.delete_records({log: 2})
        reader = CatchUpReader(world.transport)
        reader.want({log: 0})
        with pytest.raises(PositionGoneError):
            drain(reader, 1)
        reader.want({log: 2})
        assert [r.offset for r in drain(reader, 1)] == [2]
        reader.close()

    def test_a_shell_receives_gone_positions_and_the_beginning_of_the_rest(
        self, world: World
    ) -> None:
        """As orderers and roots read: a log is truncated under a parked cursor (rule-28)."""
        topic = world.create(partitions=2)
        cut, complete = (topic, 0), (topic, 1)
        writer = world.transport.writer(no_failure)
        fill(writer, cut, [b"c%d" % i for i in range(6)])
        fill(writer, complete, [b"w0"])
        reader = CatchUpReader(world.transport)
        wanted = {cut: 1, complete: 0}
        reported: list[Gone] = []
        values: set[bytes] = set()
        world.transport.delete_records({cut: 4})

        deadline = time.monotonic() + WAIT_S_MAX
        while values != {b"c4", b"c5", b"w0"} and time.monotonic() < deadline:
            found = reader.read(wanted, 100)
            if isinstance(found, Gone):
                reported.append(found)
                wanted[found.log] = found.beginning
                continue
            for raw in found:
                values.add(raw.value)
                wanted[raw.log] = raw.offset + 1

        assert values == {b"c4", b"c5", b"w0"}
        assert reported == [Gone(cut, 4)]
        reader.close()
