"""The record that a node carries out: the join of those of the controllers that it reaches. Pure.

Controllers that have lost their files begin with an empty record. A node that reaches no others
goes on with what it knows, and gives it to them: each node has the whole record.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from slackwater.control.control_state import ControlState, join, join_all
from slackwater.control.recorded import lacks_queries

K = TypeVar("K", bound=Hashable)


class FollowedRecord(Generic[K]):
    """The records of controllers, which are named by ``K``, and what follows from them."""

    def __init__(self) -> None:
        self._states: dict[K, ControlState] = {}
        self._new: set[K] = set()
        """The controllers that began without a record, a short time ago."""
        self.state = ControlState()
        """The join, or what was known when the last connection ended."""
        self.to_give: ControlState | None = None
        """The same, while all controllers that are reached have lost it."""

    def __bool__(self) -> bool:
        """Whether a controller's record has arrived, and its connection has not ended."""
        return bool(self._states)

    def of(self, controller: K) -> ControlState | None:
        """Return a controller's record; None without one."""
        return self._states.get(controller)

    def start_from(self, saved: ControlState) -> None:
        """Begin with a record of an earlier life."""
        self.state = saved

    def receive(self, controller: K, state: ControlState, *, is_new: bool) -> None:
        """Take a controller's record."""
        self._states[controller] = state
        (self._new.add if is_new else self._new.discard)(controller)
        self._join()

    def lost(self, controller: K) -> bool:
        """Forget a controller whose connection has ended; return whether its record was there."""
        was_there = self._states.pop(controller, None) is not None
        if was_there and self._states:
            self._join()
        return was_there

    def _join(self) -> None:
        state = join_all(self._states.values())
        is_lost = self._new >= self._states.keys() and lacks_queries(state, self.state)
        self.state = join(state, self.state) if is_lost else state
        self.to_give = self.state if is_lost else None
