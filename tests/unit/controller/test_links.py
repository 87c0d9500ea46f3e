"""Whoever does not know the protocol, the version, the secret or the roster is refused and told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.ports import free_port

from slackwater.control.control_object import ApplyQuery, Operation, ranks_of
from slackwater.control.placing import Suspicion
from slackwater.controller import links
from slackwater.controller.address import Address
from slackwater.controller.app import checked, make_config, parse_address
from slackwater.controller.client import connect
from slackwater.controller.links import (
    FRAME_BYTES_MAX,
    FrameLink,
    LinkError,
    RefusedFrame,
    RequestFrame,
    introduce,
)
from slackwater.controller.server import Controller, ControllerConfig
from slackwater.controller.store import open_store
from slackwater.controller.wire import WireError, from_bytes, to_bytes
from slackwater.model.errors import UsageError

SECRET = b"0123456789abcdef"


@asynccontextmanager
async def controller(folder: Path) -> AsyncIterator[Address]:
    """A controller that runs alone; it must still answer when the test is done with it."""
    address = Address("127.0.0.1", free_port())
    store, stopping = open_store(folder, "a"), asyncio.Event()
    config = ControllerConfig("a", address, {}, SECRET)
    running = asyncio.create_task(Controller(config, store).run(stopping))
    await asyncio.sleep(0)
    while not running.done():
        try:
            async with connect([address], SECRET):
                break
        except LinkError:
            await asyncio.sleep(0.01)
    try:
        yield address
        async with connect([address], SECRET) as client:
            assert not (await client.request(ApplyQuery("alive", "x"))).response.refusal
    finally:
        stopping.set()
        await running
        store.close()


async def opened(address: Address) -> FrameLink:
    return FrameLink(*await asyncio.open_connection(address.host, address.port))


async def test_another_secret_is_refused(tmp_path: Path) -> None:
    async with controller(tmp_path) as address:
        with pytest.raises(LinkError, match="the shared secret differs"):
            async with connect([address], b"another secret here"):
                pass


async def test_another_roster_is_refused(tmp_path: Path) -> None:
    async with controller(tmp_path) as address:
        link = await opened(address)
        with pytest.raises(LinkError, match="the controllers are a here and a, b there"):
            await introduce(link, "b", 1, ("a", "b"), SECRET)
        link.close()


async def test_a_proof_of_other_characters_is_refused(tmp_path: Path) -> None:
    async with controller(tmp_path) as address:
        link = await opened(address)
        await link.receive()
        link.send(links.Hello(links.PROTOCOL_VERSION, "x", 0, (), "n", "é"))
        assert await link.receive() == RefusedFrame("the shared secret differs")
        link.close()


async def test_another_version_is_refused(
    tmp_path: Path,
) -> None:
    ours, theirs = links.PROTOCOL_VERSION, links.PROTOCOL_VERSION + 1
    async with controller(tmp_path) as address:
        link = await opened(address)
        challenge = await link.receive()
        link.send(links.Hello(theirs, "x", 0, (), "n", challenge.nonce))
        refused = await link.receive()
        assert refused == RefusedFrame(f"protocol version {theirs}; this is version {ours}")
        link.close()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
        ((FRAME_BYTES_MAX).to_bytes(4), f"a frame of {FRAME_BYTES_MAX} bytes"),
        ((2).to_bytes(4) + b"{}", "not a frame of this protocol"),
        ((3).to_bytes(4) + b"[1,", "not a frame of this protocol"),
        ((11).to_bytes(4) + b'["Unknown"]', "not a frame of this protocol"),
        ((5).to_bytes(4) + b"[[1]]", "not a frame of this protocol"),
    ],
    ids=("http", "large", "map", "cut", "class", "list"),
)
async def test_what_is_no_frame_is_refused(tmp_path: Path, sent: bytes, reason: str) -> None:
    async with controller(tmp_path) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        link = FrameLink(reader, writer)
        await link.receive()
        writer.write(sent)
        refused = await link.receive()
        assert isinstance(refused, RefusedFrame)
        assert reason in refused.reason
        with pytest.raises(LinkError, match="closed"):
            await link.receive()
        link.close()


async def test_a_client_that_sends_what_is_no_request_is_refused(tmp_path: Path) -> None:
    async with controller(tmp_path) as address:
        link = await opened(address)
        await introduce(link, "x", 0, (), SECRET)
        link.send(RefusedFrame("me too"))
        assert await link.receive() == RefusedFrame("expected a request")
        link.close()


@pytest.mark.parametrize("data", [b"[]", b'["ApplyQuery","q"]', b'["ApplyQuery","q",1]', b"7"])
def test_an_operation_of_the_wrong_form_is_no_operation(data: bytes) -> None:
    with pytest.raises(WireError):
        from_bytes(Operation, data)


def test_a_request_survives_the_wire() -> None:
    frame = RequestFrame(1, ApplyQuery("q", 'é\n"'))
    assert from_bytes(links.Frame, to_bytes(links.Frame, frame)) == frame


def test_a_port_that_others_can_reach_needs_a_secret(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--secret-file"):
        make_config("a", "0.0.0.0:7101", "", None)
    assert make_config("a", "localhost:7101", "", None).secret == b""
    assert make_config("a", "[::1]:7101", "", None).listen == Address("::1", 7101)
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        make_config("a", "0.0.0.0:7101", "", path)
    path.chmod(0o600)
    assert make_config("a", "0.0.0.0:7101", "", path).secret == SECRET
    path.write_bytes(b"short")
    with pytest.raises(UsageError, match="16 to"):
        make_config("a", "0.0.0.0:7101", "", path)


@pytest.mark.parametrize("peers", ["b", "b=", "b=host", "b=host:0", "b=h:1,b=h:2"])
def test_wrong_peers_are_refused(peers: str) -> None:
    with pytest.raises(UsageError, match="--peers"):
        make_config("a", "127.0.0.1:7101", peers, None)


def test_names_that_would_give_the_same_placement_numbers_are_refused() -> None:
    ranks: dict[int, str] = {}
    for n in range(2000):
        (rank,) = ranks_of([f"c{n}"]).values()
        if rank in ranks:
            peers = f"{ranks[rank]}=127.0.0.1:7102"
            with pytest.raises(UsageError, match="would give the same numbers; rename one"):
                make_config(f"c{n}", "127.0.0.1:7101", peers, None)
            return
        ranks[rank] = f"c{n}"
    raise AssertionError("2000 names have 1024 ranks")


@pytest.mark.parametrize("text", ["", "7101", ":7101", "h:x", "h:70000"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--listen"):
        parse_address("--listen", text)


@pytest.mark.parametrize(
    ("suspicion", "reason"),
    [
        (Suspicion(400_000), "--suspect-after 400ms: must be from 500ms, five heartbeats"),
        (Suspicion(7_200_000_000), "--suspect-after 2h: must be from 500ms"),
        (Suspicion(phi=0.5), "--suspect-phi 0.5: must be from 1 to 16"),
        (Suspicion(phi=float("nan")), "--suspect-phi nan"),
    ],
)
def test_a_setting_with_which_no_node_could_run_is_refused(
    suspicion: Suspicion, reason: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        checked(suspicion)
