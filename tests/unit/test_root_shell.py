"""The root's shell with a broker whose answers never come: it ends, so that it can start again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.test_root_transactions import SLIDE, STATE, WRITER, Batch, Producer

from slackwater.model.deployment import WindowSpec
from slackwater.model.errors import SlackwaterError
from slackwater.model.records import Gap
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.answers import Answered, Answers, Ready, Transaction
from slackwater.protocols.dpc.root import Commit
from slackwater.root import shell
from slackwater.root.shell import RootShell
from slackwater.root.transactions import Transactions
from slackwater.runtime.transport import NoAnswerError


class Lost(SlackwaterError):
    """What went wrong first."""


class Hanging:
    """A producer whose calls of these names never return."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __call__(self, **_: Any) -> Hanging:
        return self

    async def start(self) -> None:
        await self._may_hang("start")

    async def stop(self) -> None:
        await self._may_hang("stop")

    async def _may_hang(self, name: str) -> None:
        if name in self._names:
            await asyncio.Event().wait()


def root(monkeypatch: pytest.MonkeyPatch, producer: Hanging) -> RootShell:
    """A shell of which only what the test goes through is there."""
    monkeypatch.setattr(shell, "AIOKafkaProducer", producer)
    monkeypatch.setattr(shell, "knock_first", lambda: None)
    monkeypatch.setattr(shell, "BROKER_S_MAX", 0.05)
    made: Any = object.__new__(RootShell)
    made._transport = SimpleNamespace(bootstrap="nowhere:1")
    made._config = SimpleNamespace(fragment="root/q.0", query="q", part=0, placement=3)
    made._producer, made._restored, made._results = {}, None, None
    made._state = lambda: None
    root: RootShell = made
    return root


def within_five_seconds(work: Any) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 5)

    asyncio.run(bounded())


def test_an_error_ends_the_loop_although_the_producer_will_not_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last batch is on its way to a broker that says nothing, and it never gives a batch up."""

    def lost() -> bool:
        raise Lost("a record")

    copy: Any = root(monkeypatch, Hanging("stop"))
    copy._read_parked = lost
    with pytest.raises(Lost):
        within_five_seconds(copy.run())


@pytest.mark.parametrize("which", ["run", "_check_and_fence"])
def test_a_producer_that_does_not_start_is_waited_for_so_long_and_named(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    copy = root(monkeypatch, Hanging("start"))
    with pytest.raises(NoAnswerError, match=r"root/q\.0"):
        within_five_seconds(getattr(copy, which)())


class Slow(Producer):
    """A batch takes its time; the ninth one may take for ever."""

    def __init__(self, a_batch_s: float, *, hangs: bool = False) -> None:
        super().__init__(batch_records_max=10)
        self._a_batch_s, self._hangs = a_batch_s, hangs

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[None]:
        if self._hangs and len(self.sent) == 8:
            await asyncio.Event().wait()
        await asyncio.sleep(self._a_batch_s)
        return await super().send_batch(batch, topic, partition=partition)


def commit_through(producer: Slow, copy: Any) -> list[str]:
    """Three hundred windows corrected, thirty batches and more; what the core was told."""
    told: list[str] = []
    copy._core = SimpleNamespace(committed=lambda: told.append("committed"))
    copy._clock, copy._gaps = SimpleNamespace(now_us=lambda: 0), 0
    transactions: Any = Transactions(producer, WRITER, STATE.fragment)
    within_five_seconds(copy._commit(Commit(many_windows(300), STATE), transactions))
    return told


def many_windows(count: int) -> Transaction[Any]:
    """New windows without rows, each with a gap, so that each has a line of its own."""
    grid = Grid(100_000, WindowSpec(SLIDE, SLIDE))
    answers: Answers[Any] = Answers(Answered(0, 0, 0, 0), grid, lambda end: end)
    gap = (Gap("s1", 1),)
    return answers.plan([Ready(i * SLIDE, None, 0, gap=gap) for i in range(count)])


def test_a_window_that_takes_longer_than_the_bound_is_written_as_long_as_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four million rows take half a minute: the copy ended, and began with the same window."""
    copy = root(monkeypatch, Hanging())
    monkeypatch.setattr(shell, "BROKER_S_MAX", 1.0)
    assert commit_through(Slow(0.04), copy) == ["committed"]


def test_a_transaction_that_comes_to_a_stand_ends_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = root(monkeypatch, Hanging())
    monkeypatch.setattr(shell, "BROKER_S_MAX", 0.3)
    with pytest.raises(NoAnswerError, match="600 records"):
        commit_through(Slow(0.0, hangs=True), copy)
