"""Where a history ends: the watermark after the last reading of a file with ``clock: data``.

The windows that hold its readings must end, and those of the queries that read their results, and
no further ones may begin (trace-24).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from slackwater.primitives.windows import Grid

Readers: TypeAlias = Mapping[str, tuple[Sequence[str], Grid]]
"""Of each query the streams and queries that it reads, and its grid."""


def end_of_history(stream: str, largest: int, readers: Readers) -> int | None:
    """Return the largest end of a unit that holds the last reading, or a row that follows from it.

    A unit is a window, or a bucket of a query without a window. A row of a window has the last
    instant of the window as its time (trace-20).

    Args:
        stream: the stream of the history.
        largest: the time of its last reading, us.
        readers: the registered queries.

    Returns:
        The end in us of event time; None if no query reads the stream.
    """
    last = {stream: largest}
    ends: list[int] = []
    left = dict(readers)
    while found := [name for name, (reads, _) in left.items() if not last.keys().isdisjoint(reads)]:
        for name in found:
            reads, grid = left.pop(name)
            time = max(last[source] for source in reads if source in last)
            if grid.window is None:
                end, last[name] = grid.next_cut(time), time
            else:
                end = grid.window_end(grid.last_window_holding(time))
                last[name] = end - 1
            ends.append(end)
    return max(ends, default=None)
