"""Members on a simulated network: delays, loss, cuts by direction, crashes and pauses, all seeded.

A plan is data. ``run(plan)`` returns a history, which is the only input of the checkers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NamedTuple

from tests.iads_simulator.control import Entries, ObservedControl, draw_operation
from tests.simulator.clock import Scheduler

from slackwater.control.control_object import AcknowledgeView
from slackwater.control.control_state import ControlState
from slackwater.protocols.iads.member import Member
from slackwater.protocols.iads.messages import (
    MemberEffect,
    Payload,
    PersistMembership,
    PersistState,
    RefreshClient,
    RespondToClient,
    SavedMembership,
    Stamp,
    TransmitMessage,
    View,
)

QUIET_US = 4_000_000
"""Time after the last fault for which everything is connected."""


class LogObject:
    """All operations by stamp: a join, in which each response is the number of operations."""

    def __init__(self, state: frozenset[tuple[Stamp, Any]] = frozenset()) -> None:
        self.state = state
        self.applied: list[Stamp] = []

    def apply(self, operation: Any, stamp: Stamp) -> int:
        self.state |= {(stamp, operation)}
        self.applied.append(stamp)
        return len(self.state)

    def merge(self, states: Mapping[str, Any]) -> None:
        self.state = frozenset().union(*states.values())

    def snapshot(self) -> Any:
        return self.state


class Fault(NamedTuple):
    """At ``at``: kind cut, heal, crash, die, restart or pause, of ``one`` (and ``other``).

    ``die``: a crash between two of its next effects.
    """

    at: int
    kind: str
    one: str
    other: str = ""
    us: int = 0


@dataclass(frozen=True)
class Plan:
    seed: int
    names: tuple[str, ...]
    delay_us: int
    loss: float
    faults: tuple[Fault, ...]
    requests: tuple[tuple[int, str], ...]
    end: int
    jitter: float = 0.2
    """The maximum additional delay of a message, as a share of ``delay_us``."""
    control: bool = False
    """The object is the control object, in place of a log of all operations."""


def draw(seed: int, *, control: bool = False) -> Plan:
    """Draw the plan of a seed, with either object."""
    rng = Random(seed)
    names = tuple("abcde"[: rng.choice((1, 2, 3, 3, 3, 4, 5))])
    busy = rng.randrange(1_000_000, 6_000_000)
    faults = []
    for _ in range(rng.randrange(0, 10)):
        kind = rng.choice(("cut", "cut", "heal", "crash", "die", "restart", "pause"))
        one, other = rng.choice(names), rng.choice(names)
        faults.append(Fault(rng.randrange(busy), kind, one, other, rng.randrange(50_000, 900_000)))
    count = rng.randrange(1, 60)
    requests = tuple(
        sorted((rng.randrange(busy + QUIET_US), rng.choice(names)) for _ in range(count))
    )
    loss = rng.choice((0.0, 0.0, 0.02, 0.1))
    delay = rng.choice((100, 2_000, 10_000, 50_000))
    end = busy + QUIET_US
    if control:  # what is requested later would not be in all states at the end
        requests = tuple((at, name) for at, name in requests if at < end - 600_000)
    return Plan(seed, names, delay, loss, tuple(sorted(faults)), requests, end, control=control)


class Life(NamedTuple):
    name: str
    incarnation: int


@dataclass
class History:
    """Observations, by life of a member."""

    end: int = 0
    last_fault: int = 0
    views: dict[Life, list[tuple[int, View, frozenset[str]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    delivered: dict[tuple[Life, View], list[tuple[str, Payload]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    ordered: dict[tuple[Life, View], list[Stamp]] = field(default_factory=lambda: defaultdict(list))
    requested: dict[str, tuple[int, Life]] = field(default_factory=dict)
    answered: list[tuple[int, Life, RespondToClient]] = field(default_factory=list)
    refreshed: dict[Life, list[tuple[int, RefreshClient]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    blocked: dict[Life, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Times at which a member had another membership than that of its view."""
    merged: list[tuple[int, Life, View, frozenset[str]]] = field(default_factory=list)
    """The members whose states were merged."""
    died: set[tuple[int, Life]] = field(default_factory=set)
    """The members that crashed between two of their effects."""
    final: dict[str, tuple[View, bool, Any]] = field(default_factory=dict)
    """View, whether it is stable, and state."""
    control: Entries | None = None
    """With the control object: what was done to its entries."""
    named: dict[Life, set[Stamp]] = field(default_factory=lambda: defaultdict(set))
    """The operations that a merge has overridden, as clients of this life are told."""
    overridden: set[Stamp] = field(default_factory=set)
    """Those of all members."""


class _Node:
    """One controller, its disk, and its present life."""

    def __init__(self, name: str, made: Callable[[Any], Any], state: Any) -> None:
        self.name = name
        self.saved = SavedMembership()
        self.state = state
        self.member: Member | None = None
        self.made = made
        self.object = made(state)
        self.paused_until = 0
        self.dies = False

    @property
    def life(self) -> Life:
        assert self.member is not None
        return Life(*self.member.group.me)


class World:
    """Runs a plan; ``scheduler``: on this one, from its present time on."""

    def __init__(self, plan: Plan, scheduler: Scheduler | None = None) -> None:
        self.plan = plan
        self.scheduler = Scheduler(plan.seed, 0) if scheduler is None else scheduler
        self._began = self.scheduler.now
        self.history = History(end=plan.end)
        self._rng = Random(plan.seed + 1)
        self._count = 0
        self._cut: set[tuple[str, str]] = set()
        self._last: dict[tuple[str, str], int] = {}
        made: Callable[[Any], Any] = LogObject
        state: Any = frozenset()
        if plan.control:
            self.history.control = noted = Entries()
            made = partial(ObservedControl, frozenset(plan.names), noted=noted)
            state = ControlState()
        self.nodes = {name: _Node(name, made, state) for name in plan.names}
        self._quiet = plan.end - QUIET_US

    @property
    def now(self) -> int:
        """Time since the start."""
        return self.scheduler.now - self._began

    def run(self) -> History:
        """Run the plan."""
        self.begin()
        self.scheduler.run_until(self.plan.end)
        return self.finish()

    def begin(self) -> None:
        """Schedule all of the plan."""
        for node in self.nodes.values():
            self._at(self._rng.randrange(50_000), partial(self._restart, node))
        for fault in self.plan.faults:
            self._at(fault.at, partial(self._fault, fault))
        self._at(self._quiet, self._heal_all)
        for k, (at, name) in enumerate(self.plan.requests):
            operation = draw_operation(self.plan.seed, k) if self.plan.control else f"r{k}"
            self._at(at, partial(self._request, self.nodes[name], f"r{k}", operation))

    def finish(self) -> History:
        """Complete the history."""
        self.history.last_fault = self._quiet
        for node in self.nodes.values():
            assert node.member is not None
            endpoint = node.member.endpoint
            self.history.final[node.name] = endpoint.myview, endpoint.is_stable, node.object.state
        return self.history

    def _at(self, at: int, act: Callable[[], None]) -> None:
        self.scheduler.at(self._began + at, act)

    def _fault(self, fault: Fault) -> None:
        node = self.nodes[fault.one]
        match fault.kind:
            case "cut":
                self._cut.add((fault.one, fault.other))
                if fault.us % 2:
                    self._cut.add((fault.other, fault.one))
            case "heal":
                self._cut -= {c for c in self._cut if fault.one in c}
            case "crash":
                node.member = None
            case "die":
                node.dies = True
            case "restart":
                self._restart(node)
            case "pause":
                node.paused_until = self.now + fault.us

    def _heal_all(self) -> None:
        self._cut.clear()
        for node in self.nodes.values():
            node.paused_until, node.dies = 0, False
            if node.member is None:
                self._restart(node)

    def _restart(self, node: _Node) -> None:
        peers = frozenset(self.plan.names)
        node.object = node.made(node.state)
        node.member = member = Member(node.name, peers, node.saved, node.object)
        self._observe(node, member)
        self._carry_out(node, member.start(self.now))
        self._wake(node, member)

    def _observe(self, node: _Node, member: Member) -> None:
        endpoint, life, history = member.endpoint, node.life, self.history
        deliver, install, step = endpoint.deliver, endpoint.view, endpoint._run
        merge, block = node.object.merge, endpoint.block

        def on_deliver(q: str, m: Payload) -> Any:
            history.delivered[life, endpoint.myview].append((q, m))
            return deliver(q, m)

        def on_view(v: View, transitional: frozenset[str]) -> Any:
            history.views[life].append((self.now, v, transitional))
            return install(v, transitional)

        def on_step() -> Any:
            done = len(node.object.applied)
            effects = step()
            history.ordered[life, endpoint.myview] += node.object.applied[done:]
            return effects

        def on_block() -> Any:
            history.blocked[life].append(self.now)
            return block()

        def on_merge(states: Mapping[str, Any]) -> None:
            history.merged.append((self.now, life, endpoint.myview, frozenset(states)))
            merge(states)

        endpoint.block = on_block  # type: ignore[method-assign]
        node.object.merge = on_merge
        endpoint.deliver = on_deliver  # type: ignore[method-assign]
        endpoint.view = on_view  # type: ignore[assignment,method-assign]
        endpoint._run = on_step  # type: ignore[method-assign]

    def _wake(self, node: _Node, member: Member) -> None:
        at = max(member.next_deadline(), self.now + 1)

        def tick() -> None:
            if node.member is not member:
                return
            if self.now < node.paused_until:
                self._at(node.paused_until, tick)
                return
            if self.now >= member.next_deadline():
                self._carry_out(node, member.tick(self.now))
            self._wake(node, member)

        self._at(at, tick)

    def _request(self, node: _Node, request_id: str, operation: Any) -> None:
        if node.member is not None:
            self.history.requested[request_id] = self.now, node.life
            self._carry_out(node, node.member.request(request_id, operation, self.now))

    def _refreshed(self, node: _Node) -> None:
        """What a controller does at a refresh, with the control object."""
        assert node.member is not None
        overridden = node.object.take_overridden()
        self.history.overridden |= {*overridden}
        self.history.named[node.life] |= {s for s in overridden if s.sender == node.name}
        self._forgets(node)

    def _forgets(self, node: _Node) -> None:
        """Acknowledge the view, so that tombstones are dropped."""
        assert node.member is not None
        if node.object.state.has_tombstones():
            self._count += 1
            view = node.member.endpoint.myview.number
            acknowledge = AcknowledgeView(view)
            self._at(self.now, partial(self._request, node, f"own {self._count}", acknowledge))

    def _carry_out(self, node: _Node, effects: list[MemberEffect]) -> None:
        dies = node.dies and len(effects) > 1
        for effect in effects[: self._rng.randrange(1, len(effects))] if dies else effects:
            match effect:
                case PersistMembership(saved):
                    node.saved = saved
                    self.history.numbers[node.name].append(saved.view_number)
                case PersistState(state):
                    node.state = state
                case TransmitMessage():
                    self._transmit(node, effect)
                case RespondToClient():
                    self.history.answered.append((self.now, node.life, effect))
                case RefreshClient():
                    self.history.refreshed[node.life].append((self.now, effect))
                    if self.plan.control:
                        self._refreshed(node)
        if dies:
            self.history.died.add((self.now, node.life))
            node.member, node.dies = None, False

    def _transmit(self, node: _Node, effect: TransmitMessage) -> None:
        link = node.name, effect.to
        quiet = self.now >= self._quiet
        if link in self._cut or (not quiet and self._rng.random() < self.plan.loss):
            return
        jitter = self._rng.randrange(int(self.plan.delay_us * self.plan.jitter) + 1)
        arrival = max(self.now + self.plan.delay_us + jitter, self._last.get(link, 0))
        self._last[link] = arrival
        assert node.member is not None
        sender, target = node.member.group.me, self.nodes[effect.to]

        def arrive() -> None:
            if self.now < target.paused_until:
                self._at(target.paused_until, arrive)
            elif target.member is not None and link not in self._cut:
                effects = target.member.receive(sender, effect.message, self.now)
                self._carry_out(target, effects)

        self._at(arrival, arrive)


def run(plan: Plan) -> History:
    """Return the history of a plan."""
    return World(plan).run()
