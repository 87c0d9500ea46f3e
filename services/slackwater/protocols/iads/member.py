"""A member: group and endpoint combined to one core, the only one that a shell runs.

The shell persists and transmits in the order of the effects, answers clients, and calls ``tick`` at
``next_deadline``. Pure: events and monotonic us come in, effects go out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from slackwater.protocols.iads.endpoint import Endpoint, ReplicatedObject
from slackwater.protocols.iads.group import Group
from slackwater.protocols.iads.messages import (
    BlockSending,
    ConfirmBlock,
    DeliverPayload,
    EndpointEffect,
    GroupEffect,
    GroupMessage,
    InstallView,
    MemberEffect,
    SavedMembership,
    SendPayload,
)
from slackwater.protocols.iads.topology import Process


class Member:
    """One controller. ``obj`` has the persisted state already, ``saved`` the persisted numbers.

    ``start`` must be the first call. Times are monotonic us.
    """

    def __init__(
        self, name: str, peers: frozenset[str], saved: SavedMembership, obj: ReplicatedObject
    ) -> None:
        self.group: Final = Group(name, peers, saved)
        self.endpoint: Final = Endpoint(name, obj, self.group.view)

    def start(self, now: int) -> list[MemberEffect]:
        """Persist the incarnation and begin in a view of one."""
        return self._carry_out(self.group.start(now), now)

    def request(self, request_id: str, operation: Any, now: int) -> list[MemberEffect]:
        """Process a client's operation; the response comes as an effect."""
        return self._carry_out(self.endpoint.request(request_id, operation), now)

    def receive(self, sender: Process, message: GroupMessage, now: int) -> list[MemberEffect]:
        """Process a message of another member."""
        return self._carry_out(self.group.receive(sender, message, now), now)

    def add_peer(self, name: str, now: int) -> list[MemberEffect]:
        """Send heartbeats to a member that joins."""
        return self._carry_out(self.group.add_peer(name, now), now)

    def tick(self, now: int) -> list[MemberEffect]:
        """Do what is due at ``now``."""
        return self._carry_out(self.group.tick(now), now)

    def next_deadline(self) -> int:
        """The time at which ``tick`` must be called, monotonic us."""
        return self.group.next_deadline()

    def _carry_out(
        self, first: list[GroupEffect] | list[EndpointEffect], now: int
    ) -> list[MemberEffect]:
        """Pass the effects that one core has for the other to it, in order; return the rest."""
        waiting: deque[GroupEffect | EndpointEffect] = deque(first)
        done: list[MemberEffect] = []
        while waiting:
            effect = waiting.popleft()
            react = self._reaction(effect, now)
            if react is None:
                assert not isinstance(
                    effect,
                    BlockSending | DeliverPayload | InstallView | SendPayload | ConfirmBlock,
                )
                done.append(effect)
            else:
                waiting.extendleft(reversed(react()))
        return done

    def _reaction(
        self, effect: GroupEffect | EndpointEffect, now: int
    ) -> Callable[[], list[GroupEffect] | list[EndpointEffect]] | None:
        match effect:
            case BlockSending():
                return self.endpoint.block
            case DeliverPayload(sender, payload):
                return lambda: self.endpoint.deliver(sender, payload)
            case InstallView(view, transitional):
                return lambda: self.endpoint.view(view, transitional)
            case SendPayload(payload):
                return lambda: self.group.send(payload, now)
            case ConfirmBlock():
                return lambda: self.group.block_ok(now)
        return None
