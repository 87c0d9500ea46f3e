"""Shared test configuration: Hypothesis profiles, the seed in failure messages, the broker option.

Failures must be reproducible. Every run therefore has the same examples, unless others are
requested: ``HYPOTHESIS_PROFILE=dev`` and ``thorough`` draw new ones, from one seed for all
properties. The header shows it, and a failed test prints the command that repeats it.
"""

import os
import random
from collections.abc import Generator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from tests.support.took import note
from xdist.scheduler import LoadFileScheduling

ONE_WORKER = "tests/unit/spark/"
"""These tests share a JVM, which takes longer than they do: a second worker would start another
one."""

# No deadline per example, and no health check by time: on a shared machine they would measure other
# programs.
EACH: Final = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", EACH, derandomize=True)
settings.register_profile("dev", EACH)
settings.register_profile("thorough", EACH, max_examples=2_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kafka-bootstrap",
        default=os.environ.get("SLACKWATER_TEST_BOOTSTRAP"),
        help="use this Kafka for the integration tests instead of starting the embedded one",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    usual = "ci" if config.getoption("hypothesis_seed") is None else "dev"
    profile = os.environ.get("HYPOTHESIS_PROFILE", usual)
    settings.load_profile(config.getoption("hypothesis_profile") or profile)
    if not settings().derandomize and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(random.getrandbits(32))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As ``--dist loadfile``, except that the files below ``ONE_WORKER`` count as one file."""
    if config.getoption("dist") != "loadfile":
        return None
    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope

    def scope_of(nodeid: str) -> str:
        return ONE_WORKER if nodeid.startswith(ONE_WORKER) else str(file_of(nodeid))

    scheduler._split_scope = scope_of
    return scheduler


def pytest_report_header(config: pytest.Config) -> str:
    return f"hypothesis seed: {_seed(config)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """For ``python -m tests.support.took``, which tells what ran when a time-out ended the run."""
    note("begins", item.nodeid)
    try:
        return (yield)
    finally:
        note("ends", item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        note("fails", item.nodeid)
    if report.failed and report.when == "call" and getattr(item, "obj", None) is not None:
        seed = _seed(item.config)
        how = f"HYPOTHESIS_PROFILE=ci .venv/bin/pytest '{item.nodeid}'"
        if seed != "derandomized":
            how = f".venv/bin/pytest '{item.nodeid}' --hypothesis-seed={seed}"
        report.sections.append(("Reproduce", how))
    return report


def _seed(config: pytest.Config) -> str:
    given: str | None = config.getoption("hypothesis_seed")
    return given if given is not None else "derandomized"
