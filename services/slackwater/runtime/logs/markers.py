"""Commit times of transactions, read from their markers.

A read_committed consumer receives a transaction once the broker has written its marker. The marker
contains the broker's time of that write. From then on the results can be read, whatever the load on
the machine of the consumer that checks them.

No consumer API returns markers. The log is therefore fetched directly, and only the headers of its
batches are parsed. Rejected: record timestamps (``message.timestamp.type=LogAppendTime``), since
records arrive while the transaction is still open; and a time written by the producer, since its
process may wait for a core before the commit.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, LeaderNotAvailableError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.transport import Log, Marker, NoAnswerError

FETCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Limit of one fetch. A larger batch is still returned, alone."""
FETCH_WAIT_MS: Final = 100
READ_UNCOMMITTED: Final = 0


def fetch_markers(
    cluster: Cluster, log: Log, start: int, end: int, timeout_s: float
) -> list[Marker]:
    """Return the markers in [start, end), in order; for programs without an event loop.

    ``end`` must not lie beyond the log's end.

    Raises:
        NoAnswerError: no progress for ``timeout_s``.
    """
    return asyncio.run(_fetch_markers(cluster, log, start, end, timeout_s))


async def _fetch_markers(
    cluster: Cluster, log: Log, start: int, end: int, timeout_s: float
) -> list[Marker]:
    loop, found, position = asyncio.get_running_loop(), [], start
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap, **cluster.security.aiokafka())
    try:
        async with asyncio.timeout(timeout_s) as patience:
            await client.bootstrap()
            await client.set_topics([log[0]])
            while position < end:
                heads = MemoryRecords(await _fetch(client, log, position))
                while (head := heads.next_batch()) is not None:
                    if head.is_control_batch and head.base_offset < end:
                        found.append(Marker(head.base_offset, head.max_timestamp))
                    position = head.next_offset
                    patience.reschedule(loop.time() + timeout_s)
    except (TimeoutError, KafkaError) as error:
        where = f"{log[0]}:{log[1]} from {position} on"
        raise NoAnswerError(f"the markers of {where} cannot be read: {error!r}") from error
    finally:
        await client.close()
    return found


async def _fetch(client: Any, log: Log, offset: int) -> bytes:
    """Fetch batches, beginning with the one that contains ``offset``; the last may be truncated."""
    leader = client.cluster.leader_for_partition(TopicPartition(*log))
    if leader is None or leader < 0:
        raise LeaderNotAvailableError(f"{log[0]}:{log[1]}")
    topic, partition = log
    wanted = [(topic, [(partition, offset, FETCH_BYTES_MAX)])]
    request = FetchRequest(FETCH_WAIT_MS, 1, FETCH_BYTES_MAX, READ_UNCOMMITTED, wanted)
    response = await client.send(leader, request)
    ((_, ((_, error_code, *_, batches),)),) = response.topics
    if error_code:
        raise for_code(error_code)(f"{log[0]}:{log[1]}")
    return bytes(batches or b"")
