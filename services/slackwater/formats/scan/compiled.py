"""Compiles the functions of this package with numba, and caches the machine code on disk.

Compilation takes seconds, loading the machine code a fifth of a second. The cache folder is named
by a digest of this package's sources: numba checks only the file of the cached function, and would
not notice a change of a function of another file that is compiled into it.

Importing this module raises ``ImportError`` if there is no numba, or no folder for the cache. The
reader then works without a scanner.

The folder is in the package's own ``__pycache__``. If that cannot be written, as in an image, the
folder is in the user's cache, and the package's machine code is copied there, because numba does
not use a folder that it cannot write. ``NUMBA_CACHE_DIR`` takes precedence over both. An image
needs ``NUMBA_CPU_NAME=generic``, for code that runs on every processor of the architecture.
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
    """Return a digest of this package's sources and the compiler's version."""
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
    """Compile a function that other functions of this package call."""
    compiled: F = _njit(**_OPTIONS)(function)
    return compiled


def outlined(function: F) -> F:
    """Compile a function that is rarely called and must not be inlined into its callers."""
    compiled: F = _njit(inline="never", **_OPTIONS)(function)
    return compiled


def entry(signature: str) -> Callable[[F], F]:
    """Compile a function that Python calls; its machine code is cached on disk."""

    def compile_(function: F) -> F:
        compiled: F = _njit(signature, cache=True, **_OPTIONS)(function)
        return compiled

    return compile_


def callback(signature: str) -> Callable[[Callable[..., Any]], int]:
    """Compile a function that C calls; returns its address."""

    def compile_(function: Callable[..., Any]) -> int:
        compiled: Any = numba.cfunc(signature, cache=True)(function)
        _CALLBACKS.append(compiled)
        return int(compiled.address)

    return compile_


_CALLBACKS: Final[list[Any]] = []
"""Keeps the code of callbacks in memory."""
