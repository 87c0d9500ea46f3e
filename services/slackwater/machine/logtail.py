"""Reads the last messages of a process's log, within bounds."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

TAIL_BYTES_MAX: Final = 64 * 1024
LINE_CHARS_MAX: Final = 500
LINES_MAX: Final = 12
"""Lines of an excerpt; the first lines of a crash report name the fault and its thread."""
_TERMINAL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
"""Control sequences of a terminal (ECMA-48), as libraries write them; a log is read as text."""
_LEVEL: Final = re.compile(r"^\S+(?: \S+)? (DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL) ")
"""The level of a line, behind its time in one or two words."""
_ERRORS: Final = ("ERROR", "FATAL", "CRITICAL")
_WARNINGS: Final = ("WARN", "WARNING")
_TRACEBACK: Final = "Traceback (most recent call last)"


def last_lines(log: Path, since_bytes: int = 0) -> list[str]:
    """Return the last non-blank lines after ``since_bytes``, where the output of a start begins.

    A log that is shorter has been truncated since, and is read from its beginning.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            begin = since_bytes if since_bytes <= size else 0
            file.seek(max(begin, size - TAIL_BYTES_MAX))
            text = file.read(TAIL_BYTES_MAX).decode(errors="replace")
    except OSError:
        return []
    text = _TERMINAL.sub("", text)
    return [line.rstrip()[:LINE_CHARS_MAX] for line in text.splitlines() if line.strip()]


def failure_excerpt(log: Path, since_bytes: int = 0) -> str:
    """Return a crash as one line: from the interpreter's last report on, or the last lines."""
    lines = last_lines(log, since_bytes)
    fatal = [at for at, line in enumerate(lines) if line.startswith("Fatal Python error")]
    reported = lines[fatal[-1] :][:LINES_MAX] if fatal else lines[-LINES_MAX:]
    return " | ".join(line.strip() for line in reported)


def last_error(log: Path, since_bytes: int = 0) -> str | None:
    """Return why a process ended, without time, level and names; None if its log does not tell.

    It is the last error or the last line of a traceback, whichever came later; else a line without
    a level at the very end, such as a message of the interpreter; else the last warning.
    """
    lines = last_lines(log, since_bytes)
    if (error := _last_fault(lines)) is not None:
        return error
    if lines and _LEVEL.search(lines[-1]) is None:
        return lines[-1]
    warnings = [line for line in lines if _is_of(line, _WARNINGS)]
    return _message(warnings[-1]) if warnings else None


def _last_fault(lines: Sequence[str]) -> str | None:
    found, in_traceback = None, False
    for line in lines:
        if line.startswith("Fatal Python error"):
            found, in_traceback = line, False
        elif _is_of(line, _ERRORS):
            found, in_traceback = _message(line), False
        elif line.startswith(_TRACEBACK):
            in_traceback = True
        elif in_traceback and not line.startswith(" "):
            found, in_traceback = line, False
    return found


def _is_of(line: str, levels: Collection[str]) -> bool:
    level = _LEVEL.search(line)
    return level is not None and level[1] in levels


def _message(line: str) -> str:
    return line.partition(": ")[2] or line


def last_message(log: Path, name: str) -> str:
    """Return the last error of this part or process in a log, else the last error of any."""
    marks = (f" ERROR {name} ", f" CRITICAL {name} ")
    reported = [line for line in last_lines(log) if any(mark in line for mark in marks)]
    error = reported[-1].partition(": ")[2] if reported else last_error(log)
    return error or f"it ended without an error message (see {log})"
