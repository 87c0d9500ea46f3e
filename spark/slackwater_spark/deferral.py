"""Starts the replicas' queries of an added fragment one after the other.

The start of a Spark query takes more than a CPU second, in part on compiler threads. If the
aggregators of all replicas started the queries of a new fragment at the same time, they would use
both cores of a small machine for a second, and all other queries would answer later. One replica
suffices for an answer. A fragment that is added at run time therefore waits until an aggregator
reports that the fragment of the replica before it runs, or for ``DEFERRED_US_MAX``: that replica
may have failed.

The fragments with which a process starts do not wait. Pure: time and reports are arguments.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from slackwater.model.names import OrdererName

DEFERRED_US_MAX: Final = 3_000_000


class Deferral:
    """The fragments that wait for the replicas before them; at most those of this aggregator."""

    def __init__(self) -> None:
        self._waiting: dict[OrdererName, int] = {}
        """When each fragment was added."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: OrdererName, now_us: int) -> None:
        """Add a fragment that is to start when it is due."""
        self._waiting.setdefault(name, now_us)

    def remove(self, name: OrdererName) -> None:
        """Forget a fragment that is not to start any more."""
        self._waiting.pop(name, None)

    def due(self, now_us: int, running: Collection[str]) -> list[OrdererName]:
        """Return the fragments that are to start now, which then wait no longer.

        Args:
            now_us: monotonic time, in us.
            running: names of the fragments that run, in any aggregator.
        """
        found = [
            name
            for name, added_us in self._waiting.items()
            if name.replica == 0
            or str(replace(name, replica=name.replica - 1)) in running
            or now_us - added_us >= DEFERRED_US_MAX
        ]
        for name in found:
            del self._waiting[name]
        return found
