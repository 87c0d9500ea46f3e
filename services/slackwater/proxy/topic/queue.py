"""The client that returns thousands of messages at once, as addresses in librdkafka's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from slackwater.model.records import type_i64
from slackwater.proxy.messages import Messages
from slackwater.proxy.scan.handed_over import destroy, places
from slackwater.proxy.topic.client import Fetched, Notice, kind_of
from slackwater.runtime.logs.librdkafka import PointerConsumer, message_destroyer

MESSAGES_MAX: Final = 10_000
"""Maximum messages of one read. Their columns fit the processor's cache."""
_COLUMNS: Final = 5


class QueueClient:
    """A client whose messages are memory addresses, valid until ``release``."""

    def __init__(self, topic: str, config: Mapping[str, Any]) -> None:
        self._topic = topic
        self._destroyer = message_destroyer()
        self._consumer = PointerConsumer(config)
        self._pointers = np.zeros(MESSAGES_MAX, np.int64)
        self._columns = np.zeros((_COLUMNS, MESSAGES_MAX), np.int64)
        self._held = 0
        self._assigned: tuple[int, ...] = ()

    def assign(self, positions: Mapping[int, int]) -> None:
        """Assign these partitions, starting at these offsets."""
        self._consumer.assign(self._topic, positions)
        self._assigned = tuple(positions)

    def read(self, wait_s: float) -> list[Fetched | Notice]:
        """Return available messages and notices; wait up to ``wait_s`` for the first message."""
        self.release()
        pointers, columns = self._pointers.ctypes.data, self._columns.ctypes.data
        count = self._held = self._consumer.take(pointers, MESSAGES_MAX, wait_s)
        if not count:
            return []
        notices = places(pointers, count, columns, MESSAGES_MAX)
        found = self._columns[:, :count]
        numbers = found[3]
        if not notices and numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
            return [_fetched(found)]
        by_partition = [found[:, numbers == number] for number in np.unique(numbers)]
        return [one for part in by_partition for one in self._in_order(part)]

    def _in_order(self, part: type_i64) -> list[Fetched | Notice]:
        """Return runs of messages of one partition, and the notices between them."""
        found: list[Fetched | Notice] = []
        start = 0
        for at in (*np.flatnonzero(part[4]).tolist(), part.shape[1]):
            if at > start:
                found.append(_fetched(part[:, start:at]))
            if at < part.shape[1]:
                found.append(self._notice(*part[:, at].tolist()))
            start = at + 1
        return found

    def _notice(self, start: int, end: int, offset: int, partition: int, error: int) -> Notice:
        text = ctypes.string_at(start, end - start).decode(errors="replace") if start else ""
        return Notice(partition, kind_of(error), offset, text or self._consumer.error_text(error))

    def release(self) -> None:
        """Free the memory of the last read."""
        held, self._held = self._held, 0
        destroy(self._pointers.ctypes.data, held, self._destroyer)

    def pause(self) -> None:
        """Stop fetching; messages that were fetched and not read are fetched again later."""
        self._consumer.pause(self._topic, self._assigned)

    def resume(self, timeout_s: float) -> dict[int, int] | None:
        """Continue to fetch, and return the partitions' end offsets; None without a response."""
        self._consumer.resume(self._topic, self._assigned)
        return self._consumer.ends(self._topic, self._assigned, timeout_s)

    def close(self) -> None:
        """Close the client."""
        self.release()
        self._consumer.close()


def _fetched(part: type_i64) -> Fetched:
    return Fetched(int(part[3, 0]), part[2], Messages(part[0], part[1]))
