"""Connections to several controllers at once, over which each is asked for its state repeatedly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from slackwater.controller.address import Address
from slackwater.controller.client import ControlClient, connect
from slackwater.controller.links import LinkError, StateFrame
from slackwater.controller.tls import LinkTls

ANSWER_S_MAX: Final = 2.0


class ControllersAsked:
    """One connection to each of the controllers; for one event loop.

    A connection stays between two calls of ``ask``. One that has broken is made again.

    Args:
        name: how this client names itself to the controllers.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        name: str,
        secret: bytes = b"",
        tls: LinkTls | None = None,
    ) -> None:
        self._addresses = addresses
        self._name, self._secret, self._tls = name, secret, tls
        self._open: dict[Address, tuple[ControlClient, AsyncExitStack]] = {}

    async def ask(self) -> dict[str, StateFrame | str]:
        """Return by address the controller's state, or why it does not answer."""
        answers = await asyncio.gather(*map(self._ask, self._addresses))
        return {
            str(address): answer for address, answer in zip(self._addresses, answers, strict=True)
        }

    async def close(self) -> None:
        """Close all connections."""
        for address in list(self._open):
            await self._close(address)

    async def _ask(self, address: Address) -> StateFrame | str:
        was_open = address in self._open
        try:
            return await self._state(address)
        except LinkError as error:
            await self._close(address)
            if not was_open:
                return _without_address(str(error), address)
        try:  # the controller may have been started again
            return await self._state(address)
        except LinkError as error:
            await self._close(address)
            return _without_address(str(error), address)

    async def _state(self, address: Address) -> StateFrame:
        if address not in self._open:
            stack = AsyncExitStack()
            connection = connect([address], self._secret, self._name, tls=self._tls)
            self._open[address] = (await stack.enter_async_context(connection), stack)
        return await self._open[address][0].state(ANSWER_S_MAX)

    async def _close(self, address: Address) -> None:
        if (found := self._open.pop(address, None)) is not None:
            await found[1].aclose()


def _without_address(reason: str, address: Address) -> str:
    """The reason of ``connect`` for its only address."""
    return reason.rpartition(f"{address}: ")[2]
