"""A root's answer to heartbeats that name a greater placement number than its own (decision 51)."""

from __future__ import annotations

from slackwater.sessions.copy import CopyOfPart
from slackwater.sessions.effects import Effect, Fail, Perform, Refute
from slackwater.sessions.requests import Procedure


class Claims:
    """Looks in the log whether a copy with a greater number has committed; a heartbeat may lie.

    Args:
        fragment: the name of this copy.
        inc: its placement number.
        copy: reads the recorded numbers.
    """

    def __init__(self, fragment: str, inc: int, copy: CopyOfPart) -> None:
        self._fragment = fragment
        self._inc = inc
        self._copy = copy
        self._is_looking = False
        self._fail: Fail | None = None
        self._false: list[Refute] = []

    def noted(self, inc: int) -> list[Effect]:
        """Return what to do about a heartbeat with this number; they are repeated."""
        if inc <= self._inc or self._is_looking:
            return []
        self._is_looking = True
        return [Perform(self._look(inc))]

    def refused(self) -> Fail | None:
        """Return the end of this copy, if the log has shown a later one."""
        return self._fail

    def refuted(self) -> list[Refute]:
        """Return the claim that the log has shown to be false, once."""
        found, self._false = self._false, []
        if found:
            self._is_looking = False
        return found

    def _look(self, inc: int) -> Procedure[None]:
        found = yield from self._copy.recorded_number()
        if found is None:
            self._is_looking = False  # no answer: the check is repeated at the next claim
        elif found > self._inc:
            why = f"runs elsewhere with placement {found}; ending this copy"
            self._fail = Fail(f"{self._fragment} {why}")
        else:
            self._false = [Refute(inc)]
