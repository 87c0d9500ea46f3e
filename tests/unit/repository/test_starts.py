"""The number of deployments that tests start does not grow unnoticed (``support/starts.py``)."""

from __future__ import annotations

from pathlib import Path

from tests.support.starts import (
    DEPLOYMENTS_MAX,
    IN_DRILLS,
    OWN,
    SESSIONS_MAX,
    SHARED,
    STARTS,
    USES_SHARED,
)

FOLDER = Path(__file__).parents[2] / "integration"
TEXTS = {path.name: path.read_text("utf-8") for path in sorted(FOLDER.glob("test_*.py"))}
STAND_INS = {"test_stack.py"}


def test_each_file_that_starts_a_deployment_is_listed_with_the_reason() -> None:
    found = {name for name, text in TEXTS.items() if STARTS.search(text)} - STAND_INS
    in_drills_beside = {"test_query_changes.py"}
    assert found - SHARED == OWN.keys() | IN_DRILLS
    assert found & SHARED == in_drills_beside
    assert not OWN.keys() & IN_DRILLS


def test_each_file_that_uses_the_shared_deployment_is_listed() -> None:
    assert {name for name, text in TEXTS.items() if USES_SHARED.search(text)} == SHARED


def test_the_starts_are_bounded() -> None:
    """See ``tests/README.md`` before a bound grows: a start costs up to a minute of CPU time."""
    assert sum(own.deployments for own in OWN.values()) <= DEPLOYMENTS_MAX
    assert sum(own.sessions for own in OWN.values()) <= SESSIONS_MAX
