"""Detects a lack of CPU: late answers on an overloaded machine show nothing about the pipeline."""

from __future__ import annotations

import threading
import time

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

    def _run(self) -> None:
        meter = LoadMeter()
        while not self._stop.wait(LOOK_S):
            self._loads.append(meter.look({}, time.time_ns() // 1000))
