"""The aggregator's keeping of its queries, without Spark: where they begin, how they end."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from tests.contracts.transport import no_failure
from tests.waiting import WAIT_S_MAX

from slackwater.codec.records import encode_root_state
from slackwater.model.names import Names, OrdererName
from slackwater.model.records import LogPosition, LogState, Position, RootState
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.cluster import Cluster
from slackwater.runtime.memory import MemoryBroker
from slackwater.runtime.transport import Isolation, Log
from slackwater_spark import aggregate
from slackwater_spark.app import Aggregator, _Keeper, start_offsets
from slackwater_spark.transforms import FragmentShape

A = OrdererName("climate", 0, 0)
STABLE: Log = ("sw.ordered.climate.0", 0)


def root(*whole: int) -> RootState:
    at = LogPosition(0, 0, 0, Position(0))
    logs = tuple(LogState(0, 0, line, at, at, read) for line, read in enumerate(whole))
    return RootState("root/climate.0", 1, 0, 0, 0, 0, (), logs)


class Busy(MemoryBroker):
    """While it is asked, another process goes on with the fragment's work."""

    def __init__(self) -> None:
        super().__init__()
        self.create_topic("sw.state.climate", 1)
        self.create_topic(STABLE[0], 2)
        self.create_topic("sw.deltas.climate.0", 2)
        self.whole = 0
        self.go_on()

    def go_on(self) -> None:
        """Ten more ordered records; their deltas are written and read, and the root says so."""
        writer = self.writer(no_failure)
        for _ in range(10):
            writer.append(*STABLE, b"record")
        self.whole += 10
        with self.transaction() as transaction:
            state = encode_root_state(root(self.whole, 0))
            transaction.append("sw.state.climate", 0, state, b"root/climate.0")

    def end_offsets(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float = 10.0,
    ) -> dict[Log, int]:
        ends = super().end_offsets(logs, isolation=isolation, timeout_s=timeout_s)
        self.go_on()
        return ends


def aggregator(broker: MemoryBroker, tmp_path: Path) -> Aggregator:
    spark = SimpleNamespace(process=SimpleNamespace(poll=lambda: None), session=None)
    clock = SystemClock()
    return Aggregator(
        cast(Any, spark), broker, Cluster("nowhere:1"), tmp_path, "real-time", 60_000, clock
    )


def test_rule_26_a_beginning_is_below_an_end_that_was_asked_for_earlier() -> None:
    assert start_offsets([root(70, 5)], A, [40, 0], [100, 9]) == {0: 70, 1: 5}
    assert start_offsets([root(70, 5), root(60, 6)], A, [0, 0], [100, 9]) == {0: 60, 1: 5}
    assert start_offsets([root(30, 5)], A, [40, 0], [100, 9]) == {0: 40, 1: 5}, "rule 28"
    assert start_offsets([root(30, 5), None], A, [20, 0], [100, 9]) == {0: 20, 1: 0}
    assert start_offsets([root(130, 5)], A, [20, 0], [100, 9])[0] == 20, "another log"


def test_rule_26_a_second_aggregator_at_work_does_not_send_this_one_to_the_beginning(
    tmp_path: Path,
) -> None:
    """A zombie's deltas are read meanwhile: ``whole`` may overtake an end that is asked for first.

    1. A's aggregator is taken for dead and taken over; it lives and goes on.
    2. The new one asks where the ordered log ends: 100. The root reads on: whole = 110.
    3. The new one reads whole = 110, beyond the end: "another log", and begins at offset 0.
    """
    broker = Busy()
    running = aggregator(broker, tmp_path)
    said = broker.whole
    job = running._job(_Keeper(A, FragmentShape("climate", 0, 0, 1, 1), Names()))
    assert job.starts[0] >= said


def test_rule_11_a_query_that_takes_its_time_to_stop_does_not_end_the_others(
    tmp_path: Path,
) -> None:
    """Spark raises when the threads of a query have not ended within its time-out."""

    class Slow:
        name = "climate.0.a-0"

        def stop(self) -> None:
            raise Py4JError("java.util.concurrent.TimeoutException: failed to stop within 1000 ms")

    running = aggregator(Busy(), tmp_path)
    shape = FragmentShape("climate", 0, 0, 1, 1)
    long_ago_us = SystemClock().monotonic_us() - 60_000_000
    keepers = [
        _Keeper(A, shape, Names(), cast(Any, query), long_ago_us) for query in (Slow(), Slow())
    ]
    for keeper in keepers:
        keeper.running = True
    running._keepers = keepers
    running.send_again(frozenset({("sw.deltas.climate.0", 0)}))
    assert [keeper.query for keeper in keepers] == [None, None], "both are started again"
    assert [keeper.restarts for keeper in keepers] == [1, 1]


class Asked:
    """A query that counts how often it is asked whether it runs; ``ending`` ends it."""

    name = "climate.0.a-0"

    def __init__(self) -> None:
        self.asked = 0
        self.runId = ""
        self.ending = threading.Event()

    @property
    def isActive(self) -> bool:  # noqa: N802 -- as in PySpark
        self.asked += 1
        return not self.ending.is_set()

    def awaitTermination(self) -> None:  # noqa: N802 -- as in PySpark
        assert self.ending.wait(WAIT_S_MAX)
        raise Py4JError("it has failed")

    def exception(self) -> None: ...


def test_queries_at_work_are_left_alone_until_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question goes to the JVM and back: with twenty queries ten a second cost 6 % of a core.

    1. Two queries run; in a second they are asked once.
    2. One ends. It is told at once, and started again.
    """
    now_us = 60_000_000
    queries = [Asked(), Asked()]
    starting = iter(queries)
    monkeypatch.setattr(aggregate, "start_fragment", lambda session, job: next(starting))
    monkeypatch.setattr(aggregate, "running_tasks", lambda session, run: 2)
    running = aggregator(Busy(), tmp_path)
    running._spark.session = cast(Any, None)
    running._clock = SystemClock(wall_us=lambda: now_us, monotonic_us=lambda: now_us)
    shape = FragmentShape("climate", 0, 0, 1, 1)
    running._keepers = [_Keeper(A, shape, Names()) for _ in queries]
    running.look()
    assert [cast(Any, keeper.query) for keeper in running._keepers] == queries
    for _ in range(12):
        now_us += 90_000
        running.look()
    assert [query.asked for query in queries] == [1, 1]

    queries[1].ending.set()
    assert running._some_ended.wait(WAIT_S_MAX)
    running.look()
    assert [keeper.restarts for keeper in running._keepers] == [0, 1]
