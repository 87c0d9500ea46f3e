"""Opens the schemas of a stream: its registry, its files, or both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from slackwater.model.deployment import TopicSpec
from slackwater.proxy.formats.avro.reader import SchemaBook
from slackwater.proxy.formats.avro.sources import BothBooks, FolderBook, RegistryBook


class OpenBook(SchemaBook, Protocol):
    """Schemas that are looked up until they are closed."""

    def close(self) -> None:
        """Give up what is under way."""
        ...


def open_book(topic: TopicSpec, now_us: Callable[[], int]) -> OpenBook | None:
    """Return where the topic's schemas are looked up; None for another format than Avro.

    ``UsageError`` or ``EnvironmentProblem`` names a file that cannot be used.
    """
    if topic.format != "avro":
        return None
    folder = None if topic.schemas is None else FolderBook(Path(topic.schemas), now_us)
    if topic.registry is None:
        return folder
    # An HTTP client takes a third of a second to import, and few streams need one.
    from slackwater.proxy.formats.avro.registry import registry_fetch

    given = topic.registry.credentials
    fetch = registry_fetch(topic.registry.url, None if given is None else Path(given))
    registry = RegistryBook(fetch, now_us)
    return registry if folder is None else BothBooks(folder, registry)
