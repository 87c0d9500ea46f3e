"""The aggregator's process: keeps the streaming queries of its fragments running.

    python -m slackwater_spark.app 0 --fragments climate.0.a,climate.1.a --deployment F
        --bootstrap B --data-dir D [--master M] [--conf spark.NAME=VALUE]...
        [--secret-file FILE] [--mode real-time|micro-batch]

It holds no state and no rule but one, rule 26: a fragment goes on at the smallest ``whole`` that
the roots' state records name, over all parts, else at the beginning of the ordered logs; where
retention has been there first, at the beginning too. What it then writes a second time, the roots
drop by seq. So a restart, a take-over and a false alarm are all the same, and a query that fails is
simply started again, from what the roots say by then. A JVM that ends takes the process with it
(exit code 1); the supervisor starts both.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.codec.results import figures_of
from slackwater.model.errors import SlackwaterError, UsageError
from slackwater.model.names import Names, OrdererName, RootName
from slackwater.model.records import RootState
from slackwater.runtime import topics
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.cluster import Cluster
from slackwater.runtime.cpu import OwnCpu
from slackwater.runtime.entry import Context, run
from slackwater.runtime.heartbeats import HeartbeatListener, HeartbeatSender, patient_gather_ms
from slackwater.runtime.registry import Registry
from slackwater.runtime.state import read_root_states
from slackwater.runtime.transport import LogError, Transport
from slackwater_spark.session import LOCAL_MASTER, SessionSettings, SparkApplication, start_spark

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from slackwater_spark.aggregate import FragmentJob, Mode
    from slackwater_spark.transforms import FragmentShape

_log = logging.getLogger("slackwater_spark.app")  # also as __main__

LINES = (0, 1)  # stable log, live log
_LOOK_S = 0.1
_ASK_EVERY_US = 1_000_000
"""A question to the JVM costs 0.3 ms, and each query would be asked. What ends is told at once."""
_BACK_OFF_S_MIN = 0.1
_BACK_OFF_S_MAX = 5.0
_RAN_WELL_US = 10_000_000
_HOLE_REPEAT_US = 2_000_000


class JvmEndedError(SlackwaterError):
    """Without its JVM the process has nothing to do; the supervisor starts both."""


def start_offsets(
    states: Sequence[RootState | None],
    fragment: OrdererName,
    begins: Sequence[int],
    ends: Sequence[int],
) -> dict[int, int]:
    """Where to go on in each line's ordered log (rule 26).

    ``states`` has the state record of each part, None before its first; ``begins`` and ``ends``
    are the offsets that the two logs still hold.
    """
    starts = {}
    for line in LINES:
        whole = min((_whole(state, fragment, line) for state in states), default=0)
        # Below the beginning: retention was quicker, and the root jumps there too (rule 28).
        # Beyond the end: the log is not the one that the root read; its records come anew.
        starts[line] = begins[line] if whole > ends[line] else max(whole, begins[line])
    return starts


def _whole(state: RootState | None, fragment: OrdererName, line: int) -> int:
    wanted = (fragment.child, fragment.replica, line)
    logs = () if state is None else state.logs
    return next((log.whole for log in logs if (log.child, log.replica, log.line) == wanted), 0)


@dataclass
class _Keeper:
    """Keeps one fragment's query running."""

    fragment: OrdererName
    shape: FragmentShape
    names: Names
    query: StreamingQuery | None = None
    begun_us: int = 0
    not_before_us: int = 0
    back_off_s: float = _BACK_OFF_S_MIN
    restarts: int = 0
    running: bool = False

    @property
    def delta_logs(self) -> frozenset[tuple[str, int]]:
        """The logs that its query writes."""
        of = self.shape
        return frozenset(
            (
                self.names.deltas(of.query, part),
                topics.deltas_partition(of.child, of.replica, of.replicas, live=bool(line)),
            )
            for part in range(of.parts)
            for line in LINES
        )


class Aggregator:
    """All fragments of one aggregator, in one Spark application."""

    def __init__(
        self,
        spark: SparkApplication,
        transport: Transport,
        cluster: Cluster,
        data_dir: Path,
        mode: Mode,
        batch_ms: int,
        clock: SystemClock,
    ) -> None:
        self._spark = spark
        self._transport = transport
        self._cluster = cluster
        self._data_dir = data_dir
        self._mode = mode
        self._batch_ms = batch_ms
        self._clock = clock
        self._keepers: list[_Keeper] = []
        self._some_ended = threading.Event()
        self._ask_at_us = 0

    def add(self, fragment: OrdererName, registry: Registry) -> None:
        """Wait until the fragment's query is registered, and take the fragment on."""
        from slackwater_spark.transforms import FragmentShape

        spec = registry.wait_for_query(fragment.query).spec
        if fragment.child >= spec.children or fragment.replica >= spec.replicas:
            raise UsageError(
                f"query {spec.name} has {spec.children} children with {spec.replicas} replicas:"
                f" there is no {fragment}"
            )
        shape = FragmentShape(
            spec.name,
            fragment.child,
            fragment.replica,
            spec.replicas,
            spec.parts,
            figures_of(spec.aggregate),
        )
        self._keepers.append(_Keeper(fragment, shape, self._transport.names))

    def look(self) -> None:
        """Start what does not run and is due."""
        code = self._spark.process.poll()
        if code is not None:
            raise JvmEndedError(f"Spark's JVM has ended with code {code}")
        now_us = self._clock.monotonic_us()
        asks = self._some_ended.is_set() or now_us >= self._ask_at_us
        if asks:
            self._some_ended.clear()  # before they are asked: one that ends now is told again
            self._ask_at_us = now_us + _ASK_EVERY_US
        for keeper in self._keepers:
            if keeper.query is None:
                if now_us >= keeper.not_before_us:
                    self._start(keeper, now_us)
            elif asks and not keeper.query.isActive:
                self._ended(keeper, now_us, _reason(keeper.query))
            elif not keeper.running:
                keeper.running = self._at_work(keeper.query)

    def _watch(self, query: StreamingQuery) -> None:
        """Wait for its end, in a thread of its own: to wait for any of them, Spark polls."""
        threading.Thread(target=self._await_end, args=[query], name="end", daemon=True).start()

    def _await_end(self, query: StreamingQuery) -> None:
        with contextlib.suppress(Exception):  # why it ended is asked by ``look``
            query.awaitTermination()
        self._some_ended.set()

    def send_again(self, holes: frozenset[tuple[str, int]]) -> None:
        """Somebody misses a record in these logs: go on from where the roots are (rule 11)."""
        now_us = self._clock.monotonic_us()
        for keeper in self._keepers:
            settled = keeper.running and now_us - keeper.begun_us > _HOLE_REPEAT_US
            if settled and keeper.query is not None and keeper.delta_logs & holes:
                self._stop(keeper.query)
                self._ended(keeper, now_us, "a reader sees a hole in its log")

    @staticmethod
    def _stop(query: StreamingQuery) -> None:
        from py4j.protocol import Py4JError

        try:
            query.stop()
        except Py4JError as error:
            # Its threads have not ended in Spark's time; what they still write is a duplicate.
            _log.warning("%s has not stopped yet: %s", query.name, str(error).splitlines()[0])

    @property
    def states(self) -> dict[str, str]:
        """State of each fragment's output."""
        return {str(k.fragment): "STABLE" if k.running else "UP_FAILURE" for k in self._keepers}

    @property
    def ready(self) -> bool:
        """Whether every fragment's query reads and writes."""
        return all(keeper.running for keeper in self._keepers)

    @property
    def detail(self) -> dict[str, int]:
        """Counters for people."""
        return {
            "fragments": len(self._keepers),
            "restarts": sum(k.restarts for k in self._keepers),
        }

    def _start(self, keeper: _Keeper, now_us: int) -> None:
        from slackwater_spark.aggregate import start_fragment

        try:
            job = self._job(keeper)
            keeper.query = start_fragment(self._spark.session, job)
            self._watch(keeper.query)
        except LogError as error:
            self._ended(keeper, now_us, str(error))
            return
        keeper.begun_us = now_us
        _log.info("%s goes on at %s", keeper.fragment, job.source_partitions)

    def _ended(self, keeper: _Keeper, now_us: int, reason: str) -> None:
        if now_us - keeper.begun_us > _RAN_WELL_US:
            keeper.back_off_s = _BACK_OFF_S_MIN
        _log.warning(
            "%s is started again in %.1f s: %s", keeper.fragment, keeper.back_off_s, reason
        )
        keeper.not_before_us = now_us + int(keeper.back_off_s * 1_000_000)
        keeper.back_off_s = min(2 * keeper.back_off_s, _BACK_OFF_S_MAX)
        keeper.restarts += 1
        keeper.query, keeper.running = None, False

    def _at_work(self, query: StreamingQuery) -> bool:
        if self._mode == "micro-batch":
            return query.lastProgress is not None
        from slackwater_spark.aggregate import running_tasks

        return running_tasks(self._spark.session, query.runId) >= len(LINES)

    def _job(self, keeper: _Keeper) -> FragmentJob:
        from slackwater_spark.aggregate import FragmentJob

        fragment, shape = keeper.fragment, keeper.shape
        names = self._transport.names
        ordered = names.ordered(fragment.query, fragment.child)
        logs = [(ordered, topics.ordered_partition(fragment.replica, live=bool(x))) for x in LINES]
        # States first: whoever else runs the fragment goes on meanwhile, and a ``whole`` read after
        # the ends could lie beyond them as if the log were another one.
        states = read_root_states(self._transport, fragment.query, shape.parts)
        begins = self._transport.beginning_offsets(logs)
        ends = self._transport.end_offsets(logs)
        of_parts = [states.get(RootName(shape.query, part).process) for part in range(shape.parts)]
        return FragmentJob(
            shape=shape,
            ordered_topic=ordered,
            delta_topics=[names.deltas(shape.query, part) for part in range(shape.parts)],
            starts=start_offsets(
                of_parts, fragment, [begins[log] for log in logs], [ends[log] for log in logs]
            ),
            checkpoint=self._data_dir / "checkpoints" / f"{fragment}-{keeper.restarts}",
            source_options=topics.spark_options(self._cluster, "source")
            | {"groupIdPrefix": names.group(f"aggregator/{fragment}")},
            sink_options=topics.spark_options(self._cluster, "sink"),
            mode=self._mode,
            batch_ms=self._batch_ms,
            name=f"{fragment}-{keeper.restarts}",
        )


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return "it was stopped" if error is None else str(error).splitlines()[0]


def main(context: Context) -> None:
    """Run until told to stop; raises when the JVM has ended."""
    options, transport, clock = context.arguments, context.transport(), SystemClock()
    data_dir = context.data_dir.resolve() / "aggregator" / context.name
    fragments = [OrdererName.parse(text) for text in options.fragments.split(",")]
    settings = SessionSettings(
        f"slackwater {context.process}",
        data_dir / "spark",
        options.master,
        context.settings.aggregator_heap_mib_max,
        workers_alike=options.workers_alike,
        secret_file=options.secret_file,
        conf=dict(_setting(text) for text in options.conf),
    )
    with ExitStack() as stack:
        # In the main thread: the kernel ends the JVM with the thread that started it.
        spark = stack.enter_context(start_spark(settings))
        # Its work is done in the JVM.
        cpu = OwnCpu(with_children=True)
        sender = HeartbeatSender(
            context.cluster, context.process, names=transport.names, clock=clock, cpu=cpu
        ).start()
        stack.callback(sender.stop)
        listener = HeartbeatListener(transport, gather_ms=patient_gather_ms).start()
        stack.callback(listener.stop)
        mode = options.mode or context.settings.aggregator_mode
        aggregator = Aggregator(
            spark, transport, context.cluster, data_dir, mode, options.batch_ms, clock
        )
        _keep(aggregator, fragments, Registry(transport), sender, listener, context.stopping)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.startswith("spark.") or not equals:
        raise UsageError(f"--conf {text}: write --conf spark.NAME=VALUE")
    return name, value


def _keep(
    aggregator: Aggregator,
    fragments: Sequence[OrdererName],
    registry: Registry,
    sender: HeartbeatSender,
    listener: HeartbeatListener,
    stopping: threading.Event,
) -> None:
    for fragment in fragments:
        aggregator.add(fragment, registry)
    while not stopping.wait(_LOOK_S):
        aggregator.look()
        aggregator.send_again(_holes(listener))
        sender.update(ready=aggregator.ready, states=aggregator.states, detail=aggregator.detail)


def _holes(listener: HeartbeatListener) -> frozenset[tuple[str, int]]:
    return frozenset(
        (hole.topic, hole.partition)
        for process, beat in listener.all().items()
        if beat.holes and listener.ready(process)
        for hole in beat.holes
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fragments", required=True, help="such as climate.0.a,climate.1.a")
    parser.add_argument("--master", default=LOCAL_MASTER, help="a Spark master")
    parser.add_argument(
        "--conf", action="append", default=[], help="a setting of Spark's, as in spark.cores.max=8"
    )
    parser.add_argument(
        "--workers-alike",
        action="store_true",
        help="the master's workers have this installation, at the same paths",
    )
    parser.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="what all processes of the master's cluster share; without one nobody is asked",
    )
    parser.add_argument("--mode", choices=("real-time", "micro-batch"), help="how queries run")
    parser.add_argument("--batch-ms", type=int, default=3_600_000, help="length of a batch")


if __name__ == "__main__":
    run("aggregator", main, add_arguments=_add_arguments)
