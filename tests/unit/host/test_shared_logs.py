"""Logs of a host: their isolation levels, and the known positions of the consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slackwater.host.driven import Driven
from slackwater.host.faust_worker import Receive
from slackwater.host.sharedlogs import SharedLogs
from slackwater.model.errors import SlackwaterError
from slackwater.runtime.logs.transport import Isolation, Log, NoAnswerError, PositionGoneError
from slackwater.sessions.events import LiveAt, SessionEvent
from slackwater.sessions.session import Form

SOURCE, RESULTS = ("sw.source.s1", 0), ("sw.results.q.stable", 0)


class Consumer:
    """Records its assignments; its positions are set by the test."""

    def __init__(self) -> None:
        self.read: dict[Log, Isolation] = {}
        self.began: dict[Log, list[int]] = {}
        self.at: dict[Log, tuple[int, int]] = {}
        self.receive: Receive | None = None
        self.refuses = self.refuses_removal = False

    async def add(
        self,
        offsets: Mapping[Log, int],
        receive: Receive,
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> None:
        if self.refuses:
            raise NoAnswerError("no broker")
        self.receive = receive
        for log, offset in offsets.items():
            self.began.setdefault(log, []).append(offset)
        self.read |= dict.fromkeys(offsets, isolation)

    async def remove(self, logs: Iterable[Log]) -> None:
        if self.refuses_removal:
            raise NoAnswerError("no broker")
        for log in logs:
            del self.read[log]

    async def positions(self) -> dict[Log, tuple[int, int]]:
        return self.at


class Reader:
    """Reads both logs; stands for a session's driver."""

    def __init__(self, **at: int) -> None:
        self.forms: dict[Log, Form] = {SOURCE: "source", RESULTS: "results"}
        self.reported: list[SessionEvent] = []
        self.session = SimpleNamespace(
            live_offsets={SOURCE: at.get("source", 0), RESULTS: at.get("results", 0)},
            take=self.reported.append,
        )
        self.taken: list[tuple[Log, int]] = []
        self.failed: list[BaseException] = []

    def needs(self, log: Log, offset: int) -> bool:
        return True

    def take(self, log: Log, offset: int, record: Any) -> None:
        self.taken.append((log, offset))

    def fail(self, error: BaseException) -> None:
        self.failed.append(error)


def join(logs: SharedLogs, *readers: Reader) -> None:
    logs.join(cast(list[Driven], readers))


async def positions(logs: SharedLogs, reader: Reader) -> dict[Log, int]:
    return await logs.positions(cast(Driven, reader))


def leave(logs: SharedLogs, reader: Reader) -> None:
    logs.leave(cast(Driven, reader))


async def test_results_are_read_committed_and_nothing_else_is() -> None:
    consumer = Consumer()
    logs = SharedLogs(consumer)
    join(logs, Reader())
    await logs.settle()
    assert consumer.read == {SOURCE: "read_uncommitted", RESULTS: "read_committed"}


async def test_a_position_is_known_when_all_that_was_read_is_handed_over() -> None:
    """After transactions' markers the consumer is ahead of its last record.

    See trace-11.
    """
    consumer, reader = Consumer(), Reader()
    logs = SharedLogs(consumer)
    join(logs, reader)
    await logs.settle()
    assert consumer.receive is not None
    consumer.receive(RESULTS, 3, b"x")
    consumer.at = {RESULTS: (7, 5), SOURCE: (4, -1)}
    assert await positions(logs, reader) == {SOURCE: 4}, "record 5 is in flight"
    consumer.receive(RESULTS, 5, b"x")
    assert await positions(logs, reader) == {SOURCE: 4, RESULTS: 7}
    newcomer = Reader(results=6)
    join(logs, newcomer)
    assert newcomer.reported == [LiveAt(SOURCE, 0), LiveAt(RESULTS, 6)]
    assert await positions(logs, reader) == {SOURCE: 4, RESULTS: 7}, (
        "it was passed on before it arrived"
    )


async def test_each_record_reaches_all_who_read_its_log() -> None:
    consumer, readers = Consumer(), [Reader(), Reader(), Reader()]
    logs = SharedLogs(consumer)
    join(logs, *readers)
    await logs.settle()
    assert consumer.receive is not None
    consumer.receive(RESULTS, 0, b"x")
    consumer.receive(RESULTS, 1, b"y")
    assert [reader.taken for reader in readers] == [[(RESULTS, 0), (RESULTS, 1)]] * 3


async def test_a_log_is_read_until_the_last_who_reads_it_leaves() -> None:
    consumer, one, other = Consumer(), Reader(), Reader()
    logs = SharedLogs(consumer)
    join(logs, one, other)
    await logs.settle()
    leave(logs, one)
    await logs.settle()
    assert consumer.read.keys() == {SOURCE, RESULTS}
    assert consumer.receive is not None
    consumer.receive(RESULTS, 0, b"x")
    assert (one.taken, other.taken) == ([], [(RESULTS, 0)])
    leave(logs, other)
    await logs.settle()
    assert not consumer.read


async def test_a_removal_that_failed_harms_nobody_and_is_done_again() -> None:
    """Otherwise the log would be fetched in vain until the process ends."""
    consumer, one, other = Consumer(), Reader(), Reader()
    del one.session.live_offsets[RESULTS], other.session.live_offsets[SOURCE]
    logs = SharedLogs(consumer)
    join(logs, one)
    await logs.settle()
    consumer.refuses_removal = True
    leave(logs, one)
    join(logs, other)
    await logs.settle()
    assert not other.failed
    assert consumer.read.keys() == {SOURCE, RESULTS}
    assert not logs.is_settled
    consumer.refuses_removal = False
    await logs.settle()
    assert consumer.read.keys() == {RESULTS}
    assert logs.is_settled


async def test_a_log_that_was_not_removed_begins_anew_for_who_joins_it() -> None:
    consumer, one, other = Consumer(), Reader(), Reader(source=5)
    logs = SharedLogs(consumer)
    join(logs, one)
    await logs.settle()
    consumer.refuses_removal = True
    leave(logs, one)
    await logs.settle()
    join(logs, other)
    await logs.settle()
    assert logs.is_settled
    assert consumer.began[SOURCE] == [0, 5]
    assert other.reported == [], "it begins the log"


async def test_a_log_that_lost_its_position_fails_its_readers_and_no_others() -> None:
    logs, both, one = SharedLogs(Consumer()), Reader(), Reader()
    del one.session.live_offsets[RESULTS]
    join(logs, both, one)
    logs.gone(PositionGoneError(*RESULTS, 3))
    assert [type(error) for error in both.failed] == [PositionGoneError]
    assert not one.failed


async def test_a_fragment_ahead_of_those_it_joins_with_receives_the_consumer_s_position() -> None:
    logs = SharedLogs(Consumer())
    behind, ahead = Reader(source=3), Reader(source=9)
    join(logs, behind, ahead)
    assert behind.reported == []
    assert ahead.reported == [LiveAt(SOURCE, 3)]


async def test_a_consumer_that_cannot_read_fails_those_who_wait_for_it_and_is_asked_again() -> None:
    consumer, first, second = Consumer(), Reader(), Reader()
    consumer.refuses = True
    logs = SharedLogs(consumer)
    join(logs, first)
    with pytest.raises(SlackwaterError, match="no broker"):
        await logs.settle()
    assert first.failed
    consumer.refuses = False
    join(logs, second)
    await logs.settle()
    assert consumer.read.keys() == {SOURCE, RESULTS}
    assert not second.failed
    assert second.reported == [], "it begins the logs"


async def test_what_an_older_reading_still_brings_is_not_for_who_begins_the_log_anew() -> None:
    """The record is further ahead: the added fragment's cursors would skip unread records."""
    consumer, one, other = Consumer(), Reader(source=50), Reader(source=5)
    logs = SharedLogs(consumer)
    join(logs, one)
    await logs.settle()
    older = consumer.receive
    assert older is not None
    leave(logs, one)
    join(logs, other)
    older(SOURCE, 50, b"x")
    await logs.settle()
    assert consumer.began[SOURCE] == [50, 5]
    assert other.taken == []
    assert consumer.receive is not None
    consumer.receive(SOURCE, 5, b"x")
    assert other.taken == [(SOURCE, 5)]


async def test_what_was_read_is_remembered_while_the_log_is_read_but_no_results() -> None:
    consumer, reader = Consumer(), Reader(source=3)
    logs = SharedLogs(consumer)
    join(logs, reader)
    await logs.settle()
    assert consumer.receive is not None
    consumer.receive(SOURCE, 3, b"x")
    consumer.receive(RESULTS, 0, b"y")
    found = logs.recent.read(SOURCE, 3, 10)
    assert found is not None
    assert [(each.offset, each.value) for each in found] == [(3, b"x")]
    assert logs.recent.read(RESULTS, 0, 10) is None
    leave(logs, reader)
    assert logs.recent.read(SOURCE, 3, 10) is None
    assert logs.recent.bytes == 0


async def test_a_fragment_removed_while_positions_are_fetched_skips_no_record() -> None:
    consumer, stays, leaves = Consumer(), Reader(), Reader()
    logs = SharedLogs(consumer)
    join(logs, stays, leaves)
    await logs.settle()
    receive = consumer.receive
    assert receive is not None

    async def fetched() -> dict[Log, tuple[int, int]]:
        leave(logs, leaves)
        receive(RESULTS, 0, b"x")
        return {RESULTS: (1, 0)}

    consumer.positions = fetched  # type: ignore[method-assign]
    assert await positions(logs, leaves) == {}
    assert await positions(logs, stays) == {RESULTS: 1}


async def test_positions_of_an_older_reading_are_not_those_of_the_new_one() -> None:
    consumer, one, other = Consumer(), Reader(results=50), Reader(results=5)
    logs = SharedLogs(consumer)
    join(logs, one)
    await logs.settle()
    consumer.at = {RESULTS: (60, -1)}
    leave(logs, one)
    join(logs, other)
    assert await positions(logs, other) == {}, "the consumer still reads for the other"
    await logs.settle()
    consumer.at = {RESULTS: (5, -1)}
    assert await positions(logs, other) == {RESULTS: 5}
