"""The files of the page: read once, served from memory by name, so no path leads elsewhere."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX: Final = "index.html"


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file with its headers; ``packed`` is it as gzip."""

    content: bytes
    packed: bytes
    media_type: str
    etag: str


def read_page() -> dict[str, PageFile]:
    """Return the files by their path in the page's folder."""
    return dict(_read(files("slackwater.gateway") / "page", ""))


def _read(folder: Traversable, path: str) -> list[tuple[str, PageFile]]:
    found: list[tuple[str, PageFile]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _read(entry, f"{path}{entry.name}/")
            continue
        media_type = TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            packed = gzip.compress(content, mtime=0)
            found.append((path + entry.name, PageFile(content, packed, media_type, etag)))
    return found
