"""The data directory: one stack at a time, and where the others find it.

``run.json`` tells commands and people which broker and which processes there are. It stays behind
with the broker's address, because the port is kept over restarts. The lock is the kernel's and ends
with its holder, so it is never stale.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slackwater.model.errors import EnvironmentProblem

RUN_FILE = "run.json"


class DataDirectory:
    """A data directory that this process has for itself."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock: int | None = None

    def acquire(self) -> None:
        """Make it if need be, and lock it; ``EnvironmentProblem`` says who has it."""
        assert self._lock is None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / "stack.lock", os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(self._lock, 0)
            os.pwrite(self._lock, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            assert self._lock is not None
            holder = os.pread(self._lock, 20, 0).decode(errors="replace") or "unknown"
            self.release()
            raise EnvironmentProblem(
                f"another slackwater (process {holder}) runs in {self.path}: stop it, or choose"
                " another --data-dir"
            ) from None
        except OSError as error:
            self.release()
            raise EnvironmentProblem(
                f"the data directory {self.path} cannot be used: {error.strerror}"
            ) from error

    def release(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write_run(
        self, bootstrap: str, deployment_path: Path, processes: Mapping[str, int]
    ) -> None:
        """Tell the others; without processes: that nothing runs now."""
        said: dict[str, Any] = {
            "bootstrap": bootstrap,
            "deployment": str(deployment_path.resolve()),
            "pid": os.getpid() if processes else None,
            "processes": dict(processes),
        }
        part = self.path / f"{RUN_FILE}.part"
        # What people look at; the stack itself does not need it, and goes on without room for it.
        with contextlib.suppress(OSError):
            part.write_text(json.dumps(said, indent=2) + "\n")
            part.replace(self.path / RUN_FILE)


def read_run(path: Path) -> dict[str, Any] | None:
    """What ``run.json`` in a data directory says; None if there is none."""
    try:
        content = json.loads((path / RUN_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None
