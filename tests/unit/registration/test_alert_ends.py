"""Alerts of a deleted query end, once, whoever carries out the deletion and however often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.memory import MemoryBroker
from tests.unit.delivery.test_evaluation import GRID, HOT, S, rules, window
from tests.unit.machine.test_layout import query

from slackwater.delivery.evaluation import AlertEvaluator
from slackwater.delivery.records import POSITION_KEY, AlertRecord, decode_delivery
from slackwater.delivery.view import AlertView
from slackwater.model.alerts import AlertSpec
from slackwater.model.names import UNPREFIXED
from slackwater.registration.alert_ends import REASON, AlertEnds
from slackwater.runtime.logs.transport import Log, LogError, read_to_end
from slackwater.runtime.service.registry import QueryDefinition, QueryState

LOG: Log = (UNPREFIXED.alerts("q"), 0)
SILENT = AlertSpec("silent", stream="s1", missing_us=2 * S)
WARM = replace(HOT, name="warm", tentative="act")


class Deployment:
    """The alerts of query q in a broker, and whoever carries out its deletion."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.create_topic(LOG[0])
        self.fences: list[str] = []
        self.before: list[Sequence[tuple[bytes, bytes]]] = []
        """What the delivery still commits before the fence is taken, once each."""
        self.fails = 0
        self.ends = self.process()
        self.evaluator = AlertEvaluator(rules(HOT, WARM, SILENT), GRID.later)

    def process(self) -> AlertEnds:
        """Return what a process that starts has."""
        return AlertEnds(self.broker, lambda topics: topics, self.take)

    def take(self, transactional_id: str) -> Deployment:
        self.fences.append(transactional_id)
        while self.before:
            self.write(self.before.pop())
        return self

    def commit(self, log: Log, records: Sequence[tuple[bytes, bytes]]) -> None:
        if self.fails:
            self.fails -= 1
            raise LogError("fenced")
        assert log == LOG
        self.write(records)

    def write(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        with self.broker.transaction() as transaction:
            for key, value in records:
                transaction.append(*LOG, value, key)

    def evaluate(self, at: int, rows: dict[str, float], label: str, *missing: str) -> None:
        self.write(self.evaluated(at, rows, label, *missing))

    def evaluated(
        self, at: int, rows: dict[str, float], label: str = "stable", *missing: str
    ) -> list[tuple[bytes, bytes]]:
        found = self.evaluator.take(window(at, rows, label, missing))
        position = (POSITION_KEY, self.evaluator.position(7).encode())
        return [*((each.log_key, each.encode()) for each in found), position]

    def records(self) -> list[AlertRecord]:
        raw = read_to_end(self.broker, LOG, isolation="read_committed")
        found = [decode_delivery(each.value) for each in raw]
        return [each for each in found if isinstance(each, AlertRecord)]

    def standing(self) -> int:
        view = AlertView()
        for record in self.records():
            view.take(record)
        return len(view.standing)


def definition(name: str, state: QueryState = "deleted") -> QueryDefinition:
    return QueryDefinition(
        name, 0, 0, S, replace(query("q", "s"), name=name, alerts=(HOT,)), state=state
    )


DELETED = {"q": definition("q")}


def standing() -> Deployment:
    """An exact alert, a tentative one and one of a stream stand."""
    made = Deployment()
    made.evaluate(0, {"a": 30.0}, "stable")
    for at in (1, 2):
        made.evaluate(at, {"b": 30.0}, "tentative", "s1")
    assert made.standing() == 4  # a of two rules
    return made


def test_what_stands_ends_once() -> None:
    of = standing()
    before = len(of.records())
    assert of.ends.end(DELETED) == []
    assert of.fences == [UNPREFIXED.delivery_id("q")]
    assert of.standing() == 0
    ended = {(r.rule, r.key, r.state, r.reason) for r in of.records()[before:]}
    assert ended == {
        ("hot", "a", "ended", REASON),
        ("warm", "a", "ended", REASON),
        ("warm", "b", "withdrawn", REASON),
        ("silent", "", "ended", REASON),
    }
    count = len(of.records())
    assert of.ends.end(DELETED) == []
    assert of.process().end(DELETED) == [], "another process, or this one after a restart"
    assert len(of.records()) == count
    assert len(of.fences) == 1


def test_what_the_delivery_has_committed_before_the_fence_ends_too() -> None:
    of = standing()
    of.before.append(of.evaluated(3, {"c": 30.0}))
    assert of.ends.end(DELETED) == []
    assert of.standing() == 0


def test_it_is_tried_again() -> None:
    of = standing()
    of.fails = 1
    assert of.ends.end(DELETED) == ["fenced"]
    assert of.standing() == 4
    assert of.ends.end(DELETED) == []
    assert of.standing() == 0


@pytest.mark.parametrize(
    "queries",
    [
        {"q": definition("q", "running")},
        {"q": definition("q", "paused")},
        {"q": definition("q"), "q.g1": definition("q.g1", "running")},
        {},
    ],
)
def test_alerts_of_a_query_that_goes_on_stand(queries: dict[str, QueryDefinition]) -> None:
    of = standing()
    assert of.ends.end(queries) == []
    assert (of.standing(), of.fences) == (4, [])


def test_a_query_that_is_applied_again_and_deleted_again() -> None:
    of = standing()
    of.ends.end(DELETED)
    both = {"q": definition("q"), "q.g1": definition("q.g1", "running")}
    of.ends.end(both)
    of.evaluate(4, {"d": 30.0}, "stable")
    assert of.standing() == 2
    of.ends.end(both | {"q.g1": definition("q.g1")})
    assert of.standing() == 0
