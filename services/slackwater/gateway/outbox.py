"""What is to be sent to one reader, with a bound: nobody waits for a slow reader.

Changes are kept in order and all of them are sent, or the reader is told that it is *lagged* and
its stream ends; it may come back with the id of the last event that it got. Of a state (the status,
the alerts) only the latest is kept, since each one replaces the one before.

Pure; frames are bytes that all readers share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FRAMES_MAX: Final = 256
FRAMES_BYTES_MAX: Final = 1024 * 1024
LAGGED: Final = b"event: lagged\ndata: {}\n\n"


class Outbox:
    """The frames that wait for one reader.

    Args:
        wake: called when there is something to take.
    """

    def __init__(
        self,
        wake: Callable[[], None] = lambda: None,
        frames_max: int = FRAMES_MAX,
        bytes_max: int = FRAMES_BYTES_MAX,
    ) -> None:
        self._wake = wake
        self._frames_max, self._bytes_max = frames_max, bytes_max
        self._frames: list[bytes] = []
        self._bytes = 0
        self._states: dict[str, bytes] = {}
        self.is_lagged = False
        """Whether frames were dropped; then none follows but ``LAGGED``."""
        self.is_closed = False

    @property
    def is_ending(self) -> bool:
        """Whether nothing follows what waits."""
        return self.is_lagged or self.is_closed

    def offer(self, frame: bytes) -> None:
        """Add a frame; if that is too much, drop all and be lagged. One frame is always taken."""
        if self.is_lagged or self.is_closed:
            return
        self._frames.append(frame)
        self._bytes += len(frame)
        if len(self._frames) > self._frames_max or (
            self._bytes > self._bytes_max and len(self._frames) > 1
        ):
            self.is_lagged = True
            self._frames, self._bytes = [LAGGED], len(LAGGED)
        self._wake()

    def offer_state(self, name: str, frame: bytes, *, may_wait: bool = False) -> None:
        """Replace the state of this name that waits.

        ``may_wait``: it goes with what comes next, until ``nudge``.
        """
        if not self.is_closed:
            self._states[name] = frame
            if not may_wait:
                self._wake()

    def nudge(self) -> None:
        """Have a state sent that has waited long enough."""
        if self._states:
            self._wake()

    def close(self) -> None:
        """Take no more; what waits can still be taken."""
        self.is_closed = True
        self._wake()

    def take(self) -> bytes:
        """Return all that waits; empty if nothing does."""
        frames, self._frames, self._bytes = self._frames, [], 0
        states, self._states = self._states, {}
        return b"".join([*frames, *states.values()])
