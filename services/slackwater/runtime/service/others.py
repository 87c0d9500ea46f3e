"""Positions that orderers of other queries have recorded, for an orderer that starts (trace-42).

Only queries that run or are paused are considered. The state records of a deleted query stay, and
its source logs may have been deleted and created again since.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from slackwater.model.names import base_of
from slackwater.model.records import OrdererState
from slackwater.runtime.logs.transport import LogError, Transport
from slackwater.runtime.service.registry import Registry
from slackwater.runtime.service.state import read_orderer_states

_log = logging.getLogger(__name__)


def read_other_orderers(
    transport: Transport, logs: Iterable[str], frontier_max: int, *, timeout_s: float
) -> list[OrdererState]:
    """State records, not above a frontier, of all orderers that may read one of these source logs.

    Reading ends after ``timeout_s`` in all. The records found by then are returned, since each is
    valid alone. A query whose states cannot be read is left out.

    ``logs`` are the source logs' names, ``<stream>`` or ``<stream>.<partition>``; ``frontier_max``
    is an event time, us.

    Raises:
        LogError: the registry cannot be read.
    """
    until_s = time.monotonic() + timeout_s
    streams = {name for log in logs for name in (log, log.rpartition(".")[0])}
    registered = Registry(transport).queries().values()
    reading = {base_of(query.name) for query in registered if streams & {*query.spec.sources}}
    found: list[OrdererState] = []
    for query in sorted(reading):
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            break
        try:
            found += read_orderer_states(transport, query, frontier_max, timeout_s=left_s)
        except LogError as error:
            _log.info("the positions of query %s are not known: %s", query, error)
    return found
