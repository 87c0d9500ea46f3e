"""Records the gaps between a stream's readings in the registry (rule-15).

With ``expect_every: auto`` the longest usual gap is learned. When it grows, a step is recorded in
the registry, which every process follows. The step takes effect at an event time that the event
clock has not reached: all processes have read it by then, and no past deadline moves. A process
that reads it later has issued tentative answers too early in between.

Recorded steps are recovered at a restart and never revoked. The observed gaps are not kept over a
restart; new observations can only add steps.
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
"""Wall time before a step takes effect: time to write it and for all processes to read it."""
LOOK_EVERY_US: Final = 200_000


class Expecting:
    """Steps of one stream. Nothing is recorded before ``restore``."""

    def __init__(self, stream: str, record: Callable[[Step], None]) -> None:
        self._stream = stream
        self._record = record
        self._recorded_us: int | None = None
        self._look_at_us = 0

    @property
    def is_restored(self) -> bool:
        """Whether the recorded steps have been restored."""
        return self._recorded_us is not None

    def restore(self, steps: Iterable[Step]) -> None:
        """Restore the stream's steps from the registry."""
        self._recorded_us = max((step.expect_every_us for step in steps), default=0)

    def step(self, cores: Iterable[SourceCore], now_us: int, from_us: int) -> None:
        """Record a larger learned gap, effective from ``from_us``."""
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
            "stream %s: usual gap between readings is now %s",
            self._stream,
            format_duration_us(learned_us),
        )
