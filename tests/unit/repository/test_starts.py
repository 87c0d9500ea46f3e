"""The number of deployments that tests start does not grow unnoticed (``support/starts.py``)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.conftest import pytest_xdist_make_scheduler
from tests.support.starts import (
    DEPLOYMENTS_MAX,
    IN_DRILLS,
    OWN,
    SESSIONS_MAX,
    SHARED,
    STARTS,
    USES_SHARED,
    WITH_SPARK,
)
from xdist.remote import Producer

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


def test_files_with_spark_count_as_one_file() -> None:
    config = SimpleNamespace(
        getoption=lambda name: "loadfile" if name == "dist" else None,
        getvalue=lambda _: ["popen", "popen"],
    )
    scheduler = pytest_xdist_make_scheduler(cast(pytest.Config, config), Producer("test"))
    groups = {name: scheduler._split_scope(f"tests/integration/{name}::test") for name in TEXTS}
    of_spark = {group for name, group in groups.items() if name in WITH_SPARK}
    assert len(of_spark) == 1
    assert len({*groups.values()}) == len(TEXTS) - len(WITH_SPARK) + 1
