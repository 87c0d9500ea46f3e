"""Compiles the functions of this room with numba, and keeps the machine code on disk.

Compilation takes seconds, loading what was compiled a fifth of a second. The folder of the machine
code is named by a digest of this room's sources: numba checks only the file of the function that it
caches, and a function of another file, compiled into it, would stay as it was.

``ImportError`` while this module is imported: there is no numba, or no folder to keep code in. The
reader then goes without a scanner.

The folder is in the package's own ``__pycache__``; where that cannot be written, as in an image, it
is in the user's cache, and what the package holds is copied there, for numba uses no folder that it
cannot write. ``NUMBA_CACHE_DIR`` comes before both. ``NUMBA_CPU_NAME=generic`` makes code for every
processor of the architecture, as an image needs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])
ROOM: Final = Path(__file__).parent
_OPTIONS: Final = {"nogil": True, "boundscheck": False, "error_model": "numpy"}


def digest() -> str:
    """Return a digest of the sources of this room and of the compiler's version."""
    found = hashlib.sha256(numba.__version__.encode())
    for path in sorted(ROOM.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _candidates(name: str) -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given) / name
    yield ROOM / "__pycache__" / name
    yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "slackwater" / name


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except (OSError, RuntimeError):
        return False


def _is_compiled(folder: Path) -> bool:
    return any(folder.glob("**/*.nbi"))


def _folder() -> Path:
    """Return the folder of the machine code of these sources."""
    candidates = list(_candidates(f"scan-{digest()}"))
    for folder in candidates:
        if _is_writable(folder):
            known = next(filter(_is_compiled, candidates), folder)
            if known != folder:
                _copy(known, folder)
            return folder
    raise ImportError(f"none of {', '.join(map(str, candidates))} can be written")


def _copy(known: Path, folder: Path) -> None:
    """Copy machine code into an empty folder, all at once."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as part:
        copy = shutil.copytree(known, Path(part) / "code")
        with contextlib.suppress(OSError):  # another process was quicker
            copy.replace(folder)


CODE_FOLDER: Final = _folder()
_config: Any = numba.config
_config.CACHE_DIR = str(CODE_FOLDER)
_njit: Any = numba.njit


def inner(function: F) -> F:
    """Compile a function that others of this room call."""
    compiled: F = _njit(**_OPTIONS)(function)
    return compiled


def outlined(function: F) -> F:
    """Compile a function that is rarely called, and is not to be copied into its callers."""
    compiled: F = _njit(inline="never", **_OPTIONS)(function)
    return compiled


def entry(signature: str) -> Callable[[F], F]:
    """Compile a function that Python calls; its machine code is kept on disk."""

    def compile_(function: F) -> F:
        compiled: F = _njit(signature, cache=True, **_OPTIONS)(function)
        return compiled

    return compile_
