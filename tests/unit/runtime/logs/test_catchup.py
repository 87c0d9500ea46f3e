"""The catch-up reader and a position that retention has deleted. Contracts: tests/contracts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import pytest
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX

from slackwater.runtime.logs.catchup import CatchUpReader, Gone
from slackwater.runtime.logs.transport import Log, NoAnswerError, RawRecord

CUT, COMPLETE = ("cut", 0), ("complete", 0)


class SlowBroker(MemoryBroker):
    """Answers requests for beginnings when it may; the first ``failures`` have no answer."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.may_answer = threading.Event()
        self.requests = 0
        self._failures = failures
        for topic in ("cut", "complete"):
            self.create_topic(topic, 1)
            writer = self.writer(lambda _: None)
            for n in range(6):
                writer.append(topic, 0, b"%d" % n)
        self.delete_records({CUT: 4})

    def beginning_offsets(self, logs: Iterable[Log], *, timeout_s: float = 10.0) -> dict[Log, int]:
        self.requests += 1
        assert self.may_answer.wait(WAIT_S_MAX)
        if self.requests <= self._failures:
            raise NoAnswerError("no answer in the time allowed")
        return super().beginning_offsets(logs, timeout_s=timeout_s)


def read(reader: CatchUpReader, wanted: dict[Log, int]) -> list[RawRecord] | Gone:
    """Read once, as a turn does."""
    found = reader.read(wanted, 100)
    if not isinstance(found, Gone):
        for record in found:
            wanted[record.log] = record.offset + 1
    return found


def read_until_gone(reader: CatchUpReader, wanted: dict[Log, int]) -> Gone:
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        found = read(reader, wanted)
        if isinstance(found, Gone):
            return found
        threading.Event().wait(0.001)
    pytest.fail("the position is not reported")


@pytest.mark.timeout(60)
def test_the_request_for_a_beginning_holds_up_neither_the_caller_nor_other_logs() -> None:
    """All fragments of a host share one thread; the broker may take 10 s for an answer."""
    broker = SlowBroker()
    reader, wanted = CatchUpReader(broker), {CUT: 1, COMPLETE: 0}
    for _ in range(10):
        assert not isinstance(read(reader, wanted), Gone)
    assert wanted == {CUT: 1, COMPLETE: 6}
    broker.may_answer.set()
    assert read_until_gone(reader, wanted) == Gone(CUT, 4)
    assert broker.requests == 1
    wanted[CUT] = 4
    read(reader, wanted)
    assert wanted[CUT] == 6
    reader.close()


@pytest.mark.timeout(60)
def test_a_request_for_a_beginning_without_an_answer_is_repeated() -> None:
    broker = SlowBroker(failures=2)
    broker.may_answer.set()
    reader, wanted = CatchUpReader(broker), {CUT: 1, COMPLETE: 0}
    assert read_until_gone(reader, wanted) == Gone(CUT, 4)
    assert broker.requests == 3
    reader.close()


def test_a_position_that_is_moved_meanwhile_is_read() -> None:
    """The live line may take over; the late answer must not move its cursor."""
    broker = SlowBroker()
    reader, wanted = CatchUpReader(broker), {CUT: 1}
    assert read(reader, wanted) == []
    wanted[CUT] = 5
    found = read(reader, wanted)
    assert not isinstance(found, Gone)
    assert [record.offset for record in found] == [5]
    broker.may_answer.set()
    reader.close()
