"""One real broker for all integration tests: the one that is given, else an embedded one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slackwater.runtime.broker import EmbeddedBroker, answers

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)
    # Workers take whole files: those that take long begin first, so that all end together.
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session")
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where the shared broker answers. Tests name their own topics and leave the broker alone."""
    given: str | None = request.config.getoption("--kafka-bootstrap")
    if given is not None:
        assert answers(given, timeout_s=10), f"--kafka-bootstrap {given} does not answer"
        yield given
        return
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap
        assert broker.is_running(), f"the broker died during the tests: see {broker.log_path}"
