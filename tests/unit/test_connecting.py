"""A broker's machine that answers nothing must not hold a client up."""

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest
from aiokafka.conn import AIOKafkaConnection

from slackwater.runtime import connecting


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Its queue of connections is full, so the kernel answers no further one."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        yield port
        for one in waiting:
            one.close()


def test_nobody_answers_and_it_is_soon_given_up(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AIOKafkaConnection, "connect", AIOKafkaConnection.connect)
    connecting.knock_first()

    async def connect() -> None:
        await AIOKafkaConnection("127.0.0.1", silent_port, request_timeout_ms=40_000).connect()

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(connect())
    assert time.monotonic() - begun < 5
