"""Dead letters: a message that crashes its parser is quarantined, and the stream continues.

Parsers should accept any bytes. A message that nevertheless crashes one would crash the proxy again
at each start. The position of a batch is therefore marked in a file before parsing, and the mark is
cleared afterwards; the mark survives the process. A fault handler writes a second file when the
process ends by SIGSEGV, SIGABRT, SIGBUS or a similar signal. A process ended by SIGKILL leaves no
such file, and its batch is not suspect. If both files exist at the start, or if the parser raised
an exception, the batch is parsed in isolation, that is, in a child process (``isolated``).

A process that serves several streams may have been parsing for several of them when it ended. All
marked positions are then suspect and parsed in isolation, each by its own stream.

A message that crashes the parser goes to quarantine with the reason ``crash``. Its position is
kept, so that a restart that reads the same input omits it again and assigns the same ids.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)
POSITIONS_MAX: Final = 1_000
MARK_BYTES: Final = 1_024

R = TypeVar("R")


class Faults:
    """The fault that ended the last process of this name, and the fault file of this process.

    One per process, which has one fault handler. Marks name the file (``name``), since other
    processes may serve the same streams after a restart.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._folder = folder
        self._last = ""

    @classmethod
    def open(cls, folder: Path, name: str) -> Faults:
        """Create the folder and read the fault that ended the last process of this name."""
        folder.mkdir(parents=True, exist_ok=True)
        faults = cls(folder, name)
        faults._last = faults._in_file(name)
        return faults

    def watch(self) -> None:
        """Install the fault handler of this process."""
        self._file = (self._folder / f"{self.name}.fault").open("wb")
        faulthandler.enable(self._file, all_threads=False)

    def last(self, name: str) -> str:
        """Return the fault that ended the last process of this name; empty if none."""
        return self._last if name == self.name else self._in_file(name)

    def _in_file(self, name: str) -> str:
        try:
            text = (self._folder / f"{name}.fault").read_text(errors="replace")
        except OSError:
            return ""
        return text.partition("\n")[0]


class DeadLetters:
    """Quarantined messages of one stream, and the batch being parsed."""

    def __init__(self, stream: str, faults: Faults, list_path: Path, mark: int) -> None:
        self._faults, self._stream = faults, stream
        self._list_path = list_path
        self._mark = mark
        self._found: dict[str, list[int]] = {}
        self._suspect: tuple[str, int, int] | None = None

    @classmethod
    def open(cls, folder: Path, stream: str, faults: Faults) -> DeadLetters:
        """Open the stream's dead letters and the mark that the last run left."""
        mark = os.open(folder / f"{stream}.reading", os.O_RDWR | os.O_CREAT, 0o600)
        dead_letters = cls(stream, faults, folder / f"{stream}.aside.json", mark)
        dead_letters._found = dead_letters._load()
        dead_letters._suspect = dead_letters._last_fault()
        dead_letters._clear()
        return dead_letters

    def close(self) -> None:
        """Close the file; entries are kept."""
        os.close(self._mark)

    def attempt(self, where: str, first: int, last: int, read: Callable[[], R]) -> R | None:
        """Return the result of ``read``; None if the positions must be parsed in isolation."""
        if self._is_suspect(where, first, last):
            return None
        mark = json.dumps([where, first, last, self._faults.name]).encode()[:MARK_BYTES] + b"\n"
        os.pwrite(self._mark, mark, 0)
        try:
            return read()
        except Exception:  # noqa: BLE001 - whatever it is, the stream goes on
            _log.exception(
                "parsing %s from %d to %d failed: parsing it in isolation", where, first, last
            )
            return None
        finally:
            self._clear()

    def positions(self, where: str) -> frozenset[int]:
        """Return the positions of an input's quarantined messages."""
        return frozenset(self._found.get(where, ()))

    def add(self, where: str, position: int, how: str) -> None:
        """Record one message as a dead letter, permanently."""
        _log.error("%s %d is quarantined: %s", where, position, how)
        self._found.setdefault(where, []).append(position)
        while sum(map(len, self._found.values())) > POSITIONS_MAX:
            oldest = next(iter(self._found))
            del self._found[oldest][0]
            if not self._found[oldest]:
                del self._found[oldest]
        part = self._list_path.with_suffix(".part")
        part.write_text(json.dumps(self._found))
        part.replace(self._list_path)

    def _is_suspect(self, where: str, first: int, last: int) -> bool:
        if self._suspect is not None:
            name, start, end = self._suspect
            if name == where and first <= end and start <= last:
                return True
        return any(first <= position <= last for position in self._found.get(where, ()))

    def _last_fault(self) -> tuple[str, int, int] | None:
        mark = os.pread(self._mark, MARK_BYTES, 0).partition(b"\n")[0]
        try:
            where, first, last, *name = json.loads(mark)
            suspect = (str(where), int(first), int(last))
        except (ValueError, TypeError):
            return None
        # Marks of earlier versions, with one process per stream, name no file.
        fault = self._faults.last(str(name[0]) if name else self._stream)
        if not fault:
            return None  # killed while parsing: no fault of the input
        _log.error(
            "%s ended the last run while it parsed %s, %d to %d: parsing it in isolation",
            fault,
            *suspect,
        )
        return suspect

    def _clear(self) -> None:
        os.pwrite(self._mark, b"\n", 0)

    def _load(self) -> dict[str, list[int]]:
        try:
            found: Any = json.loads(self._list_path.read_text())
            return {str(where): [int(at) for at in some] for where, some in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
