"""The interface of a rehearsal to the pipeline it runs on.

The run addresses processes by the names that ``status`` prints, stops or kills them, and reads the
results. Tests use a stage whose root returns answers from a list; the command uses the real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from slackwater.runtime.logs.transport import Transport
from slackwater.runtime.service.cpu import CpuLoad


@dataclass(frozen=True, slots=True)
class StageEvent:
    """An event of a process; ``at_us`` is wall time.

    ``event`` is one of killed, stopped, paused, resumed, silenced, heard, ended, restarted, ready,
    or another message of the supervisor.
    """

    at_us: int
    process: str
    event: str


class Stage(Protocol):
    """A pipeline that can be started, disturbed and stopped."""

    @property
    def transport(self) -> Transport:
        """The transport to the pipeline's logs, once prepared."""
        ...

    def prepare(self) -> None:
        """Start broker and processes; return when all are ready for the first reading."""
        ...

    def ready(self) -> Mapping[str, bool]:
        """Whether the broker and each process is ready, by name; from any thread."""
        ...

    def begin(self) -> int:
        """Publish the event clock; return the wall time (us) of the first event time."""
        ...

    def kill(self, process: str) -> None:
        """Send SIGKILL; the supervisor restarts the process."""
        ...

    def stop_part(self, process: str) -> None:
        """End a process or a fragment as planned; the supervisor starts it again."""
        ...

    def pause(self, process: str) -> None:
        """Send SIGSTOP."""
        ...

    def resume(self, process: str) -> None:
        """Send SIGCONT."""
        ...

    def events(self) -> list[StageEvent]:
        """Return all events so far, in order."""
        ...

    def loads(self) -> list[CpuLoad]:
        """Return samples of CPU use and CPU waiting, of about a second each, in order."""
        ...

    def check(self) -> None:
        """Update which processes are away; raise if one has failed permanently."""
        ...

    def away(self) -> list[str]:
        """Return the killed or ended processes that are not processing again, as last checked."""
        ...

    def quarantine(self) -> dict[str, dict[str, int]]:
        """Count unusable readings, each once: stream -> reason -> count."""
        ...

    def dead_letter_lines(self) -> dict[str, set[int]]:
        """Return the lines that crashed their parser: stream -> line numbers."""
        ...

    def stop(self) -> None:
        """Stop all processes; may be called at any time and repeatedly."""
        ...
