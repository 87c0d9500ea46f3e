"""A broker with a second listener behind a relay: a link to it that a test cuts and heals.

Clients connect to the address that a broker tells them, so a relay before its only listener would
carry their first request alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.controllers import Relay
from tests.support.ports import free_port

from slackwater.machine import broker_properties
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.broker_properties import HOST, Ports


class Link:
    """The relay, in a thread of its own."""

    def __init__(self, target: int) -> None:
        self._relay = Relay(target)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self._server = started.result()

    async def _start(self) -> asyncio.Server:
        return await asyncio.start_server(self._relay.accept, HOST, self._relay.port)

    @property
    def port(self) -> int:
        """The port at which the broker is reached over the link."""
        return self._relay.port

    @property
    def address(self) -> str:
        """The address of the broker over the link."""
        return f"{HOST}:{self.port}"

    def cut(self) -> None:
        """Close all connections, and refuse others."""
        self._loop.call_soon_threadsafe(self._relay.cut)

    def heal(self) -> None:
        """Accept connections again."""
        self._relay.is_cut = False

    def close(self) -> None:
        """End the relay."""

        async def end() -> None:
            self._server.close()
            self._relay.cut()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def linked_broker(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[EmbeddedBroker, Link]]:
    """Run a broker, and a link to it."""
    target = free_port()
    link = Link(target)
    before = broker_properties.open_listeners

    def listeners(ports: Ports) -> list[tuple[str, object]]:
        of = dict(before(ports))
        of["listeners"] = f"{of['listeners']},LINK://{HOST}:{target}"
        of["advertised.listeners"] = f"{of['advertised.listeners']},LINK://{link.address}"
        of["listener.security.protocol.map"] = (
            f"{of['listener.security.protocol.map']},LINK:PLAINTEXT"
        )
        return [*of.items()]

    try:
        with monkeypatch.context() as patch:
            patch.setattr("slackwater.machine.broker.open_listeners", listeners)
            broker = EmbeddedBroker(data_dir).start()
        with broker:
            yield broker, link
    finally:
        link.close()
