"""Responses arrive in chunks of any size, and are handed over complete."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from aiokafka import conn as aiokafka_conn
from aiokafka.conn import AIOKafkaConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.runtime.logs import receiving as receiving_
from slackwater.runtime.logs.receiving import ChunkProtocol, receive_in_chunks


@pytest.fixture
def receiving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiokafka_conn, "AIOKafkaProtocol", aiokafka_conn.AIOKafkaProtocol)
    monkeypatch.setattr(AIOKafkaConnection, "_read", staticmethod(AIOKafkaConnection._read))
    receive_in_chunks()


def framed(responses: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(each)) + each for each in responses)


async def protocol() -> ChunkProtocol:
    loop = asyncio.get_running_loop()
    return ChunkProtocol(loop.create_future(), asyncio.StreamReader(loop=loop), loop=loop)


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30)), st.booleans())
def test_bytes_are_read_as_sent_in_chunks_of_any_size(
    responses: list[bytes], sizes: list[int], is_read_first: bool
) -> None:
    async def run() -> list[bytes]:
        received, data = await protocol(), framed(responses)

        async def read() -> list[bytes]:
            found = []
            for _ in responses:
                (size,) = struct.unpack(">i", await received.read(4))
                found.append(await received.read(size))
            return found

        reading = asyncio.ensure_future(read())
        at = 0
        for size in [*sizes, len(data)]:
            if is_read_first:
                await asyncio.sleep(0)
            if data[at : at + size]:
                received.data_received(data[at : at + size])
            at += size
        return await reading

    assert asyncio.run(run()) == responses


def responses_read(sent: bytes) -> list[bytes]:
    """Return the responses that a connection reads from a server that sends and then closes."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(sent), 100_000):
            writer.write(sent[start : start + 100_000])
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def run() -> list[bytes]:
        read: list[bytes] = []
        closed = asyncio.Event()
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            connection: Any = AIOKafkaConnection("127.0.0.1", port)
            connection._handle_frame = read.append
            connection._do_version_lookup = partial(asyncio.sleep, 0)  # the server reads nothing
            connection._on_close_cb = lambda *_: closed.set()
            await connection.connect()
            await asyncio.wait_for(closed.wait(), 10)
            assert not connection.connected()
            await connection.close()
        return read

    return asyncio.run(run())


@pytest.mark.usefixtures("receiving")
def test_a_connection_hands_over_each_response_and_closes_at_the_end() -> None:
    responses = [b"", b"a", bytes(3_000_000), b"b" * 300_000]
    assert responses_read(framed(responses)) == responses


@pytest.mark.usefixtures("receiving")
@pytest.mark.parametrize(
    "cut", [b"\0\0", struct.pack(">i", 10) + b"abc", struct.pack(">i", -1) + b"abc"]
)
def test_a_connection_that_ends_within_a_response_is_closed(cut: bytes) -> None:
    assert responses_read(framed([b"one"]) + cut) == [b"one"]


def test_a_waiting_read_gets_the_error_of_the_connection() -> None:
    async def run() -> None:
        received = await protocol()
        received.connection_made(asyncio.Transport())
        reading = asyncio.ensure_future(received.read(1))
        await asyncio.sleep(0)
        received.connection_lost(ConnectionResetError("reset"))
        with pytest.raises(ConnectionResetError):
            await reading
        with pytest.raises(ConnectionResetError):
            await received.read(1)

    asyncio.run(run())


def test_a_closed_connection_holds_nothing() -> None:
    async def run() -> None:
        received = await protocol()
        received.data_received(bytes(100_000))
        received.release()
        received.data_received(bytes(100_000))
        assert not received._chunks

    asyncio.run(run())


def test_a_connection_that_was_opened_before_is_read_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AIOKafkaConnection, "_read", staticmethod(receiving_._read_responses))
    assert responses_read(framed([b"one", b"two"])) == [b"one", b"two"]
