"""TCP connections of controllers: frames with a bounded length, and a mutual challenge.

A frame is four bytes of length and a value (``wire``). The end that accepts a connection first
sends a ``Challenge``. The other end answers with ``Hello``, which has its version, its name and an
HMAC over both nonces; a controller's also has its *roster*, the names of all controllers. It
receives ``Welcome`` with an HMAC of the other direction. A wrong version, secret or roster is
refused with a ``RefusedFrame``, which has the reason, and the connection is closed. Without a
secret the HMAC uses an empty key, which is allowed on loopback and with TLS.

The challenge authenticates the ends of a connection. It does not encrypt, and it does not protect
the bytes that follow on a network that alters them; TLS (``tls``) does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Any, Final

from slackwater.control.control_object import ControlResponse, Operation
from slackwater.control.control_state import ControlState
from slackwater.controller.tls import LinkTls, why_failed
from slackwater.controller.wire import WireError, from_bytes, to_bytes
from slackwater.model.limits import CONTROL_STATE_BYTES_MAX
from slackwater.protocols.iads.messages import GroupMessage, Stamp
from slackwater.protocols.iads.topology import MEMBERS_MAX

PROTOCOL_VERSION: Final = 7
FRAME_BYTES_MAX: Final = MEMBERS_MAX * CONTROL_STATE_BYTES_MAX
"""The state after a merge is at most the sum of what the members had."""
HELLO_BYTES_MAX: Final = 4096
"""Limit of a frame before the other end is authenticated."""
HELLO_S_MAX: Final = 5.0
UNSENT_BYTES_MAX: Final = 2 * FRAME_BYTES_MAX
_LENGTH_BYTES: Final = 4
_ONE_END: Final = "does only one end use TLS?"


@dataclass(frozen=True, slots=True)
class Challenge:
    """The first frame on a connection, from the end that accepted it."""

    version: int
    nonce: str


@dataclass(frozen=True, slots=True)
class Hello:
    """The answer to a challenge. For a client ``incarnation`` is 0 and ``roster`` is empty."""

    version: int
    name: str
    incarnation: int
    roster: tuple[str, ...]
    nonce: str
    proof: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The accepting end's proof that it has the secret too."""

    name: str
    proof: str


@dataclass(frozen=True, slots=True)
class RefusedFrame:
    """Why the connection is closed."""

    reason: str


@dataclass(frozen=True, slots=True)
class PeerFrame:
    """A message of the protocol between controllers."""

    message: GroupMessage


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """A client's operation; ``id`` is repeated in the response."""

    id: int
    operation: Operation


@dataclass(frozen=True, slots=True)
class ResponseFrame:
    """The response and the identity of the operation, which a refresh may name."""

    id: int
    response: ControlResponse
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class StateRequest:
    """A client's request for the controller's view and state."""

    id: int


@dataclass(frozen=True, slots=True)
class TimeRequest:
    """A node's request for the controller's wall clock."""

    id: int


@dataclass(frozen=True, slots=True)
class TimeFrame:
    """The controller's wall clock (us since 1970) when it answered."""

    id: int
    wall_us: int


@dataclass(frozen=True, slots=True)
class NodeBeat:
    """A node's heartbeat, with the placement numbers that are ready there and those fenced.

    ``problem`` is why the node cannot carry out the record, or endangers the bounds of queries;
    empty if there is none. The offset is that of the node's wall clock from the receiver's, and the
    error is its largest possible one; the error is negative before the first measurement. ``ended``
    has the numbers of the fragments there of deleted queries that have carried out the deletion,
    ``answering`` those of the copies of parts that answer.
    """

    node: str
    ready: tuple[int, ...]
    fenced: tuple[int, ...]
    problem: str = ""
    clock_offset_us: int = 0
    clock_error_us: int = -1
    ended: tuple[int, ...] = ()
    answering: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordFrame:
    """The record as a node has it, for a controller that began without one."""

    record: ControlState


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The nodes from the view of one controller.

    ``standings`` has (node, standing); ``ready`` and ``fenced`` have placement numbers.
    ``unplaced`` has (query, fragment, reason); it is empty except at the controller that plans.
    ``problems`` has (node, reason). ``refusal`` is why this controller could not place a fragment.
    ``clocks`` has (node, offset from this controller's clock, error of that), in us.
    """

    standings: tuple[tuple[str, str], ...] = ()
    ready: tuple[int, ...] = ()
    fenced: tuple[int, ...] = ()
    unplaced: tuple[tuple[str, str, str], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    refusal: str = ""
    clocks: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class StateFrame:
    """The state of one controller; while the network is split, others may have another one.

    A node receives the state after each change, with 0 as ``id``. ``is_new``: the controller began
    without a record, that of a new deployment or one that has been lost. ``resign``: placement
    numbers of copies of parts there that are to resign, if their followers are ready.
    """

    id: int
    controller: str
    view_number: int
    members: tuple[str, ...]
    state: ControlState
    nodes: NodeReport
    is_new: bool = False
    resign: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshFrame:
    """A new view. ``overridden`` names operations answered here that the merge has overridden."""

    view_number: int
    members: tuple[str, ...]
    overridden: tuple[Stamp, ...]


Frame = (
    Challenge | Hello | Welcome | RefusedFrame | PeerFrame | RequestFrame | ResponseFrame
    | StateRequest | StateFrame | RefreshFrame | NodeBeat | TimeRequest | TimeFrame | RecordFrame
)  # fmt: skip


CONNECTED_ALREADY: Final = "is connected already"
"""In the reason with which a controller refuses a second node of a name."""


class LinkError(Exception):
    """The connection failed or was refused, or the other end violated the protocol."""


class LinkClosedError(LinkError):
    """The other end closed the connection."""


class FrameLink:
    """One connection, which carries frames in both directions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def has_tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self._writer.get_extra_info("ssl_object") is not None

    def send(self, frame: Frame) -> bool:
        """Queue a frame; False if the connection is gone or the other end does not read."""
        data = to_bytes(Frame, frame)
        transport = self._writer.transport
        if transport.is_closing() or len(data) > FRAME_BYTES_MAX:
            return False
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            transport.abort()
            return False
        self._writer.write(len(data).to_bytes(_LENGTH_BYTES) + data)
        return True

    async def receive(self, bytes_max: int = FRAME_BYTES_MAX) -> Any:
        """The next frame.

        Raises:
            LinkError: the connection ended, or the bytes received are not a frame.
        """
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES))
            if length > bytes_max:
                raise LinkError(f"a frame of {length} bytes; the limit is {bytes_max}")
            return from_bytes(Frame, await self._reader.readexactly(length))
        except WireError as error:
            raise LinkError(f"not a frame of this protocol: {error}") from None
        except asyncio.IncompleteReadError:
            raise LinkClosedError("the connection was closed") from None
        except OSError as error:
            raise LinkError(f"the connection failed: {why_failed(error)}") from None

    def refuse(self, reason: str) -> None:
        """Send the reason and close."""
        self.send(RefusedFrame(reason))
        self.close()

    def close(self) -> None:
        """Close the connection; queued frames are still sent."""
        self._writer.close()


async def dial(host: str, port: int, tls: LinkTls | None, within_s: float) -> FrameLink:
    """Connect to a controller.

    Raises:
        LinkError: it cannot be reached, or its certificate is refused.
    """
    context = None if tls is None else tls.connecting
    try:
        async with asyncio.timeout(within_s):
            return FrameLink(*await asyncio.open_connection(host, port, ssl=context))
    except OSError as error:  # a TimeoutError is one
        raise LinkError(why_failed(error)) from None


async def accept(link: FrameLink, name: str, roster: tuple[str, ...], secret: bytes) -> Hello:
    """Authenticate the end that connected.

    Raises:
        LinkError: that end is to be refused; the caller sends it the reason.
    """
    challenge = Challenge(PROTOCOL_VERSION, secrets.token_hex(16))
    link.send(challenge)
    hello = await _within(link.receive(HELLO_BYTES_MAX))
    if not isinstance(hello, Hello):
        raise LinkError("expected a hello")
    if hello.version != PROTOCOL_VERSION:
        raise LinkError(f"protocol version {hello.version}; this is version {PROTOCOL_VERSION}")
    expected = _proof(secret, "hello", challenge.nonce, hello)
    if not hmac.compare_digest(hello.proof.encode(), expected.encode()):
        raise LinkError("the shared secret differs")
    if hello.roster and hello.roster != roster:
        raise LinkError(
            f"the controllers are {', '.join(roster)} here and {', '.join(hello.roster)} there"
        )
    link.send(Welcome(name, _proof(secret, "welcome", challenge.nonce, hello)))
    return hello


async def introduce(
    link: FrameLink, name: str, incarnation: int, roster: tuple[str, ...], secret: bytes
) -> str:
    """Authenticate to the end that accepted the connection; returns its name.

    Raises:
        LinkError: the other end refuses, or it does not have the secret.
    """
    try:
        challenge = await _within(link.receive(HELLO_BYTES_MAX))
    except LinkClosedError as error:
        hint = "it may have refused the certificate of this end" if link.has_tls else _ONE_END
        raise LinkError(f"{error}; {hint}") from None
    if isinstance(challenge, RefusedFrame):
        raise LinkError(challenge.reason)
    if not isinstance(challenge, Challenge):
        raise LinkError("expected a challenge")
    unsigned = Hello(PROTOCOL_VERSION, name, incarnation, roster, secrets.token_hex(16), "")
    proof = _proof(secret, "hello", challenge.nonce, unsigned)
    hello = Hello(PROTOCOL_VERSION, name, incarnation, roster, unsigned.nonce, proof)
    link.send(hello)
    welcome = await _within(link.receive(HELLO_BYTES_MAX))
    if isinstance(welcome, RefusedFrame):
        raise LinkError(welcome.reason)
    expected = _proof(secret, "welcome", challenge.nonce, hello)
    if not isinstance(welcome, Welcome) or not hmac.compare_digest(
        welcome.proof.encode(), expected.encode()
    ):
        raise LinkError("the other end does not know the shared secret")
    return welcome.name


async def _within(receiving: Any) -> Any:
    try:
        async with asyncio.timeout(HELLO_S_MAX):
            return await receiving
    except TimeoutError:
        raise LinkError(f"no frame within {HELLO_S_MAX:g} s; {_ONE_END}") from None


def _proof(secret: bytes, direction: str, nonce: str, hello: Hello) -> str:
    fields = (direction, nonce, hello.nonce, hello.name, str(hello.incarnation), *hello.roster)
    return hmac.new(secret, repr(fields).encode(), hashlib.sha256).hexdigest()
