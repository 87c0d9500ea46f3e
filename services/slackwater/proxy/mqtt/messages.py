"""Parses MQTT messages into columns of readings, many messages of many topics at a time.

A payload is parsed like a message of a Kafka topic, in the same formats, by the same definitions
and with the same bounds, with two additions. The key may be a level of the message's topic. The
device's counter is parsed as an additional numeric field, which is removed before readings are
offered to the source log.

``{"boundary": t}`` is not a watermark here: it would apply to all devices of the stream, but any of
them may send it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source.core import Reason
from slackwater.proxy.columns import key_chars_max
from slackwater.proxy.dead_letters import DeadLetters
from slackwater.proxy.guarded import GuardedReader
from slackwater.proxy.json_input import BOUNDARY
from slackwater.proxy.json_text import MESSAGE_BYTES_MAX
from slackwater.proxy.messages import Bad, Parsed
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.quarantine import PAYLOAD_CHARS_MAX, QuarantineEntry
from slackwater.proxy.topic.batch import Batch

PAYLOAD_BYTES_MAX: Final = MESSAGE_BYTES_MAX
CUT_BYTES: Final = 4 * PAYLOAD_CHARS_MAX
"""Bytes kept of a payload that is too long, for quarantine."""
SEQUENCE_MAX: Final = 2**53
"""Largest counter that a double represents exactly."""
_SEQUENCE: Final = "sequence"
_ANY_KEY: Final = KeySpec(value="-")
"""Placeholder for a key from the topic while payloads are parsed."""


@dataclass(frozen=True, slots=True)
class CountedReadings:
    """Readings of some messages; ``sequences`` are their counters, empty if none is declared."""

    messages: Sequence[Message]
    batch: Batch
    sequences: type_i64

    @property
    def parsed(self) -> Parsed:
        """The readings as columns."""
        return self.batch.parsed

    def message_numbers(self) -> type_i64:
        """Return the index of the message of each reading."""
        elements = self.parsed.elements
        at = self.parsed.indices
        return at if elements is None else elements.messages[at]

    def entry(
        self, index: int, reason: Reason, stime: int | None, detail: str = ""
    ) -> QuarantineEntry:
        """Return the quarantine entry of a message or an element of one."""
        elements = self.parsed.elements
        message = self.messages[index if elements is None else int(elements.messages[index])]
        position = f"{message.topic}#{self.batch.position(index)}"
        return QuarantineEntry(position, reason, stime, detail, self.batch.text(index))

    def malformed(self) -> list[QuarantineEntry]:
        """Return the entries of malformed messages and elements."""
        return [self.entry(b.index, b.reason, b.stime, b.detail) for b in self.parsed.bad]


def cut(payload: bytes) -> bytes:
    """Return the payload, or its beginning if it is too long."""
    return payload if len(payload) <= PAYLOAD_BYTES_MAX else payload[:CUT_BYTES]


class MqttReader:
    """Parser of one stream's messages."""

    def __init__(self, spec: StreamSpec, dead_letters: DeadLetters | None) -> None:
        assert spec.mqtt is not None
        self._where = f"mqtt:{spec.name}"
        self._level = spec.key.level
        self._counts = spec.mqtt.sequence is not None
        fields = spec.fields
        if spec.mqtt.sequence is not None:
            fields = (*fields, FieldSpec(_SEQUENCE, spec.mqtt.sequence))
        key = spec.key if self._level is None else _ANY_KEY
        self._reader = GuardedReader(replace(spec, key=key, fields=fields), dead_letters)
        known = frozenset() if dead_letters is None else dead_letters.positions(self._where)
        self.first_number: int = max(known, default=-1) + 1
        """Numbers below this one belong to quarantined messages."""

    def read(self, first: int, messages: Sequence[Message]) -> Iterator[CountedReadings]:
        """Parse messages that are numbered from ``first`` on, in one or more parts.

        Any bytes are accepted.
        """
        payloads = [m.payload if m.size == len(m.payload) else b"" for m in messages]
        for start, end in self._reader.slices(payloads):
            yield self._read(first + start, messages[start:end], payloads[start:end])

    def _read(
        self, first: int, messages: Sequence[Message], payloads: Sequence[bytes]
    ) -> CountedReadings:
        numbers = np.arange(first, first + len(messages), dtype=np.int64)
        parsed = self._reader.parse(self._where, numbers, payloads)
        bad = [_explained(one, parsed, messages) for one in parsed.bad]
        bad += [Bad(index, BOUNDARY, None) for index, _ in parsed.boundaries]
        parsed = replace(parsed, bad=(), boundaries=())
        if self._level is not None:
            parsed = _keyed(parsed, [_level(m.topic, self._level) for m in messages], bad)
        sequences = np.empty(0, np.int64)
        if self._counts:
            parsed, sequences = _counted(parsed, bad)
        bad.sort(key=lambda one: one.index)
        parsed = replace(parsed, bad=tuple(bad))
        batch = Batch([m.payload for m in messages], numbers, parsed, self._reader.texts)
        return CountedReadings(messages, batch, sequences)


def _explained(bad: Bad, parsed: Parsed, messages: Sequence[Message]) -> Bad:
    elements = parsed.elements
    message = messages[bad.index if elements is None else int(elements.messages[bad.index])]
    if message.size == len(message.payload):
        return bad
    return replace(bad, detail=f"{message.size} bytes, at most {PAYLOAD_BYTES_MAX}")


def _level(topic: str, level: int) -> str:
    """Return the level of the topic as a key; empty if it is not a valid key."""
    levels = topic.split("/")
    key = levels[level - 1] if level <= len(levels) else ""
    return key if len(key) <= key_chars_max and "\ufffd" not in key else ""


def _keyed(parsed: Parsed, keys: Sequence[str], bad: list[Bad]) -> Parsed:
    """Set each reading's key from its message's topic; without a key it is malformed."""
    places: dict[str, int] = {}
    of_message = np.array([places.setdefault(key, len(places)) for key in keys], np.int32)
    at, elements = parsed.indices, parsed.elements
    numbers = at if elements is None else elements.messages[at]
    parsed = replace(parsed, key_index=of_message[numbers], keys=list(places))
    if "" not in places:
        return parsed
    lacks = parsed.key_index == places[""]
    bad += [
        Bad(int(parsed.indices[i]), "key: no such level in the topic", int(parsed.stimes[i]))
        for i in np.flatnonzero(lacks)
    ]
    return _chosen(parsed, ~lacks)


def _counted(parsed: Parsed, bad: list[Bad]) -> tuple[Parsed, type_i64]:
    """Remove the counter from the fields; a reading without a whole number in it is malformed."""
    *values, counters = parsed.values
    parsed = replace(parsed, values=tuple(values))
    with np.errstate(invalid="ignore"):
        sound = (counters == np.trunc(counters)) & (np.abs(counters) <= SEQUENCE_MAX)
    bad += [
        Bad(int(parsed.indices[i]), _SEQUENCE, int(parsed.stimes[i]))
        for i in np.flatnonzero(~sound)
    ]
    return _chosen(parsed, sound), counters[sound].astype(np.int64)


def _chosen(parsed: Parsed, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Parsed:
    return replace(
        parsed,
        indices=parsed.indices[which],
        stimes=parsed.stimes[which],
        key_index=parsed.key_index[which],
        values=tuple(column[which] for column in parsed.values),
    )
