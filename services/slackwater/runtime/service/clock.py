"""The clock: wall time that neither jumps nor goes back (trace-10, trace-12).

Deadlines and watermarks follow wall time, but wall time jumps: NTP steps it, an operator sets it, a
virtual machine resumes. A step back would delay every deadline. A step forward would cause false
tentative answers, and readings that arrive afterwards would be late. The clock is therefore
anchored to wall time once, runs on the monotonic clock, and slews towards wall time by at most
500 ppm, NTP's own slew rate. A step of more than a second is reported once, and is followed at the
same rate; a restart of the process applies it at once.

``SlewedClock`` is the arithmetic over given times; ``SystemClock`` adds the machine's two clocks.
All times are whole microseconds. The alternative, ``time.time()`` with a guard against going back,
stands still after a step back and jumps after a step forward.
"""

import logging
import threading
import time
from collections.abc import Callable

SLEW_PPM_MAX = 500
STEP_US_MIN = 1_000_000
# Reading both system clocks costs 100 ns; once a second suffices, since quartz drifts by some
# 50 ppm.
OBSERVE_EVERY_US = 1_000_000

_log = logging.getLogger(__name__)


class SlewedClock:
    """Time that starts at wall time, never goes back and follows wall time slowly."""

    def __init__(self, wall_us: int, monotonic_us: int) -> None:
        self._anchor_us = wall_us
        self._anchor_monotonic_us = monotonic_us
        self._lag_us = 0  # wall time less this clock at the anchor, which the slew reduces
        self._offset_us = wall_us - monotonic_us

    def now_us(self, monotonic_us: int) -> int:
        """The time at a monotonic time not before the last observation."""
        elapsed_us = monotonic_us - self._anchor_monotonic_us
        assert elapsed_us >= 0, "the monotonic clock went back"
        lean_us = elapsed_us * SLEW_PPM_MAX // 1_000_000
        return self._anchor_us + elapsed_us + max(-lean_us, min(lean_us, self._lag_us))

    def observe(self, wall_us: int, monotonic_us: int) -> int:
        """Compare with wall time; returns its step since the last observation, 0 without one.

        A difference of less than a second is drift or an NTP correction, not a step.
        """
        now_us = self.now_us(monotonic_us)
        self._anchor_us, self._anchor_monotonic_us = now_us, monotonic_us
        self._lag_us = wall_us - now_us
        offset_us = wall_us - monotonic_us
        moved_us, self._offset_us = offset_us - self._offset_us, offset_us
        return moved_us if abs(moved_us) > STEP_US_MIN else 0


class SystemClock:
    """The process's clock; thread-safe."""

    def __init__(
        self,
        *,
        on_step: Callable[[int], None] | None = None,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
        monotonic_us: Callable[[], int] = lambda: time.monotonic_ns() // 1_000,
    ) -> None:
        self._on_step = on_step or _report_step
        self._wall_us = wall_us
        self._monotonic_us = monotonic_us
        self._lock = threading.Lock()
        started_us = monotonic_us()
        self._slewed = SlewedClock(wall_us(), started_us)
        self._observe_at_us = started_us + OBSERVE_EVERY_US

    def now_us(self) -> int:
        """Wall time in microseconds since the Unix epoch, slewed."""
        step_us = 0
        with self._lock:
            monotonic_us = self._monotonic_us()
            if monotonic_us >= self._observe_at_us:
                self._observe_at_us = monotonic_us + OBSERVE_EVERY_US
                step_us = self._slewed.observe(self._wall_us(), monotonic_us)
            now_us = self._slewed.now_us(monotonic_us)
        if step_us:
            self._on_step(step_us)
        return now_us

    def monotonic_us(self) -> int:
        """Monotonic time, for durations and timeouts."""
        return self._monotonic_us()

    def seconds_until(self, at_us: int) -> float:
        """Seconds until a deadline of this clock; 0 when it has passed."""
        return max(0, at_us - self.now_us()) / 1_000_000


def _report_step(step_us: int) -> None:
    _log.warning(
        "the system clock was stepped by %+.3f s; this process follows at %d ppm (restart it to"
        " apply the step at once)",
        step_us / 1_000_000,
        SLEW_PPM_MAX,
    )
