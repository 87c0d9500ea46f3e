"""A stream's scanner: batches of messages in, columns and the messages left to the definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from slackwater.formats.messages import Messages
from slackwater.formats.scan import kernel
from slackwater.formats.scan.decimals import POWERS_OF_FIVE
from slackwater.formats.scan.keys import Keys
from slackwater.formats.scan.leaves import COUNTS, NOT_FINITE, OUTPUT_WORDS, SIZE_MAX, SIZES
from slackwater.formats.scan.plan import FIELD, Plan
from slackwater.model.deployment import StreamSpec
from slackwater.model.records import type_f64, type_i32, type_i64

_GROW_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Scanned:
    """Rows of a batch of messages, one each; those in ``left`` have no reading."""

    stimes: type_i64
    key_index: type_i32
    values: type_f64
    """A row of numbers per field."""
    left: Any
    """Indices of the messages left to the definition."""
    not_finite: int
    """Number of values that were NaN or Infinity, and are missing."""


@dataclass(frozen=True, slots=True)
class ScannedColumns(Scanned):
    """Rows of a batch of columns, those of each message in consecutive rows."""

    counts: type_i64
    """The number of rows of each message; 0 for those that are left."""


class Scanner:
    """Reads messages of one stream; raises ``UnsupportedSpec`` if it cannot."""

    def __init__(self, spec: StreamSpec) -> None:
        self._plan = Plan(spec, int(POWERS_OF_FIVE.ctypes.data))
        self._keys = Keys()

    def __reduce__(self) -> str:
        """A copy would contain addresses of this scanner's memory."""
        raise TypeError("a scanner is bound to the memory of its process: create another one")

    @property
    def texts(self) -> list[str]:
        """The keys by their index; later batches extend the same list."""
        return self._keys.texts

    def code(self, key: str) -> int:
        """Return the index of a key of a message left to the definition."""
        return self._keys.code(key)

    def scan(self, messages: Messages) -> Scanned:
        """Read a batch of messages."""
        self._drop_keys_if_large()
        n = len(messages)
        status, stimes = np.empty(n, np.uint8), self._times(n)
        key_index, values = np.empty(n, np.int32), np.empty((self._plan.fields, n))
        output = _described(status, stimes, key_index, values)
        starts, ends, places = _places(messages)
        done = 0
        while True:
            plan, keys = self._plan.address, self._keys.address
            done = kernel.scan(*places, done, n, plan, keys, output.ctypes.data)
            if done == n:
                break
            self._keys.grow(max(_GROW_BYTES, int(ends[done] - starts[done])))
        self._keys.decode()
        not_finite = int(output[NOT_FINITE // 8])
        return Scanned(stimes, key_index, values, np.flatnonzero(status), not_finite)

    def scan_columns(self, messages: Messages, rows_max: int) -> ScannedColumns:
        """Read a batch of messages of columns with at most ``rows_max`` rows each."""
        self._drop_keys_if_large()
        n, fields = len(messages), self._plan.fields
        starts, ends, places = _places(messages)
        room = int(kernel.rows_at_most(*places, n, rows_max))
        status, counts = np.empty(n, np.uint8), np.empty(n, np.int64)
        stimes, values = self._times(room), np.empty((fields, room))
        key_index, sizes = np.empty(room, np.int32), np.empty(FIELD + fields, np.int64)
        output = _described(status, stimes, key_index, values)
        for slot, word in (
            (SIZES, sizes.ctypes.data),
            (SIZE_MAX, rows_max),
            (COUNTS, counts.ctypes.data),
        ):
            output[slot // 8] = word
        done = row = 0
        while True:
            plan, keys = self._plan.address, self._keys.address
            done, row = kernel.scan_columns(*places, done, n, row, plan, keys, output.ctypes.data)
            if done == n:
                break
            self._keys.grow(max(_GROW_BYTES, int(ends[done] - starts[done])))
        self._keys.decode()
        left = np.flatnonzero(status)
        not_finite = int(output[NOT_FINITE // 8])
        columns = (stimes[:row], key_index[:row], values[:, :row])
        return ScannedColumns(*columns, left, not_finite, counts)

    def _times(self, n: int) -> type_i64:
        """Return room for times; times that are not in messages are 0."""
        return np.empty(n, np.int64) if self._plan.has_time else np.zeros(n, np.int64)

    def _drop_keys_if_large(self) -> None:
        if self._keys.is_large:
            self._keys.forget()


def _places(messages: Messages) -> tuple[type_i64, type_i64, tuple[int, int]]:
    """Return the columns of starts and ends, which must be kept, and their addresses."""
    starts, ends = map(np.ascontiguousarray, (messages.starts, messages.ends))
    return starts, ends, (starts.ctypes.data, ends.ctypes.data)


def _described(status: Any, stimes: type_i64, key_index: type_i32, values: type_f64) -> type_i64:
    """Return the description of the output for the compiled code; the columns must be kept."""
    output = np.zeros(OUTPUT_WORDS, np.int64)
    columns = [column.ctypes.data for column in (status, stimes, key_index, values)]
    output[: len(columns) + 1] = (*columns, values.shape[1])
    return output
