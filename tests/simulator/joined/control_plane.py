"""The controllers of a run: the product's members and its placement.

``tests.iads_simulator`` has members, their network and disks. Here each controller also has the
product's ``Placing``: nodes send it heartbeats, it sends them the state of its record after each
change, and requests the moves that it plans. The shell that does this in the product is
``controller.nodes``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.iads_simulator import world as iads
from tests.iads_simulator.world import Plan, _Node

from slackwater.control.admission import why_refused_on_nodes
from slackwater.control.control_object import (
    AcknowledgeView,
    ControlResponse,
    Operation,
    greatest_view,
    view_of_number,
)
from slackwater.control.control_state import ControlState, join
from slackwater.control.placement import NodeReports
from slackwater.control.placing import Placing
from slackwater.control.recorded import fragment_specs, lacks_queries
from slackwater.controller.nodes import GATHER_S, PLAN_S_MIN
from slackwater.protocols.iads.messages import MemberEffect, RespondToClient, SavedMembership

if TYPE_CHECKING:
    from tests.simulator.joined.node import Beat, Connection
    from tests.simulator.joined.world import JoinedWorld

GATHER_US: Final = round(GATHER_S * 1e6)
PLAN_US_MIN: Final = round(PLAN_S_MIN * 1e6)

Then = Callable[[ControlResponse], None]


class ControlPlane(iads.World):
    """All controllers."""

    def __init__(
        self, world: JoinedWorld, names: tuple[str, ...], delay_us: int, loss: float, end_us: int
    ) -> None:
        plan = Plan(world.seed, names, delay_us, loss, (), (), end_us, control=True)
        super().__init__(plan, world.scheduler)
        self.world = world
        self.placings: dict[str, Placing] = {}
        self._connections: dict[str, dict[str, Connection]] = {name: {} for name in names}
        self._new: set[str] = set()
        """Controllers that have lost their disks, and have taken no record since."""
        self._beats: dict[tuple[str, str], object] = {}
        """By controller and node: the last heartbeat."""
        self._reported: dict[str, ControlState] = {}
        self._acknowledged: dict[str, object] = {}
        """By controller: its life, and the view that it has acknowledged last."""
        self._then: dict[str, Then] = {}
        self._sending: set[str] = set()
        self._planned_at: dict[str, int] = {}
        self._plan_due: dict[str, int] = {}

    def reports(self, name: str) -> NodeReports:
        """What a controller knows of the nodes."""
        return self.placings[name].reports(self.now)

    def state(self, name: str) -> ControlState:
        """The record at a controller."""
        state: ControlState = self.nodes[name].object.state
        return state

    def view_number(self, name: str) -> int:
        """The number of a controller's view; it runs."""
        member = self.nodes[name].member
        assert member is not None
        return member.endpoint.myview.number

    def works(self, name: str) -> bool:
        """Whether a controller runs."""
        return self.nodes[name].member is not None and self.now >= self.nodes[name].paused_until

    # Faults.

    def crash(self, name: str) -> None:
        """Kill -9: connections break."""
        self.nodes[name].member = None
        for connection in self._connections[name].values():
            connection.broke(name)
        self._connections[name].clear()

    def lose(self, name: str) -> None:
        """Kill -9, and the loss of its disk. Its next incarnation is greater: it has the time."""
        self.crash(name)
        node = self.nodes[name]
        node.saved = SavedMembership(incarnation=node.saved.incarnation + 1_000)
        node.state = ControlState()
        self._new.add(name)

    def take(self, name: str, record: ControlState) -> None:
        """A node's record arrives, which a controller without one takes."""
        if not self.works(name) or name not in self._new:
            return
        if lacks_queries(self.state(name), record):
            self._new.discard(name)
            self.nodes[name].state = join(self.state(name), record)
            self._live_again(name)

    def _live_again(self, name: str) -> None:
        self.crash(name)
        node = self.nodes[name]
        used = max(node.saved.view_number, greatest_view(node.state))
        node.saved = node.saved._replace(view_number=used)
        self._restart(node)

    def restart(self, name: str) -> None:
        """Start a controller that was killed."""
        if self.nodes[name].member is None:
            self._restart(self.nodes[name])

    def pause(self, name: str, for_us: int) -> None:
        """SIGSTOP, and SIGCONT later."""
        self.nodes[name].paused_until = max(self.nodes[name].paused_until, self.now + for_us)

    def split(self, one: str, other: str) -> None:
        """Cut the network between two controllers, in both directions."""
        self._cut |= {(one, other), (other, one)}

    def heal_network(self) -> None:
        """Heal all cuts between controllers."""
        self._cut.clear()

    # Requests.

    def ask(self, name: str, operation: Operation, then: Then = lambda _: None) -> None:
        """Request an operation as a client: the controller may refuse it before it is recorded."""
        refusal = why_refused_on_nodes(operation, self.state(name))
        if refusal:
            then(ControlResponse(refusal))
        else:
            self.request(name, operation, then)

    def request(self, name: str, operation: Operation, then: Then = lambda _: None) -> None:
        """Request an operation at a controller; ``then`` gets the response, if there is one."""
        self._count += 1
        request_id = f"own {self._count}"
        self._then[request_id] = then
        self._request(self.nodes[name], request_id, operation)

    def _restart(self, node: _Node) -> None:
        self.placings[node.name] = Placing(node.name, fragment_specs, self.now)
        self._plan_due.pop(node.name, None)
        self._sending.discard(node.name)
        super()._restart(node)
        self._plan_soon(node.name)

    def _carry_out(self, node: _Node, effects: list[MemberEffect]) -> None:
        super()._carry_out(node, effects)
        for effect in effects:
            if isinstance(effect, RespondToClient) and effect.request_id in self._then:
                self._then.pop(effect.request_id)(effect.response)
        if node.object.state is not self._reported.get(node.name):
            self._reported[node.name] = node.object.state
            self._changed(node.name)
            member, greatest = node.member, node.object.state.number_greatest
            if member is not None and view_of_number(greatest) > member.endpoint.myview.number:
                self._live_again(node.name)

    def _refreshed(self, node: _Node) -> None:
        super()._refreshed(node)
        assert node.member is not None
        view = node.member.endpoint.myview
        self.placings[node.name].view(view.number, view.names, self.now)
        self._changed(node.name)

    def _forgets(self, node: _Node) -> None:
        self._acknowledge(node.name)

    def _acknowledge(self, name: str) -> None:
        """Acknowledge the view, once, when its deletions have been carried out."""
        member = self.nodes[name].member
        assert member is not None
        view, state = member.endpoint.myview, self.state(name)
        life = member.group.me, view.number
        if self._acknowledged.get(name) == life or not state.has_tombstones():
            return
        if self.placings[name].may_forget(state):
            self._acknowledged[name] = life
            self._at(self.now, partial(self.request, name, AcknowledgeView(view.number)))

    # Nodes.

    def beat(self, name: str, connection: Connection, beat: Beat) -> None:
        """A node's heartbeat arrives."""
        if not self.works(name):
            return
        placing, node = self.placings[name], connection.node.name
        other = self._connections[name].get(node)
        if other is not connection:
            if other is not None and placing.is_connected(node, self.now):
                return  # it is refused: another process has this name
            self._connections[name][node] = connection
            self._send(name, connection)
        placing.heartbeat(node, beat.ready, beat.fenced, self.now, beat.ended, beat.answering)
        if self._beats.get((name, node)) != (connection, beat):
            self._beats[name, node] = connection, beat
            self._plan_soon(name)

    def closed(self, name: str, connection: Connection) -> None:
        """A node's process has ended, and so its connection."""
        if self._connections[name].get(connection.node.name) is connection:
            del self._connections[name][connection.node.name]
            self.placings[name].closed(connection.node.name, self.now)
            self._plan_soon(name)

    def send_again(self, name: str, node: str) -> None:
        """Send the state to a node that may have missed the last one."""
        connection = self._connections[name].get(node)
        if connection is not None and self.nodes[name].member is not None:
            self._send(name, connection)

    def _changed(self, name: str) -> None:
        self._plan_soon(name)
        if name in self._sending:
            return
        self._sending.add(name)

        def send() -> None:
            self._sending.discard(name)
            if self.nodes[name].member is None:
                return
            for connection in self._connections[name].values():
                self._send(name, connection)

        self._at(self.now + GATHER_US, send)

    def _send(self, name: str, connection: Connection) -> None:
        state, is_new = self.state(name), name in self._new
        self._at(
            self.now + self.world.link_us(),
            partial(connection.receive, name, state, is_new=is_new),
        )

    def _ask_to_resign(self, name: str, node: str, number: int) -> None:
        connection = self._connections[name].get(node)
        if connection is not None:
            self.world.note(name, f"asks {number} on {node} to resign")
            self._at(self.now + self.world.link_us(), partial(connection.resign, name, number))

    def _plan_soon(self, name: str, at: int = 0) -> None:
        node, earliest = self.nodes[name], self._planned_at.get(name, -PLAN_US_MIN) + PLAN_US_MIN
        due, member = max(at, earliest, self.now), node.member
        pending = self._plan_due.get(name)
        if pending is not None and pending <= due:
            return
        self._plan_due[name] = due

        def act() -> None:
            if node.member is not member or member is None or self._plan_due.get(name) != due:
                return
            del self._plan_due[name]
            if self.now < node.paused_until:
                self._plan_soon(name, node.paused_until)
            else:
                self._plan(name)

        self._at(due, act)

    def _plan(self, name: str) -> None:
        self._planned_at[name] = self.now
        placing: Any = self.placings[name]
        moves = placing.moves(self.state(name), self.now)
        for move in moves:
            self.request(name, move)
        if not moves and (found := placing.resignation(self.state(name), self.now)) is not None:
            self._ask_to_resign(name, *found)
        self._acknowledge(name)
        due = placing.next_deadline(self.now)
        if due is not None:
            self._plan_soon(name, due)
