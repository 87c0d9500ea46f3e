"""Detects a halted machine: a thread does almost nothing, and records when even that is slow.

If a host halts a machine, or a disk is busy for seconds, this is not a lack of CPU: no process
waits for a core, and no core is busy. Late answers then show nothing about the pipeline. The
witness repeatedly sleeps for a moment and writes a byte to the disk.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType

LOOK_S = 0.1
STOOD_STILL_S = 1.0
"""Longer than a step takes on an idle machine, which is milliseconds."""


class Witness:
    """Observes while its ``with`` block runs; writes to a file in this folder."""

    def __init__(self, folder: Path) -> None:
        self.worst_s = 0.0
        self._path = folder / "witness"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def stood_still(self) -> bool:
        """Whether a step once took much longer than usual."""
        return self.worst_s >= STOOD_STILL_S

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._path.open("wb") as file:
            before = time.monotonic()
            while not self._stop.wait(LOOK_S):
                file.seek(0)
                file.write(b".")
                file.flush()
                os.fsync(file.fileno())
                now = time.monotonic()
                self.worst_s, before = max(self.worst_s, now - before - LOOK_S), now
        self._path.unlink()
