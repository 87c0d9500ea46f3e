"""The last line of defence: a message that ends its reader is set aside, and the stream goes on.

The readers are total, as far as anybody knows. What nobody knows must not stop a stream for good:
a proxy that dies of a message would die of it again at each start. So before a batch is read its
place is noted in a file, and the file is cleared behind it; the kernel keeps it whatever becomes of
the process. A fault handler writes another file when the process ends by SIGSEGV, SIGABRT, SIGBUS
or their like, and only then: not when it is killed, which says nothing about the input. A process
that finds both reads that place ``apart``, and so does one whose reader raised.

A process that serves several streams may have been reading for each of them when it ended. Which
one was guilty is not known, so all these places are suspect and read apart, each by its own stream.

What is found to end its reader goes to quarantine with the reason ``crash``. Its position is kept,
so that a restart which reads the same input again leaves it out again, and gives the same ids.
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
    """How the process of this name ended last, and a file that will tell how this one ends.

    One for a process: it has one fault handler. Its marks name the file (``name``), since the same
    streams may be served by other processes the next time.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._folder = folder
        self._last = ""

    @classmethod
    def open(cls, folder: Path, name: str) -> Faults:
        """Make the folder, and read how the last process of this name ended."""
        folder.mkdir(parents=True, exist_ok=True)
        faults = cls(folder, name)
        faults._last = faults._in_file(name)
        return faults

    def watch(self) -> None:
        """Note how this process ends, should it end by a fault of its own."""
        self._file = (self._folder / f"{self.name}.fault").open("wb")
        faulthandler.enable(self._file, all_threads=False)

    def last(self, name: str) -> str:
        """The fault by which the process of this name ended last; empty if by none."""
        return self._last if name == self.name else self._in_file(name)

    def _in_file(self, name: str) -> str:
        try:
            text = (self._folder / f"{name}.fault").read_text(errors="replace")
        except OSError:
            return ""
        return text.partition("\n")[0]


class DeadLetters:
    """What has been set aside of one stream, and what is being read of it now."""

    def __init__(self, stream: str, faults: Faults, list_path: Path, mark: int) -> None:
        self._faults, self._stream = faults, stream
        self._list_path = list_path
        self._mark = mark
        self._found: dict[str, list[int]] = {}
        self._suspect: tuple[str, int, int] | None = None

    @classmethod
    def open(cls, folder: Path, stream: str, faults: Faults) -> DeadLetters:
        """The stream's, with what was set aside before and what the last run died over."""
        mark = os.open(folder / f"{stream}.reading", os.O_RDWR | os.O_CREAT, 0o600)
        dead_letters = cls(stream, faults, folder / f"{stream}.aside.json", mark)
        dead_letters._found = dead_letters._load()
        dead_letters._suspect = dead_letters._last_fault()
        dead_letters._clear()
        return dead_letters

    def close(self) -> None:
        """Give the file back; what has been set aside stays so."""
        os.close(self._mark)

    def attempt(self, where: str, first: int, last: int, read: Callable[[], R]) -> R | None:
        """What ``read`` gives; None if the positions from first to last must be read apart."""
        if self._is_suspect(where, first, last):
            return None
        mark = json.dumps([where, first, last, self._faults.name]).encode()[:MARK_BYTES] + b"\n"
        os.pwrite(self._mark, mark, 0)
        try:
            return read()
        except Exception:  # noqa: BLE001 - whatever it is, the stream goes on
            _log.exception("reading %s from %d to %d failed: reading it apart", where, first, last)
            return None
        finally:
            self._clear()

    def positions(self, where: str) -> frozenset[int]:
        """Of an input, what has been set aside."""
        return frozenset(self._found.get(where, ()))

    def add(self, where: str, position: int, how: str) -> None:
        """Set one message aside, for good."""
        _log.error("%s %d is set aside: %s", where, position, how)
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
        # A mark of a version in which each stream had its process names no file.
        fault = self._faults.last(str(name[0]) if name else self._stream)
        if not fault:
            return None  # it was killed while it read: that is no fault of the input
        _log.error("%s ended the last run while it read %s, %d to %d: read apart", fault, *suspect)
        return suspect

    def _clear(self) -> None:
        os.pwrite(self._mark, b"\n", 0)

    def _load(self) -> dict[str, list[int]]:
        try:
            found: Any = json.loads(self._list_path.read_text())
            return {str(where): [int(at) for at in some] for where, some in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
