"""One real broker for all integration tests: a given one, else an embedded one.

Tests that only add to a deployment have one in common (``shared``). They run one after the other,
and it is stopped after the last one.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.integration.pages import Shell, new_shell
from tests.support.shared_deployment import Keeper, SharedDeployment
from tests.support.starts import SHARED as SHARED_BY
from tests.support.waiting import TEST_S_MAX

from slackwater.machine.broker import EmbeddedBroker, answers

HERE = Path(__file__).parent
SHARED: Final = "shared"
"""The name of the fixture."""
_KEEPER: Final = pytest.StashKey[Keeper]()


LONGEST_FIRST = (
    "test_readme.py",
    "test_drills.py",
    "test_secured.py",
    "test_demo.py",
    "test_topic_changes.py",
    "test_nodes.py",
    "test_stack.py",
    "test_mqtt.py",
    "test_rehearse_forms.py",
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
    items.sort(
        key=lambda item: (
            item.path.name not in SHARED_BY,
            _place(item.path.name),
            item.path not in slow,
        )
    )


def _place(file: str) -> int:
    return LONGEST_FIRST.index(file) if file in LONGEST_FIRST else len(LONGEST_FIRST)


def _shares(item: pytest.Item | None) -> bool:
    """Whether a test uses the shared deployment."""
    return SHARED in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """A deployment at rest takes a third of a core: it ends with the last test that uses it."""
    try:
        yield
    finally:
        if _shares(item) and not _shares(nextitem):
            item.session.stash[_KEEPER].end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reported = {
        text
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == SHARED
    }
    for text in sorted(reported):
        terminalreporter.write_line(text, yellow=True)


@pytest.fixture
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedDeployment]:
    """Return the deployment that tests share: a test applies queries and streams of its own."""
    stash = request.session.stash
    keeper = stash.setdefault(_KEEPER, Keeper(lambda: tmp_path_factory.mktemp(SHARED)))
    reported: list[tuple[str, object]] = request.node.user_properties

    def report(text: str) -> None:
        reported.append((SHARED, text))

    with keeper.lent(request.node.nodeid, report) as deployment:
        yield deployment


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
