"""Reader of ``json-array``: a message is a JSON array, each of its elements a reading.

Each element has the form of a ``json`` message. A batch is divided by text search at each sequence
of ``}``, a comma and ``{``, and the pieces are parsed like ``json`` messages. Quoted text or other
fields may contain the same three bytes. The division is correct if each piece is a JSON object by
itself, since the pieces joined by commas in brackets are then the message. A message with a piece
that is not a JSON object is therefore parsed by the definition, ``_slow``, which parses the message
as one value and then its elements one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from slackwater.formats.elements import elements_max, numbered, parse_dividing, undivided
from slackwater.formats.json_input import JsonReader, MessageReading, parsed_of
from slackwater.formats.json_text import (
    MESSAGE_BYTES_MAX,
    NESTING_DEPTH_MAX,
    Unreadable,
    dump_value,
    load,
    load_value,
    without_header,
)
from slackwater.formats.messages import Bad, Messages, Parsed
from slackwater.model.deployment import StreamSpec
from slackwater.model.records import type_i64

_BLANK: Final = np.isin(np.arange(256), np.frombuffer(b" \n", np.uint8))
"""Common text between two elements, besides a comma: one of these, or CR and LF."""


class JsonArrayReader:
    """Parser of one stream's messages."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self._rows = JsonReader(spec)
        self._elements_max = elements_max(len(spec.fields))

    def parse(self, messages: Sequence[bytes]) -> Parsed:
        """Parse all messages of a batch; any bytes are accepted."""
        return parse_dividing(messages, len(self.spec.fields), self._quick, self._slow)

    def texts(self, message: bytes) -> Callable[[int], str]:
        """Return a function from an element's index to its text, for a divided message."""
        elements = _elements(message)
        return lambda index: dump_value(elements[index])

    # The definition.

    def _slow(self, message: bytes, at: int) -> Parsed:
        fields = len(self.spec.fields)
        try:
            elements = _elements(message)
        except Unreadable as why:
            return undivided(Bad(at, str(why), None), fields)
        n = len(elements)
        if n > self._elements_max:
            detail = f"{n} readings, at most {self._elements_max}"
            return undivided(Bad(at, detail, None), fields)
        parsed = parsed_of(map(self._outcome, elements), fields)
        return replace(parsed, elements=numbered(np.array([n], np.int64), at))

    def _outcome(self, element: Any) -> MessageReading | int | Bad:
        if not isinstance(element, dict):
            return Bad(0, "not an object", None)
        return self._rows.reading_in(element)

    # The fast path.

    def _quick(self, messages: Sequence[bytes], first: int) -> Parsed | list[tuple[int, int]]:
        """Return the parsed batch, or runs in which messages that need the definition are alone."""
        strange = [i for i, message in enumerate(messages) if not _is_plain(message)]
        if strange and any(messages[i][:1] == b"\0" for i in strange):
            # A message that is too long stays as it is, since the header counts.
            messages = [m if len(m) > MESSAGE_BYTES_MAX else without_header(m) for m in messages]
            strange = [i for i in strange if not _is_plain(messages[i])]
        if strange:
            return _runs(first, first + len(messages), strange)
        pieces, counts = _divided(messages)
        strange = np.flatnonzero(counts > self._elements_max).tolist()
        if strange:
            return _runs(first, first + len(messages), strange)
        elements = numbered(counts, first)
        parsed = self._rows.parse(pieces)
        broken = [bad.index for bad in parsed.bad if _is_broken(pieces[bad.index])]
        if broken:
            alone = sorted({message - first for message in elements.messages[broken].tolist()})
            return _runs(first, first + len(messages), alone)
        return replace(parsed, elements=elements)


def _elements(message: bytes) -> list[Any]:
    value = load_value(message, NESTING_DEPTH_MAX + 1)
    if not isinstance(value, list):
        raise Unreadable("not an array")
    return value


def _is_plain(message: bytes) -> bool:
    """Return whether the message looks like an array of objects and may be divided by text."""
    return message[:2] == b"[{" and message[-2:] == b"}]" and len(message) <= MESSAGE_BYTES_MAX


def _divided(messages: Sequence[bytes]) -> tuple[Messages, type_i64]:
    """Return the pieces of all messages, and their number per message."""
    inner = [message[1:-1] for message in messages]
    # Messages are joined like elements. The zeros are read by look-ups past the end of a piece.
    memory = np.frombuffer(b",".join(inner) + b"\0\0\0\0", np.uint8)
    closes = np.flatnonzero(memory == ord("}"))
    commas = closes[memory[closes + 1] == ord(",")] + 1
    opens = commas + 1
    opens += memory[opens] == ord("\r")
    opens += _BLANK[memory[opens]]
    divides = memory[opens] == ord("{")
    ends = np.append(commas[divides], closes[-1] + 1)
    starts = np.append(0, opens[divides])
    stops = np.cumsum([len(piece) + 1 for piece in inner], dtype=np.int64) - 1
    counts = np.diff(np.searchsorted(ends, stops, side="right"), prepend=0)
    address = memory.ctypes.data
    return Messages(starts + address, ends + address, memory), counts


def _is_broken(piece: bytes) -> bool:
    """Return whether a refused piece is not a JSON object, so the division may be wrong."""
    try:
        load(piece)
    except Unreadable:
        return True
    return False


def _runs(start: int, end: int, singles: Sequence[int]) -> list[tuple[int, int]]:
    """Divide [start, end) so that each of these messages is alone, in order."""
    runs = []
    at = start
    for index in (start + i for i in singles):
        if at < index:
            runs.append((at, index))
        runs.append((index, index + 1))
        at = index + 1
    if at < end:
        runs.append((at, end))
    return runs
