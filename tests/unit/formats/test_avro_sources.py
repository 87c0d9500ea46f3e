"""Sources of schemas: responses that refuse a message, and failures that do not."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.registry_stub import RegistryStub
from tests.support.waiting import WAIT_S_MAX
from tests.unit.formats.test_avro_reader import LAB

from slackwater.codec.avro import fingerprint_of
from slackwater.formats.avro import sources
from slackwater.formats.avro.books import open_book
from slackwater.formats.avro.framing import Reference
from slackwater.formats.avro.reader import SchemaBook, SchemaText
from slackwater.formats.avro.registry import (
    REFERENCES_MAX,
    _credentials,
    registry_fetch,
)
from slackwater.formats.avro.sources import (
    PENDING_US,
    RETRY_US,
    UNKNOWN_MAX,
    UNKNOWN_US,
    FolderBook,
    RegistryBook,
)
from slackwater.formats.guarded import GuardedReader
from slackwater.formats.messages import NotYetReadableError
from slackwater.model.deployment import RegistrySpec, TopicSpec
from slackwater.model.errors import EnvironmentProblem, UsageError

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "at", "type": "long"}],
}
SEVEN = Reference(id=7)
PRINT = Reference(fingerprint=fingerprint_of(SCHEMA))


class Clock:
    def __init__(self) -> None:
        self.us = 0

    def __call__(self) -> int:
        return self.us


def answer(book: SchemaBook, *references: Reference) -> Sequence[SchemaText]:
    """Return the schemas, as soon as they are available."""
    for _ in range(round(WAIT_S_MAX / sources.ANSWER_S_MAX)):
        try:
            found = book.find(references)
        except NotYetReadableError as why:
            if why.wait_us == RETRY_US:
                raise
        else:
            return [found[reference] for reference in references]
    raise AssertionError("no answer")


class Registry:
    """A registry whose responses a test delays or damages."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers = threading.Event()
        self.answers.set()
        self.fails = False

    def fetch(self, schema_id: int) -> SchemaText:
        self.asked.append(schema_id)
        assert self.answers.wait(WAIT_S_MAX)
        if self.fails:
            raise ConnectionError("refused")
        if schema_id >= 1_000:
            return SchemaText("", refused="is not in the registry")
        return SchemaText(json.dumps(SCHEMA))


@pytest.fixture(name="registry")
def _registry() -> Registry:
    return Registry()


@pytest.fixture(name="clock")
def _clock() -> Clock:
    return Clock()


@pytest.fixture(name="book")
def _book(registry: Registry, clock: Clock) -> Iterator[RegistryBook]:
    book = RegistryBook(registry.fetch, clock)
    yield book
    registry.answers.set()
    book.close()


def test_a_schema_is_asked_for_once(book: RegistryBook, registry: Registry) -> None:
    for _ in range(3):
        assert answer(book, SEVEN)[0].text == json.dumps(SCHEMA)
    assert registry.asked == [7]


def test_a_registry_that_does_not_answer_is_asked_once_and_waited_for(
    book: RegistryBook, registry: Registry
) -> None:
    registry.answers.clear()
    for _ in range(3):
        with pytest.raises(NotYetReadableError, match="schema id 7") as raised:
            book.find([SEVEN])
        assert raised.value.wait_us == PENDING_US
    assert registry.asked == [7]
    registry.answers.set()
    assert answer(book, SEVEN)[0].text


def test_after_an_error_the_registry_is_requested_again(
    book: RegistryBook, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.fails = True
    for _ in range(3):
        with pytest.raises(NotYetReadableError, match="refused"):
            answer(book, SEVEN)
    assert registry.asked == [7, 7, 7]
    assert len(caplog.records) == 1, "one line per outage"
    registry.fails = False
    assert answer(book, SEVEN)[0].text


def test_a_missing_schema_is_looked_up_again_after_a_minute(
    book: RegistryBook, registry: Registry, clock: Clock
) -> None:
    unknown = Reference(id=1_000)
    for _ in range(2):
        assert answer(book, unknown)[0].refused == "is not in the registry"
    assert registry.asked == [1_000]
    clock.us += UNKNOWN_US
    answer(book, unknown)
    assert registry.asked == [1_000] * 2


def test_what_is_kept_of_ids_has_a_bound(
    book: RegistryBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SCHEMAS_MAX", 10)
    monkeypatch.setattr(sources, "UNKNOWN_MAX", 10)
    assert UNKNOWN_MAX > 10
    answer(book, *(Reference(id=i) for i in range(30)))
    answer(book, *(Reference(id=i) for i in range(1_000, 1_030)))
    assert len(book._known) == len(book._unknown) == 10
    assert not book._asked


def test_a_registry_has_no_fingerprints(book: RegistryBook) -> None:
    assert "only files are found by fingerprint" in answer(book, PRINT)[0].refused


def test_an_id_that_no_registry_can_have_is_refused_and_not_asked_for(
    book: RegistryBook, registry: Registry
) -> None:
    """Confluent's responds with a 404 without its error code; the stream would wait for ever."""
    largest, too_large = answer(book, Reference(id=2**31 - 1), Reference(id=2**31))
    assert largest.refused == "is not in the registry"
    assert "its largest id is 2147483647" in too_large.refused
    assert registry.asked == [2**31 - 1]


# The client and the HTTP API.


def test_a_schema_is_fetched_with_those_that_it_refers_to() -> None:
    with RegistryStub() as stub:
        stub.register(1, {"type": "fixed", "name": "Deep", "size": 1}, subject="deep")
        stub.register(2, SCHEMA, references=[("Deep", "deep", 1)], subject="inner")
        stub.register(7, "R", references=[("R", "inner", 1)])
        found = registry_fetch(stub.url, None)(7)
    assert found.text == '"R"'
    assert [json.loads(text)["name"] for text in found.references] == ["Deep", "R"]


def test_a_schema_of_too_many_others_is_refused_and_not_waited_for() -> None:
    with RegistryStub() as stub:
        inner = [f"inner{i}" for i in range(REFERENCES_MAX + 1)]
        for i, name in enumerate(inner):
            stub.register(10 + i, SCHEMA | {"name": name}, subject=name)
        stub.register(7, SCHEMA, references=[(name, name, 1) for name in inner])
        assert registry_fetch(stub.url, None)(7).refused == "has more than 64 references"


@pytest.mark.parametrize("body", [{}, {"schema": None}, {"schema": 5}, {"schema": ""}])
def test_a_response_without_a_schema_refuses_nothing_and_is_not_kept(body: dict[str, Any]) -> None:
    """Another service responds at the registry's URL for a while."""
    with RegistryStub() as stub:
        fetch = registry_fetch(stub.url, None)
        stub.schemas[7] = body
        with pytest.raises(ValueError, match="without a schema"):
            fetch(7)
        stub.register(7, SCHEMA)
        assert json.loads(fetch(7).text) == SCHEMA


def test_requests_leave_no_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with RegistryStub() as stub:
        assert registry_fetch(stub.url, None)(7).refused
    assert stub.asked
    assert not caplog.records


def test_only_the_answer_that_there_is_none_refuses_a_schema() -> None:
    with RegistryStub() as stub:
        fetch = registry_fetch(stub.url, None)
        assert fetch(7).refused == "is not in the registry"
        stub.register(8, {}, kind="PROTOBUF")
        assert fetch(8).refused == "is a schema of PROTOBUF"
        for status in (400, 401, 403, 404, 429, 500, 503):
            stub.fails_with = status
            with pytest.raises(Exception, match=str(status)):
                fetch(7)
    with pytest.raises(Exception, match=r"[Cc]onnect"):
        fetch(7)


def test_credentials_are_in_a_file_of_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "registry.properties"
    path.write_text("schema.registry.basic.auth.user.info=proxy:secret\n")
    path.chmod(0o600)
    with RegistryStub(user_info="proxy:secret") as stub:
        stub.register(7, SCHEMA)
        assert registry_fetch(stub.url, path)(7).text == json.dumps(SCHEMA)
        with pytest.raises(Exception, match="401") as raised:
            registry_fetch(stub.url, None)(7)
        assert "secret" not in str(raised.value)
        path.write_text("basic.auth.user.info=wrong:secret\n")
        with pytest.raises(Exception, match="401") as raised:
            registry_fetch(stub.url, path)(7)
        assert "secret" not in str(raised.value)


def test_paths_in_a_file_of_credentials_are_relative_to_it(tmp_path: Path) -> None:
    path = tmp_path / "registry.properties"
    path.write_text("ssl.ca.location=ca.pem\nssl.key.location=/k.pem\nssl.key.password=x/y\n")
    path.chmod(0o600)
    assert _credentials(path) == {
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.key.location": "/k.pem",
        "ssl.key.password": "x/y",
    }


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("basic.auth.user.info=a:b\n", 0o644, "can be read or changed by others"),
        ("basic.auth.password=b\n", 0o600, ":1: basic.auth.password is not known"),
        ("basic.auth.user.info=secret\n", 0o600, "registry.properties"),
        ("ssl.ca.location=/nowhere/secret\n", 0o600, "registry.properties"),
    ],
)
def test_a_file_of_credentials_that_cannot_be_used_is_named(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    path = tmp_path / "registry.properties"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(UsageError, match=why) as raised:
        registry_fetch("http://127.0.0.1:1", path)
    assert "secret" not in str(raised.value)


# Files.


def test_files_are_found_by_id_and_by_fingerprint(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(SCHEMA))
    book = FolderBook(tmp_path, clock)
    assert [found.text for found in answer(book, SEVEN, PRINT)] == [json.dumps(SCHEMA)] * 2
    assert "in no file" in answer(book, Reference(id=8))[0].refused
    single = FolderBook(tmp_path / "7.avsc", clock)
    assert answer(single, PRINT)[0].text


def test_a_file_that_comes_later_is_found(tmp_path: Path, clock: Clock) -> None:
    book = FolderBook(tmp_path, clock)
    assert answer(book, SEVEN)[0].refused
    (tmp_path / "7.avsc").write_text(json.dumps(SCHEMA))
    assert answer(book, SEVEN)[0].refused, "a folder is read once a second"
    clock.us += sources.FOLDER_US_MIN
    assert answer(book, SEVEN)[0].text


@pytest.mark.parametrize("text", ["", "{", '{"type": "record"}', "[" * 100_000, "\udcff"])
def test_a_file_that_is_no_schema_is_named(tmp_path: Path, clock: Clock, text: str) -> None:
    path = tmp_path / "bad.avsc"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(EnvironmentProblem, match=r"bad\.avsc"):
        FolderBook(tmp_path, clock)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(EnvironmentProblem, match="nowhere"):
        FolderBook(tmp_path / "nowhere", clock)


def test_files_come_before_the_registry(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(SCHEMA))
    with RegistryStub() as stub:
        stub.register(8, SCHEMA)
        topic = TopicSpec("lab", "avro", registry=RegistrySpec(stub.url), schemas=str(tmp_path))
        book = open_book(topic, clock)
        assert book is not None
        try:
            found = answer(book, SEVEN, PRINT, Reference(id=8), Reference(id=9))
        finally:
            book.close()
        assert [one.refused for one in found] == ["", "", "", "is not in the registry"]
        asked = {path.partition("?")[0] for path in stub.asked}
        assert asked == {"/schemas/ids/8", "/schemas/ids/9"}


def test_other_formats_have_no_schemas(clock: Clock) -> None:
    assert open_book(TopicSpec("lab", "json-array"), clock) is None


class SlowRegistry(Registry):
    """Has no schema of an id, and takes 5 s to respond."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def fetch(self, schema_id: int) -> SchemaText:
        self.clock.us += 5_000_000
        return super().fetch(schema_id)


def test_a_batch_with_more_ids_than_are_kept_is_refused_and_the_stream_goes_on(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example messages of another format that begin with a zero byte."""
    monkeypatch.setattr(sources, "UNKNOWN_MAX", 50)
    monkeypatch.setattr(sources, "ASKED_MAX", 30)
    count = 200
    messages = [struct.pack(">bI", 0, 1_000 + i) + b"\2" for i in range(count)]
    registry = SlowRegistry(clock)
    book = RegistryBook(registry.fetch, clock)
    spec = replace(LAB, topic=TopicSpec("lab", "avro"))
    reader = GuardedReader(spec, None, book)
    refused, waits = 0, 0
    try:
        while refused < count and waits < 10 * count:
            rest = messages[refused:]
            try:
                for start, end in reader.slices(rest):
                    parsed = reader.parse("lab:0", np.arange(start, end), rest[start:end])
                    refused += len(parsed.bad)
            except NotYetReadableError:
                waits += 1
    finally:
        book.close()
    assert refused == count
    assert len(registry.asked) < 2 * count, "few are asked for twice"
