"""Opens the schemas of a stream: its registry, its files, or both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from slackwater.formats.avro.reader import SchemaBook
from slackwater.formats.avro.sources import BothBooks, FolderBook, RegistryBook
from slackwater.model.deployment import TopicSpec


class OpenBook(SchemaBook, Protocol):
    """A source of schemas that must be closed."""

    def close(self) -> None:
        """Abandon pending requests."""
        ...


def open_book(topic: TopicSpec, now_us: Callable[[], int]) -> OpenBook | None:
    """Return the source of the topic's schemas; None for formats other than Avro.

    Raises ``UsageError`` or ``EnvironmentProblem``, naming the file, if a file cannot be used.
    """
    if topic.format != "avro":
        return None
    folder = None if topic.schemas is None else FolderBook(Path(topic.schemas), now_us)
    if topic.registry is None:
        return folder
    # An HTTP client takes a third of a second to import, and few streams need one.
    from slackwater.formats.avro.registry import registry_fetch

    given = topic.registry.credentials
    fetch = registry_fetch(topic.registry.url, None if given is None else Path(given))
    registry = RegistryBook(fetch, now_us)
    return registry if folder is None else BothBooks(folder, registry)
