"""The client that returns thousands of messages at once, as addresses in librdkafka's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slackwater.formats.messages import Messages
from slackwater.formats.scan.handed_over import destroy, key_places, metadata_counter, places, times
from slackwater.model.records import type_i64
from slackwater.proxy.topic.client import (
    NO_EPOCHS,
    VALUES_ONLY,
    Fetched,
    Notice,
    RecordParts,
    kind_of,
)
from slackwater.runtime.logs.librdkafka import PointerConsumer, message_clock, message_destroyer

MESSAGES_MAX: Final = 10_000
"""Maximum messages of one read. Their columns fit the processor's cache."""
_COLUMNS: Final = 8
_KEYS_AT, _TIMES_AT = 5 * 8 * MESSAGES_MAX, 7 * 8 * MESSAGES_MAX
"""Where the columns of keys and times begin, in bytes."""


class QueueClient:
    """A client whose messages are memory addresses, valid until ``release``."""

    def __init__(
        self, topic: str, config: Mapping[str, Any], wanted: RecordParts = VALUES_ONLY
    ) -> None:
        self._topic, self._wanted = topic, wanted
        self._destroyer, self._clock = message_destroyer(), message_clock()
        self._metadata = np.zeros(1, np.int64)
        self._consumer = PointerConsumer(config, metadata_counter, self._metadata.ctypes.data)
        self._pointers = np.zeros(MESSAGES_MAX, np.int64)
        self._columns = np.zeros((_COLUMNS, MESSAGES_MAX), np.int64)
        self._held = 0
        self._assigned: tuple[int, ...] = ()

    def assign(self, positions: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS) -> None:
        """Assign these partitions, starting at these offsets; see ``TopicClient``."""
        self._consumer.assign(self._topic, positions, epochs)
        self._assigned = tuple(positions)

    def read(self, wait_s: float) -> list[Fetched | Notice]:
        """Return available messages and notices; wait up to ``wait_s`` for the first message."""
        self.release()
        pointers, columns = self._pointers.ctypes.data, self._columns.ctypes.data
        count = self._held = self._consumer.take(pointers, MESSAGES_MAX, wait_s)
        if not count:
            return []
        notices = places(pointers, count, columns, MESSAGES_MAX)
        if self._wanted.keys:
            key_places(pointers, count, columns + _KEYS_AT, MESSAGES_MAX)
        if self._wanted.times:
            times(pointers, count, columns + _TIMES_AT, self._clock)
        found = self._columns[:, :count]
        numbers = found[3]
        if not notices and numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
            return [self._fetched(found, count - 1)]
        by_partition = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
        return [one for at in by_partition for one in self._in_order(found[:, at], at)]

    def _in_order(self, part: type_i64, taken: npt.NDArray[np.intp]) -> list[Fetched | Notice]:
        """Return runs of messages of one partition, and the notices between them.

        ``taken``: the places of these messages among all that were taken.
        """
        found: list[Fetched | Notice] = []
        start = 0
        for at in (*np.flatnonzero(part[4]).tolist(), part.shape[1]):
            if at > start:
                found.append(self._fetched(part[:, start:at], int(taken[at - 1])))
            if at < part.shape[1]:
                found.append(self._notice(*part[:5, at].tolist()))
            start = at + 1
        return found

    def _fetched(self, part: type_i64, last: int) -> Fetched:
        """Return a run of messages; ``last`` is the place of its last among all taken."""
        of_records = part[7].copy() if self._wanted.times else None
        keys = Messages(part[5], part[6]) if self._wanted.keys else None
        values = Messages(part[0], part[1])
        epoch = self._consumer.leader_epoch(int(self._pointers[last]))
        return Fetched(int(part[3, 0]), part[2], values, of_records, keys, epoch)

    def _notice(self, start: int, end: int, offset: int, partition: int, error: int) -> Notice:
        text = ctypes.string_at(start, end - start).decode(errors="replace") if start else ""
        return Notice(partition, kind_of(error), offset, text or self._consumer.error_text(error))

    def release(self) -> None:
        """Free the memory of the last read."""
        held, self._held = self._held, 0
        destroy(self._pointers.ctypes.data, held, self._destroyer)

    def metadata_count(self) -> int:
        """Return how many metadata responses the client has received."""
        return int(self._metadata[0])

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
