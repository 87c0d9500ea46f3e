"""One Spark session for all tests here: a JVM takes seconds to start."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slackwater_spark.session import SessionSettings, start_spark

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            # PySpark leaves the socket of each collect() to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _sockets_are_closed_here() -> Iterator[None]:
    """Otherwise the garbage collector closes them during another test, which then fails."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = SessionSettings("tests", folder / "work", master="local[1]", heap_mib=512)
    with (folder / "log").open("wb") as log, start_spark(settings, log) as application:
        yield application.session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
