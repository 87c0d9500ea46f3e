"""Warnings about a valid deployment, and errors for rates that exceed an orderer's capacity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from slackwater.deployment.bounds import too_many_records
from slackwater.deployment.children import planned
from slackwater.deployment.findings import Findings
from slackwater.model.deployment import BUCKET_OF_WINDOWS_US, Deployment
from slackwater.model.durations import format_duration_us
from slackwater.primitives.windows import Grid

DISORDER_ADVISED_US: Final = 100_000
"""Minimum disorder without a warning: a live reading that is delayed longer is late."""
ORDERER_RECORDS_PER_S_ADVISED: Final = 2_000
"""Maximum input of an orderer without a warning."""
JOIN_WITHIN_ADVISED_US: Final = 60_000_000


def advise(deployment: Deployment, findings: Findings) -> None:
    """Add warnings, and an error where an orderer's input exceeds its capacity."""
    if deployment.clock == "wall":
        for name, stream in deployment.streams.items():
            # A time of arrival is never late.
            by_clock = stream.expect_every_us is None and stream.time.from_ != "arrival"
            if by_clock and stream.disorder_us < DISORDER_ADVISED_US:
                findings.warn(
                    ("streams", name),
                    "has neither expect_every nor a disorder of at least "
                    f"{format_duration_us(DISORDER_ADVISED_US)}: a live reading with a longer "
                    "delay is late",
                )
    for name, query in deployment.queries.items():
        if query.join is not None and query.join.within_us > JOIN_WITHIN_ADVISED_US:
            findings.warn(
                ("queries", name, "join", "within"),
                "each bucket scans the readings of this period: live streams of several "
                f"readings/s need {format_duration_us(JOIN_WITHIN_ADVISED_US)} or less",
            )
    for name, child, rate in _rates(deployment):
        too_many = too_many_records(f"{name}.{child}", rate)
        if too_many is not None and deployment.clock == "wall":
            findings.error(("queries", name, "from"), too_many)
        elif rate > ORDERER_RECORDS_PER_S_ADVISED:
            findings.warn(
                ("queries", name, "from"),
                f"orderer {name}.{child} would read {rate:.0f} records/s, more than "
                f"{ORDERER_RECORDS_PER_S_ADVISED}: raise children or slide",
            )


def _rates(deployment: Deployment) -> Iterator[tuple[str, int, float]]:
    """Yield (query, child, records/s) per orderer: a proxy flushes at all queries' cut points."""
    hour_us = 3_600_000_000
    per_s = hour_us / 1_000_000
    base = Grid(BUCKET_OF_WINDOWS_US, None).count(0, hour_us) / per_s
    rates: dict[str, float] = {}
    for stream in deployment.streams:
        readers = (q for q in deployment.queries.values() if stream in q.sources)
        grids = {(q.bucket_us(), q.window) for q in readers}
        cuts = (Grid(w, window).count(0, hour_us) for w, window in grids)
        rates[stream] = base + sum(count / per_s - base for count in cuts)
    for query in deployment.queries.values():
        # Only the boundaries of its windows: the number of rows is unknown.
        slide_us = query.units(query.bucket_us()).slide_us
        rates[query.name] = query.parts * 1_000_000 / slide_us
    for name, query in deployment.queries.items():
        logs = planned(deployment, query)
        for child in range(query.children):
            read = {source: logs.share_of(child, source) for source in logs.streams_of(child)}
            yield name, child, sum(rates[source] * share for source, share in read.items())
