"""The shell of a controller: it runs the protocol's core over TCP and a store.

Each controller dials every peer, and sends to a peer only on the connection that it has dialled.
From connections that peers have dialled it only reads. Each direction therefore fails by itself, as
the core assumes. The core repeats lost messages, so a message without a connection is dropped. Time
is the event loop's monotonic clock. The only timers are the core's deadline and the pause before a
peer is dialled again.

Effects are carried out in order on the event loop, including the synchronisation of the file, since
no later effect may come before it. If it fails, the controller ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from slackwater.control.control_object import (
    AcknowledgeView,
    ControlObject,
    ControlResponse,
    LeaveController,
    Operation,
    view_of_number,
)
from slackwater.control.control_state import ControlState, join
from slackwater.control.placing import SUSPICION, Specs, Suspicion
from slackwater.control.recorded import lacks_queries
from slackwater.controller.accepting import accept_tls
from slackwater.controller.address import Address
from slackwater.controller.links import (
    HELLO_S_MAX,
    FrameLink,
    Hello,
    LinkClosedError,
    LinkError,
    NodeBeat,
    PeerFrame,
    RecordFrame,
    RefreshFrame,
    RequestFrame,
    ResponseFrame,
    StateFrame,
    StateRequest,
    TimeFrame,
    TimeRequest,
    accept,
    dial,
    introduce,
)
from slackwater.controller.nodes import ConnectedNodes
from slackwater.controller.store import Store
from slackwater.controller.tls import LinkTls
from slackwater.model.errors import EnvironmentProblem
from slackwater.protocols.iads.member import Member
from slackwater.protocols.iads.messages import (
    MemberEffect,
    PersistMembership,
    PersistState,
    RefreshClient,
    RefuseRequest,
    RespondToClient,
    Stamp,
    TransmitMessage,
)
from slackwater.protocols.iads.topology import Process
from slackwater.runtime.service.clock import SystemClock

CLIENTS_MAX: Final = 256
DIAL_S_MAX: Final = 2.0
DIAL_PAUSE_S_MIN: Final = 0.05
DIAL_PAUSE_S_MAX: Final = 0.5
NEW_S_MAX: Final = 60.0
"""How long after its first start a controller takes the record of a node that lacks queries there.
"""
_OWN: Final = "own"
"""The request id of operations that the controller itself requests."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Options of a controller; ``peers`` has the addresses of the others, by name.

    All controllers must be configured with the same names.
    """

    name: str
    listen: Address
    peers: Mapping[str, Address]
    secret: bytes = field(default=b"", repr=False)
    tls: LinkTls | None = None
    suspicion: Suspicion = SUSPICION

    @property
    def roster(self) -> tuple[str, ...]:
        """All controllers."""
        return tuple(sorted({self.name, *self.peers}))


class Controller:
    """One controller; ``run`` may be called once."""

    def __init__(
        self,
        config: ControllerConfig,
        store: Store,
        *,
        admit: Callable[[Operation], str] = lambda _: "",
        specs_of: Specs = lambda _: (),
        may_forget: Callable[[ControlState], bool] = lambda _: True,
        clock: Callable[[], SystemClock] = SystemClock,
    ) -> None:
        """Prepare a controller.

        Args:
            config: its name, its port and the other controllers.
            store: its file.
            admit: returns why a client's operation is refused; empty if it is not.
            specs_of: returns what is to run on nodes in a state.
            may_forget: returns whether tombstones of a state may be dropped; nodes are asked, too.
            clock: makes a clock with the machine's present time, with which nodes compare theirs.
        """
        self._config: Final = config
        self._admit, self._specs_of, self._clock = admit, specs_of, clock
        self._may_forget = may_forget
        self._nodes: ConnectedNodes
        self._reported: ControlState | None = None
        self._acknowledged = -1  # the view that it has acknowledged last
        self._is_started = asyncio.Event()
        self._store = store
        self._new_until_us = 0  # until then it takes the record of a node: it began without one
        self._object, self._member = self._life()
        self._outbound: dict[str, FrameLink] = {}
        self._inbound: dict[str, tuple[int, FrameLink]] = {}
        self._clients: set[FrameLink] = set()
        self._requested: dict[str, tuple[FrameLink, int]] = {}
        self._requests_count = 0
        self._dial_now = {name: asyncio.Event() for name in config.peers}
        self._failure: asyncio.Future[None] | None = None
        self._server: asyncio.Server | None = None

    async def started(self) -> Address:
        """Wait until clients can connect; returns where (the port may have been chosen)."""
        await self._is_started.wait()
        assert self._server is not None
        return Address(*self._server.sockets[0].getsockname()[:2])

    @property
    def state(self) -> ControlState:
        """The object's state."""
        return self._object.state

    def request(self, operation: Operation) -> None:
        """Request an operation of this process itself, without a check by ``admit``.

        ``ConnectedNodes`` gets the reason of a refusal. The controller ends if the effects cannot
        be carried out; the caller does not get the error.
        """
        try:
            self._step(self._member.request(_OWN, operation, self._now()))
        except Exception as error:  # noqa: BLE001 (run raises it)
            self._fail(error)

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until ``stopping`` is set.

        Raises:
            EnvironmentProblem: the port is taken, or the file cannot be written.
        """
        listen, tls = self._config.listen, self._config.tls
        self._failure = asyncio.get_running_loop().create_future()
        try:
            self._server = await (
                asyncio.start_server(self._serve, listen.host, listen.port)
                if tls is None
                else accept_tls(self._serve, *listen, tls.accepting, HELLO_S_MAX)
            )
        except OSError as error:
            raise EnvironmentProblem(f"--listen {listen}: {error.strerror or error}") from None
        self._nodes = ConnectedNodes(
            self._config.name,
            self._specs_of,
            suspicion=self._config.suspicion,
            state=lambda: self._object.state,
            frame=lambda: self._state_frame(0),
            request=self.request,
            planned=lambda: self._step(self._acknowledge()),
        )
        tasks = [asyncio.create_task(self._guard(self._nodes.run()))]
        if self._store.is_new:
            self._new_until_us = self._now() + round(NEW_S_MAX * 1e6)
        self._step(self._member.start(self._now()))
        self._is_started.set()
        dialing = map(self._dial, self._dial_now)
        tasks += [asyncio.create_task(self._guard(each)) for each in (self._tick(), *dialing)]
        ending = asyncio.create_task(stopping.wait())
        try:
            both: set[asyncio.Future[Any]] = {ending, self._failure}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
        finally:
            self._server.close()
            for task in (*tasks, ending):
                task.cancel()
            await asyncio.gather(*tasks, ending, return_exceptions=True)
            self._close_links()
            self._failure.cancel()

    # The core

    def _step(self, effects: list[MemberEffect]) -> None:
        waiting = deque(effects)
        while waiting:
            match waiting.popleft():
                case PersistMembership(saved):
                    self._store.save_membership(saved)
                case PersistState(state):
                    self._store.save_state(state)
                case TransmitMessage(to, message):
                    link = self._outbound.get(to)
                    if link is not None:
                        link.send(PeerFrame(message))
                case RespondToClient(request_id, response, stamp):
                    self._respond(request_id, response, stamp)
                case RefuseRequest(request_id):
                    refusal = ControlResponse("too many operations wait; try again")
                    self._respond(request_id, refusal, Stamp(0, 0, ""))
                case RefreshClient():
                    waiting.extend(self._refresh())
        if self._object.state is not self._reported:
            self._reported = self._object.state
            self._nodes.changed()
            greatest = view_of_number(self._object.state.number_greatest)
            if greatest > self._member.endpoint.myview.number:
                self._live_again(f"a node has placement numbers of view {greatest}")

    def _life(self) -> tuple[ControlObject, Member]:
        """The object and the member as they follow from the file."""
        config, store = self._config, self._store
        found = ControlObject(frozenset(config.roster), store.state)
        return found, Member(config.name, frozenset(config.peers), store.saved, found)

    def _live_again(self, why: str) -> None:
        """Go on as after kill -9 and a restart: with greater view numbers than any in the file."""
        _log.warning("%s: this controller begins again, with greater numbers", why)
        self._object, self._member = self._life()
        self._requested.clear()
        self._close_links()
        self._step(self._member.start(self._now()))

    def _close_links(self) -> None:
        inbound = [link for _, link in self._inbound.values()]
        for link in (*self._clients, *self._outbound.values(), *inbound):
            link.close()

    def _take(self, record: ControlState) -> None:
        """Take the record of a node, if this controller has lost its own."""
        if self._now() < self._new_until_us and lacks_queries(self._object.state, record):
            self._new_until_us = 0
            self._store.save_state(join(self._object.state, record))
            self._live_again(f"the record is that of a node, with {len(record.queries)} queries")

    def _respond(self, request_id: str, response: ControlResponse, stamp: Stamp) -> None:
        if request_id != _OWN:
            link, frame_id = self._requested.pop(request_id)
            link.send(ResponseFrame(frame_id, response, stamp))
        elif response.refusal:
            self._nodes.refused(response.refusal)

    def _refresh(self) -> list[MemberEffect]:
        view = self._member.endpoint.myview
        name = self._config.name
        overridden = tuple(s for s in self._object.take_overridden() if s.sender == name)
        for stamp in overridden:
            _log.warning("a merge has overridden the operation %s", stamp)
        _log.info("view %d: %s", view.number, ", ".join(sorted(view.names)))
        for link in self._clients:
            link.send(RefreshFrame(view.number, tuple(sorted(view.names)), overridden))
        self._nodes.view(view.number, frozenset(view.names))
        return self._acknowledge()

    def _acknowledge(self) -> list[MemberEffect]:
        """Acknowledge the view, once, when its deletions have been carried out."""
        view, state = self._member.endpoint.myview, self._object.state
        if view.number == self._acknowledged or not state.has_tombstones():
            return []
        if not (self._may_forget(state) and self._nodes.may_forget(state)):
            return []
        self._acknowledged = view.number
        return self._member.request(_OWN, AcknowledgeView(view.number), self._now())

    async def _tick(self) -> None:
        # No event brings the deadline forward: a peer is suspected later than the next heartbeat.
        while True:
            await asyncio.sleep(max(0, self._member.next_deadline() - self._now()) / 1e6)
            self._step(self._member.tick(self._now()))

    def _now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1e6)

    async def _guard(self, running: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine; an error of it ends the controller."""
        try:
            await running
        except Exception as error:  # noqa: BLE001 (run raises it)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        assert self._failure is not None
        if isinstance(error, OSError):
            error = EnvironmentProblem(f"the controller ends: {error}")
        if not self._failure.done():
            self._failure.set_exception(error)

    # Connections

    async def _dial(self, peer: str) -> None:
        pause_s, reason = DIAL_PAUSE_S_MIN, ""
        while True:
            try:
                await self._hold(peer)
                pause_s = DIAL_PAUSE_S_MIN
            except LinkError as error:
                if str(error) != reason:
                    reason = str(error)
                    _log.info("controller %s: %s", peer, reason)
            self._dial_now[peer].clear()
            try:
                async with asyncio.timeout(pause_s):
                    await self._dial_now[peer].wait()
            except TimeoutError:
                pause_s = min(2 * pause_s, DIAL_PAUSE_S_MAX)

    async def _hold(self, peer: str) -> None:
        """Keep a connection to a peer, and return when it breaks.

        Raises:
            LinkError: no connection could be established.
        """
        config, address = self._config, self._config.peers[peer]
        try:
            link = await dial(address.host, address.port, config.tls, DIAL_S_MAX)
        except LinkError as error:
            raise LinkError(f"{address}: {error}") from None
        try:
            incarnation = self._member.group.me.incarnation
            name = await introduce(link, config.name, incarnation, config.roster, config.secret)
            if name != peer:
                raise LinkError(f"{address}: it is controller {name!r}")
            self._outbound[peer] = link
            try:
                await link.receive()
            except LinkError:
                return
        finally:
            self._outbound.pop(peer, None)
            link.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # At the end of the loop connections are cancelled, which asyncio's streams log as an error.
        with contextlib.suppress(asyncio.CancelledError):
            await self._guard(self._serve_link(FrameLink(reader, writer)))

    async def _serve_link(self, link: FrameLink) -> None:
        config = self._config
        try:
            hello = await accept(link, config.name, config.roster, config.secret)
            if hello.roster:
                await self._serve_peer(link, hello)
            else:
                await self._serve_client(link)
        except LinkClosedError:
            pass  # the other end has closed the connection
        except LinkError as error:
            _log.info("a connection ends: %s", error)
            link.refuse(str(error))
        finally:
            link.close()

    async def _serve_peer(self, link: FrameLink, hello: Hello) -> None:
        name, incarnation = hello.name, hello.incarnation
        if name not in self._config.peers:
            raise LinkError(f"{name!r} is not one of the other controllers")
        newest, older = self._inbound.get(name, (0, None))
        if incarnation < newest:
            raise LinkError(f"controller {name!r} has a newer incarnation, {newest}")
        if older is not None:
            older.close()
        self._inbound[name] = incarnation, link
        self._dial_now[name].set()
        process = Process(name, incarnation)
        try:
            while True:
                frame = await link.receive()
                if not isinstance(frame, PeerFrame):
                    raise LinkError("expected a message of the group")
                self._step(self._member.receive(process, frame.message, self._now()))
        finally:
            if self._inbound.get(name) == (incarnation, link):
                del self._inbound[name]

    async def _serve_client(self, link: FrameLink) -> None:
        if len(self._clients) >= CLIENTS_MAX:
            raise LinkError(f"{CLIENTS_MAX} clients are connected already")
        self._clients.add(link)
        try:
            while True:
                match await link.receive():
                    case RequestFrame(frame_id, operation):
                        if refusal := self._why_refused(operation):
                            no_stamp = Stamp(0, 0, "")
                            link.send(ResponseFrame(frame_id, ControlResponse(refusal), no_stamp))
                            continue
                        self._requests_count += 1
                        request_id = str(self._requests_count)
                        self._requested[request_id] = link, frame_id
                        self._step(self._member.request(request_id, operation, self._now()))
                    case StateRequest(frame_id):
                        link.send(self._state_frame(frame_id))
                    case TimeRequest(frame_id):
                        link.send(TimeFrame(frame_id, self._clock().now_us()))
                    case NodeBeat() as beat:
                        self._nodes.beat(link, beat)
                    case RecordFrame(record):
                        self._take(record)
                    case _:
                        raise LinkError("expected a request")
        finally:
            self._clients.discard(link)
            self._nodes.closed(link)

    def _why_refused(self, operation: Operation) -> str:
        if (
            isinstance(operation, LeaveController)
            and operation.controller in self._member.endpoint.myview.names
        ):
            return f"controller {operation.controller} runs: stop it first"
        try:
            return self._admit(operation)
        except Exception as error:  # noqa: BLE001 -- no definition may end a controller
            _log.exception("an operation is refused, since it cannot be checked")
            return f"the operation cannot be checked: {error!r}"

    def _state_frame(self, frame_id: int) -> StateFrame:
        view, state = self._member.endpoint.myview, self._object.state
        at = frame_id, self._config.name, view.number, tuple(sorted(view.names))
        is_new = self._now() < self._new_until_us
        return StateFrame(*at, state, self._nodes.report(), is_new)
