"""Beginning and end offsets of logs: requests to the broker that may time out.

End offsets are requested at each deadline that a source misses (rule-14), with time-outs of a few
milliseconds, often while the broker is slow. The admin client's ``list_offsets`` cannot be used: in
librdkafka 2.14 a request that times out corrupts memory (four of six runs of 3,000 requests with a
time-out of 2 ms crashed), and so does a cancelled future. A consumer's ``offsets_for_times`` with
"end" or "beginning" sends the same request. It blocks its caller instead of calling back, takes
0.6 ms instead of 1.5 ms, and can time out safely.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from slackwater.runtime.logs.cluster import Where
from slackwater.runtime.logs.refusals import Refusals
from slackwater.runtime.logs.topics import confluent_consumer
from slackwater.runtime.logs.transport import Isolation, Log, NoAnswerError

_ASK_AGAIN_S = 0.05
SILENT_S_MAX = 5.0
"""A client that has been asked in vain for so long is replaced."""


class OffsetsClient:
    """Fetches offsets from one cluster. Thread-safe."""

    def __init__(self, where: Where, config: Mapping[str, Any]) -> None:
        self._where = where
        self._config = dict(config)
        self._consumers: dict[Isolation, Consumer] = {}
        self._refusals = Refusals()
        self._in_vain_from_s: dict[Isolation, float] = {}
        """When the first of the requests in succession began that had no answer."""
        self._lock = threading.Lock()

    def ends(self, logs: Iterable[Log], isolation: Isolation, timeout_s: float) -> dict[Log, int]:
        """Return end offsets; under read_committed the last stable offset."""
        return self._ask(OFFSET_END, logs, isolation, timeout_s)

    def beginnings(self, logs: Iterable[Log], timeout_s: float) -> dict[Log, int]:
        """Return the first offset that each log still holds."""
        return self._ask(OFFSET_BEGINNING, logs, "read_uncommitted", timeout_s)

    def _ask(
        self, what: int, logs: Iterable[Log], isolation: Isolation, timeout_s: float
    ) -> dict[Log, int]:
        wanted = [TopicPartition(*log, what) for log in logs]
        if not wanted:
            return {}
        consumer, began_s = self._consumer(isolation), time.monotonic()
        deadline_s = began_s + timeout_s
        while True:
            left_s = max(0.001, deadline_s - time.monotonic())
            why = "no leader"
            try:
                found = consumer.offsets_for_times(wanted, timeout=left_s)
            except KafkaException as error:
                found, why = [], error.args[0].str()
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    consumer = self._another(isolation, consumer)
            consumer.poll(0)  # empties the client's event queue
            if found and all(at.error is None and at.offset >= 0 for at in found):
                self._in_vain_from_s.pop(isolation, None)
                self._refusals.clear()
                return {(at.topic, at.partition): at.offset for at in found}
            if any(at.error and at.error.code() == KafkaError._UNKNOWN_PARTITION for at in found):
                consumer, why = self._another(isolation, consumer), "unknown partition"
            # On a starting broker, or for a new topic, there is no leader yet: retry.
            if time.monotonic() + _ASK_AGAIN_S > deadline_s:
                in_vain_from_s = self._in_vain_from_s.setdefault(isolation, began_s)
                if time.monotonic() - in_vain_from_s >= SILENT_S_MAX:
                    self._drop(isolation, consumer)
                names = ", ".join(f"{at.topic}:{at.partition}" for at in wanted[:3])
                raise NoAnswerError(
                    f"{self._where} gave no offsets of {names} in {timeout_s:g} s:"
                    f" {self._refusals.why(why)}"
                )
            time.sleep(_ASK_AGAIN_S)

    def _another(self, isolation: Isolation, stuck: Consumer) -> Consumer:
        """Replace a client whose cached metadata lacks a partition.

        The metadata was cached before the partition was added, or while the topic was being
        created, and ``offsets_for_times`` never refreshes it (observed for minutes).
        """
        self._drop(isolation, stuck)
        return self._consumer(isolation)

    def _drop(self, isolation: Isolation, silent: Consumer) -> None:
        """Use another client from the next request on.

        For the same reason a client whose cached leader has died asks it in vain for up to five
        minutes (observed: a proxy read nothing, since it did not learn the ends of its topic).
        """
        with self._lock:
            if self._consumers.get(isolation) is silent:
                del self._consumers[isolation]
                self._in_vain_from_s.pop(isolation, None)

    def _consumer(self, isolation: Isolation) -> Consumer:
        with self._lock:
            if isolation not in self._consumers:
                self._consumers[isolation] = Consumer(
                    confluent_consumer(self._where)
                    | self._config
                    | {"isolation.level": isolation}
                    | self._refusals.config
                )
            return self._consumers[isolation]
