"""aiokafka soon gives up connecting to a broker whose machine is gone.

A machine that is gone does not answer, so an attempt to connect to it ends by
time-out. aiokafka has one time for that and for the answer to a request, 40 s, and it connects to
one broker at a time: a root that wants to reach the transaction coordinator on a dead machine
commits nothing meanwhile, long after another broker has taken over (25 s were seen, until the dead
one was back). A shorter time for requests would be wrong: a write that waits for its copies is in
order. So a short probe connection precedes each connection. The other two clients have a setting
for this (``topics.toml``, ``kafka.py``).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.conn import AIOKafkaConnection

PROBE_S_MAX: Final = 1.0
"""So long it may take to look a broker's name up, and its kernel to accept a connection. aiokafka
asks for the broker's address again and tries anew."""

_connect = AIOKafkaConnection.connect


async def _probe_and_connect(connection: AIOKafkaConnection) -> Any:
    loop, at = asyncio.get_running_loop(), (connection.host, connection.port)
    try:
        async with asyncio.timeout(PROBE_S_MAX):
            transport, _ = await loop.create_connection(asyncio.Protocol, *at)
    except TimeoutError:
        raise TimeoutError(f"{at[0]}:{at[1]} does not answer within {PROBE_S_MAX:g} s") from None
    transport.abort()
    return await _connect(connection)


def probe_before_connect() -> None:
    """Enable the connection probe in this process."""
    AIOKafkaConnection.connect = _probe_and_connect
