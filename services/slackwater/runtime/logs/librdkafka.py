"""A librdkafka consumer that returns messages as pointers instead of Python objects.

The library is the one bundled with confluent-kafka, called through ctypes. Code and settings are
the same, but there is no Python object for each message: to create, read and delete such an object
costs 700 ns, and a call that returns thousands of pointers costs a thousandth of that per message.

No thread of the library calls Python. The library queues its log lines, and ``take`` logs them.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from slackwater.model.errors import EnvironmentProblem

_ERROR_BYTES: Final = 512
_LEVELS: Final = (
    *[logging.CRITICAL] * 3,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.INFO,
    logging.DEBUG,
)
"""Python's log level for each syslog level."""
_PROTOTYPES: Final[dict[str, tuple[Any, ...]]] = {
    # name: result, arguments
    "rd_kafka_version": (c_int,),
    "rd_kafka_conf_new": (c_void_p,),
    "rd_kafka_conf_set": (c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
    "rd_kafka_conf_destroy": (None, c_void_p),
    "rd_kafka_new": (c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    "rd_kafka_name": (c_char_p, c_void_p),
    "rd_kafka_poll_set_consumer": (c_int, c_void_p),
    "rd_kafka_queue_new": (c_void_p, c_void_p),
    "rd_kafka_queue_get_consumer": (c_void_p, c_void_p),
    "rd_kafka_queue_destroy": (None, c_void_p),
    "rd_kafka_queue_poll": (c_void_p, c_void_p, c_int),
    "rd_kafka_set_log_queue": (c_int, c_void_p, c_void_p),
    "rd_kafka_event_log": (c_int, c_void_p, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_int)),
    "rd_kafka_event_destroy": (None, c_void_p),
    "rd_kafka_topic_partition_list_new": (c_void_p, c_int),
    "rd_kafka_topic_partition_list_add": (c_void_p, c_void_p, c_char_p, c_int32),
    "rd_kafka_topic_partition_list_set_offset": (c_int, c_void_p, c_char_p, c_int32, c_int64),
    "rd_kafka_topic_partition_list_destroy": (None, c_void_p),
    "rd_kafka_topic_partition_set_leader_epoch": (None, c_void_p, c_int32),
    "rd_kafka_assign": (c_int, c_void_p, c_void_p),
    "rd_kafka_pause_partitions": (c_int, c_void_p, c_void_p),
    "rd_kafka_resume_partitions": (c_int, c_void_p, c_void_p),
    "rd_kafka_offsets_for_times": (c_int, c_void_p, c_void_p, c_int),
    "rd_kafka_consume_batch_queue": (c_ssize_t, c_void_p, c_int, c_void_p, c_size_t),
    "rd_kafka_message_destroy": (None, c_void_p),
    "rd_kafka_message_timestamp": (c_int64, c_void_p, c_void_p),
    "rd_kafka_message_leader_epoch": (c_int32, c_void_p),
    "rd_kafka_consumer_close": (c_int, c_void_p),
    "rd_kafka_destroy": (None, c_void_p),
    "rd_kafka_err2str": (c_char_p, c_int),
    "rd_kafka_conf_interceptor_add_on_new": (c_int, c_void_p, c_char_p, c_void_p, c_void_p),
    "rd_kafka_interceptor_add_on_response_received": (c_int, *[c_void_p] * 4),
}
_ON_NEW: Final[Any] = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)
_CONSUMER: Final = 1
_NOTHING: Final[Mapping[int, int]] = {}
_END: Final = -1
"""``RD_KAFKA_OFFSET_END``."""


class _Partition(ctypes.Structure):
    """``rd_kafka_topic_partition_t``."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("error", c_int),
        ("private", c_void_p),
    )


class _Partitions(ctypes.Structure):
    """``rd_kafka_topic_partition_list_t``."""

    _fields_ = (("count", c_int), ("size", c_int), ("elements", POINTER(_Partition)))


@cache
def library() -> Any:
    """Return the library that confluent-kafka uses; ``ImportError`` if it cannot be found."""
    package = Path(confluent_kafka.__file__).parent
    folders = (package.parent / "confluent_kafka.libs", package / ".dylibs")
    found = [path for folder in folders for path in folder.glob("librdkafka*")]
    if len(found) != 1:
        raise ImportError(f"{len(found)} libraries of librdkafka beside {package}")
    loaded = ctypes.CDLL(str(found[0]))
    for name, (result, *arguments) in _PROTOTYPES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    if loaded.rd_kafka_version() != confluent_kafka.libversion()[1]:
        raise ImportError(f"{found[0]} is not the library that confluent-kafka uses")
    return loaded


def message_destroyer() -> int:
    """Return the address of the C function that frees a message."""
    return _address_of(library().rd_kafka_message_destroy)


def message_clock() -> int:
    """Return the address of the C function to the time of a message and its kind, 0 for none."""
    return _address_of(library().rd_kafka_message_timestamp)


def _address_of(function: Any) -> int:
    address = ctypes.cast(function, c_void_p).value
    assert address is not None
    return address


class PointerConsumer:
    """A consumer with explicit assignment. For one thread at a time."""

    def __init__(self, config: Mapping[str, Any], on_response: int = 0, argument: int = 0) -> None:
        """Create the consumer; ``config`` as for confluent-kafka, with ``logger``, no callbacks.

        ``on_response``: address of a C function that the library's threads call with each response
        of a broker (``rd_kafka_interceptor_f_on_response_received_t``), and with ``argument``.
        """
        self._library = library()
        self._on_response, self._argument = on_response, argument
        self._logger: logging.Logger = config.get("logger", logging.getLogger(__name__))
        settings = {name: value for name, value in config.items() if name != "logger"}
        self._handle = self._open(settings | {"log.queue": True})
        self._logs = self._library.rd_kafka_queue_new(self._handle)
        self._library.rd_kafka_set_log_queue(self._handle, self._logs)
        self._library.rd_kafka_poll_set_consumer(self._handle)
        self._queue = self._library.rd_kafka_queue_get_consumer(self._handle)
        self._name = self._library.rd_kafka_name(self._handle).decode()

    def _open(self, settings: Mapping[str, Any]) -> int:
        conf = self._library.rd_kafka_conf_new()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            arguments = (name.encode(), text.encode(), error, _ERROR_BYTES)
            if self._library.rd_kafka_conf_set(conf, *arguments) != 0:
                self._library.rd_kafka_conf_destroy(conf)
                # The library's own text would show the value, which may be a secret.
                raise EnvironmentProblem(f"Kafka's client does not accept the setting {name}")
        on_new = _ON_NEW(self._intercept)  # called by rd_kafka_new, in this thread
        if self._on_response:
            self._library.rd_kafka_conf_interceptor_add_on_new(conf, b"responses", on_new, None)
        handle: int | None = self._library.rd_kafka_new(_CONSUMER, conf, error, _ERROR_BYTES)
        if handle is None:
            self._library.rd_kafka_conf_destroy(conf)
            reason = error.value.decode(errors="replace")
            raise EnvironmentProblem(f"no Kafka client can be created: {reason}")
        return handle

    def _intercept(self, client: int, *_: object) -> int:
        """Let a new client call ``on_response``."""
        add = self._library.rd_kafka_interceptor_add_on_response_received
        return int(add(client, b"responses", self._on_response, self._argument))

    def assign(
        self, topic: str, positions: Mapping[int, int], epochs: Mapping[int, int] = _NOTHING
    ) -> None:
        """Read exactly these partitions, from these offsets.

        ``epochs`` has, by partition, a leader epoch of the messages before its offset, where known.
        The leader is then asked where this epoch ends (KIP-320).
        """
        with self._listed(topic, positions, epochs) as partitions:
            code = self._library.rd_kafka_assign(self._handle, partitions)
        if code:
            raise EnvironmentProblem(f"topic {topic} cannot be assigned: {self.error_text(code)}")

    def pause(self, topic: str, numbers: Iterable[int]) -> None:
        """Stop fetching these partitions; messages that were not taken are dropped."""
        with self._listed(topic, dict.fromkeys(numbers, _END)) as partitions:
            self._library.rd_kafka_pause_partitions(self._handle, partitions)

    def resume(self, topic: str, numbers: Iterable[int]) -> None:
        """Continue to fetch paused partitions behind the last messages that were taken."""
        with self._listed(topic, dict.fromkeys(numbers, _END)) as partitions:
            self._library.rd_kafka_resume_partitions(self._handle, partitions)

    def ends(self, topic: str, numbers: Iterable[int], timeout_s: float) -> dict[int, int] | None:
        """Return the end offsets of partitions; None if one is not known after ``timeout_s``."""
        with self._listed(topic, dict.fromkeys(numbers, _END)) as partitions:
            wait_ms = max(1, round(1_000 * timeout_s))
            if self._library.rd_kafka_offsets_for_times(self._handle, partitions, wait_ms):
                return None
            listed = ctypes.cast(partitions, POINTER(_Partitions)).contents
            found = listed.elements[: listed.count]
            if any(each.error or each.offset < 0 for each in found):
                return None
            return {each.partition: each.offset for each in found}

    @contextmanager
    def _listed(
        self, topic: str, positions: Mapping[int, int], epochs: Mapping[int, int] = _NOTHING
    ) -> Iterator[int]:
        """A list of partitions with offsets and epochs, in the library's memory."""
        partitions = self._library.rd_kafka_topic_partition_list_new(len(positions))
        try:
            for number, offset in positions.items():
                place = (partitions, topic.encode(), number)
                added = self._library.rd_kafka_topic_partition_list_add(*place)
                self._library.rd_kafka_topic_partition_list_set_offset(*place, offset)
                if number in epochs:
                    set_epoch = self._library.rd_kafka_topic_partition_set_leader_epoch
                    set_epoch(added, epochs[number])
            yield partitions
        finally:
            self._library.rd_kafka_topic_partition_list_destroy(partitions)

    def take(self, pointers: int, count_max: int, wait_s: float) -> int:
        """Write pointers to messages to the address ``pointers``; return their number.

        Waits up to ``wait_s`` for the first message. The caller destroys the messages.
        """
        self._log_lines()
        count = self._take(pointers, count_max, 0)
        if count or not wait_s:
            return count
        if not self._take(pointers, 1, max(1, round(1_000 * wait_s))):
            return 0
        return 1 + self._take(pointers + ctypes.sizeof(c_void_p), count_max - 1, 0)

    def _take(self, pointers: int, count_max: int, wait_ms: int) -> int:
        # With a time-out the library waits for ``count_max`` messages.
        taken = self._library.rd_kafka_consume_batch_queue(
            self._queue, wait_ms, pointers, count_max
        )
        return max(0, int(taken))

    def leader_epoch(self, message: int) -> int:
        """Return the leader epoch of the message at this address, -1 if it has none.

        Not of one that reports an error: its epoch is not set.
        """
        return int(self._library.rd_kafka_message_leader_epoch(message))

    def error_text(self, code: int) -> str:
        """Return the description of an error code."""
        text: bytes = self._library.rd_kafka_err2str(code)
        return text.decode(errors="replace")

    def _log_lines(self) -> None:
        while event := self._library.rd_kafka_queue_poll(self._logs, 0):
            facility, text, level = c_char_p(), c_char_p(), c_int()
            arguments = (byref(facility), byref(text), byref(level))
            if self._library.rd_kafka_event_log(event, *arguments) == 0:
                source = (facility.value or b"").decode(errors="replace")
                line = (text.value or b"").decode(errors="replace")
                self._logger.log(_LEVELS[level.value & 7], "%s [%s] %s", source, self._name, line)
            self._library.rd_kafka_event_destroy(event)

    def close(self) -> None:
        """Close the consumer; all messages must have been destroyed."""
        if not self._handle:
            return
        self._library.rd_kafka_consumer_close(self._handle)
        self._log_lines()
        self._library.rd_kafka_queue_destroy(self._queue)
        self._library.rd_kafka_queue_destroy(self._logs)
        self._library.rd_kafka_destroy(self._handle)
        self._handle = 0
