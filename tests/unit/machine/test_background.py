"""Background work whose errors are logged, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.virtual_loop import run_virtually

from slackwater.machine.background import AGAIN_S, Background


def test_work_that_fails_is_logged_once_and_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    """It watches logs or hosts: without it they would grow unseen."""
    began: list[float] = []

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        began.append(loop.time())
        if len(began) < 4:
            raise OSError("no space left" if len(began) < 3 else "another error")
        await asyncio.Event().wait()

    async def main() -> None:
        background = Background()
        background.run("watch of the logs", watch)
        await asyncio.sleep(10 * AGAIN_S)
        await background.end()

    run_virtually(main())
    assert [at - began[0] for at in began] == [0, AGAIN_S, 2 * AGAIN_S, 3 * AGAIN_S]
    assert [record.message for record in caplog.records] == [
        f"watch of the logs: begins again in {AGAIN_S:g} s"
    ] * 2
    assert all(record.exc_info for record in caplog.records)


def test_work_that_returns_is_done() -> None:
    done: list[int] = []

    async def register() -> None:
        done.append(1)

    async def main() -> None:
        background = Background()
        background.run("registration", register)
        await asyncio.sleep(10 * AGAIN_S)
        await background.end()

    run_virtually(main())
    assert done == [1]
