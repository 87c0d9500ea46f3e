"""Lists the files below a folder, while processes create and remove some of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def paths(folder: Path) -> Iterator[Path]:
    """Return all files and folders below it, including itself; files that vanish are omitted."""
    yield folder
    for root, folders, names in os.walk(folder):
        yield from (Path(root) / name for name in (*folders, *names))


def files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield every regular file below it, with its content."""
    for path in paths(folder):
        try:
            if path.is_file():
                yield path, path.read_bytes()
        except FileNotFoundError:
            continue
