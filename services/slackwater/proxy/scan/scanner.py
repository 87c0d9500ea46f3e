"""A stream's scanner: batches of messages in, columns and the messages left to the definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from slackwater.model.deployment import StreamSpec
from slackwater.model.records import type_f64, type_i32, type_i64
from slackwater.proxy.messages import Messages
from slackwater.proxy.scan import kernel
from slackwater.proxy.scan.decimals import POWERS_OF_FIVE
from slackwater.proxy.scan.keys import Keys
from slackwater.proxy.scan.plan import Plan

_GROW_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Scanned:
    """Rows of a batch, one per message; those in ``left`` have no reading."""

    stimes: type_i64
    key_index: type_i32
    values: type_f64
    """A row of numbers per field."""
    left: Any
    """Indices of the messages left to the definition."""


class Scanner:
    """Reads messages of one stream; raises ``UnsupportedSpec`` if it cannot."""

    def __init__(self, spec: StreamSpec) -> None:
        self._plan = Plan(spec, int(POWERS_OF_FIVE.ctypes.data))
        self._keys = Keys()

    @property
    def texts(self) -> list[str]:
        """The keys by their index; later batches extend the same list."""
        return self._keys.texts

    def code(self, key: str) -> int:
        """Return the index of a key of a message left to the definition."""
        return self._keys.code(key)

    def scan(self, messages: Messages) -> Scanned:
        """Read a batch of messages."""
        if self._keys.is_large:
            self._keys.forget()
        n = len(messages)
        status, stimes = np.empty(n, np.uint8), np.empty(n, np.int64)
        key_index, values = np.empty(n, np.int32), np.empty((self._plan.fields, n))
        output = np.zeros(kernel.OUTPUT_WORDS, np.int64)
        columns = [column.ctypes.data for column in (status, stimes, key_index, values)]
        output[: len(columns) + 1] = (*columns, n)
        starts, ends = map(np.ascontiguousarray, (messages.starts, messages.ends))
        places = starts.ctypes.data, ends.ctypes.data
        done = 0
        while True:
            plan, keys = self._plan.address, self._keys.address
            done = kernel.scan(*places, done, n, plan, keys, output.ctypes.data)
            if done == n:
                break
            self._keys.grow(max(_GROW_BYTES, int(ends[done] - starts[done])))
        self._keys.decode()
        return Scanned(stimes, key_index, values, np.flatnonzero(status))
