"""Keeps the streaming queries of an aggregator's fragments running.

"Query" here is a streaming query of Spark, unless it is a query of the deployment by the context.
Fragments added at the same time share a query: its start costs 1.5 CPU seconds for one fragment and
for twenty. A fragment added later gets a query of its own, since a running query cannot be assigned
further partitions, and the other queries are not affected.

A fragment starts at the smallest ``contiguous_seq`` in the roots' state records, over all parts of
all queries of the deployment that read its deltas. If a root has no state record, or retention has
deleted that position, it starts at the beginning of the ordered logs (rule-26). Roots drop deltas
that are written twice, by seq. A failed query is therefore simply restarted from the roots' current
states, and so is one after a take-over or a false alarm. A query that fails twice in a row is
restarted as two halves: in the end a fragment whose logs cannot be read is alone, and the others
run.

A reader that misses a record gets it from a *replay*: a second query over the fragments concerned,
from their roots' positions. It runs as long as records are missing and some time longer. The first
query continues meanwhile. If a replay fails twice in a row (a cluster may lack slots for its
tasks), the fragments' own query is restarted (rule-11).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from slackwater.model.deployment import Deployment
from slackwater.model.errors import SlackwaterError, UsageError
from slackwater.model.names import AGGREGATOR, Names, OrdererName, RootName
from slackwater.model.records import RootState
from slackwater.primitives.aggregates import figures_of, others_of, states_of
from slackwater.runtime.logs import topics
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.transport import Log, LogError, TopicMissingError, Transport
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.parts import READS, SLOTS, SLOTS_NEEDED
from slackwater.runtime.service.registry import Registry
from slackwater.runtime.service.state import read_root_states
from slackwater_spark.session import SparkApplication

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from slackwater_spark.aggregate import Job, Mode
    from slackwater_spark.transforms import Route

_log = logging.getLogger(__name__)

LINES: Final = (0, 1)
"""Stable log, live log."""
_CHECK_EVERY_US: Final = 1_000_000
"""Interval at which queries are checked, since a call to the JVM takes 0.3 ms per query. The end of
a query is signalled in addition."""
_BACK_OFF_S_MIN: Final = 0.1
_BACK_OFF_S_MAX: Final = 5.0
_RAN_WELL_US: Final = 10_000_000
"""A query that ran this long resets the back-off."""
_HOLE_REPEAT_US: Final = 2_000_000
"""A hole reported this long after a query's start is not one that the query is filling."""
_SLOTS_LATE_US: Final = 5_000_000
"""A query whose tasks do not run after this time may lack task slots."""
_REPLAY_QUIET_US: Final = 10_000_000
"""A replay ends after this time without a missing record."""


class JvmEndedError(SlackwaterError):
    """The JVM has ended, so the process ends; the supervisor restarts both."""


def start_offsets(
    states: Sequence[RootState | None],
    fragment: OrdererName,
    begins: Sequence[int],
    ends: Sequence[int],
) -> dict[int, int]:
    """Return the start offset in each line's ordered log (rule-26).

    ``states`` has the state record of each root that reads the deltas, None for a root without one;
    ``begins`` and ``ends`` are the beginning and end offsets of the two logs.
    """
    starts = {}
    for line in LINES:
        contiguous_seq = min(
            (_contiguous_seq(state, fragment, line) for state in states), default=0
        )
        # Below the beginning: retention has deleted records, which the root also skips (rule-28).
        # Beyond the end: it is not the log that the root has read, so all of it is read.
        starts[line] = (
            begins[line] if contiguous_seq > ends[line] else max(contiguous_seq, begins[line])
        )
    return starts


def _contiguous_seq(state: RootState | None, fragment: OrdererName, line: int) -> int:
    wanted = (fragment.child, fragment.replica, line)
    logs = () if state is None else state.logs
    return next(
        (log.contiguous_seq for log in logs if (log.child, log.replica, log.line) == wanted), 0
    )


@dataclass(frozen=True)
class SparkFragment:
    """A fragment and the route of its deltas."""

    name: OrdererName
    route: Route

    @property
    def ordered_logs(self) -> list[Log]:
        """The stable and the live log that the query reads."""
        topic = self.route.ordered_topic
        return [(topic, topics.ordered_partition(self.name.replica, live=bool(x))) for x in LINES]

    @property
    def delta_logs(self) -> frozenset[Log]:
        """The logs that the query writes for the fragment."""
        child, replica, replicas = self.name.child, self.name.replica, self.route.replicas
        partitions = [
            topics.deltas_partition(child, replica, replicas, live=bool(x)) for x in LINES
        ]
        return frozenset((topic, p) for topic in self.route.delta_topics for p in partitions)


def readers_in(deployment: Deployment, registry: Registry) -> Callable[[str], list[str]]:
    """Return what finds the queries whose roots read the children of a query, by its name."""
    file = deployment.queries.values()
    return lambda query: [each.name for each in registry.readers(query, file)]


def fragment_of(name: OrdererName, registry: Registry, names: Names) -> SparkFragment:
    """Return a fragment; waits until its query is registered.

    Raises:
        UsageError: the query has no such child or replica.
    """
    from slackwater_spark.transforms import Route

    spec = registry.wait_for_query(name.query).spec
    if not spec.has_children:
        raise UsageError(
            f"query {spec.name} reads the children of query {spec.child_query}: there is no {name}"
        )
    if name.child >= spec.children or name.replica >= spec.replicas:
        raise UsageError(
            f"query {spec.name} has {spec.children} children with {spec.replicas} replicas:"
            f" there is no {name}"
        )
    # Also for queries that are not in the file: if one returns to the file, its root reads the
    # deltas written meanwhile. If all have been deleted there is none; the fragment ends soon.
    specs = [query.spec for query in registry.queries().values()]
    registered = [each for each in specs if each.child_query == spec.name] or [spec]
    aggregates = [aggregate for reader in registered for aggregate in reader.aggregate]
    aggregates += spec.child_aggregates  # queries that join its children need no others
    deltas = tuple(names.deltas(name.query, part) for part in range(spec.parts))
    ordered = names.ordered(name.query, name.child)
    figures, others = figures_of(aggregates), others_of(aggregates)
    states = tuple(state.name for state in states_of(aggregates))
    route = Route(ordered, deltas, name.child, spec.replicas, figures, others, states)
    return SparkFragment(name, route)


@dataclass(eq=False)
class _Group:
    """Fragments that share a query, and the state of that query."""

    fragments: tuple[SparkFragment, ...]
    query: StreamingQuery | None = None
    reads: tuple[SparkFragment, ...] = ()
    """The fragments whose logs the running query reads, some of which may have been removed."""
    begun_us: int = 0
    not_before_us: int = 0
    back_off_s: float = _BACK_OFF_S_MIN
    running: bool = False
    hole_at_us: int = 0
    """For a replay: when a missing record was last reported."""

    def halves(self) -> tuple[_Group, _Group]:
        """Split the fragments into two groups with the same due time."""
        middle = len(self.fragments) // 2
        parts = self.fragments[:middle], self.fragments[middle:]
        first, second = (
            _Group(
                part,
                not_before_us=self.not_before_us,
                back_off_s=self.back_off_s,
            )
            for part in parts
        )
        return first, second

    def __str__(self) -> str:
        return ", ".join(str(fragment.name) for fragment in self.fragments)


class QuerySettings(NamedTuple):
    """Settings common to an aggregator's queries."""

    process: str
    checkpoints: Path
    mode: Mode
    batch_ms: int


class Aggregator:
    """All fragments of one aggregator, in one Spark application.

    ``readers_of`` returns the queries whose roots read the children of a query, now.
    """

    def __init__(
        self,
        spark: SparkApplication,
        transport: Transport,
        cluster: Cluster,
        of_all: QuerySettings,
        clock: SystemClock,
        readers_of: Callable[[str], Sequence[str]],
    ) -> None:
        self._spark, self._readers_of = spark, readers_of
        self._transport = transport
        self._cluster = cluster
        self._of_all = of_all
        self._clock = clock
        self._newcomers: list[SparkFragment] = []
        self._groups: list[_Group] = []
        self._replays: list[_Group] = []
        self._starts = count()
        self._restarts = 0
        self._some_ended = threading.Event()
        self._check_at_us = 0
        self._lacking: dict[str, int] = {}

    def add(self, fragment: SparkFragment) -> None:
        """Add a fragment; fragments added before the next ``look`` share a query.

        A fragment that was removed, and whose logs a query still reads, belongs to that query
        again.
        """
        for group in self._groups:
            if group.query is not None and fragment in group.reads:
                group.fragments = (*group.fragments, fragment)
                return
        self._newcomers.append(fragment)

    def remove(self, name: OrdererName) -> None:
        """Remove a fragment.

        A query ends with its last fragment. Before that it still reads the removed fragment's logs:
        a running query cannot be assigned fewer partitions, and a restart would delay the others.
        """
        self._newcomers = [each for each in self._newcomers if each.name != name]
        for groups in (self._groups, self._replays):
            for group in [*groups]:
                kept = tuple(each for each in group.fragments if each.name != name)
                if not kept:
                    groups.remove(group)
                    if group.query is not None:
                        self._stop(group.query)
                group.fragments = kept

    def look(self) -> None:
        """Start queries that are due, and end replays that are no longer needed."""
        code = self._spark.process.poll()
        if code is not None:
            raise JvmEndedError(f"Spark's JVM has ended with code {code}")
        now_us = self._clock.monotonic_us()
        if self._newcomers:
            self._groups.append(_Group(tuple(self._newcomers)))
            self._newcomers.clear()
        self._end_replays(now_us)
        is_checked = self._some_ended.is_set() or now_us >= self._check_at_us
        if is_checked:
            self._some_ended.clear()  # cleared first: a query that ends now signals again
            self._check_at_us = now_us + _CHECK_EVERY_US
        for group in (*self._groups, *self._replays):
            if group.query is None:
                if now_us >= group.not_before_us:
                    self._start(group, now_us)
            elif is_checked and not group.query.isActive:
                self._ended(group, now_us, _reason(group.query))
            elif not group.running:
                group.running = self._is_running(group)
        if is_checked:
            self._find_lacking_slots(now_us)

    def send_again(self, holes: frozenset[Log]) -> None:
        """Replay logs in which a reader misses a record, from the roots' positions (rule-11)."""
        if not holes:
            return
        now_us = self._clock.monotonic_us()
        replayed: set[SparkFragment] = set()
        for replay in [*self._replays]:
            replayed |= set(replay.fragments)
            if any(fragment.delta_logs & holes for fragment in replay.fragments):
                replay.hole_at_us = now_us
                if replay.query is not None and self._is_settled(replay, now_us):
                    self._stop(replay.query)
                    self._ended(replay, now_us, "a reader still misses a record")
        lacking = [
            fragment
            for group in self._groups
            if self._is_settled(group, now_us)
            for fragment in group.fragments
            if fragment.delta_logs & holes and fragment not in replayed
        ]
        if lacking:
            replay = _Group(tuple(lacking), hole_at_us=now_us)
            _log.warning("a reader misses a record: replay of %s", replay)
            self._replays.append(replay)
            self._start(replay, now_us)

    @staticmethod
    def _is_settled(group: _Group, now_us: int) -> bool:
        return group.running and now_us - group.begun_us > _HOLE_REPEAT_US

    def _end_replays(self, now_us: int) -> None:
        for replay in [*self._replays]:
            if now_us - replay.hole_at_us > _REPLAY_QUIET_US:
                self._replays.remove(replay)
                if replay.query is not None:
                    self._stop(replay.query)

    @staticmethod
    def _stop(query: StreamingQuery) -> None:
        from py4j.protocol import Py4JError

        try:
            query.stop()
        except Py4JError as error:
            # Its threads run longer than Spark's time-out. What they write are duplicates.
            _log.warning("%s has not stopped yet: %s", query.name, str(error).splitlines()[0])

    @property
    def states(self) -> dict[str, str]:
        """Return the state of each fragment's output."""
        kept = {
            str(fragment.name): "STABLE" if group.running else "UP_FAILURE"
            for group in self._groups
            for fragment in group.fragments
        }
        return kept | {str(fragment.name): "UP_FAILURE" for fragment in self._newcomers}

    @property
    def ready(self) -> bool:
        """Whether every fragment's query reads and writes."""
        return not self._newcomers and all(group.running for group in self._groups)

    @property
    def detail(self) -> dict[str, int]:
        """Return counters for the heartbeat, and which removed fragments' logs are still read."""
        states = self.states
        read = (str(f.name) for group in self._groups if group.query for f in group.reads)
        still_read = {f"{READS}{name}": 1 for name in read if name not in states}
        counters = {"fragments": len(states), "restarts": self._restarts}
        return counters | still_read | self._lacking

    def _start(self, group: _Group, now_us: int) -> None:
        from slackwater_spark.aggregate import start_query

        try:
            job = self._job(group.fragments)
            query = start_query(self._spark.session, job)
        except (LogError, TopicMissingError) as error:
            self._ended(group, now_us, str(error))
            return
        self._watch(query)
        group.query, group.begun_us, group.reads = query, now_us, group.fragments
        _log.info("%s: %s", job.name, job.starts)

    def _watch(self, query: StreamingQuery) -> None:
        """Wait for the query's end in a thread; Spark polls if one waits for any of its queries."""
        threading.Thread(target=self._await_end, args=[query], name="end", daemon=True).start()

    def _await_end(self, query: StreamingQuery) -> None:
        with contextlib.suppress(Exception):  # ``look`` retrieves the cause
            query.awaitTermination()
        self._some_ended.set()

    def _ended(self, group: _Group, now_us: int, reason: str) -> None:
        again = group.back_off_s > _BACK_OFF_S_MIN
        if group.query is not None and now_us - group.begun_us > _RAN_WELL_US:
            group.back_off_s, again = _BACK_OFF_S_MIN, False
        _log.warning("restarting in %.1f s: %s: %s", group.back_off_s, group, reason)
        group.not_before_us = now_us + int(group.back_off_s * 1_000_000)
        group.back_off_s = min(2 * group.back_off_s, _BACK_OFF_S_MAX)
        group.query, group.running = None, False
        self._restarts += 1
        if again and group in self._replays:
            self._replays.remove(group)
            self._restart_queries_of(group.fragments, now_us)
        elif again and len(group.fragments) > 1:
            self._groups.remove(group)
            self._groups += group.halves()

    def _restart_queries_of(self, fragments: Sequence[SparkFragment], now_us: int) -> None:
        """Restart the fragments' own queries after a replay failed twice in a row."""
        for group in [*self._groups]:
            if group.query is not None and not set(fragments).isdisjoint(group.fragments):
                self._stop(group.query)
                self._ended(group, now_us, "a reader misses a record, and a replay has failed")

    def _is_running(self, group: _Group) -> bool:
        assert group.query is not None, "it has been started"
        if self._of_all.mode == "micro-batch":
            return group.query.lastProgress is not None
        from slackwater_spark.aggregate import running_tasks

        tasks = running_tasks(self._spark.session, group.query.runId)
        return tasks >= len(LINES) * len(group.fragments)

    def _find_lacking_slots(self, now_us: int) -> None:
        """Tell if tasks wait since Spark has fewer slots than they need; it goes on without them.

        They run when a worker joins, so nothing is restarted.
        """
        of_queries = [each for each in (*self._groups, *self._replays) if each.query is not None]
        waits = any(
            not each.running and now_us - each.begun_us > _SLOTS_LATE_US for each in of_queries
        )
        found: dict[str, int] = {}
        if waits and self._of_all.mode == "real-time":
            from slackwater_spark.aggregate import task_slots

            slots = task_slots(self._spark.session)
            needed = len(LINES) * sum(len(each.reads) for each in of_queries)
            found = {SLOTS: slots, SLOTS_NEEDED: needed} if needed > slots else {}
        if found and found != self._lacking:
            _log.error(
                "the queries need %d task slots, and Spark has %d: tasks wait. Add workers, raise"
                " spark.cores.max, or use --mode micro-batch",
                *(found[SLOTS_NEEDED], found[SLOTS]),
            )
        self._lacking = found

    def _job(self, fragments: Sequence[SparkFragment]) -> Job:
        from slackwater_spark.aggregate import Job

        name = f"{self._of_all.process}-{next(self._starts)}"
        return Job(
            # Replicas of one child have equal routes.
            routes=list(dict.fromkeys(fragment.route for fragment in fragments)),
            starts=self._begin_at(fragments),
            checkpoint=self._of_all.checkpoints / name,
            source_options=topics.spark_options(self._cluster, "source")
            | {"groupIdPrefix": self._transport.names.group(f"{AGGREGATOR}/{name}")},
            sink_options=topics.spark_options(self._cluster, "sink"),
            mode=self._of_all.mode,
            batch_ms=self._of_all.batch_ms,
            name=name,
        )

    def _begin_at(self, fragments: Sequence[SparkFragment]) -> dict[Log, int]:
        # States are read before the ends. The fragment may still run in another process, so a
        # ``contiguous_seq`` that is read later could be beyond the ends, and
        # ``start_offsets`` would take it for that of a log that was made again.
        states = {fragment: self._root_states(fragment) for fragment in fragments}
        logs = [log for fragment in fragments for log in fragment.ordered_logs]
        begins = self._transport.beginning_offsets(logs)
        ends = self._transport.end_offsets(logs)
        starts: dict[Log, int] = {}
        for fragment in fragments:
            of_lines = start_offsets(
                states[fragment],
                fragment.name,
                [begins[log] for log in fragment.ordered_logs],
                [ends[log] for log in fragment.ordered_logs],
            )
            starts |= zip(fragment.ordered_logs, of_lines.values(), strict=True)
        return starts

    def _root_states(self, fragment: SparkFragment) -> list[RootState | None]:
        found: list[RootState | None] = []
        parts = len(fragment.route.delta_topics)
        for query in self._readers_of(fragment.name.query):
            states = read_root_states(self._transport, query, parts)
            found += [states.get(RootName(query, part).process) for part in range(parts)]
        return found


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return "it was stopped" if error is None else str(error).splitlines()[0]
