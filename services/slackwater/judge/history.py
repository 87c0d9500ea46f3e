"""The checker of a history that has been run to its end (``slackwater backfill --check``).

A history has no normal times and no bound: all readings are there before it is computed. What is
left of the guarantees is that each window has one stable answer, with the figures of a batch
computation. Buckets of a query without a window are as wide as its definition has them; only those
with rows are expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

from slackwater.judge.batch import RowsResult, compute_all, end_boundary
from slackwater.judge.calendars import judged_windows
from slackwater.judge.check import Checker, Expectations
from slackwater.judge.check_having import windows_checker
from slackwater.judge.check_rows import RowChecker
from slackwater.judge.readers.files import read_stream
from slackwater.judge.readings import StreamInput
from slackwater.model.deployment import QuerySpec, StreamSpec
from slackwater.model.limits import NEVER


def read_files(
    spec: StreamSpec, files: Sequence[Path], without: Mapping[int, Set[int]]
) -> StreamInput:
    """Read the files of a stream, one after another, as one input.

    ``without`` has by the number of a file, from 0, the places that are treated as absent.
    """
    found = StreamInput(spec)
    for number, file in enumerate(files):
        read = read_stream(spec, file, without.get(number, frozenset()))
        for reading in read.readings:
            found.add(reading)
        found.malformed += read.malformed
        found.blank += read.blank
    return found


def history_checker(
    queries: Iterable[QuerySpec],
    inputs: Mapping[str, StreamInput],
    query: QuerySpec,
    start_us: int,
    width_us: int,
) -> Checker:
    """Return the checker of one of these queries, each of which follows those that it reads.

    ``start_us`` and ``width_us``: the start and the width of buckets with which it was registered.
    """
    queries = list(queries)
    windows, rows = compute_all(queries, inputs, NEVER)
    each = judged_windows(query.units(width_us))
    end = end_boundary(queries, inputs) or start_us
    if query.window is None:
        of_buckets: RowsResult = {}
        for bucket in rows[query.name].values():
            for row in bucket:
                of_buckets.setdefault(each.last_holding(row.stime), []).append(row)
        end = max(map(each.end, of_buckets), default=start_us)
    expectations = Expectations(
        query=query.name,
        window=query.units(width_us),
        parts=query.parts,
        aggregate=query.aggregate,
        bound=0,
        lateness=0,
        speed=math.inf,  # nothing is paced: all is due at once
        anchor_wall=0,
        anchor_event=start_us,
        end=end,
        last_reading=end,
        early=0,
        chained=any(source not in inputs for source in query.sources),
    )
    if query.window is not None:
        return windows_checker(query, windows[query.name], expectations)
    computed = query.select is not None or expectations.chained
    return RowChecker(expectations, of_buckets, computed=computed)
