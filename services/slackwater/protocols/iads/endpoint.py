"""The application end-point: the automaton IADS_p of the paper's Figure 4, variable by variable.

| paper | here | what |
|---|---|---|
| obj | ``obj`` | the replica of the object |
| inp | ``inp`` | requests that are not sent yet |
| out | the returned effects | responses and refreshes |
| lt[q] | ``lt`` | logical times known in the view |
| ops[q] | ``ops`` | operations received in the view and not applied yet |
| myview | ``myview`` | the current view |
| mode | ``mode`` | NORMAL, or ST: state transfer |
| block_status | ``block_status`` | UNBLOCKED, REQUESTED, BLOCKED |
| send_state | ``send_state`` | this member sends the state of SS |
| SS | ``SS`` | the members whose objects equal this one |
| StatesV | ``StatesV`` | states collected in the view |
| States_Await | ``States_Await`` | members whose state is still missing |

Differences from the printed figure, all stated in ``docs/protocols/iads.md``: condition (b) is
about all *other* members, as in the paper's text (in the figure it is about all, and a view of one
member would never respond); the normal branch of ``view`` resets ``send_state`` and
``States_Await``; logical times are sent as soon as an operation may wait for them instead of
periodically, so a response takes two message delays.

Pure: requests, deliveries and views come in, effects go out; no time is involved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from slackwater.protocols.iads.messages import (
    ConfirmBlock,
    EndpointEffect,
    LtMsg,
    OpMsg,
    Payload,
    PersistState,
    RefreshClient,
    RefuseRequest,
    RespondToClient,
    SendPayload,
    Stamp,
    StMsg,
    View,
)

REQUESTS_MAX: Final = 10_000
"""Most requests that wait in ``inp``; more are refused."""
IN_FLIGHT_OPERATIONS_MAX: Final = 256
"""Most of this member's operations that are sent and not applied yet; bounds the group's buffers.
"""
OVERRIDABLE_OPERATIONS_MAX: Final = 10_000
"""Most stamps in ``RefreshClient.overridable``; older ones are only counted."""


class ReplicatedObject(Protocol):
    """The data type of the paper's section II: states, operations and responses."""

    def apply(self, operation: Any, stamp: Stamp) -> Any:
        """Change the state and return the response; deterministic."""

    def merge(self, states: Mapping[str, Any]) -> None:
        """Replace the state by the join of these states (by member)."""

    def snapshot(self) -> Any:
        """The state as an immutable value."""


class Mode(Enum):
    """The modes of the paper's Figure 3."""

    NORMAL = "NORMAL"
    """An operation is applied as soon as its place in the order is final."""
    ST = "ST"
    """The members' states are collected; operations that are received wait."""


class ModeEvent(Enum):
    """The events that move an end-point between modes."""

    SYNCHRONISED_VIEW = "SYNCHRONISED_VIEW"
    """A view whose members are all in SS."""
    UNSYNCHRONISED_VIEW = "UNSYNCHRONISED_VIEW"
    """Any other view."""
    STATES_COMPLETE = "STATES_COMPLETE"
    """The state of every member has been received."""


MODE_MOVES: Final = MappingProxyType(
    {
        (Mode.NORMAL, ModeEvent.SYNCHRONISED_VIEW): Mode.NORMAL,
        (Mode.NORMAL, ModeEvent.UNSYNCHRONISED_VIEW): Mode.ST,
        (Mode.ST, ModeEvent.SYNCHRONISED_VIEW): Mode.NORMAL,
        (Mode.ST, ModeEvent.UNSYNCHRONISED_VIEW): Mode.ST,
        (Mode.ST, ModeEvent.STATES_COMPLETE): Mode.NORMAL,
    }
)
"""All legal moves; another one is a bug and raises KeyError."""


class BlockStatus(Enum):
    """Whether messages may be sent in the view."""

    UNBLOCKED = "UNBLOCKED"
    REQUESTED = "REQUESTED"
    BLOCKED = "BLOCKED"


class _Entry(NamedTuple):
    operation: Any
    ts: int
    request_id: str


class Endpoint:
    """IADS_p. Each method returns the effects in the order in which they must be carried out."""

    def __init__(self, name: str, obj: ReplicatedObject, myview: View) -> None:
        self.p: Final = name
        self.obj = obj
        self.inp: deque[tuple[str, Any]] = deque()
        self.lt: dict[str, int] = dict.fromkeys(myview.names, 0)
        self.ops: dict[str, deque[_Entry]] = {q: deque() for q in myview.names}
        self.myview = myview
        self.mode = Mode.NORMAL
        self.block_status = BlockStatus.UNBLOCKED
        self.send_state = False
        self.SS: frozenset[str] = frozenset({name})
        self.StatesV: dict[str, Any] = {}
        self.States_Await: set[str] = set()
        self._sent_lt = self._latest_ts = 0
        self._overridable: deque[Stamp] = deque()
        self._overridable_truncated = 0
        self._out: list[EndpointEffect] = []
        self._persisted = True

    @property
    def is_stable(self) -> bool:
        """True if responses are given in the total order of a synchronised view."""
        return self.mode is Mode.NORMAL and self.block_status is BlockStatus.UNBLOCKED

    def request(self, request_id: str, operation: Any) -> list[EndpointEffect]:
        """INPUT request_p(o)."""
        if len(self.inp) >= REQUESTS_MAX:
            return [RefuseRequest(request_id)]
        self.inp.append((request_id, operation))
        return self._run()

    def block(self) -> list[EndpointEffect]:
        """INPUT gcs.block_p(), then OUTPUT gcs.block_ok_p()."""
        self.block_status = BlockStatus.REQUESTED
        effects = self._run()
        self.block_status = BlockStatus.BLOCKED
        return [*effects, ConfirmBlock()]

    def deliver(self, q: str, m: Payload) -> list[EndpointEffect]:
        """INPUT gcs.deliver_p(q, m)."""
        match m:
            case OpMsg(operation, ts) if q != self.p:
                self._observe(q, ts)
                self._latest_ts = max(self._latest_ts, ts)
                self.ops[q].append(_Entry(operation, ts, ""))
            case LtMsg(ts) if q != self.p:
                self._observe(q, ts)
            case StMsg(members, state):
                self._collect(members, state)
        return self._run()

    def view(self, v: View, T: frozenset[str]) -> list[EndpointEffect]:  # noqa: N803 (the paper's)
        """INPUT gcs.view_p(v, T)."""
        while (q := self._first()) is not None:  # without (b): halves of a split diverge here
            self._do(q)
        self.myview = v
        self.lt = dict.fromkeys(v.names, 0)
        self.ops = {t: deque() for t in v.names}
        self._sent_lt = self._latest_ts = 0
        self.block_status = BlockStatus.UNBLOCKED
        self.SS = T if self.mode is Mode.NORMAL else self.SS & T
        self.States_Await, self.StatesV, self.send_state = set(), {}, False
        if v.names == self.SS:
            self.mode = MODE_MOVES[self.mode, ModeEvent.SYNCHRONISED_VIEW]
            self._refresh()
        else:
            self.mode = MODE_MOVES[self.mode, ModeEvent.UNSYNCHRONISED_VIEW]
            self.States_Await = set(v.names)
            self.send_state = self.p == min(self.SS)
        return self._run()

    def _run(self) -> list[EndpointEffect]:
        """Take the locally controlled actions until none is enabled; return the effects."""
        if self.send_state and self.block_status is BlockStatus.UNBLOCKED:
            self.send_state = False
            self._out.append(SendPayload(StMsg(self.SS, self.obj.snapshot())))
        while self._send_op() or self._do_next():
            pass
        self._send_lt()
        effects, self._out = self._out, []
        if not self._persisted:
            self._persisted = True
            effects.insert(0, PersistState(self.obj.snapshot()))
        return effects

    def _send_op(self) -> bool:
        own = self.ops[self.p]
        blocked = self.block_status is BlockStatus.BLOCKED
        if blocked or not self.inp or len(own) >= IN_FLIGHT_OPERATIONS_MAX:
            return False
        request_id, operation = self.inp.popleft()
        self.lt[self.p] += 1
        self._sent_lt = self._latest_ts = self.lt[self.p]
        own.append(_Entry(operation, self.lt[self.p], request_id))
        self._out.append(SendPayload(OpMsg(operation, self.lt[self.p])))
        return True

    def _send_lt(self) -> None:
        """Send the logical time if an operation may wait for a later one than was sent last."""
        if self.block_status is BlockStatus.BLOCKED or self.lt[self.p] <= self._sent_lt:
            return
        if self._latest_ts >= self._sent_lt:
            self._sent_lt = self.lt[self.p]
            self._out.append(SendPayload(LtMsg(self._sent_lt)))

    def _observe(self, q: str, ts: int) -> None:
        self.lt[q] = ts
        self.lt[self.p] = max(self.lt[self.p], ts) + 1

    def _first(self) -> str | None:
        """The member whose waiting operation is first in the order (ts, member), or None."""
        return min(
            (q for q, entries in self.ops.items() if entries),
            key=lambda q: (self.ops[q][0].ts, q),
            default=None,
        )

    def _do_next(self) -> bool:
        """INTERNAL do_p(q, o), if conditions (a) and (b) hold."""
        q = self._first()
        if self.mode is not Mode.NORMAL or q is None:
            return False
        ts = self.ops[q][0].ts
        if any(time <= ts for t, time in self.lt.items() if t != self.p):
            return False
        self._do(q)
        return True

    def _do(self, q: str) -> None:
        entry = self.ops[q].popleft()
        stamp = Stamp(self.myview.number, entry.ts, q)
        response = self.obj.apply(entry.operation, stamp)
        self._persisted = False
        if q == self.p:
            if len(self._overridable) >= OVERRIDABLE_OPERATIONS_MAX:
                self._overridable.popleft()
                self._overridable_truncated += 1
            self._overridable.append(stamp)
            self._out.append(RespondToClient(entry.request_id, response, stamp))

    def _collect(self, members: frozenset[str], state: Any) -> None:
        for t in members:
            self.StatesV[t] = state
        self.States_Await -= members
        if not self.States_Await and self.mode is Mode.ST:
            self.obj.merge(self.StatesV)
            self._persisted = False
            self.mode = MODE_MOVES[self.mode, ModeEvent.STATES_COMPLETE]
            self._refresh(merged=True)

    def _refresh(self, *, merged: bool = False) -> None:
        overridable: tuple[Stamp, ...] = ()
        truncated = 0
        if merged:
            overridable, truncated = tuple(self._overridable), self._overridable_truncated
            self._overridable.clear()
            self._overridable_truncated = 0
        state = self.obj.snapshot()
        self._out.append(RefreshClient(self.myview.names, state, overridable, truncated))
