"""The log of Kafka clients: one line of each kind per outage, none about a starting broker."""

from __future__ import annotations

import logging

from slackwater.runtime.logs.kafka import _OncePerOutage


def test_a_broker_that_loads_its_coordinators_is_not_logged() -> None:
    passes = _OncePerOutage()

    def record(text: str) -> logging.LogRecord:
        return logging.LogRecord("client", logging.WARNING, "", 0, text, None, None)

    loading = "GETPID [rdkafka#producer-3] Broker: Coordinator load in progress: retrying"
    assert not passes.filter(record(loading))
    assert passes.filter(record("GETPID [rdkafka#producer-3] Broker: Not authorized"))
    assert passes.filter(record("FAIL [rdkafka#producer-3] Connection refused"))
    assert not passes.filter(record("FAIL [rdkafka#producer-3] Connection refused"))
