"""The root's shell with a broker whose answers never come: it ends, so that it can start again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from slackwater.model.errors import SlackwaterError
from slackwater.root import shell
from slackwater.root.shell import RootShell
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
