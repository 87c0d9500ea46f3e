"""Parses MQTT messages into columns of readings, many messages of many topics at a time.

A payload is parsed like a message of a Kafka topic, in the same formats, by the same definitions
and with the same bounds, with three additions. The key may be in levels of the message's topic, and
the time may be that of its arrival. The device's counter is parsed as an additional numeric field,
which is removed before readings are offered to the source log.

``{"boundary": t}`` is not a watermark here: it would apply to all devices of the stream, but any of
them may send it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from slackwater.formats.carried import CarriedKeys, with_keys, with_times, without_carried_key
from slackwater.formats.columns import KEY
from slackwater.formats.dead_letters import DeadLetters
from slackwater.formats.guarded import GuardedReader
from slackwater.formats.joined import key_of_parts
from slackwater.formats.json_input import BOUNDARY
from slackwater.formats.json_text import MESSAGE_BYTES_MAX
from slackwater.formats.messages import Bad, Parsed
from slackwater.model.deployment import FieldSpec, StreamSpec
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source.core import Reason
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.quarantine import PAYLOAD_CHARS_MAX, QuarantineEntry
from slackwater.proxy.topic.batch import Batch

PAYLOAD_BYTES_MAX: Final = MESSAGE_BYTES_MAX
CUT_BYTES: Final = 4 * PAYLOAD_CHARS_MAX
"""Bytes kept of a payload that is too long, for quarantine."""
SEQUENCE_MAX: Final = 2**53
"""Largest counter that a double represents exactly."""
_SEQUENCE: Final = "sequence"


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
        one = spec.key.level
        self._levels = spec.key.levels or (() if one is None else (one,))
        self._join = spec.key.join
        self._counts = spec.mqtt.sequence is not None
        fields = spec.fields
        if spec.mqtt.sequence is not None:
            fields = (*fields, FieldSpec(_SEQUENCE, spec.mqtt.sequence))
        parsed = replace(without_carried_key(spec), fields=fields)
        self._reader = GuardedReader(parsed, dead_letters)
        known = frozenset() if dead_letters is None else dead_letters.positions(self._where)
        self.first_number: int = max(known, default=-1) + 1
        """Numbers below this one belong to quarantined messages."""

    def read(
        self, first: int, messages: Sequence[Message], times: type_i64 | None = None
    ) -> Iterator[CountedReadings]:
        """Parse messages that are numbered from ``first`` on, in one or more parts.

        ``times``: of the messages, if their readings have none. Any bytes are accepted.
        """
        payloads = [m.payload if m.size == len(m.payload) else b"" for m in messages]
        for start, end in self._reader.slices(payloads):
            of_part = None if times is None else times[start:end]
            yield self._read(first + start, messages[start:end], payloads[start:end], of_part)

    def _read(
        self,
        first: int,
        messages: Sequence[Message],
        payloads: Sequence[bytes],
        times: type_i64 | None,
    ) -> CountedReadings:
        numbers = np.arange(first, first + len(messages), dtype=np.int64)
        parsed = self._reader.parse(self._where, numbers, payloads)
        bad = [_explained(one, parsed, messages) for one in parsed.bad]
        bad += [Bad(index, BOUNDARY, None) for index, _ in parsed.boundaries]
        parsed = replace(parsed, bad=tuple(bad), boundaries=())
        if times is not None:
            parsed = with_times(parsed, times)
        if self._levels:
            parsed = with_keys(parsed, _keys([m.topic for m in messages], self._levels, self._join))
        sequences = np.empty(0, np.int64)
        if self._counts:
            parsed, sequences = _counted(parsed)
        bad = sorted(parsed.bad, key=lambda one: one.index)
        parsed = replace(parsed, bad=tuple(bad))
        batch = Batch([m.payload for m in messages], numbers, parsed, self._reader.texts)
        return CountedReadings(messages, batch, sequences)


def _explained(bad: Bad, parsed: Parsed, messages: Sequence[Message]) -> Bad:
    elements = parsed.elements
    message = messages[bad.index if elements is None else int(elements.messages[bad.index])]
    if message.size == len(message.payload):
        return bad
    return replace(bad, detail=f"{message.size} bytes, at most {PAYLOAD_BYTES_MAX}")


def _keys(topics: Sequence[str], levels: Sequence[int], join: str) -> CarriedKeys:
    """Return the keys of messages from the levels of their topics."""
    places: dict[str, int] = {}
    index = np.array([places.setdefault(topic, len(places)) for topic in topics], np.int32)
    keys, faults = zip(*(_key_of(topic, levels, join) for topic in places), strict=True)
    return CarriedKeys(index, keys, faults)


def _key_of(topic: str, levels: Sequence[int], join: str) -> tuple[str, str]:
    """Return the key of a topic, or why it has none."""
    given = topic.split("/")
    parts = [given[level - 1].strip() if level <= len(given) else "" for level in levels]
    if any("\N{REPLACEMENT CHARACTER}" in part for part in parts):
        parts = [""]
    key, fault = key_of_parts(parts, join)
    return key, f"{KEY}: no such level in the topic" if fault == KEY else fault


def _counted(parsed: Parsed) -> tuple[Parsed, type_i64]:
    """Remove the counter from the fields; a reading without a whole number in it is malformed."""
    *values, counters = parsed.values
    parsed = replace(parsed, values=tuple(values))
    with np.errstate(invalid="ignore"):
        sound = (counters == np.trunc(counters)) & (np.abs(counters) <= SEQUENCE_MAX)
    bad = [
        Bad(int(parsed.indices[i]), _SEQUENCE, int(parsed.stimes[i]))
        for i in np.flatnonzero(~sound)
    ]
    parsed = replace(parsed, bad=(*parsed.bad, *bad))
    return _chosen(parsed, sound), counters[sound].astype(np.int64)


def _chosen(parsed: Parsed, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Parsed:
    return replace(
        parsed,
        indices=parsed.indices[which],
        stimes=parsed.stimes[which],
        key_index=parsed.key_index[which],
        values=tuple(column[which] for column in parsed.values),
    )
