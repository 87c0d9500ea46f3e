"""What a proxy records of the gaps between its stream's readings (rule-15).

With ``expect_every: auto`` the longest usual silence is learned, and when it has grown it is
recorded in the registry, where every process follows it. It holds from an event time that the
event clock has not reached: by then all processes have it, and no deadline that has gone by moves.
A process that reads it later has answered too early in between, tentatively.

What was recorded is recovered and never taken back. The counts themselves begin anew with each
start: they can only add to it.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Final

from slackwater.model.durations import format_duration_us
from slackwater.primitives.lateness import Step
from slackwater.protocols.dpc.source.core import SourceCore

_log = logging.getLogger(__name__)
AHEAD_US: Final = 1_000_000
"""Wall time until a step holds: what it takes to write it, and to be read by all."""
LOOK_EVERY_US: Final = 200_000


class Expecting:
    """Of one stream. Records nothing until it is told what was recorded before."""

    def __init__(self, stream: str, record: Callable[[Step], None]) -> None:
        self._stream = stream
        self._record = record
        self._recorded_us: int | None = None
        self._look_at_us = 0

    @property
    def is_restored(self) -> bool:
        """Whether it has been told."""
        return self._recorded_us is not None

    def restore(self, steps: Iterable[Step]) -> None:
        """What the registry has of the stream."""
        self._recorded_us = max((step.expect_every_us for step in steps), default=0)

    def step(self, cores: Iterable[SourceCore], now_us: int, from_us: int) -> None:
        """Record what has been learned, if it is more than before; it holds from ``from_us``."""
        if self._recorded_us is None or now_us < self._look_at_us:
            return
        self._look_at_us = now_us + LOOK_EVERY_US
        logs = [core.gaps for core in cores if core.gaps is not None]
        if not logs:
            return
        learned_us = reduce(operator.add, logs).expect_every_us
        if learned_us <= max(self._recorded_us, logs[0].learning.first_us):
            return
        self._recorded_us = learned_us
        self._record(Step(from_us, learned_us))
        _log.info(
            "stream %s is expected every %s now", self._stream, format_duration_us(learned_us)
        )
