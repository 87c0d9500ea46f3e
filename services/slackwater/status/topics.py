"""What ``status`` says of a stream's topic that has changed under its proxy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from slackwater.model.kinds import group_of, query_of
from slackwater.model.names import base_of
from slackwater.model.records import Heartbeat
from slackwater.protocols.dpc.sunion.config import WITHHELD
from slackwater.runtime.service.parts import AWAY_SINCE, MADE_AGAIN, PARTITION_TO, TRUNCATED
from slackwater.status.observed import age

BEHIND_US_MIN: Final = 1_000_000
"""A partition that is behind another one by less is not behind."""


def topic_remarks(beat: Heartbeat) -> Iterator[str]:
    """Yield what has happened to the topic of a proxy's stream."""
    detail = beat.detail
    if AWAY_SINCE in detail:
        yield f" its topic does not exist, since {age(beat.at - detail[AWAY_SINCE])}"
    if detail.get(MADE_AGAIN):
        yield (
            f" its topic was deleted and made again ({detail[MADE_AGAIN]} partitions so far):"
            " see `lost` in the results"
        )
    if detail.get(TRUNCATED):
        yield f" Kafka has lost messages of {detail[TRUNCATED]} partitions that were read"


def partitions_behind(proxies: Iterable[Heartbeat]) -> dict[int, int]:
    """Return the partitions of a stream that are behind the others, with their watermarks (us)."""
    to = {
        int(name.removeprefix(PARTITION_TO)): at
        for beat in proxies
        for name, at in beat.detail.items()
        if name.startswith(PARTITION_TO)
    }
    first = max(to.values(), default=0)
    return {number: at for number, at in sorted(to.items()) if at < first - BEHIND_US_MIN}


def withheld(beats: Mapping[str, Heartbeat]) -> dict[tuple[str, str], int]:
    """Return how many partitions of a stream are not taken in: by query of the children, stream.

    Each child has partitions of its own, and all its replicas tell of them.
    """
    of_children = {
        (query_of(process), name.removeprefix(WITHHELD), group_of(process)): partitions
        for process, beat in beats.items()
        for name, partitions in beat.detail.items()
        if name.startswith(WITHHELD)
    }
    found: Counter[tuple[str, str]] = Counter()
    for (query, stream, _), partitions in of_children.items():
        found[query, stream] += partitions
    return dict(found)


def withheld_remarks(lacking: Mapping[tuple[str, str], int], stream: str) -> Iterator[str]:
    """Yield which queries have not taken in all partitions of a stream's topic; of ``withheld``."""
    for (query, of), partitions in lacking.items():
        if of == stream:
            plural = "s" * (partitions != 1)
            yield (
                f"query {base_of(query)} has not taken in {partitions} added partition{plural}"
                " (partitions: fixed, or not named in children): slackwater query apply FILE"
            )
