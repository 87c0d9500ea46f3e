"""A time limit for aiokafka's connection attempts, so that an unreachable broker delays no request.

A broker whose machine is down does not answer, so a connection attempt ends by time-out. aiokafka
uses one time-out, 40 s, both for connections and for responses, and it connects to one broker at a
time. A root that tries to reach the transaction coordinator on a machine that is down therefore
commits nothing, although another broker has taken over (measured: for 25 s, until the old broker
was back). A shorter time-out for both would be wrong, since the response to a write may have to
wait for the topic's replicas. A probe with a short time-out therefore precedes each connection. The
other two client libraries have a setting for connections (``topics.toml``, ``kafka.py``).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.conn import AIOKafkaConnection

PROBE_S_MAX: Final = 1.0
"""Time limit for name lookup and TCP connection together. After a time-out aiokafka refreshes its
metadata and connects again."""

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
