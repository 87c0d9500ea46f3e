"""Shared requests for the ends of logs: one request, and never a response from before it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tests.support.waiting import WAIT_S_MAX

from slackwater.host.sharedends import SharedEnds
from slackwater.runtime.logs.transport import Isolation, Log

A, B = ("a", 0), ("b", 0)


class Broker:
    """Responds when it is released, with the end at the time of the request."""

    def __init__(self) -> None:
        self.end = 10
        self.asked: list[set[Log]] = []
        self.answers = asyncio.Event()

    async def end_offsets_async(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float,
    ) -> dict[Log, int] | None:
        wanted, end = set(logs), self.end
        self.asked.append(wanted)
        await self.answers.wait()
        return dict.fromkeys(wanted, end)


def ask(ends: SharedEnds, *logs: Log, timeout_s: float = 1.0) -> asyncio.Task[object]:
    asking = ends.end_offsets_async(logs, isolation="read_uncommitted", timeout_s=timeout_s)
    return asyncio.create_task(asking)


async def until_asked(broker: Broker, times: int) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while len(broker.asked) < times:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0)


async def test_equal_requests_of_one_turn_share_a_response() -> None:
    broker = Broker()
    broker.answers.set()
    ends = SharedEnds(broker)
    asking = [ask(ends, A, B), ask(ends, B, A), ask(ends, A, B)]
    for each in asking:
        assert await each == {A: 10, B: 10}
    assert broker.asked == [{A, B}]


async def test_what_is_asked_behind_a_question_is_asked_again() -> None:
    """Records appended between the two would count as read."""
    broker = Broker()
    ends = SharedEnds(broker)
    before = ask(ends, A)
    await until_asked(broker, 1)
    broker.end = 11
    behind = ask(ends, A)
    broker.answers.set()
    assert await before == {A: 10}
    assert await behind == {A: 11}


async def test_other_logs_and_other_patience_are_other_questions() -> None:
    """A log without a leader gives no response to sessions that did not request it."""
    broker = Broker()
    broker.answers.set()
    ends = SharedEnds(broker)
    await asyncio.gather(ask(ends, A), ask(ends, B), ask(ends, A, timeout_s=2.0))
    assert len(broker.asked) == 3


async def test_a_cancelled_request_takes_the_response_from_no_other() -> None:
    broker = Broker()
    ends = SharedEnds(broker)
    one, other = ask(ends, A), ask(ends, A)
    await until_asked(broker, 1)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    broker.answers.set()
    assert await other == {A: 10}
