"""Files and directories that their owner alone can read: 0600 and 0700, whatever the umask is.

Spools, logs and the broker's data hold readings and results. Children are started with ``UMASK``
(see ``runtime.local.process`` and ``runtime.service.entry``). What the parent makes for itself is
made by the functions here, because its own umask stays: a rehearsal also writes results that are to
be shared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

UMASK: Final = 0o077
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def make_private(directory: Path) -> None:
    """Make the directory if it is missing; its missing parents get the usual mode."""
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)


def append_to(path: Path) -> BinaryIO:
    """Open a log; it is made if it is missing."""
    return open(path, "ab", opener=_opener)


def write_atomically(path: Path, content: str) -> None:
    """Write so that a reader, and a crash, find the old content or the new, never half of it."""
    part = path.with_name(f"{path.name}.part")
    with open(part, "w", encoding="utf-8", opener=_opener) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def close_to_others(tops: Iterable[Path]) -> int:
    """Take the rights of group and others off these and all below; how many had any.

    Symbolic links are not followed. What belongs to another owner stays as that owner wants it.
    """
    changed = 0
    for top in tops:
        changed += _close(top)
        for folder, directories, files in os.walk(top):
            changed += sum(_close(Path(folder, name)) for name in (*directories, *files))
    return changed


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _close(path: Path) -> bool:
    try:
        status = path.lstat()
        if path.is_symlink() or not status.st_mode & UMASK or status.st_uid != os.geteuid():
            return False
        path.chmod(status.st_mode & 0o7777 & ~UMASK)
    except FileNotFoundError:
        return False  # a temporary file
    return True
