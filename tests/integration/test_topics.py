"""Topics are created once and explicitly, and a contradiction is reported."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from tests.support.waiting import WAIT_S_MAX

from slackwater.model.errors import EnvironmentProblem
from slackwater.model.limits import RECORD_BYTES_MAX
from slackwater.model.names import Names
from slackwater.runtime.logs import topics
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.topics import QueryTopics, TopicLayout, topics_for

DAY_MS = 86_400_000


def test_all_topics_of_a_deployment_are_made_as_the_file_says(bootstrap: str) -> None:
    specs = topics_for(["made-1"], [QueryTopics("made", children=2, parts=2)])
    topics.ensure_topics(bootstrap, specs, WAIT_S_MAX)
    for spec in specs:
        assert topics.partition_count(bootstrap, spec.name) == spec.partitions
    resources = {ConfigResource(ResourceType.TOPIC, spec.name): spec for spec in specs}
    answers = Admin(bootstrap).ask(lambda it: it.describe_configs(list(resources)), WAIT_S_MAX)
    assert answers.given.keys() == resources.keys(), answers
    kept = topics.retention_ms(bootstrap, ["sw.source.made-1", "sw.results.made.stable", "none"])
    assert kept == {"sw.source.made-1": 7 * DAY_MS, "sw.results.made.stable": 30 * DAY_MS}
    for resource, entries in answers.given.items():
        actual = {name: entry.value for name, entry in entries.items()}
        wanted = dict(resources[resource].config)
        assert {name: actual[name] for name in wanted} == wanted


def test_creating_is_repeatable_also_by_several_at_once(bootstrap: str) -> None:
    specs = topics_for(["raced"], [QueryTopics("raced", children=4)])
    with ThreadPoolExecutor(4) as pool:
        for done in [
            pool.submit(topics.ensure_topics, bootstrap, specs, WAIT_S_MAX) for _ in range(4)
        ]:
            done.result(WAIT_S_MAX)
    topics.ensure_topics(bootstrap, specs, WAIT_S_MAX)
    assert topics.partition_count(bootstrap, "sw.ordered.raced.3") == 4


def test_another_number_of_partitions_is_a_contradiction(bootstrap: str) -> None:
    topics.ensure_topics(bootstrap, topics_for([], [QueryTopics("shape", replicas=1)]), WAIT_S_MAX)
    with pytest.raises(EnvironmentProblem, match=r"sw\.ordered\.shape\.0 has 2 .* needs 4"):
        topics.ensure_topics(
            bootstrap, topics_for([], [QueryTopics("shape", replicas=2)]), WAIT_S_MAX
        )


def test_a_topic_of_state_records_gets_more_partitions(bootstrap: str) -> None:
    (wanted,) = (t for t in topics_for([], [QueryTopics("grown", parts=3)]) if ".state." in t.name)
    topics.ensure_topics(bootstrap, [TopicLayout(wanted.name, 1, wanted.config)], WAIT_S_MAX)
    topics.ensure_topics(bootstrap, [wanted], WAIT_S_MAX)
    assert topics.partition_count(bootstrap, wanted.name) == 3
    fewer = topics_for([], [QueryTopics("grown", parts=1)])
    topics.ensure_topics(bootstrap, fewer, WAIT_S_MAX)
    with pytest.raises(EnvironmentProblem, match=r"sw\.results\.grown\.stable has 1 .* needs 3"):
        topics.ensure_topics(bootstrap, topics_for([], [QueryTopics("grown", parts=3)]), WAIT_S_MAX)


def test_a_topic_that_cannot_be_created_is_named(bootstrap: str) -> None:
    bad = TopicLayout("sw.bad", 1, {"cleanup.policy": "forget"})
    with pytest.raises(EnvironmentProblem, match=r"topic sw\.bad cannot be created"):
        topics.ensure_topics(bootstrap, [bad], WAIT_S_MAX)


def test_a_missing_topic_is_named(bootstrap: str) -> None:
    with pytest.raises(EnvironmentProblem, match=r"topic lab-readings does not exist on"):
        topics.partition_count(bootstrap, "lab-readings")


def test_records_can_be_deleted_up_to_an_offset(bootstrap: str) -> None:
    topics.ensure_topics(bootstrap, topics_for(["cut"], []), WAIT_S_MAX)
    name = Names().source("cut")
    producer = Producer(topics.confluent_producer(bootstrap))
    for _ in range(5):
        producer.produce(name, b"x", partition=0)
    assert producer.flush(WAIT_S_MAX) == 0
    assert topics.delete_records(bootstrap, {(name, 0): 3}) == {(name, 0): 3}
    assert topics.delete_records(bootstrap, {}) == {}
    consumer = Consumer(topics.confluent_consumer(bootstrap))
    try:
        assert consumer.get_watermark_offsets(Position(name, 0), timeout=WAIT_S_MAX) == (3, 5)
    finally:
        consumer.close()
    with pytest.raises(EnvironmentProblem, match=r"sw\.source\.cut cannot be truncated"):
        topics.delete_records(bootstrap, {(name, 0): 99})


async def test_the_largest_record_passes_through_both_libraries(bootstrap: str) -> None:
    topics.ensure_topics(bootstrap, topics_for(["large"], []), WAIT_S_MAX)
    name = Names().source("large")
    # The limit applies to the record; the headers of the batch need the additional room.
    value = b"\0" * (RECORD_BYTES_MAX - 256)
    producer = Producer(topics.confluent_producer(bootstrap))
    producer.produce(name, value, partition=0)
    assert producer.flush(WAIT_S_MAX) == 0
    async with AIOKafkaProducer(**topics.aiokafka_producer(bootstrap)) as other:
        await other.send_and_wait(name, value, partition=0)
    consumer = Consumer(topics.confluent_consumer(bootstrap))
    consumer.assign([Position(name, 0, 0)])
    try:
        messages = consumer.consume(2, timeout=WAIT_S_MAX)
        assert [len(message.value() or b"") for message in messages] == [len(value)] * 2
    finally:
        consumer.close()
    reader = AIOKafkaConsumer(**topics.aiokafka_consumer(bootstrap))
    await reader.start()
    try:
        reader.assign([TopicPartition(name, 0)])
        reader.seek(TopicPartition(name, 0), 0)
        assert [len((await reader.getone()).value) for _ in range(2)] == [len(value)] * 2
    finally:
        await reader.stop()
