"""A broker with more listeners, each behind a relay: links to it that a test cuts and heals.

Clients connect to the address that a broker tells them, so a relay before its only listener would
carry their first request alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.ports import free_port
from tests.support.relay import Relay

from slackwater.machine import broker_properties
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.broker_properties import HOST, Ports


class Link:
    """The relay, in a thread of its own. For the arguments see ``Relay``."""

    def __init__(self, target: int, **given: Any) -> None:
        self.relay = Relay(target, **given)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self._server = started.result()

    async def _start(self) -> asyncio.Server:
        return await asyncio.start_server(self.relay.accept, HOST, self.relay.port)

    @property
    def address(self) -> str:
        """The address of the broker over the link."""
        return f"{HOST}:{self.relay.port}"

    def cut(self) -> None:
        """Close all connections, and refuse others."""
        self._loop.call_soon_threadsafe(self.relay.cut)

    def heal(self) -> None:
        """Accept connections again."""
        self._loop.call_soon_threadsafe(self.relay.heal)

    def close(self) -> None:
        """End the relay."""

        async def end() -> None:
            self._server.close()
            self.relay.cut()
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
    data_dir: Path, links: int = 1, **broker: Any
) -> Iterator[tuple[EmbeddedBroker, list[Link]]]:
    """Run a broker, and links to it; ``broker`` are arguments of ``EmbeddedBroker``."""
    with ExitStack() as stack:
        targets = [free_port() for _ in range(links)]
        made = [stack.enter_context(closing(Link(target))) for target in targets]
        before = broker_properties.open_listeners

        def listeners(ports: Ports) -> list[tuple[str, object]]:
            of = dict(before(ports))
            for number, (target, link) in enumerate(zip(targets, made, strict=True)):
                of["listeners"] = f"{of['listeners']},LINK{number}://{HOST}:{target}"
                advertised = f"{of['advertised.listeners']},LINK{number}://{link.address}"
                of["advertised.listeners"] = advertised
                protocols = of["listener.security.protocol.map"]
                of["listener.security.protocol.map"] = f"{protocols},LINK{number}:PLAINTEXT"
            return [*of.items()]

        started = EmbeddedBroker(data_dir, **broker)
        with patch("slackwater.machine.broker.open_listeners", listeners):
            started.start()
        with started:
            yield started, made
