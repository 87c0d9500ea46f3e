"""Detects a lack of CPU: late answers on an overloaded machine show nothing about the pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from slackwater.runtime.service.cpu import CpuLoad, LoadMeter

BUSY_MIN = 0.9
"""The share of all cores from which on a late process may have waited for one."""
LOOK_S = 0.5
STOOD_STILL_S = 1.5
"""Pause between samples from which on the machine counts as busy: one that is halted by its host
counts no CPU time."""


class Machine:
    """Samples the machine's load twice a second, in a thread."""

    def __init__(self) -> None:
        self._loads: list[CpuLoad] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Machine:
        """Start."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join()

    def was_busy(self, begin_us: int, end_us: int) -> bool:
        """Return whether at some time between these wall times hardly any CPU was left."""
        return any(
            load.busy >= BUSY_MIN or load.lasted_s >= STOOD_STILL_S
            for load in self._loads
            if load.at_us > begin_us and load.at_us - load.lasted_s * 1e6 < end_us
        )

    def check_in_time(
        self, delays_s: Mapping[int, float], limit_s: float, since_us: int, until_us: int
    ) -> None:
        """Check the delays of the answers that were due between these times, in us.

        One may be later than the limit only if the machine was busy while it was waited for.
        """
        first_s = {due: s for due, s in delays_s.items() if since_us <= due <= until_us}
        assert first_s
        late = {
            due: after_s
            for due, after_s in first_s.items()
            if after_s > limit_s and not self.was_busy(due, due + round(after_s * 1e6))
        }
        assert not late, "answers are late, and the machine was not busy"

    def _run(self) -> None:
        meter = LoadMeter()
        while not self._stop.wait(LOOK_S):
            self._loads.append(meter.look({}, time.time_ns() // 1000))
