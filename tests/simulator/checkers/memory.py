"""Guarantee 5, bounded memory: what a process holds does not grow with the length of a failure."""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation
from tests.simulator.world import History


def check(history: History, *, orderer_bytes_max: int, root_slices_max: int) -> None:
    """No sample of any process is above its bound."""
    for sample in history.samples:
        for process, held in sample.held.items():
            bound = orderer_bytes_max if process.startswith("orderer") else root_slices_max
            if held > bound:
                raise Violation("memory", sample.at, f"{process} holds {held}, more than {bound}")
