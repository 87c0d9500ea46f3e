"""The reason why a client reaches no broker is that of its last refusal."""

from __future__ import annotations

from confluent_kafka import KafkaError

from slackwater.runtime.logs.refusals import Refusals


def test_a_refusal_is_told_until_the_client_is_answered() -> None:
    refusals = Refusals()
    report = refusals.config["error_cb"]
    report(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert refusals.why("all are down") == "all are down"
    report(KafkaError(KafkaError._AUTHENTICATION, "invalid credentials"))
    report(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert refusals.why("all are down") == "invalid credentials"
    refusals.clear()
    assert refusals.why("all are down") == "all are down"
