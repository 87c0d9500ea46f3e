"""The interface of a format's reader: a batch of messages in, columns of readings out.

A format is one class with ``parse``. The method is total: for any bytes, each message of a batch
becomes readings, a boundary, or an error with a reason.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, overload

import numpy as np
import numpy.typing as npt

from slackwater.model.errors import SlackwaterError
from slackwater.model.records import type_f64, type_i64
from slackwater.protocols.dpc.source.core import Reason

MESSAGE: Final = -1
"""Index of an element that represents its message as a unit, if it could not be divided."""

_PAGE_BYTES: Final = 4_096
"""The smallest memory page: if one byte of a page is readable, the entire page is."""


class Messages(Sequence[bytes]):
    """Messages by their addresses in memory; indexing returns a message as bytes.

    ``starts`` and ``ends`` are columns of addresses; ``memory`` is the Python object, if any, that
    owns the memory.
    """

    def __init__(self, starts: type_i64, ends: type_i64, memory: object = None) -> None:
        self.starts, self.ends, self._memory = starts, ends, memory

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Messages:
        """Return the messages, copied to one block of memory."""
        if isinstance(values, Messages):
            return values
        memory = np.frombuffer(b"".join(values) + b"\0", np.uint8)
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        ends = memory.ctypes.data + np.cumsum(sizes)
        return cls(ends - sizes, ends, memory)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Messages: ...

    def __getitem__(self, index: int | slice) -> bytes | Messages:
        if isinstance(index, slice):
            return Messages(self.starts[index], self.ends[index], self._memory)
        start = int(self.starts[index])
        return ctypes.string_at(start, int(self.ends[index]) - start)

    def copied(self, padding: bytes) -> tuple[npt.NDArray[np.uint8], type_i64]:
        """Return a copy of all messages followed by ``padding``, and the start of each in it.

        Messages that are less than a page apart are copied together with the bytes between them,
        which are readable, because they are in a page of one of the two.
        """
        gaps = self.starts[1:] - self.ends[:-1]
        breaks = np.flatnonzero((gaps < 0) | (gaps >= _PAGE_BYTES)) + 1
        edges = np.concatenate([[0], breaks, [len(self)]]) if len(self) else np.zeros(1, np.int64)
        starts, sizes = self.starts[edges[:-1]], self.ends[edges[1:] - 1] - self.starts[edges[:-1]]
        places = zip(starts.tolist(), sizes.tolist(), strict=True)
        pieces = [ctypes.string_at(start, size) for start, size in places]
        shifts = np.cumsum(sizes) - sizes - starts
        data = np.frombuffer(b"".join([*pieces, padding]), np.uint8)
        return data, self.starts + np.repeat(shifts, np.diff(edges))


@dataclass(frozen=True, slots=True)
class Bad:
    """A message that is not a valid reading."""

    index: int
    detail: str
    stime: int | None
    reason: Reason = "malformed"


@dataclass(frozen=True, slots=True)
class Elements:
    """Per element of a batch: its message, its index in it, and whether it is the last in it.

    Elements with readings are in the order of the input.
    """

    messages: type_i64
    indices: type_i64
    lasts: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.messages)


@dataclass(frozen=True, slots=True)
class Parsed:
    """Readings of a batch; ``indices`` are the indices of their messages.

    ``boundaries`` are (index, watermark) of explicit boundary messages. With ``elements``, for
    formats with several readings per message, all indices are those of elements.
    """

    indices: type_i64
    stimes: type_i64
    key_index: Any
    keys: Sequence[str]
    values: tuple[type_f64, ...]
    bad: tuple[Bad, ...] = ()
    boundaries: tuple[tuple[int, int], ...] = ()
    elements: Elements | None = None
    not_finite: int = 0
    """Number of values of the readings that were NaN or Infinity in JSON, and are missing."""


class NotYetReadableError(SlackwaterError):
    """Raised while a reader lacks a prerequisite, such as a schema; not for any bytes.

    The batch can be read again later, at the earliest after ``wait_us``.
    """

    def __init__(self, reason: str, wait_us: int) -> None:
        super().__init__(reason)
        self.wait_us = wait_us


class MessageReader(Protocol):
    """The reader of one format, for one stream."""

    def parse(self, messages: Sequence[bytes]) -> Parsed:
        """Parse all messages of a batch, in their order; any bytes are accepted."""
        ...

    def texts(self, message: bytes) -> Callable[[int], str]:
        """Return the function from an element's index to its text, for quarantine."""
        ...


def nothing(fields: int) -> Parsed:
    """Return a batch without readings."""
    values = tuple(np.empty(0, np.float64) for _ in range(fields))
    return Parsed(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), [], values)


def one_element(message: int) -> Elements:
    """Return the element that represents this message as a unit."""
    number = np.array([message], np.int64)
    return Elements(number, np.array([MESSAGE], np.int64), np.array([True], np.bool_))


def joined(parts: Sequence[Parsed], fields: int) -> Parsed:
    """Concatenate the parts of a batch in order, over one list of keys."""
    if len(parts) <= 1:
        return parts[0] if parts else nothing(fields)
    elements = [p.elements for p in parts if p.elements is not None]
    if elements:
        firsts = np.cumsum([0, *map(len, elements[:-1])]).tolist()
        parts = [_shifted(part, first) for part, first in zip(parts, firsts, strict=True)]
    keys, indices = _joined_keys(parts)
    return Parsed(
        np.concatenate([p.indices for p in parts]),
        np.concatenate([p.stimes for p in parts]),
        np.concatenate(indices),
        keys,
        tuple(np.concatenate([p.values[f] for p in parts]) for f in range(fields)),
        tuple(bad for p in parts for bad in p.bad),
        tuple(b for p in parts for b in p.boundaries),
        _joined_elements(elements) if elements else None,
        sum(p.not_finite for p in parts),
    )


def _joined_keys(parts: Sequence[Parsed]) -> tuple[Sequence[str], list[Any]]:
    """Return a list of keys, and the indices into it of the readings of each part."""
    if all(part.keys is parts[0].keys for part in parts):
        return parts[0].keys, [part.key_index for part in parts]
    places: dict[str, int] = {}
    indices = []
    for part in parts:
        to = np.array([places.setdefault(k, len(places)) for k in part.keys], np.int32)
        indices.append(to[part.key_index] if len(to) else part.key_index)
    return list(places), indices


def moved(parsed: Parsed, to: Sequence[int]) -> Parsed:
    """Return ``parsed`` with its indices replaced by those in the entire batch."""
    numbers = np.array(to, np.int64)
    if parsed.elements is not None:
        messages = numbers[parsed.elements.messages]
        return replace(parsed, elements=replace(parsed.elements, messages=messages))
    return replace(
        parsed,
        indices=numbers[parsed.indices],
        bad=tuple(replace(bad, index=to[bad.index]) for bad in parsed.bad),
        boundaries=tuple((to[at], watermark) for at, watermark in parsed.boundaries),
    )


def with_refused(parsed: Parsed, refused: Sequence[Bad]) -> Parsed:
    """Add messages that are refused as a unit; the indices of ``refused`` are message numbers."""
    elements = parsed.elements
    if elements is None:
        bad = sorted((*parsed.bad, *refused), key=lambda one: one.index)
        return replace(parsed, bad=tuple(bad))
    added = [one_element(one.index) for one in refused]
    places = enumerate(refused, len(elements))
    return replace(
        parsed,
        bad=(*parsed.bad, *(replace(one, index=at) for at, one in places)),
        elements=_joined_elements([elements, *added]),
    )


def _joined_elements(parts: Sequence[Elements]) -> Elements:
    return Elements(
        np.concatenate([part.messages for part in parts]),
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.lasts for part in parts]),
    )


def _shifted(parsed: Parsed, first: int) -> Parsed:
    return replace(
        parsed,
        indices=parsed.indices + first,
        bad=tuple(replace(bad, index=bad.index + first) for bad in parsed.bad),
        boundaries=tuple((at + first, watermark) for at, watermark in parsed.boundaries),
    )
