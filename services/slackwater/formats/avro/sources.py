"""Sources of writers' schemas: a schema registry, a folder of files, or both.

Requests to a registry are made in a separate thread, so that a stream can be stopped while the
registry does not respond. A message is refused only if the registry responds that it has no schema
with this id. After any other failure (a lost connection, a refused login, a server error) the
stream waits and retries.

Files may be named by id (``17.avsc``) or otherwise; each can be found by its fingerprint. If no
file has the reference, the folder is read again, at most once a second.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Final

from fastavro.schema import SchemaParseException, UnknownType

from slackwater.codec.avro import fingerprint_of
from slackwater.formats.avro.framing import Reference
from slackwater.formats.avro.reader import SCHEMAS_MAX, SchemaText
from slackwater.formats.avro.schema import SCHEMA_BYTES_MAX
from slackwater.formats.messages import NotYetReadableError
from slackwater.model.errors import EnvironmentProblem

_log = logging.getLogger(__name__)
FILES_MAX: Final = 10_000
"""Maximum schema files in a folder."""
REGISTRY_ID_MAX: Final = 2**31 - 1
"""A registry's ids are Java ints. To a greater id it responds as to an unknown path, with a 404."""
UNKNOWN_MAX: Final = 10_000
UNKNOWN_US: Final = 60_000_000
"""Maximum references without a schema in the cache, and the time until one is looked up again."""
ASKED_MAX: Final = 100
"""Maximum pending requests to a registry."""
ANSWER_S_MAX: Final = 0.1
"""Maximum wait for a registry in a step of the proxy."""
RETRY_US: Final = 1_000_000
PENDING_US: Final = 20_000
FOLDER_US_MIN: Final = 1_000_000

Fetch = Callable[[int], SchemaText]
"""Returns the schema of an id, or the reason for its absence; raises while that is unknown."""


class RegistryBook:
    """Schemas of a registry, by id. ``close`` stops its thread."""

    def __init__(self, fetch: Fetch, now_us: Callable[[], int]) -> None:
        self._fetch = fetch
        self._now_us = now_us
        self._known: OrderedDict[Reference, SchemaText] = OrderedDict()
        self._unknown: OrderedDict[Reference, tuple[int, SchemaText]] = OrderedDict()
        self._asked: dict[Reference, Future[SchemaText]] = {}
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="registry")
        self._is_away = False

    def find(self, references: Sequence[Reference]) -> Mapping[Reference, SchemaText]:
        """Return the schemas; ``NotYetReadableError`` while the registry has not returned one."""
        wanted = set(references)
        self._keep_others(wanted)
        found = {}
        for reference in wanted:
            known = self._look_up(reference)
            if known is not None:
                found[reference] = known
            elif len(self._asked) < ASKED_MAX:
                self._ask(reference)
        missing = wanted - found.keys()
        if missing:
            asked = [self._asked[reference] for reference in missing if reference in self._asked]
            wait(asked, ANSWER_S_MAX)
            found |= {reference: self._answer(reference) for reference in missing}
        return found

    def close(self) -> None:
        """Stop the thread; pending requests are abandoned."""
        self._asking.shutdown(wait=False, cancel_futures=True)

    def _look_up(self, reference: Reference) -> SchemaText | None:
        if reference.id is None:
            return SchemaText(
                "", refused="is not in a registry: only files are found by fingerprint"
            )
        if reference.id > REGISTRY_ID_MAX:
            reason = f"is not in a registry: its largest id is {REGISTRY_ID_MAX}"
            return SchemaText("", refused=reason)
        unknown = self._unknown.get(reference)
        if unknown is not None and self._now_us() < unknown[0]:
            return unknown[1]
        return self._known.get(reference)

    def _ask(self, reference: Reference) -> None:
        if reference not in self._asked:
            assert reference.id is not None
            self._asked[reference] = self._asking.submit(self._fetch, reference.id)

    def _keep_others(self, wanted: Set[Reference]) -> None:
        """Cache the responses to requests that are not wanted now."""
        done = [each for each, asked in self._asked.items() if asked.done() and each not in wanted]
        for reference in done:
            with suppress(NotYetReadableError):
                self._answer(reference)

    def _answer(self, reference: Reference) -> SchemaText:
        asked = self._asked.get(reference)
        if asked is None or not asked.done():
            raise NotYetReadableError(f"{reference} is requested", PENDING_US)
        del self._asked[reference]
        try:
            answer = asked.result()
        except Exception as error:  # no failure of the registry is a fault of the message
            if not self._is_away:
                _log.warning("%s: the registry is unavailable: %s; retrying", reference, error)
            self._is_away = True
            raise NotYetReadableError(f"{reference}: {error}", RETRY_US) from error
        if self._is_away:
            _log.info("%s: the registry is available again", reference)
        self._is_away = False
        if answer.refused:
            self._unknown[reference] = self._now_us() + UNKNOWN_US, answer
        else:
            self._known[reference] = answer
        while len(self._unknown) > UNKNOWN_MAX:
            self._unknown.popitem(last=False)
        while len(self._known) > SCHEMAS_MAX:
            self._known.popitem(last=False)
        return answer


class FolderBook:
    """Schemas in a file or in the ``.avsc`` files of a folder."""

    def __init__(self, path: Path, now_us: Callable[[], int]) -> None:
        self._path = path
        self._now_us = now_us
        self._known: dict[Reference, SchemaText] = {}
        self._read_at_us = -FOLDER_US_MIN
        self._read()

    def find(self, references: Sequence[Reference]) -> Mapping[Reference, SchemaText]:
        """Return the schemas; references without a file are refused."""
        is_complete = all(reference in self._known for reference in references)
        if not is_complete and self._now_us() - self._read_at_us >= FOLDER_US_MIN:
            self._read()
        none = SchemaText("", refused=f"is in no file of {self._path}")
        return {reference: self._known.get(reference, none) for reference in references}

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _read(self) -> None:
        """Read all files; raises ``EnvironmentProblem`` for a file that is not a schema."""
        self._read_at_us = self._now_us()
        path = self._path
        files = sorted(path.glob("*.avsc")) if path.is_dir() else [path]
        if len(files) > FILES_MAX:
            raise EnvironmentProblem(f"{path} has more than {FILES_MAX} schemas")
        found = {}
        for file in files:
            text = _text_of(file)
            try:
                fingerprint = fingerprint_of(json.loads(text))
            except (SchemaParseException, UnknownType, ValueError, LookupError, TypeError) as error:
                raise EnvironmentProblem(f"{file} is not an Avro schema: {error!r:.200}") from error
            except (RecursionError, AttributeError):
                raise EnvironmentProblem(f"{file} is not an Avro schema") from None
            found[Reference(fingerprint=fingerprint)] = SchemaText(text)
            if file.stem.isdecimal() and file.stem.isascii() and int(file.stem) < 2**32:
                found[Reference(id=int(file.stem))] = SchemaText(text)
        self._known = found


class BothBooks:
    """Files first, then the registry."""

    def __init__(self, folder: FolderBook, registry: RegistryBook) -> None:
        self._folder, self._registry = folder, registry

    def find(self, references: Sequence[Reference]) -> Mapping[Reference, SchemaText]:
        """Return the schemas; ``NotYetReadableError`` while the registry has not returned one."""
        found = dict(self._folder.find(references))
        left = [ref for ref in references if found[ref].refused and ref.id is not None]
        return found | dict(self._registry.find(left)) if left else found

    def close(self) -> None:
        """End the registry's thread."""
        self._registry.close()


class FixedBook:
    """Schemas that have been found already."""

    def __init__(self, schemas: Mapping[Reference, SchemaText]) -> None:
        self._schemas = schemas

    def find(self, references: Sequence[Reference]) -> Mapping[Reference, SchemaText]:
        """Return the schemas."""
        return {reference: self._schemas[reference] for reference in references}

    def close(self) -> None:
        """Do nothing."""


def _text_of(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        raise EnvironmentProblem(f"the schema {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise EnvironmentProblem(f"the schema {file} is not UTF-8") from None
    if len(text) > SCHEMA_BYTES_MAX:
        raise EnvironmentProblem(f"the schema {file} is longer than {SCHEMA_BYTES_MAX} bytes")
    return text
