"""What a rehearsal needs of the pipeline it plays on.

The run knows processes by the names that ``status`` prints, may stop or kill them, and reads the
results; nothing else. A test puts a stage of its own under the run, with a root that answers from a
list; the command puts the real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slackwater.runtime.logs.transport import Transport
from slackwater.runtime.service.cpu import CpuLoad


@dataclass(frozen=True, slots=True)
class StageEvent:
    """Something that happened to a process; ``at_us`` is wall time.

    ``event`` is one of killed, paused, resumed, silenced, heard, ended, restarted, ready, or what
    else the supervisor has to say.
    """

    at_us: int
    process: str
    event: str


class Stage(Protocol):
    """A pipeline that is started, played on and stopped."""

    @property
    def transport(self) -> Transport:
        """Where its logs are, once it is prepared."""
        ...

    def prepare(self) -> None:
        """Start broker and processes and wait until all are ready for the first reading."""
        ...

    def begin(self) -> int:
        """Publish the event clock; the wall time (us) at which it shows the first event time."""
        ...

    def kill(self, process: str) -> None:
        """SIGKILL; the supervisor restarts it."""
        ...

    def pause(self, process: str) -> None:
        """SIGSTOP."""
        ...

    def resume(self, process: str) -> None:
        """SIGCONT."""
        ...

    def events(self) -> list[StageEvent]:
        """What has happened so far, in order."""
        ...

    def loads(self) -> list[CpuLoad]:
        """Who used the machine's CPU and who waited for it, about a second each, in order."""
        ...

    def check(self) -> None:
        """Look who has left and who is back; raise if something has given up for good."""
        ...

    def away(self) -> list[str]:
        """Who was killed or has ended, and does not do its work again yet, as last looked at."""
        ...

    def quarantine(self) -> dict[str, dict[str, int]]:
        """Readings that could not be used: stream -> reason -> how many, each counted once."""
        ...

    def dead_letter_lines(self) -> dict[str, set[int]]:
        """Lines that ended their reader and so are no readings: stream -> line numbers."""
        ...

    def stop(self) -> None:
        """Stop everything; may be called at any time, and twice."""
        ...
