"""Parses batches of messages of any format, and isolates messages that crash the parser."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from slackwater.formats.avro.reader import AvroReader, Prepared, SchemaBook, Schemas
from slackwater.formats.avro.sources import FixedBook
from slackwater.formats.dead_letters import DeadLetters
from slackwater.formats.elements import slices
from slackwater.formats.isolated import CRASH, tried
from slackwater.formats.json_array import JsonArrayReader
from slackwater.formats.json_columns import JsonColumnsReader
from slackwater.formats.json_input import JsonReader
from slackwater.formats.messages import (
    Bad,
    MessageReader,
    NotYetReadableError,
    Parsed,
    joined,
    moved,
    with_refused,
)
from slackwater.formats.number import NumberReader
from slackwater.model.deployment import StreamSpec, TopicFormat
from slackwater.model.records import type_i64

CAUTIOUS_MESSAGES: Final = 10
"""Messages parsed at once after a schema was unavailable; doubled after each success. A registry
responds at least ten times within the time for which refused references are cached."""
_READERS: Final[Mapping[TopicFormat, Callable[[StreamSpec], MessageReader]]] = {
    "json": JsonReader,
    "json-array": JsonArrayReader,
    "json-columns": JsonColumnsReader,
    "number": NumberReader,
}


def reader_of(spec: StreamSpec, book: SchemaBook | None = None) -> MessageReader:
    """Return the reader of the stream's format, by default ``json``.

    ``book``: the source of schemas of an Avro stream.
    """
    if book is not None:
        return AvroReader(spec, book)
    declared = spec.topic or spec.mqtt
    return _READERS["json" if declared is None else declared.format](spec)


class GuardedReader:
    """A format's reader that omits messages that crash it, identified by offset."""

    def __init__(
        self,
        spec: StreamSpec,
        dead_letters: DeadLetters | None,
        book: SchemaBook | None = None,
    ) -> None:
        self._spec = spec
        self._reader = reader_of(spec, book)
        self._dead_letters = dead_letters
        self._messages_max = sys.maxsize
        """Maximum Avro messages that are parsed at once."""

    def parse(self, where: str, offsets: type_i64, messages: Sequence[bytes]) -> Parsed:
        """Parse a non-empty batch of any bytes, isolated if parsing crashes.

        Raises ``NotYetReadableError`` if it cannot be parsed yet, for a reason other than its
        bytes.
        """
        reader, dead_letters = self._reader, self._dead_letters
        schemas = None
        if isinstance(reader, AvroReader):
            batch = self._prepared(reader, messages)
            read, schemas = partial(reader.parse_prepared, batch), batch.schemas
        else:
            read = partial(reader.parse, messages)
        if dead_letters is None:
            return read()
        parsed = dead_letters.attempt(where, int(offsets[0]), int(offsets[-1]), read)
        if parsed is not None:
            return parsed
        return self._read_isolated(dead_letters, where, offsets, messages, schemas)

    def _prepared(self, reader: AvroReader, messages: Sequence[bytes]) -> Prepared:
        """Look up the schemas. While some are unavailable, few messages are parsed at once.

        The caches of schemas and of refused references are bounded, and refused references expire.
        A batch that needs more of them than fit the caches could never be parsed.
        """
        try:
            batch = reader.prepare(messages)
        except NotYetReadableError:
            self._messages_max = CAUTIOUS_MESSAGES
            raise
        self._messages_max *= 2
        return batch

    def _read_isolated(
        self,
        dead_letters: DeadLetters,
        where: str,
        offsets: type_i64,
        messages: Sequence[bytes],
        schemas: Schemas | None,
    ) -> Parsed:
        known = dead_letters.positions(where)
        rest = [i for i, offset in enumerate(offsets.tolist()) if offset not in known]
        outcome = tried(_parse, (self._spec, schemas), [messages[i] for i in rest])
        for at, how in outcome.lost:
            dead_letters.add(where, int(offsets[rest[at]]), how)
        read = {i for start, end, _ in outcome.read for i in rest[start:end]}
        parts = [moved(parsed, rest[start:end]) for start, end, parsed in outcome.read]
        complete = joined(parts, len(self._spec.fields)) if parts else self._reader.parse(())
        lost = [Bad(i, CRASH, None, "crash") for i in range(len(messages)) if i not in read]
        return with_refused(complete, lost)

    def slices(self, messages: Sequence[bytes]) -> Iterable[tuple[int, int]]:
        """Divide a batch whose readings could take much more memory than its bytes.

        A batch of Avro is divided while schemas are unavailable.
        """
        if isinstance(self._reader, AvroReader):
            return self._cautious(len(messages))
        if isinstance(self._reader, JsonReader | NumberReader):
            return ((0, len(messages)),)
        return slices(messages, len(self._spec.fields))

    def _cautious(self, messages: int) -> Iterable[tuple[int, int]]:
        start = 0
        while start < messages:
            end = min(start + self._messages_max, messages)
            yield start, end
            start = end

    def texts(self, message: bytes) -> Callable[[int], str]:
        """Return the function from an element's index to its text."""
        return self._reader.texts(message)


def _parse(given: tuple[StreamSpec, Schemas | None], messages: Sequence[bytes]) -> Parsed:
    spec, schemas = given
    return reader_of(spec, None if schemas is None else FixedBook(schemas)).parse(messages)
