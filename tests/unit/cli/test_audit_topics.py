"""The audit reads the topics that the results were computed with, or none (rule-32)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS
from tests.support.memory import MemoryBroker
from tests.support.own_topics import SeenTopics
from tests.support.proxy_world import SPEC

from slackwater.cli.audit import check_topics
from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.model.names import UNPREFIXED
from slackwater.runtime.service.owntopics import TopicLostError, record_new
from slackwater.runtime.service.registry import QueryDefinition, Registry

QUERY = QuerySpec(
    name="climate",
    sources=("room", "lab"),
    where=None,
    select=(),
    window=WindowSpec(1_000_000, 1_000_000),
    aggregate=("count",),
    bound_us=2_000_000,
)
STREAMS = {"room": replace(SPEC, name="room"), "lab": replace(SPEC, name="lab", topic=THEIRS)}
DEPLOYMENT = Deployment("wall", STREAMS, {QUERY.name: QUERY})
READ = ("sw.source.room", "sw.source.lab.0", "sw.source.lab.1", "sw.results.climate.stable")


def recorded() -> tuple[MemoryBroker, SeenTopics]:
    broker, seen = MemoryBroker(), SeenTopics()
    broker.create_topic(UNPREFIXED.registry)
    Registry(broker).publish_partitions("lab", 2)
    record_new(broker, seen, [*READ, "sw.source.other"])
    return broker, seen


@pytest.mark.parametrize("topic", READ)
def test_a_topic_that_was_made_again_is_not_audited(topic: str) -> None:
    broker, seen = recorded()
    definition = QueryDefinition("climate", 0, 0, 1_000_000, QUERY)
    check_topics(broker, seen, DEPLOYMENT, definition)
    seen.ids[topic] = "another"
    with pytest.raises(TopicLostError, match=f"{topic} was deleted and made again"):
        check_topics(broker, seen, DEPLOYMENT, definition)


def test_topics_of_other_queries_do_not_matter() -> None:
    broker, seen = recorded()
    seen.ids["sw.source.other"] = "another"
    check_topics(broker, seen, DEPLOYMENT, QueryDefinition("climate", 0, 0, 1_000_000, QUERY))
