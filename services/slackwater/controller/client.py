"""A client of the controllers: requests operations from one of them, and receives refreshes.

If the connection breaks before the response (``LinkError``), the operation may or may not have been
applied. It can safely be requested again from another controller: an operation that has been
applied before changes nothing, or is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from slackwater.control.control_object import Operation
from slackwater.control.control_state import ControlState
from slackwater.controller.address import Address
from slackwater.controller.links import (
    Frame,
    FrameLink,
    LinkError,
    NodeBeat,
    RecordFrame,
    RefreshFrame,
    RefusedFrame,
    RequestFrame,
    ResponseFrame,
    StateFrame,
    StateRequest,
    TimeFrame,
    TimeRequest,
    dial,
    introduce,
)
from slackwater.controller.tls import LinkTls

_log = logging.getLogger(__name__)

CONNECT_S_MAX: Final = 2.0
RESPONSE_S_MAX: Final = 10.0
REFRESHES_MAX: Final = 100
"""Refreshes that are kept; older ones are forgotten."""

_Answer = ResponseFrame | StateFrame | TimeFrame


class ControlClient:
    """One connection to one controller; ``connect`` makes it."""

    def __init__(
        self,
        link: FrameLink,
        controller: str,
        on_state: Callable[[StateFrame], None] = lambda _: None,
    ) -> None:
        self.controller: Final = controller
        self._on_state = on_state
        self.refreshes: deque[RefreshFrame] = deque(maxlen=REFRESHES_MAX)
        """Refreshes received, the newest last; ``overridden`` has stamps of earlier responses."""
        self._link = link
        self._waiting: dict[int, asyncio.Future[_Answer]] = {}
        self._count = 0
        self._broken = ""

    async def request(
        self, operation: Operation, within_s: float = RESPONSE_S_MAX
    ) -> ResponseFrame:
        """The response to an operation.

        Raises:
            LinkError: no response; whether the operation was applied is unknown.
        """
        self._count += 1
        frame = await self._exchange(RequestFrame(self._count, operation), within_s)
        assert isinstance(frame, ResponseFrame)
        return frame

    async def state(self, within_s: float = RESPONSE_S_MAX) -> StateFrame:
        """The view and the state of this controller.

        Raises:
            LinkError: no response.
        """
        self._count += 1
        frame = await self._exchange(StateRequest(self._count), within_s)
        assert isinstance(frame, StateFrame)
        return frame

    async def wall_us(self, within_s: float = RESPONSE_S_MAX) -> int:
        """The controller's wall clock, us since 1970.

        Raises:
            LinkError: no response.
        """
        self._count += 1
        frame = await self._exchange(TimeRequest(self._count), within_s)
        assert isinstance(frame, TimeFrame)
        return frame.wall_us

    def beat(self, beat: NodeBeat) -> None:
        """Send a node's heartbeat; from the first one on, ``on_state`` is called with states.

        Raises:
            LinkError: the connection is gone.
        """
        self._send(beat)

    def offer(self, record: ControlState) -> None:
        """Offer a node's record, which the controller takes if it has lost its own.

        Raises:
            LinkError: the connection is gone.
        """
        self._send(RecordFrame(record))

    def _send(self, frame: Frame) -> None:
        if self._broken or not self._link.send(frame):
            raise LinkError(self._broken or f"controller {self.controller} is gone")

    async def _exchange(
        self, frame: RequestFrame | StateRequest | TimeRequest, within_s: float
    ) -> _Answer:
        coming: asyncio.Future[_Answer]
        coming = asyncio.get_running_loop().create_future()
        self._waiting[frame.id] = coming
        try:
            self._send(frame)
            async with asyncio.timeout(within_s):
                return await coming
        except TimeoutError:
            raise LinkError(f"controller {self.controller}: no answer in {within_s:g} s") from None
        finally:
            del self._waiting[frame.id]

    async def _read(self) -> None:
        try:
            while True:
                match await self._link.receive():
                    case StateFrame(id=0) as frame:
                        self._on_state(frame)
                    case ResponseFrame() | StateFrame() | TimeFrame() as frame:
                        if frame.id in self._waiting and not self._waiting[frame.id].done():
                            self._waiting[frame.id].set_result(frame)
                    case RefreshFrame() as refresh:
                        self.refreshes.append(refresh)
                    case RefusedFrame(reason):
                        raise LinkError(reason)
        except LinkError as error:
            self._break(str(error))
        except Exception as error:  # noqa: BLE001 (of ``on_state``; the users of the link get it)
            _log.exception("controller %s: a state cannot be used", self.controller)
            self._break(f"a state cannot be used: {error!r}")

    def _break(self, reason: str) -> None:
        self._broken = f"controller {self.controller}: {reason}"
        for coming in self._waiting.values():
            if not coming.done():
                coming.set_exception(LinkError(self._broken))


@asynccontextmanager
async def connect(
    addresses: Sequence[Address],
    secret: bytes = b"",
    name: str = "client",
    on_state: Callable[[StateFrame], None] = lambda _: None,
    tls: LinkTls | None = None,
) -> AsyncIterator[ControlClient]:
    """A connection to the first of these controllers that accepts it.

    ``on_state`` is called with the states that the controller sends to a node.

    Raises:
        LinkError: none accepts it; the message has the reason of each.
    """
    link, controller = await _first(addresses, secret, name, tls)
    client = ControlClient(link, controller, on_state)
    reading = asyncio.create_task(client._read())
    try:
        yield client
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        link.close()


async def _first(
    addresses: Sequence[Address], secret: bytes, name: str, tls: LinkTls | None
) -> tuple[FrameLink, str]:
    reasons = []
    for address in addresses:
        try:
            link = await dial(address.host, address.port, tls, CONNECT_S_MAX)
        except LinkError as error:
            reasons.append(f"{address}: {error}")
            continue
        try:
            return link, await introduce(link, name, 0, (), secret)
        except LinkError as error:
            link.close()
            reasons.append(f"{address}: {error}")
    raise LinkError("no controller accepts the connection: " + "; ".join(reasons))
