"""What ``status`` says of a stream's topic that has changed under its proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slackwater.cli.tables import age
from slackwater.model.names import OrdererName, base_of, kind_of, own_name
from slackwater.model.records import Heartbeat
from slackwater.protocols.dpc.sunion.config import WITHHELD
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


def withheld(beats: Mapping[str, Heartbeat]) -> dict[tuple[str, str], int]:
    """Return how many partitions of a stream are not taken in: by query of the children, stream."""
    return {
        (OrdererName.parse(own_name(process)).query, name.removeprefix(WITHHELD)): partitions
        for process, beat in beats.items()
        if kind_of(process) == "orderer"
        for name, partitions in beat.detail.items()
        if name.startswith(WITHHELD)
    }


def withheld_remarks(beats: Mapping[str, Heartbeat], stream: str) -> Iterator[str]:
    """Yield which queries have not taken in all partitions of a stream's topic."""
    for (query, of), partitions in withheld(beats).items():
        if of == stream:
            plural = "s" * (partitions != 1)
            yield (
                f"query {base_of(query)} has not taken in {partitions} added partition{plural}"
                " (partitions: fixed): slackwater query apply FILE"
            )
