"""Decisions of the supervisor that need no process: back-off, placement numbers, names.

A placement number rises with every start of a fragment; a root may fence only with a greater one
(trace R17), so it must never be given twice, and is on the disk before the process is started. The
numbers will come from the controller; until there is one, a file keeps them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from slackwater.model.errors import UsageError


class BackOff:
    """How long to wait before a restart: not at all, unless it died again within the window.

    A single death costs the time to start and no more. What dies at once each time waits twice as
    long each time, up to a bound, and is never given up: its broker or its disk may come back.
    """

    def __init__(
        self, *, window_s: float = 10.0, first_s: float = 0.5, wait_s_max: float = 8.0
    ) -> None:
        assert 0 < first_s <= wait_s_max < window_s, "else the longest wait would end the row"
        self._window_s, self._first_s, self._wait_s_max = window_s, first_s, wait_s_max
        self._died_s: float | None = None
        self._in_a_row = 0

    def after_death(self, now_s: float) -> float:
        """It died; how long to wait before it is started again."""
        again = self._died_s is not None and now_s - self._died_s <= self._window_s
        self._in_a_row = self._in_a_row + 1 if again else 0
        self._died_s = now_s
        if self._in_a_row == 0:
            return 0.0
        # The exponent is bounded too: a process may die for weeks.
        return min(self._first_s * 2.0 ** min(self._in_a_row - 1, 30), self._wait_s_max)


class PlacementNumbers:
    """Placement numbers in a file: one for each fragment, rising with every start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def at_least(self, fragment: str, number: int) -> None:
        """This number was given already, from somewhere else: the next one is greater."""
        self._last[fragment] = max(number, self._last.get(fragment, 0))

    def next(self, fragment: str) -> int:
        """A number greater than all that this fragment was given before."""
        number = self._last.get(fragment, 0) + 1
        self._last[fragment] = number
        part = self._path.with_suffix(".part")
        with part.open("w") as file:
            json.dump(self._last, file, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        return number


def matching(target: str, names: Iterable[str]) -> list[str]:
    """The processes that a name in a fault means: itself, else all that begin with it.

    A kind alone (``orderer``) means all of the kind. ``UsageError`` if it means none.
    """
    names = sorted(names)
    if target in names:
        return [target]
    kind, slash, _ = target.partition("/")
    found = (
        [name for name in names if name.startswith(target)]
        if slash
        else [name for name in names if name.partition("/")[0] == kind]
    )
    if not found:
        raise UsageError(f"no process is called {target}; there are {', '.join(names) or 'none'}")
    return found
