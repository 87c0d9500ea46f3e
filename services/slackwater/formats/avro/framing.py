"""The two framings of an Avro message, which reference its writer's schema.

Confluent's wire format: a zero byte, the schema's id in four bytes (big-endian), the record. Avro's
single-object encoding: ``C3 01``, the schema's CRC-64-AVRO fingerprint in eight bytes, the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slackwater.formats.messages import Messages
from slackwater.model.records import type_i64

_SINGLE_OBJECT: Final = np.frombuffer(b"\xc3\x01", np.uint8)
_ID_END: Final = 5
_FINGERPRINT_END: Final = 10
_PADDING: Final = bytes(16)
"""Bytes that may be read after the last message before it is found to be too short."""

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference to a writer's schema: its id in a registry, or its fingerprint, low byte first."""

    id: int | None = None
    fingerprint: bytes = b""

    def __str__(self) -> str:
        if self.id is not None:
            return f"schema id {self.id}"
        return f"schema fingerprint {self.fingerprint[::-1].hex()}"

    @property
    def header_bytes(self) -> int:
        """Offset of the record in the message."""
        return _FINGERPRINT_END if self.id is None else _ID_END


@dataclass(frozen=True, slots=True)
class Framed:
    """Joined messages: their bytes, and the start and end of each."""

    data: npt.NDArray[np.uint8]
    starts: type_i64
    ends: type_i64

    @classmethod
    def of(cls, messages: Sequence[bytes]) -> Framed:
        """Join messages."""
        if isinstance(messages, Messages):
            data, starts = messages.copied(_PADDING)
            return cls(data, starts, starts + messages.ends - messages.starts)
        data = np.frombuffer(b"".join(messages) + _PADDING, np.uint8)
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        ends = np.cumsum(sizes)
        return cls(data, ends - sizes, ends)

    def by_schema(self) -> dict[Reference | None, Rows]:
        """Return the messages of each schema, in order; key None: those with neither framing."""
        data, starts = self.data, self.starts
        sizes = self.ends - starts
        has_id = (data[starts] == 0) & (sizes >= _ID_END)
        has_fingerprint = (data[starts[:, None] + np.arange(2)] == _SINGLE_OBJECT).all(1)
        has_fingerprint &= sizes >= _FINGERPRINT_END
        found: dict[Reference | None, Rows] = {}
        for number, rows in self._grouped(has_id, 1, ">u4"):
            found[Reference(id=int(number))] = rows
        for number, rows in self._grouped(has_fingerprint, 2, "<u8"):
            found[Reference(fingerprint=int(number).to_bytes(8, "little"))] = rows
        unframed = np.flatnonzero(~(has_id | has_fingerprint))
        if len(unframed):
            found[None] = unframed
        return found

    def _grouped(self, which: npt.NDArray[np.bool_], at: int, kind: str) -> list[tuple[Any, Rows]]:
        """Group messages by the number at offset ``at``."""
        rows = np.flatnonzero(which)
        size = np.dtype(kind).itemsize
        octets = self.data[self.starts[rows][:, None] + np.arange(at, at + size)]
        numbers = octets.reshape(-1).view(kind)
        if len(rows) and (numbers == numbers[0]).all():
            return [(numbers[0], rows)]
        order = np.argsort(numbers, kind="stable")
        values, firsts = np.unique(numbers[order], return_index=True)
        groups = np.split(rows[order], firsts[1:]) if len(rows) else []
        return list(zip(values, groups, strict=True))
