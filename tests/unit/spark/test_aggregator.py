"""The aggregator's management of its queries, without Spark: starts, ends and replays."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX

from slackwater.codec.state_records import encode_root_state
from slackwater.model.names import Names, OrdererName
from slackwater.model.records import LogPosition, LogState, Position, RootState
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.transport import Isolation, Log
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.parts import SLOTS, SLOTS_NEEDED
from slackwater_spark import aggregate
from slackwater_spark.aggregate import Job
from slackwater_spark.queries import Aggregator, QuerySettings, SparkFragment, start_offsets
from slackwater_spark.transforms import Route

A = OrdererName("climate", 0, 0)
STABLE: Log = ("sw.ordered.climate.0", 0)


def fragment(query: str = "climate", child: int = 0, replica: int = 0) -> SparkFragment:
    names = Names()
    route = Route(names.ordered(query, child), (names.deltas(query, 0),), child, 2)
    return SparkFragment(OrdererName(query, child, replica), route)


def root(*contiguous_seq: int, query: str = "climate") -> RootState:
    at = LogPosition(0, 0, 0, Position(0))
    logs = tuple(LogState(0, 0, line, at, at, read) for line, read in enumerate(contiguous_seq))
    return RootState(f"root/{query}.0", 1, 0, 0, 0, 0, (), logs)


class Broker(MemoryBroker):
    """Has the topics of these queries."""

    def __init__(self, *queries: str) -> None:
        super().__init__()
        for query in queries:
            self.create_topic(f"sw.state.{query}", 1)
            self.create_topic(f"sw.ordered.{query}.0", 4)
            self.create_topic(f"sw.deltas.{query}.0", 4)


class Busy(Broker):
    """While a request is pending, another process continues with the fragment's work."""

    def __init__(self) -> None:
        super().__init__("climate")
        self.contiguous_seq = 0
        self.go_on()

    def go_on(self) -> None:
        """Write ten more ordered records.

        Their deltas are written and read, as the root reports.
        """
        writer = self.writer(no_failure)
        for _ in range(10):
            writer.append(*STABLE, b"record")
        self.contiguous_seq += 10
        with self.transaction() as transaction:
            state = encode_root_state(root(self.contiguous_seq, 0))
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


class Query:
    """A query that counts the requests for its state; ``fail`` ends it."""

    runId = ""  # noqa: N815 -- as in PySpark

    def __init__(self, job: Job, *, stops: bool = True) -> None:
        self.job = job
        self.name = job.name
        self.asked = 0
        self.stopped = False
        self._stops = stops
        self._ended = threading.Event()

    @property
    def logs(self) -> set[Log]:
        return set(self.job.starts)

    def fail(self) -> None:
        self._ended.set()

    @property
    def isActive(self) -> bool:  # noqa: N802 -- as in PySpark
        self.asked += 1
        return not self._ended.is_set()

    def stop(self) -> None:
        self.stopped = True
        self._ended.set()
        if not self._stops:
            raise Py4JError("java.util.concurrent.TimeoutException: it has not stopped in 1000 ms")

    def awaitTermination(self) -> None:  # noqa: N802 -- as in PySpark
        assert self._ended.wait(WAIT_S_MAX)
        raise Py4JError("it has failed")

    def exception(self) -> None: ...


class World:
    """An aggregator with these queries, in virtual time."""

    def __init__(self, broker: MemoryBroker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_us = 60_000_000
        self.queries: list[Query] = []
        self.stops = True
        self.refused: set[Log] = set()
        """Fragments whose query fails at once."""
        self.refuses_seconds = False
        """Fragments whose query fails at once while another one runs."""
        clock = SystemClock(wall_us=lambda: self.now_us, monotonic_us=lambda: self.now_us)
        spark = SimpleNamespace(process=SimpleNamespace(poll=lambda: None), session=None)
        of_all = QuerySettings("0", folder, "real-time", 60_000)
        self.also: tuple[str, ...] = ()
        """Queries that read the children of the others, too."""
        self.aggregator = Aggregator(
            *(cast(Any, spark), broker, Cluster("nowhere:1"), of_all, clock),
            lambda query: [query, *self.also],
        )
        monkeypatch.setattr(aggregate, "start_query", self._start)
        self.slots = 1_000
        """Of Spark; a query that does not fit in runs no task."""
        monkeypatch.setattr(aggregate, "running_tasks", lambda session, run: self._tasks())
        monkeypatch.setattr(aggregate, "task_slots", lambda session: self.slots)

    def _start(self, session: object, job: Job) -> Query:
        query = Query(job, stops=self.stops)
        if query.logs & self.refused or (self.refuses_seconds and self.running):
            query.fail()
        self.queries.append(query)
        return query

    def _tasks(self) -> int:
        return 1_000 if sum(len(query.logs) for query in self.running) <= self.slots else 0

    def look(self, after_s: float = 0.1, holes: Iterable[Log] = ()) -> None:
        self.now_us += int(after_s * 1e6)
        self.aggregator.look()
        self.aggregator.send_again(frozenset(holes))

    def fail(self, query: Query) -> None:
        """End the query, and signal it."""
        query.fail()
        assert self.aggregator._some_ended.wait(WAIT_S_MAX)

    @property
    def running(self) -> list[Query]:
        return [query for query in self.queries if not query._ended.is_set()]


@pytest.fixture(name="climate")
def _climate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(Busy(), tmp_path, monkeypatch)


@pytest.fixture(name="three")
def _three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return three running fragments."""
    world = World(Broker("q0", "q1", "q2", "q3"), tmp_path, monkeypatch)
    for query in ("q0", "q1", "q2"):
        world.aggregator.add(fragment(query))
    world.look()
    world.look()
    assert world.aggregator.ready
    return world


def test_rule_26_a_beginning_is_below_an_end_that_was_asked_for_earlier() -> None:
    assert start_offsets([root(70, 5)], A, [40, 0], [100, 9]) == {0: 70, 1: 5}
    assert start_offsets([root(70, 5), root(60, 6)], A, [0, 0], [100, 9]) == {0: 60, 1: 5}
    assert start_offsets([root(30, 5)], A, [40, 0], [100, 9]) == {0: 40, 1: 5}, "rule-28"
    assert start_offsets([root(30, 5), None], A, [20, 0], [100, 9]) == {0: 20, 1: 0}
    assert start_offsets([root(130, 5)], A, [20, 0], [100, 9])[0] == 20, "another log"


def test_rule_26_a_beginning_is_below_what_the_roots_of_any_reader_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker("climate", "hour")
    writer = broker.writer(no_failure)
    for _ in range(10):
        writer.append(*STABLE, b"record")
    for query, read in (("climate", 9), ("hour", 4)):
        state = encode_root_state(root(read, 0, query=query))
        writer.append(f"sw.state.{query}", 0, state, f"root/{query}.0".encode())
    world = World(broker, tmp_path, monkeypatch)
    world.aggregator.add(fragment())
    world.also = ("hour",)  # it has joined since
    world.look()
    assert world.queries[0].job.starts[STABLE] == 4


def test_rule_26_a_second_aggregator_at_work_does_not_send_this_one_to_the_beginning(
    climate: World,
) -> None:
    """A zombie's deltas are read: ``contiguous_seq`` may exceed an end requested earlier.

    1. A's aggregator is suspected and taken over, but continues.
    2. The new one requests the end of the ordered log: 100. The root reads on to 110.
    3. The new one reads 110, beyond the end: "another log", and would begin at offset 0.
    """
    climate.aggregator.add(fragment())
    climate.look()
    assert climate.queries[0].job.starts[STABLE] >= 10


# --- fragments that share a query ---------------------------------------------------------------


def test_fragments_that_come_together_share_a_query(three: World) -> None:
    (query,) = three.queries
    assert query.logs == {
        (f"sw.ordered.{q}.0", line) for q in ("q0", "q1", "q2") for line in (0, 1)
    }
    assert [route.ordered_topic for route in query.job.routes] == [
        f"sw.ordered.{q}.0" for q in ("q0", "q1", "q2")
    ]
    assert three.aggregator.states == dict.fromkeys(("q0.0.a", "q1.0.a", "q2.0.a"), "STABLE")


def test_a_fragment_that_comes_later_does_not_touch_the_others(three: World) -> None:
    three.aggregator.add(fragment("q3", replica=1))
    assert three.aggregator.states["q3.0.b"] == "UP_FAILURE"
    three.look()
    three.look()
    assert [len(query.logs) for query in three.running] == [6, 2]
    assert three.queries[1].logs == {("sw.ordered.q3.0", 2), ("sw.ordered.q3.0", 3)}
    assert three.aggregator.ready
    assert three.aggregator.detail == {"fragments": 4, "restarts": 0}


def test_two_replicas_of_a_child_have_one_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(Broker("q0"), tmp_path, monkeypatch)
    world.aggregator.add(fragment("q0", replica=0))
    world.aggregator.add(fragment("q0", replica=1))
    world.look()
    (query,) = world.queries
    assert len(query.job.routes) == 1
    assert {partition for _, partition in query.logs} == {0, 1, 2, 3}


def test_a_query_that_fails_is_started_again(three: World) -> None:
    three.look(20)
    three.fail(three.queries[0])
    three.look()
    assert not three.aggregator.ready
    three.look(0.2)
    assert [query.logs for query in three.queries] == [three.queries[0].logs] * 2
    assert three.aggregator.detail["restarts"] == 1


def test_a_fragment_whose_log_cannot_be_read_ends_up_alone(three: World) -> None:
    """Spark ends the complete query, and does not report which log caused it."""
    three.refused = {("sw.ordered.q1.0", 0)}
    three.fail(three.queries[0])
    for _ in range(200):
        three.look()
    good = [log for query in three.running for log in query.logs]
    assert sorted(good) == sorted(
        (f"sw.ordered.{q}.0", line) for q in ("q0", "q2") for line in (0, 1)
    )
    assert three.aggregator.states["q0.0.a"] == three.aggregator.states["q2.0.a"] == "STABLE"
    assert three.queries[-1].logs == {("sw.ordered.q1.0", line) for line in (0, 1)}
    before = len(three.queries)
    for _ in range(100):
        three.look()
    assert len(three.queries) - before <= 3, "with back-off: at most every 5 s"


def test_a_topic_that_is_not_there_holds_nobody_else_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(Broker("q0", "q1"), tmp_path, monkeypatch)
    for query in ("q0", "absent", "q1"):
        world.aggregator.add(fragment(query))
    for _ in range(200):
        world.look()
    states = world.aggregator.states
    assert states == {"q0.0.a": "STABLE", "absent.0.a": "UP_FAILURE", "q1.0.a": "STABLE"}


def test_queries_at_work_are_left_alone_until_one_ends(three: World) -> None:
    """Each request goes to the JVM: with twenty queries ten per second cost 6 % of a core.

    1. Two queries run; in a second each is checked once.
    2. One ends. This is signalled at once, and it is restarted.
    """
    three.aggregator.add(fragment("q3"))
    three.look()
    before = [query.asked for query in three.queries]
    for _ in range(12):
        three.look(0.09)
    assert [query.asked - b for query, b in zip(three.queries, before, strict=True)] == [1, 1]
    three.fail(three.queries[1])
    three.look()
    assert three.aggregator.detail["restarts"] == 1


def test_too_few_task_slots_are_an_error_with_both_numbers_until_a_worker_joins(
    three: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Three fragments occupy six slots of seven; a fourth one needs two.

    Executors register a moment after a start, so it is not told at once.
    """
    three.slots = 7
    three.aggregator.add(fragment("q3"))
    for _ in range(10):
        three.look(1)
    assert three.aggregator.states["q3.0.a"] == "UP_FAILURE"
    found = three.aggregator.detail
    assert (found[SLOTS], found[SLOTS_NEEDED], found["restarts"]) == (7, 8, 0)
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(errors) == 1
    assert "need 8 task slots, and Spark has 7" in errors[0]
    three.slots = 8
    three.look(1)
    three.look(1)
    assert three.aggregator.ready
    assert SLOTS not in three.aggregator.detail


def test_tasks_that_only_start_slowly_lack_no_slots(
    three: World, caplog: pytest.LogCaptureFixture
) -> None:
    three.slots = 7
    three.aggregator.add(fragment("q3"))
    three.look(1)
    three.look(1)
    assert SLOTS not in three.aggregator.detail
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


# --- fragments that are removed ------------------------------------------------------------------

Q1 = fragment("q1").name


def test_a_removed_fragment_leaves_the_query_of_the_others_alone(three: World) -> None:
    three.aggregator.remove(Q1)
    three.look(2)
    assert three.aggregator.states.keys() == {"q0.0.a", "q2.0.a"}
    assert three.running == three.queries[:1]
    assert three.aggregator.ready


def test_a_fragment_that_is_added_again_belongs_to_the_query_that_still_reads_it(
    three: World,
) -> None:
    """1. q1 is paused. 2. It is resumed: its query has read on, and nothing is started."""
    three.aggregator.remove(Q1)
    three.look()
    three.aggregator.add(fragment("q1"))
    three.look()
    assert three.aggregator.states["q1.0.a"] == "STABLE"
    assert len(three.queries) == 1


def test_a_query_that_fails_is_started_again_without_what_was_removed(three: World) -> None:
    three.aggregator.remove(Q1)
    three.look(20)
    three.fail(three.queries[0])
    three.look()
    three.look(0.2)
    assert three.queries[1].logs == {
        (f"sw.ordered.{q}.0", line) for q in ("q0", "q2") for line in (0, 1)
    }
    three.aggregator.add(fragment("q1"))
    three.look()
    assert three.queries[2].logs == {("sw.ordered.q1.0", line) for line in (0, 1)}


def test_a_query_ends_with_its_last_fragment(three: World) -> None:
    for query in ("q0", "q1", "q2"):
        three.aggregator.remove(fragment(query).name)
    three.look()
    assert three.queries[0].stopped
    assert three.running == []
    assert three.aggregator.ready
    three.aggregator.add(fragment("q1"))
    three.look()
    assert len(three.running) == 1


def test_a_fragment_that_is_removed_before_its_query_is_started_is_not_started(
    three: World,
) -> None:
    three.aggregator.add(fragment("q3"))
    three.aggregator.remove(fragment("q3").name)
    three.look()
    assert len(three.queries) == 1


def test_the_replay_of_a_removed_fragment_ends(three: World) -> None:
    three.look(3)
    three.look(holes=[HOLE])
    three.aggregator.remove(Q1)
    three.look()
    assert three.queries[1].stopped
    assert three.running == [three.queries[0]]


# --- a reader that misses a record (rule-11) ------------------------------------------------------

HOLE: Log = ("sw.deltas.q1.0", 0)


def test_rule_11_a_replay_runs_beside_until_nothing_is_missed(three: World) -> None:
    """1. A root misses a record of q1. 2. It has it. 3. Ten seconds later the replay ends."""
    three.look(3)
    three.look(holes=[HOLE])
    assert three.queries[1].logs == {("sw.ordered.q1.0", line) for line in (0, 1)}
    assert len(three.running) == 2, "the others are not affected"
    three.look(1, holes=[HOLE])
    assert len(three.queries) == 2, "one replay suffices"
    for _ in range(11):
        three.look(1)
    assert three.queries[1].stopped
    assert three.running == [three.queries[0]]
    assert three.aggregator.states["q1.0.a"] == "STABLE"


def test_rule_11_a_replay_that_did_not_help_begins_again(three: World) -> None:
    three.look(3)
    for _ in range(40):
        three.look(holes=[HOLE])
    assert len(three.queries) == 3
    assert three.queries[1].stopped
    assert three.running == [three.queries[0], three.queries[2]]


def test_rule_11_where_no_replay_can_run_the_query_itself_is_started_again(three: World) -> None:
    """On a cluster without free slots the tasks of a second query are never started."""
    three.look(3)
    own = three.queries[0]
    three.refuses_seconds = True
    for _ in range(20):
        three.look(holes=[HOLE])
    assert own.stopped
    assert three.running[0].logs == own.logs
    assert len(three.running) == 1


def test_rule_11_what_is_missed_just_after_a_start_is_on_its_way(three: World) -> None:
    three.look(holes=[HOLE])
    assert len(three.queries) == 1


def test_rule_11_a_replay_that_takes_its_time_to_stop_does_not_end_the_others(
    three: World,
) -> None:
    """Spark raises an error when the threads of a query have not ended within its time-out."""
    three.look(3)
    three.stops = False
    three.look(holes=[HOLE])
    three.look(20)
    assert three.queries[1].stopped
    assert three.aggregator.ready


def test_rule_11_a_hole_in_nobody_s_log_is_nobody_s(three: World) -> None:
    three.look(3)
    three.look(holes=[("sw.deltas.q1.0", 2)])
    three.look(holes=[("sw.ordered.q1.0", 0)])
    assert len(three.queries) == 1
