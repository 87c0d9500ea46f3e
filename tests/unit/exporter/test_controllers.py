"""The exporter's options for controllers, and a controller that is away."""

from __future__ import annotations

import argparse
import threading

import pytest
from prometheus_client import CollectorRegistry
from tests.support.ports import free_port
from tests.support.waiting import eventually

from slackwater.exporter.controllers import ControllerCollector, add_controller_arguments
from slackwater.model.errors import UsageError


def options(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_controller_arguments(parser)
    return parser.parse_args(given)


def test_controllers_are_asked_only_if_they_are_given() -> None:
    assert ControllerCollector.of(options()) is None
    with pytest.raises(UsageError, match="--tls-dir needs --controllers"):
        ControllerCollector.of(options("--tls-dir", "here"))
    with pytest.raises(UsageError, match="--controllers 'h'"):
        ControllerCollector.of(options("--controllers", "h"))


def test_a_controller_that_is_away_is_down_and_the_page_is_served() -> None:
    address, stopping, registry = f"127.0.0.1:{free_port()}", threading.Event(), CollectorRegistry()
    collector = ControllerCollector.of(options("--controllers", address))
    assert collector is not None
    registry.register(collector.start(stopping))
    try:
        up = ("slackwater_controller_up", {"controller": address})
        eventually(lambda: registry.get_sample_value(*up) == 0.0, "it is asked")
    finally:
        stopping.set()
