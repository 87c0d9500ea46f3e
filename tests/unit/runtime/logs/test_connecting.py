"""A broker's machine that does not respond must not block a client."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from aiokafka.conn import AIOKafkaConnection

from slackwater.runtime.logs import connecting


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Its queue of connections is full, so the kernel accepts no further one."""
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


def test_an_unanswered_connection_is_soon_abandoned(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the probe: the client, which would try for 40 s, is not even started."""
    begun: list[AIOKafkaConnection] = []
    monkeypatch.setattr(connecting, "_connect", begun.append)
    monkeypatch.setattr(AIOKafkaConnection, "connect", AIOKafkaConnection.connect)
    connecting.probe_before_connect()

    async def connect() -> None:
        await AIOKafkaConnection("127.0.0.1", silent_port, request_timeout_ms=40_000).connect()

    with pytest.raises(TimeoutError, match="does not answer within 1 s"):
        asyncio.run(connect())
    assert begun == []
