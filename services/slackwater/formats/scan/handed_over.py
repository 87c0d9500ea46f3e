"""What librdkafka hands over: the addresses of messages, their release, and its responses.

``metadata_counter`` is called by threads of the library for each response. It is compiled, since no
thread of the library may call Python, and only counts.
"""

from __future__ import annotations

from typing import Final

from slackwater.formats.scan.compiled import callback, entry
from slackwater.formats.scan.memory import call_for, call_with, load_i32, load_i64, store_i64

# Of ``rd_kafka_message_t``, whose layout is part of the library's interface.
_ERROR, _PARTITION, _PAYLOAD, _SIZE, _KEY, _KEY_SIZE, _OFFSET = 0, 16, 24, 32, 40, 48, 56


@entry("int64(int64, int64, int64, int64)")
def places(pointers: int, count: int, columns: int, stride: int) -> int:
    """Write the addresses of messages; return the number of notices among them.

    ``columns``: address of five columns of words (start, end, offset, partition, error), ``stride``
    words apart. A message without a value is empty; a notice has its text as value.
    """
    notices = 0
    for i in range(count):
        message = load_i64(pointers + 8 * i)
        start = load_i64(message + _PAYLOAD)
        error = load_i32(message + _ERROR)
        column = columns + 8 * i
        store_i64(column, start)
        store_i64(column + 8 * stride, start + load_i64(message + _SIZE) if start != 0 else 0)
        store_i64(column + 16 * stride, load_i64(message + _OFFSET))
        store_i64(column + 24 * stride, load_i32(message + _PARTITION))
        store_i64(column + 32 * stride, error)
        notices += error != 0
    return notices


@entry("void(int64, int64, int64, int64)")
def key_places(pointers: int, count: int, columns: int, stride: int) -> None:
    """Write the addresses of the starts and ends of keys to two columns; a missing key is empty."""
    for i in range(count):
        message = load_i64(pointers + 8 * i)
        start = load_i64(message + _KEY)
        # The key of a notice is none of a record.
        is_key = start != 0 and load_i32(message + _ERROR) == 0
        column = columns + 8 * i
        store_i64(column, start if is_key else 0)
        store_i64(column + 8 * stride, start + load_i64(message + _KEY_SIZE) if is_key else 0)


@entry("void(int64, int64, int64, int64)")
def times(pointers: int, count: int, column: int, clock: int) -> None:
    """Write the times of records in ms, -1 for none, by the C function at ``clock``."""
    for i in range(count):
        place = column + 8 * i
        store_i64(place, 0)
        # The function writes the kind of time, an int, to its second argument.
        time = call_for(clock, load_i64(pointers + 8 * i), place)
        store_i64(place, -1 if load_i32(place) == 0 else time)


@entry("void(int64, int64, int64)")
def destroy(pointers: int, count: int, destroyer: int) -> None:
    """Call the C function at ``destroyer`` with each pointer."""
    for i in range(count):
        call_with(destroyer, load_i64(pointers + 8 * i))


_METADATA: Final = 3
"""The number of the Metadata request in Kafka's protocol."""


@callback("int32(int64, int32, int64, int32, int16, int16, int32, int64, int64, int32, int64)")
def metadata_counter(
    _client: int,
    _socket: int,
    _broker: int,
    _broker_id: int,
    request: int,
    _version: int,
    _correlation: int,
    _size: int,
    _round_trip: int,
    _error: int,
    counter: int,
) -> int:
    """Count a response to a Metadata request in the word at ``counter``.

    The parameters are those of ``rd_kafka_interceptor_f_on_response_received_t``. Responses of two
    brokers may be counted at once, and then one of them may be lost; the word has changed even so.
    """
    if request == _METADATA:
        store_i64(counter, load_i64(counter) + 1)
    return 0
