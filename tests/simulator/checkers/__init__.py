"""Checkers of the guarantees, one file each; their only input is the history of a run.

``check`` raises the first ``Violation``. To add a checker: add a module with ``check(facts)``, a
line here, and a test in ``test_checkers.py`` in which it fails on a modified history.
"""

from __future__ import annotations

from tests.simulator.checkers import (
    bounded,
    convergent,
    counted,
    exact,
    future,
    honest,
    linked,
    logs,
    memory,
    merged,
    moved,
    order,
    placed,
    tenures,
)
from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts
from tests.simulator.history import History

__all__ = ["Facts", "Violation", "check"]

CHECKERS = (
    order,
    logs,
    exact,
    future,
    honest,
    bounded,
    convergent,
    memory,
    counted,
    placed,
    tenures,
    moved,
    merged,
    linked,
)


def check(history: History) -> None:
    """Check all guarantees of each query."""
    facts: Facts | None = Facts(history)
    while facts is not None:
        for checker in CHECKERS:
            checker.check(facts)
        facts = facts.reader
