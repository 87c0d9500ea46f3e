"""Input that replays a file to its source log, paced by the event clock.

With ``clock: data`` the file is not paced: readings are sent as fast as the log accepts them, and
boundaries derive from the readings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from slackwater.formats.pieces import PIECE_BYTES_DEFAULT
from slackwater.model.errors import DeploymentError
from slackwater.model.limits import FOREVER, NEVER
from slackwater.protocols.dpc.source.core import SourceRules
from slackwater.proxy.quarantine import QuarantineEntry
from slackwater.proxy.replay import PIECE_BYTES_PACED, Due, Replay
from slackwater.proxy.shell import InputContext
from slackwater.proxy.sourcelog import SourceLog
from slackwater.runtime.service.parts import ENDED

READINGS_A_TURN_MAX: Final = 50_000
RETRY_US: Final = 20_000
ASLEEP_US: Final = 3_600_000_000


class ReplayInput:
    """Replay of one file to one source log."""

    def __init__(
        self,
        context: InputContext,
        path: Path,
        *,
        end_at_us: int | None,
        end_boundary_us: int | None,
    ) -> None:
        self._context = context
        spec = context.spec
        unpaced = context.deployment.clock == "data"
        piece_bytes = PIECE_BYTES_DEFAULT if unpaced else PIECE_BYTES_PACED
        guard = context.guard(f"file:{path.name}")
        self._replay = Replay(spec, path, end_at_us, piece_bytes, guard)
        self._end_boundary_us = end_boundary_us
        self._ended = False
        self._blank = 0
        self._flush_at_us: int | None = None
        rules = SourceRules(
            log=spec.name,
            fields=spec.field_names,
            disorder_us=spec.disorder_us,
            late="input",
            clock_boundaries=spec.expect_every_us is None and not unpaced,
            learning=context.learning,
        )
        self._log = SourceLog(context.transport, context.writer, rules, _identity(path))

    @property
    def logs(self) -> Sequence[SourceLog]:
        """The one source log."""
        return (self._log,)

    def begin(self) -> None:
        """Take over the log, and skip to the position of its last record."""
        self._log.begin(self._context.spool.hints().get(self._log.name))
        core, quarantine = self._log.core, self._context.quarantine
        core.largest = NEVER  # recomputed from the file
        for due in self._replay.skip(core.position):
            quarantine.count_all(due.entries)
            quarantine.count("late", core.follow(due.arrived.stimes))
            self._blank += due.blank

    def step(self, now_us: int) -> int:
        """Send due readings; at a cut point also the boundary."""
        context, core = self._context, self._log.core
        if not self._log.has_room or not context.quarantine.settle():
            return now_us + RETRY_US
        event_us = context.event_us(now_us)
        due = self._replay.take(FOREVER if event_us is None else event_us, READINGS_A_TURN_MAX)
        if due is not None:
            self._offer(due, now_us)
            if not context.quarantine.settle():
                return now_us + RETRY_US
            if core.is_full:
                self._log.append(core.flush(self._log.inc))
            return now_us
        if self._replay.exhausted and self._replay.damage is not None:
            raise self._replay.damage
        # All due readings have been taken, so the clock is a valid watermark (trace-10).
        if self._replay.exhausted and not self._ended:
            self._end()
            self._flush_at_us = None
        if event_us is None:
            self._log.append(core.flush(self._log.inc))
            return now_us + ASLEEP_US
        if self._flush_at_us is None or event_us >= self._flush_at_us:
            self._log.append(core.flush(self._log.inc, event_us))
            self._flush_at_us = core.next_flush_us(event_us, context.default_grid)
        return self._wake_us()

    def _offer(self, due: Due, now_us: int) -> None:
        refused = self._context.offer(self._log.core, due.arrived, now_us, str)
        entries: list[QuarantineEntry] = list(due.entries)
        for some in refused:
            entries += due.refused(some)
        self._blank += due.blank
        self._context.quarantine.put(entries, now_us)

    def _end(self) -> None:
        """End the log with the given end boundary, or with one derived from the file (trace-24)."""
        self._ended = True
        core = self._log.core
        end = self._end_boundary_us
        if end is None and self._context.deployment.clock == "data" and core.position:
            end = self._context.end_of_history(core.largest)
        core.end(end)

    def _wake_us(self) -> int:
        context, core = self._context, self._log.core
        assert self._flush_at_us is not None
        wake = context.wall_us(self._flush_at_us)
        full = self._replay.due_us(max(1, core.rules.rows_max - core.waiting))
        if full is not None:
            wake = min(wake, context.wall_us(full))
        return wake

    def detail(self) -> dict[str, int]:
        """Return counters for the heartbeat."""
        context, core = self._context, self._log.core
        return {
            "readings": core.next_id,
            "blank": self._blank,
            "spool_bytes": context.spool.bytes_held,
            ENDED: int(self._ended),
            **context.counts(),
        }

    def leave(self) -> None:
        """Do nothing: the log holds the position."""

    def close(self) -> None:
        """Do nothing: no resource is held."""


def _identity(path: Path) -> str:
    """Derive an identity from the file's beginning and size, so the same file is continued."""
    try:
        with path.open("rb") as stream:
            head = stream.read(65_536)
        return f"file:{path.stat().st_size}:{hashlib.sha256(head).hexdigest()[:32]}"
    except OSError as error:
        raise DeploymentError(f"{path} cannot be read: {error.strerror or error}") from error
