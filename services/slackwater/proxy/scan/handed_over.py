"""Messages received from librdkafka: their addresses in memory, and their release."""

from __future__ import annotations

from slackwater.proxy.scan.compiled import entry
from slackwater.proxy.scan.memory import call_with, load_i32, load_i64, store_i64

# Of ``rd_kafka_message_t``, whose layout is part of the library's interface.
_ERROR, _PARTITION, _PAYLOAD, _SIZE, _OFFSET = 0, 16, 24, 32, 56


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


@entry("void(int64, int64, int64)")
def destroy(pointers: int, count: int, destroyer: int) -> None:
    """Call the C function at ``destroyer`` with each pointer."""
    for i in range(count):
        call_with(destroyer, load_i64(pointers + 8 * i))
