"""A root's committer with a broker that never responds: the copy ends and restarts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import ProducerFenced
from tests.support.virtual_loop import run_virtually
from tests.unit.host.test_root_transactions import SLIDE, STATE, WRITER, Batch, Producer

from slackwater.host import committer as committing
from slackwater.host.committer import PartCommitter
from slackwater.host.transactions import Transactions
from slackwater.model.deployment import WindowSpec
from slackwater.model.names import Names
from slackwater.model.records import Gap
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import Answered, AnswerPlanner, Ready, Transaction
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.runtime.logs.transport import LogError, NoAnswerError


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


def committer(monkeypatch: pytest.MonkeyPatch, producer: Hanging) -> Any:
    """Return a committer with only the settings it needs."""
    monkeypatch.setattr(committing, "AIOKafkaProducer", producer)
    monkeypatch.setattr(committing, "probe_before_connect", lambda: None)
    monkeypatch.setattr(committing, "aiokafka_producer", lambda _, **settings: settings)
    monkeypatch.setattr(committing, "BROKER_S_MAX", 0.05)
    config: Any = SimpleNamespace(fragment="root/q.0", query="q", part=0, fields=())
    cluster: Any = SimpleNamespace()
    return PartCommitter(cluster, Names(), config, ())


def without_hanging(work: Any) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 600)

    run_virtually(bounded())


def test_a_producer_that_does_not_start_is_waited_for_so_long_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = committer(monkeypatch, Hanging("start"))
    with pytest.raises(NoAnswerError, match=r"root/q\.0"):
        without_hanging(copy.open())


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


def commit_through(producer: Slow, copy: Any) -> None:
    """Commit three hundred corrected windows, in thirty batches and more."""
    transactions: Any = Transactions(producer, WRITER, STATE.fragment, Names())
    copy._transactions = transactions
    without_hanging(copy.commit(Commit(many_windows(300), STATE, KeyTable()), 0))


def many_windows(count: int) -> Transaction[Any]:
    """Return new windows without rows, each with a gap, so that each has its own line."""
    grid = Grid(100_000, WindowSpec(SLIDE, SLIDE))
    answers: AnswerPlanner[Any] = AnswerPlanner(Answered(0, 0, 0, 0), grid, lambda end: end)
    gap = (Gap("s1", 1),)
    return answers.plan([Ready(i * SLIDE, None, 0, gap=gap) for i in range(count)])


def test_a_window_that_takes_longer_than_the_bound_is_written_as_long_as_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four million rows take half a minute: the copy ended, and restarted with the same window."""
    copy = committer(monkeypatch, Hanging())
    monkeypatch.setattr(committing, "BROKER_S_MAX", 1.0)
    producer = Slow(0.02)  # 60 batches
    commit_through(producer, copy)
    assert producer.asked[-1] == "commit"


def test_a_transaction_that_comes_to_a_stand_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = committer(monkeypatch, Hanging())
    monkeypatch.setattr(committing, "BROKER_S_MAX", 0.3)
    producer = Slow(0.0, hangs=True)
    with pytest.raises(NoAnswerError, match="600 records"):
        commit_through(producer, copy)
    assert "commit" not in producer.asked


def test_what_the_broker_refuses_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later copy has fenced this one: it ends with a line that names it."""
    copy = committer(monkeypatch, Hanging())
    monkeypatch.setattr(committing, "BROKER_S_MAX", 5.0)

    class Fenced(Slow):
        async def commit_transaction(self) -> None:
            raise ProducerFenced

    with pytest.raises(LogError, match=r"root/q\.0: refused by the broker: ProducerFenced"):
        commit_through(Fenced(0.0), copy)
