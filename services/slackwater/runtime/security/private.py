"""Files and directories readable by their owner only: 0600 and 0700, regardless of the umask.

Spools, logs and the broker's data contain readings and results. Child processes are started with
``UMASK`` (see ``machine.process`` and ``runtime.service.entry``). The parent creates its own
files with the functions here. Its umask is unchanged, since a rehearsal also writes results that
are to be shared.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

from slackwater.model.errors import EnvironmentProblem

UMASK: Final = 0o077
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def make_private(directory: Path) -> None:
    """Create the directory if it is missing; missing parents get the default mode."""
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)


def make_data_directory(directory: Path) -> None:
    """As ``make_private``, for a directory that an option has named.

    Raises:
        EnvironmentProblem: it cannot be created.
    """
    try:
        make_private(directory)
    except OSError as error:
        raise unusable(directory, error) from error


def unusable(directory: Path, error: OSError) -> EnvironmentProblem:
    """Return what is raised for a data directory that cannot be used."""
    return EnvironmentProblem(
        f"the data directory {directory} cannot be used: {error.strerror}; choose another one"
    )


def append_to(path: Path) -> BinaryIO:
    """Open a file for appending; create it if it is missing."""
    return open(path, "ab", opener=_opener)


def open_to_others(path: Path) -> str | None:
    """Return why a secret file is refused, with the command that fixes it; None if it is private.

    Raises:
        OSError: the file's mode cannot be read.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & UMASK:
        return None
    return f"can be read or changed by others (mode {mode:04o}): run chmod 600 {path}"


def write_atomically(path: Path, content: str) -> None:
    """Replace the content atomically: readers, also after a crash, find the old or the new.

    When it returns, the new content also survives a power failure: the file's name is in the
    directory, so the directory is synchronised too.

    Raises:
        OSError: the file cannot be written; the old content is unchanged.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "w", encoding="utf-8", opener=_opener) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk names none
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def close_to_others(tops: Iterable[Path]) -> int:
    """Remove the rights of group and others recursively; returns the number of changed entries.

    Symbolic links are not followed. Files of other owners are not changed.
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
