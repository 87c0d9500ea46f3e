"""Receives responses in aiokafka with one copy instead of four.

aiokafka reads a response through ``asyncio.StreamReader``, which appends each chunk from the socket
to a byte array and copies the complete response out of it. For fetches of megabytes the kernel maps
new pages for each of these copies, which takes longer than the copying. Here the chunks are kept as
received, and joined once the response is complete (0.9 ns of CPU a byte instead of 1.9; the
orderers of a host at 2,000,000 readings/s receive 40 MB/s).

aiokafka awaits each response completely, so pausing the transport, as ``StreamReader`` does if
nobody reads, would limit nothing: at most the responses to the requests in flight are held.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from aiokafka import conn as aiokafka_conn
from aiokafka.conn import AIOKafkaConnection, AIOKafkaProtocol

_SIZE: Final = struct.Struct(">i")
_CHUNK_BYTES_MIN: Final = 32 * 1024
"""Smaller chunks are copied: asyncio receives into 256 KiB, which may be mapped for one chunk
alone, and a process may have 65,530 mappings."""
_read_from_stream = AIOKafkaConnection._read


class ChunkProtocol(AIOKafkaProtocol):  # type: ignore[misc]
    """Keeps received chunks until as many bytes as requested are there."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._chunks: deque[memoryview] = deque()
        self._received_bytes = 0
        self._requested_bytes = 0
        self._complete: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_released = False

    def data_received(self, data: bytes) -> None:
        """Keep a chunk; it is not passed to the stream reader."""
        if self._is_released:
            return
        if len(data) < _CHUNK_BYTES_MIN:
            data = bytes(memoryview(data))
        self._chunks.append(memoryview(data))
        self._received_bytes += len(data)
        if self._received_bytes >= self._requested_bytes:
            self._wake()

    def eof_received(self) -> bool | None:
        """End a read that waits; called by the transport."""
        self._end(None)
        open_: bool | None = super().eof_received()
        return open_

    def connection_lost(self, exc: Exception | None) -> None:
        """End a read that waits; called by the transport."""
        self._end(exc)
        super().connection_lost(exc)

    async def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes.

        Raises ``asyncio.IncompleteReadError``, or the connection's error, if it ends before.
        """
        while self._received_bytes < size:
            if self._error is not None:
                raise self._error
            self._requested_bytes = size
            self._complete = asyncio.get_running_loop().create_future()
            await self._complete
        self._requested_bytes = 0
        self._received_bytes -= size
        taken = []
        while size:
            chunk = self._chunks.popleft()
            if len(chunk) > size:
                self._chunks.appendleft(chunk[size:])
                chunk = chunk[:size]
            taken.append(chunk)
            size -= len(chunk)
        return b"".join(taken)

    def release(self) -> None:
        """Drop what was received, and what still arrives."""
        self._is_released = True
        self._chunks.clear()

    def _end(self, error: Exception | None) -> None:
        if self._error is None:
            self._error = error or asyncio.IncompleteReadError(b"", self._requested_bytes)
        self._wake()

    def _wake(self) -> None:
        if self._complete is not None and not self._complete.done():
            self._complete.set_result(None)


async def _read_responses(connection: Callable[[], AIOKafkaConnection | None]) -> None:
    """Hand the responses of a connection over; ``connection``: a weak reference to it."""
    here = connection()
    if here is None:
        return
    protocol = here._protocol
    del here
    if not isinstance(protocol, ChunkProtocol):  # created before ``receive_in_chunks``
        await _read_from_stream(connection)
        return
    try:
        while True:
            (size,) = _SIZE.unpack(await protocol.read(_SIZE.size))
            if size < 0:
                raise ConnectionError(f"a response of {size} bytes")
            response = await protocol.read(size)
            here = connection()
            if here is None:
                return
            here._handle_frame(response)
            del here, response
    finally:
        protocol.release()


def receive_in_chunks() -> None:
    """Enable this way of receiving in this process."""
    aiokafka_conn.AIOKafkaProtocol = ChunkProtocol
    AIOKafkaConnection._read = staticmethod(_read_responses)
