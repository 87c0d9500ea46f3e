"""A schema registry with Confluent's HTTP API, and its credentials.

Credentials are in a properties file that only its owner can read, with the names of Confluent's
clients: ``basic.auth.user.info`` (``user:password``), ``ssl.ca.location``,
``ssl.certificate.location``, ``ssl.key.location``, ``ssl.key.password``. Its paths are relative to
its folder. None of its values is logged.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from slackwater.formats.avro.reader import SchemaText
from slackwater.formats.avro.schema import SchemaError
from slackwater.formats.avro.sources import Fetch
from slackwater.model.errors import UsageError
from slackwater.runtime.security.security_file import parse_file

ANSWER_S_MAX: Final = 5.0
REFERENCES_MAX: Final = 64
"""Maximum number of schemas that one schema references."""
_PREFIX: Final = "schema.registry."
_KNOWN: Final = frozenset(
    (
        "basic.auth.user.info",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
    )
)
_SCHEMA_NOT_FOUND: Final = 40403


def registry_fetch(url: str, credentials: Path | None) -> Fetch:
    """Return a function that requests the schema of an id from the registry."""
    for client_library in ("httpx", "httpx2"):
        # The client logs a line per request, and a producer can write any number of ids.
        logging.getLogger(client_library).setLevel(logging.WARNING)
    # A failed request is repeated by the stream, which can be stopped meanwhile.
    settings: dict[str, object] = {"url": url, "timeout": ANSWER_S_MAX, "max.retries": 0}
    try:
        client = SchemaRegistryClient(settings | _credentials(credentials))
    except (ValueError, OSError) as error:
        raise UsageError(f"{credentials or url}: {type(error).__name__}") from None

    def fetch(schema_id: int) -> SchemaText:
        try:
            found = client.get_schema(schema_id)
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code == _SCHEMA_NOT_FOUND:
                return SchemaText("", refused="is not in the registry")
            raise
        if found.schema_type != "AVRO":
            return SchemaText("", refused=f"is a schema of {found.schema_type:.20}")
        try:
            return SchemaText(_text_of(client, found), tuple(_references(client, found)))
        except SchemaError as why:
            return SchemaText("", refused=str(why))

    return fetch


def _references(client: SchemaRegistryClient, schema: Schema) -> list[str]:
    """Return the schemas that this one references, each after those that it references itself.

    Raises ``SchemaError`` if there are too many.
    """
    texts: dict[tuple[str, int], str] = {}
    waiting = [(schema, False)]
    order: list[str] = []
    while waiting:
        one, is_open = waiting.pop()
        if is_open:
            order.append(_text_of(client, one))
            continue
        if one is not schema:
            waiting.append((one, True))
        for reference in one.references or ():
            place = (str(reference.subject), int(reference.version or 0))
            if place in texts:
                continue
            if len(texts) >= REFERENCES_MAX:
                raise SchemaError(f"has more than {REFERENCES_MAX} references")
            inner = client.get_version(*place).schema
            texts[place] = inner.schema_str or ""
            waiting.append((inner, False))
    return order


def _text_of(client: SchemaRegistryClient, schema: Schema) -> str:
    """Return the schema's text; raises ``ValueError`` if the response is not a registry's."""
    text: object = schema.schema_str
    if not isinstance(text, str) or not text:
        client.clear_caches()  # type: ignore[no-untyped-call]
        raise ValueError("a response without a schema")
    return text


def _credentials(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    found: dict[str, object] = {}
    for name, given in parse_file(path).items():
        known = name.removeprefix(_PREFIX)
        if known not in _KNOWN:
            raise UsageError(f"{path}:{given.line}: {name} is not known for a registry")
        is_path = known.endswith(".location")
        found[known] = str(path.parent / given.value) if is_path else given.value
    return found
