"""Where a root reads from: its part's deltas, or, without a window, the ordered logs themselves.

A query without a window has nothing to aggregate, so its root stands where the aggregator would
(R21): it reads each child's ordered topic, in the orderers' own layout, and counts an ordered
record by its offset, as a delta counts by the offset of the record it was made from (rule 10). A
record that cannot be read stands as VOID in both: it takes its seq and changes nothing (R9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.codec.records import decode_delta, decode_ordered
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import BucketRecord, Kind, OrderedRecord
from slackwater.protocols.dpc.line import LineName
from slackwater.protocols.dpc.replicated import damaged_delta
from slackwater.protocols.dpc.root import DeltaLog, RootConfig
from slackwater.runtime.topics import deltas_topic, ordered_partition, ordered_topic
from slackwater.runtime.transport import Log

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The logs of one root: where each stands, and how a record of it is read."""

    logs: dict[Log, DeltaLog]
    decode: Callable[[DeltaLog, Log, int, bytes], BucketRecord]


def inputs_of(config: RootConfig, *, windowed: bool) -> Inputs:
    """What this root reads."""
    if not windowed:
        return Inputs({_ordered_log(config.query, log): log for log in config.logs}, _ordered)
    topic = deltas_topic(config.query, config.part)
    return Inputs({(topic, log.partition(config.replicas)): log for log in config.logs}, _delta)


def _ordered_log(query: str, log: DeltaLog) -> Log:
    live = log.line is LineName.LIVE
    return ordered_topic(query, log.child), ordered_partition(log.replica, live=live)


def _delta(of: DeltaLog, log: Log, offset: int, value: bytes) -> BucketRecord:
    try:
        return decode_delta(value, f"{log[0]}:{log[1]}:{offset}")
    except MalformedRecordError as error:
        _log.error("%s", error)
        return damaged_delta(of.child, of.replica)


def _ordered(of: DeltaLog, log: Log, offset: int, value: bytes) -> BucketRecord:
    try:
        record = decode_ordered(value, f"{log[0]}:{log[1]}:{offset}")
    except MalformedRecordError as error:
        _log.error("%s", error)
        return OrderedRecord(Kind.VOID, of.child, of.replica, 0, 0, 0, seq=offset)
    return replace(record, seq=offset)
