"""A stream with unavailable schemas waits: nothing is lost and nothing is refused meanwhile."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS, Client, Fed
from tests.support.proxy_world import SPEC, S, World

from slackwater.formats.avro.framing import Reference
from slackwater.formats.avro.reader import AvroReader, Schemas, SchemaText
from slackwater.formats.dead_letters import DeadLetters, Faults
from slackwater.formats.guarded import GuardedReader
from slackwater.formats.messages import NotYetReadableError
from slackwater.proxy.shell import turn
from slackwater.proxy.topic import input as topic_input
from slackwater.proxy.topic.client import NO_EPOCHS, Fetched, Notice
from slackwater.runtime.logs.transport import read_to_end

WAIT_US = S
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "node", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "t", "type": "double"},
    ],
}


def message(at: int, schema_id: int) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, SCHEMA, {"node": "n", "ts": at, "t": 1.0})
    return out.getvalue()


class Book:
    """Has some ids, has no schema of others, and cannot respond about the rest."""

    def __init__(self) -> None:
        self.known = {1}
        self.unknown: set[int] = set()
        self.is_closed = False

    def find(self, references: Sequence[Reference]) -> Schemas:
        found = {}
        for reference in references:
            if reference.id in self.known:
                found[reference] = SchemaText(json.dumps(SCHEMA))
            elif reference.id in self.unknown:
                found[reference] = SchemaText("", refused="is not in the registry")
            else:
                raise NotYetReadableError("away", WAIT_US)
        return found

    def close(self) -> None:
        self.is_closed = True


class Seeking(Client):
    """Returns the topic's messages from the assigned offset on, a few at a time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.at, self.assigned = world, 0, 0

    def assign(self, positions: Any, epochs: Any = NO_EPOCHS) -> None:
        self.at = positions[0]
        self.assigned += 1

    def read(self, _wait_s: float) -> list[Fetched | Notice]:
        raw = read_to_end(self.world.broker, (THEIRS.name, 0))
        some = [record for record in raw if record.offset >= self.at][:2]
        if not some:
            return []
        self.at = some[-1].offset + 1
        offsets = np.array([record.offset for record in some], np.int64)
        return [Fetched(0, offsets, [record.value for record in some])]


class OfAvro(Fed):
    """A proxy that reads such a topic, with records of one reading."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, book: Book) -> None:
        world.spec = replace(SPEC, topic=replace(THEIRS, format="avro"), disorder_us=5 * S)
        monkeypatch.setattr(topic_input, "open_book", lambda *_: book)
        super().__init__(world, monkeypatch, Seeking(world))
        self.proxy.begin()

    def send(self, *messages: bytes) -> None:
        writer = self.world.broker.writer(self.world.failures.append)
        for value in messages:
            writer.append(THEIRS.name, 0, value)

    def times(self) -> list[int]:
        columns = [record.columns.load() for record in self.log() if record.columns is not None]
        return [int(stime) // S for c in columns for stime in c.stimes]


@pytest.fixture(name="book")
def _book() -> Book:
    return Book()


@pytest.fixture(name="fed")
def _fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, book: Book) -> OfAvro:
    return OfAvro(World(tmp_path), monkeypatch, book)


def test_a_stream_waits_for_a_schema_and_loses_nothing(fed: OfAvro, book: Book) -> None:
    """Readings before the message are sent; later ones and boundaries are not."""
    world = fed.world
    fed.send(*(message(990 + i, 1) for i in range(3)), message(993, 2), message(994, 1))
    world.run(fed.proxy, 3)
    assert fed.times() == [990, 991]
    assert fed.log()[-1].boundary <= 992 * S
    assert world.counts() == {}
    book.known.add(2)
    world.run(fed.proxy, 3)
    assert fed.times() == [990, 991, 992, 993, 994]
    assert fed.log()[-1].boundary > 994 * S
    assert world.counts() == {}
    assert not world.failures


def test_a_waiting_stream_retries_at_the_given_interval(fed: OfAvro) -> None:
    world, turns = fed.world, 0
    fed.send(message(990, 2))
    until = world.now_us + 10 * S
    while world.now_us < until:
        world.now_us = max(turn(world.contexts[-1], fed.proxy, world.now_us), world.now_us)
        turns += 1
    assert turns <= 2 * 10 * S // WAIT_US
    assert fed.client.assigned <= 1 + 10 * S // WAIT_US  # type: ignore[attr-defined]


def test_an_id_that_the_registry_does_not_have_is_refused_and_the_stream_goes_on(
    fed: OfAvro, book: Book
) -> None:
    book.unknown.add(3)
    fed.send(message(990, 1), message(991, 3), message(992, 1), b"\0\0")
    fed.world.run(fed.proxy, 3)
    assert fed.times() == [990, 992]
    details = {entry["position"]: entry["detail"] for entry in fed.world.quarantined()}
    assert details == {
        "0:1@first": "schema id 3 is not in the registry",
        "0:3@first": "neither of the two framings of Avro",
    }


def test_a_restart_while_it_waits_reads_on_at_the_message(fed: OfAvro, book: Book) -> None:
    fed.send(message(990, 1), message(991, 1), message(992, 2), message(993, 1))
    fed.world.run(fed.proxy, 2)
    fed.proxy = topic_input.TopicInput(fed.world.context(), THEIRS)
    fed.proxy.begin()
    fed.world.run(fed.proxy, 2)
    assert fed.times() == [990, 991]
    book.known.add(2)
    fed.world.run(fed.proxy, 3)
    assert fed.times() == [990, 991, 992, 993]
    fed.proxy.close()
    assert book.is_closed


def test_a_message_that_crashes_its_reader_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, book: Book
) -> None:
    """The child process that reads in isolation gets the available schemas."""
    spec = replace(SPEC, topic=replace(THEIRS, format="avro"))
    dead_letters = DeadLetters.open(tmp_path, "lab", Faults.open(tmp_path, "lab"))
    sent, offsets = [message(i, 1) for i in range(6)], np.arange(100, 106)
    reader = GuardedReader(spec, dead_letters, book)

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(AvroReader, "parse_prepared", fails)
        parsed = reader.parse("lab:0", offsets, sent)
    assert parsed.stimes.tolist() == [i * S for i in range(6)]
    dead_letters.add("lab:0", 102, "it ended its reader")
    parsed = reader.parse("lab:0", offsets, sent)
    assert parsed.indices.tolist() == [0, 1, 3, 4, 5]
    assert [(bad.index, bad.reason) for bad in parsed.bad] == [(2, "crash")]
    with pytest.raises(NotYetReadableError):
        reader.parse("lab:0", offsets, [message(1, 9)] * 6)
    dead_letters.close()
