"""trace-48: a topic of the deployment is deleted and made again.

Ids are in the registry. A process compares them before it uses a topic, and at each look.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker
from tests.support.own_topics import SeenTopics

from slackwater.codec.state_records import encode_root_state
from slackwater.model.names import UNPREFIXED
from slackwater.model.records import Position, RootState
from slackwater.runtime.logs.incarnation import append_and_wait
from slackwater.runtime.logs.topics import QueryTopics, topics_for
from slackwater.runtime.service.owntopics import (
    ABSENT_LOOKS,
    OwnTopics,
    TopicLostError,
    check_recorded,
    record_new,
    why_lost,
    why_registry_is_lost,
)
from slackwater.runtime.service.registry import Registry

STATE, DELTAS, REGISTRY = "sw.state.climate", "sw.deltas.climate.0", "sw.registry"
ROOT, ORDERER = "root/climate.0", "orderer/climate.0.a"
RECORD = RootState(ROOT, 1, 5, 0, 10, 20, (Position(10),), ())


class Process:
    """A process that uses topics of a deployment whose ids have been recorded."""

    def __init__(self) -> None:
        self.broker, self.seen = MemoryBroker(), SeenTopics()
        for layout in topics_for(["room-1"], [QueryTopics("climate", replicas=1)]):
            self.broker.create_topic(layout.name, layout.partitions)
        self.topics = [layout.name for layout in topics_for(["room-1"], [QueryTopics("climate")])]
        record_new(self.broker, self.seen, self.topics)
        self.lost: list[tuple[str, str]] = []
        self.start()

    def start(self) -> None:
        """Start the process anew; it remembers nothing."""
        self.own = OwnTopics(Registry(self.broker), UNPREFIXED, self.seen, self._lost)

    def _lost(self, user: str, error: TopicLostError) -> None:
        self.lost.append((user, str(error)))

    def make_again(self, topic: str) -> None:
        self.seen.ids[topic] = "another"
        if topic == REGISTRY:
            self.broker.delete_topic(REGISTRY)
            self.broker.create_topic(REGISTRY)

    def write_state(self) -> None:
        writer = self.broker.writer(no_failure)
        append_and_wait(writer, (STATE, 0), encode_root_state(RECORD), ROOT.encode())

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.seen.look()

    def use(self, user: str, topics: Iterable[str]) -> None:
        self.own.use(user, topics)


def test_a_topic_that_was_made_again_between_two_runs_is_not_used() -> None:
    process = Process()
    process.make_again(STATE)
    with pytest.raises(TopicLostError, match=f"{STATE} was deleted and made again"):
        process.use(ROOT, [STATE, DELTAS])
    assert process.seen.watched == set()
    process.use(ORDERER, [DELTAS])


def test_it_is_not_made_at_the_next_start() -> None:
    process = Process()
    process.seen.ids[DELTAS] = None
    with pytest.raises(TopicLostError, match=f"{DELTAS} was deleted"):
        check_recorded(process.broker, process.seen, process.topics)
    process.make_again(DELTAS)
    with pytest.raises(TopicLostError, match=f"{DELTAS} was deleted and made again"):
        check_recorded(process.broker, process.seen, process.topics)
    record_new(process.broker, process.seen, process.topics)
    assert Registry(process.broker).topics()[DELTAS] == DELTAS, "the record is not replaced"


@pytest.mark.parametrize(
    ("topic", "remedy", "may_be_emptied"),
    [
        ("sw.quarantine.room-1", "give the stream and these queries other names", True),
        ("sw.results.climate.stable", "apply it under another name", True),
        ("sw.source.room-1", "give the stream and these queries other names", False),
        (STATE, "apply it under another name", False),
        (REGISTRY, "start anew, with another prefix", False),
    ],
)
def test_one_that_was_deleted_on_purpose_has_a_remedy(
    topic: str, remedy: str, may_be_emptied: bool
) -> None:
    """No command accepts it. Topics in which nobody continues may be emptied instead."""
    why = why_lost(topic, UNPREFIXED, made_again=False)
    assert f"topic {topic} was deleted, " in why
    assert remedy in why
    assert ("kafka-delete-records" in why) == may_be_emptied


@pytest.mark.parametrize("topic", ["sw.quarantine.room-1", "sw.results.climate.stable"])
def test_one_that_was_emptied_is_used_on(topic: str) -> None:
    process = Process()
    record_new(process.broker, process.seen, [topic])
    writer = process.broker.writer(no_failure)
    append_and_wait(writer, (topic, 0), b"kept no longer", None)
    process.use(ROOT, [topic])
    process.broker.delete_records({(topic, 0): 1})
    process.look(ABSENT_LOOKS)
    process.start()
    process.use(ROOT, [topic])
    assert process.lost == []
    assert process.broker.beginning_offsets([(topic, 0)]) == {(topic, 0): 1}


def test_it_is_found_while_it_is_used_and_ends_those_that_use_it() -> None:
    process = Process()
    process.use(ROOT, [STATE, DELTAS])
    process.use(ORDERER, [STATE])
    process.look()
    assert process.lost == []
    process.make_again(DELTAS)
    process.look(2)
    assert [user for user, _ in process.lost] == [ROOT]
    assert DELTAS in process.lost[0][1]
    for _ in range(2):  # in the same process, and after its end
        with pytest.raises(TopicLostError, match=DELTAS):
            process.use(ROOT, [STATE, DELTAS])
        process.start()
    process.use(ORDERER, [STATE])


def test_a_topic_is_deleted_only_if_several_looks_do_not_find_it() -> None:
    process = Process()
    process.use(ROOT, [STATE])
    process.seen.ids[STATE] = None
    process.look(ABSENT_LOOKS - 1)
    process.seen.ids[STATE] = STATE
    process.look()
    process.seen.ids[STATE] = None
    process.look(ABSENT_LOOKS - 1)
    assert process.lost == []
    process.look()
    assert [user for user, _ in process.lost] == [ROOT]


def test_a_registry_that_was_made_again_is_found_although_its_records_are_gone() -> None:
    process = Process()
    process.use(ROOT, [REGISTRY])
    process.own.leave(ROOT)
    process.make_again(REGISTRY)
    with pytest.raises(TopicLostError, match=f"{REGISTRY} was deleted and made again"):
        process.use(ROOT, [REGISTRY])


def test_a_registry_without_the_queries_of_the_state_records_is_not_a_new_one() -> None:
    process = Process()
    process.seen.ids["sw.state.other"] = None
    assert why_registry_is_lost(process.broker, process.seen, ["climate", "other"]) is None
    process.write_state()
    process.make_again(REGISTRY)
    why = why_registry_is_lost(process.broker, process.seen, ["climate"])
    assert why is not None
    assert REGISTRY in why
    assert STATE in why


def test_topics_of_an_earlier_version_count_as_they_are() -> None:
    process = Process()
    process.seen.ids["sw.source.room-2"] = "first"
    process.use(ROOT, ["sw.source.room-2"])
    process.look()
    assert process.lost == []
    process.make_again("sw.source.room-2")
    process.look()
    assert [user for user, _ in process.lost] == [ROOT]


def test_topics_that_nobody_uses_are_not_looked_at() -> None:
    process = Process()
    process.use(ROOT, [STATE, DELTAS])
    process.use(ORDERER, [STATE])
    process.own.leave(ROOT)
    assert process.seen.watched == {STATE}
    process.own.leave(ORDERER)
    assert process.seen.watched == set()
