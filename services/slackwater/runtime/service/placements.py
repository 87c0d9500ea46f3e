"""The placement numbers that a node's fragments have in the replicated record.

The node writes them to a file before it starts a fragment, and again when a number changes. A
fragment reads its number at each start. A root that another copy has fenced therefore stays down
until the controllers place it on this node again, with a greater number (trace-17).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.security.private import write_atomically


class Placements:
    """The file of one node."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, numbers: Mapping[str, int]) -> None:
        """Replace all numbers, by the names of fragments."""
        write_atomically(self._path, json.dumps(dict(numbers), sort_keys=True) + "\n")

    def read(self) -> dict[str, int]:
        """All numbers; empty if there is no file yet."""
        try:
            found = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise EnvironmentProblem(f"{self._path} cannot be read: {error}") from None
        if not isinstance(found, dict) or not all(type(n) is int for n in found.values()):
            raise EnvironmentProblem(f"{self._path} is not a file of placement numbers")
        return found

    def of(self, fragment: str) -> int:
        """The number of a fragment; ``EnvironmentProblem`` if it is not placed here."""
        number = self.read().get(fragment)
        if number is None:
            raise EnvironmentProblem(f"{fragment} is not placed on this node ({self._path})")
        return number
