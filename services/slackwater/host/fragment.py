"""A fragment that is about to start: its session, and what its host needs to run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slackwater.host.driven import HEARTBEAT_PERIOD_US
from slackwater.host.earlier import EarlierGenerations
from slackwater.host.procedures import Committer
from slackwater.runtime.logs.transport import Transport, Writer
from slackwater.sessions.session import Session


def _nothing() -> None:
    """Release nothing."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A fragment from one start to its end. For the fields see the arguments of ``driven.Driven``.

    ``close`` releases what was acquired to make the fragment. ``topics``: those in which it keeps
    positions, or whose records have offsets in others (rule-32). ``earlier`` tells the session
    when the earlier generations of its query have ended (rule-29). ``write`` makes its writer, if
    that is not one of the host's, and ``centre`` answers what it asks of another Kafka.
    """

    session: Session
    end_timeout_us: int
    topics: frozenset[str] = frozenset()
    heartbeat_period_us: int = HEARTBEAT_PERIOD_US
    observe: Callable[[int, int], None] | None = None
    committer: Committer | None = None
    close: Callable[[], None] = _nothing
    earlier: EarlierGenerations | None = None
    write: Callable[[Callable[[str], None]], Writer] | None = None
    centre: Transport | None = None
