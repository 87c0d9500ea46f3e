"""Runs of empty buckets on the live line, which are answered by one tentative BOUNDARY.

With ``clock: data`` much event time becomes due at once: a stream that is silent for an hour of
event time leaves 360,000 buckets of a query without a window, nearly all of them empty. The stable
line answers empty buckets in runs. So does the live line, if each bucket of the run would get the
same answer now: it has no reading and no loss, it lacks the same inputs, and it is due.

Due times increase with event time, so the last due bucket is found by doubling and bisection: the
work grows with the logarithm of the run's length.
"""

from __future__ import annotations

from collections.abc import Callable

from slackwater.primitives.windows import Grid


def last_alike(grid: Grid, end: int, limit: int, is_alike: Callable[[int], bool]) -> int:
    """Return the end of the run whose first bucket ends at ``end``.

    The run ends at ``limit``, a cut point, at the latest. ``is_alike(start)`` returns whether the
    later bucket at ``start`` would be answered like the first one. It is true up to some bucket,
    and false for all later ones. Times are us of event time.
    """
    low, step = end, 0
    high = limit
    while low < limit:
        probe = min(max(grid.next_cut(low), grid.bucket_start(low + step)), limit)
        if not is_alike(grid.bucket_start(probe - 1)):
            high = probe
            break
        step = 2 * max(step, probe - low)
        low = probe
    while grid.next_cut(low) < high:
        middle = max(grid.bucket_start((low + high) // 2), grid.next_cut(low))
        if is_alike(grid.bucket_start(middle - 1)):
            low = middle
        else:
            high = middle
    return low
