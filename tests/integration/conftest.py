"""One real broker for all integration tests: a given one, else an embedded one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.pages import Shell, new_shell
from tests.support.waiting import TEST_S_MAX

from slackwater.machine.broker import EmbeddedBroker, answers

HERE = Path(__file__).parent


LONGEST_FIRST = (
    "test_readme.py",
    "test_query_changes.py",
    "test_topic_changes.py",
    "test_nodes.py",
    "test_stack.py",
    "test_drills.py",
    "test_mqtt.py",
    "test_rehearse_forms.py",
    "test_secured.py",
    "test_demo.py",
    "test_aggregator.py",
    "test_hostile.py",
)
"""All other tests are shorter, and follow those marked ``slow``."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.integration)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S_MAX))
    # Workers take whole files in this order: the longest begin first, so that all end together.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (_place(item.path.name), item.path not in slow))


def _place(file: str) -> int:
    return LONGEST_FIRST.index(file) if file in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a user's shell in a folder with the repository's venv and its data."""
    return new_shell(tmp_path)


@pytest.fixture(scope="session")
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of the shared broker. Tests use their own topics and do not disturb it."""
    given: str | None = request.config.getoption("--kafka-bootstrap")
    if given is not None:
        assert answers(given, timeout_s=10), f"--kafka-bootstrap {given} does not answer"
        yield given
        return
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap
        assert broker.is_running(), f"the broker died during the tests: see {broker.log_path}"
