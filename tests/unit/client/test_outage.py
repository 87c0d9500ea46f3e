"""A follower tells that its broker does not answer, and that it does again."""

from __future__ import annotations

import logging

import pytest

from slackwater.client.outage import ASK_EVERY_US, OutageWatch
from slackwater.runtime.logs.transport import NoAnswerError


class Broker:
    """Counts the questions; does not answer while it is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.asked = 0
        self.now_us = 0

    def ask(self, within_s: float) -> None:
        self.asked += 1
        if self.is_away:
            self.now_us += int(within_s * 1e6)
            raise NoAnswerError("no answer")


def test_an_outage_is_told_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    watch = OutageWatch("climate", broker.ask, lambda: broker.now_us)
    with caplog.at_level(logging.WARNING):
        for second in range(60):
            broker.is_away = 20 <= second < 40
            broker.now_us = max(broker.now_us, second * 1_000_000)
            watch.polled(0)
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [
        "results of climate: the broker does not answer; waiting until it does",
        "results of climate: the broker answers again",
    ]
    assert broker.asked <= 60 * 1_000_000 // ASK_EVERY_US


def test_nothing_is_asked_while_there_are_records(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    watch = OutageWatch("climate", broker.ask, lambda: broker.now_us)
    for second in range(0, 60, 2):
        broker.now_us = second * 1_000_000
        watch.polled(1)
    assert (broker.asked, caplog.records) == (0, [])
