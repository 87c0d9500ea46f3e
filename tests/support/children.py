"""The processes that this one has started, as far as they run."""

from __future__ import annotations

from collections.abc import Iterator

import psutil


def running_children(*, recursive: bool = False) -> Iterator[psutil.Process]:
    """Yield them; one that has ended and was not waited for, of another test, has no command."""
    for child in psutil.Process().children(recursive=recursive):
        if child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
            yield child
