"""A fragment that is about to begin: its session, and what its host needs beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slackwater.runtime.host.driver import HEARTBEAT_PERIOD_US
from slackwater.runtime.host.procedures import Committer
from slackwater.sessions.session import Session


def _nothing() -> None:
    """There is nothing to give back."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """One life of a fragment; see ``driver.Driven`` for what is not told here.

    ``close`` gives back what its making has begun.
    """

    session: Session
    end_timeout_us: int
    heartbeat_period_us: int = HEARTBEAT_PERIOD_US
    observe: Callable[[int, int], None] | None = None
    committer: Committer | None = None
    close: Callable[[], None] = _nothing
