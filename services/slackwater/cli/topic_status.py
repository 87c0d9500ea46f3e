"""What ``status`` says of a stream's topic that has changed under its proxy."""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.cli.tables import age
from slackwater.model.records import Heartbeat
from slackwater.runtime.service.parts import AWAY_SINCE, MADE_AGAIN, TRUNCATED


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
