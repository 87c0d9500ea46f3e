"""The aggregator's process: keeps the streaming queries of its fragments running.

    python -m slackwater_spark.app 0 --fragments climate.0.a,climate.1.a --deployment F
        --bootstrap B --data-dir D [--master M] [--conf spark.NAME=VALUE]...
        [--secret-file FILE] [--mode real-time|micro-batch] [--commands]

With ``--commands`` each line of standard input is ``add FRAGMENT`` or ``remove FRAGMENT``. Without
fragments the process waits for the first one. An added fragment may wait for the replica before it
(``deferral.py``).

The process is stateless: the roots' state records determine where each Spark query begins
(``queries.py``). If the JVM ends, the process ends, too (exit code 1), and the supervisor restarts
both.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import cast

from slackwater.model.errors import UsageError
from slackwater.model.names import AGGREGATOR, OrdererName, kind_of
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.cpu import OwnCpu
from slackwater.runtime.service.entry import ProcessContext, run
from slackwater.runtime.service.heartbeats import (
    PATIENT_GATHER_MS,
    HeartbeatListener,
    HeartbeatSender,
)
from slackwater.runtime.service.parts import ADD, REMOVE, start_following
from slackwater.runtime.service.registry import Registry
from slackwater_spark.deferral import Deferral
from slackwater_spark.queries import Aggregator, QuerySettings, fragment_of, readers_in
from slackwater_spark.session import LOCAL_MASTER, SessionSettings, start_spark

_LOOK_S = 0.1


def main(context: ProcessContext) -> None:
    """Run until stopped; raises when the JVM has ended."""
    # PySpark imports pandas where it is installed (`slackwater[pandas]`): time and memory of each
    # aggregator, for something that nothing here uses.
    sys.modules.setdefault("pandas", cast(ModuleType, None))
    options, transport, clock = context.arguments, context.transport(), SystemClock()
    data_dir = context.data_dir.resolve() / AGGREGATOR / context.name
    fragments = [OrdererName.parse(text) for text in filter(None, options.fragments.split(","))]
    settings = SessionSettings(
        f"slackwater {context.process}",
        data_dir / "spark",
        options.master,
        context.settings.aggregator_heap_mib_max,
        workers_alike=options.workers_alike,
        secret_file=options.secret_file,
        conf=dict(_setting(text) for text in options.conf),
        runs_long=not options.short_run,
    )
    with ExitStack() as stack:
        # In the main thread: the kernel ends the JVM with the thread that started it.
        spark = stack.enter_context(start_spark(settings))
        # Child processes are included, since the JVM does the work.
        cpu = OwnCpu(with_children=True)
        sender = HeartbeatSender(
            context.cluster, context.process, names=transport.names, clock=clock, cpu=cpu
        ).start()
        stack.callback(sender.stop)
        listener = HeartbeatListener(transport, gather_ms=PATIENT_GATHER_MS).start()
        stack.callback(listener.stop)
        mode = options.mode or context.settings.aggregator_mode
        of_all = QuerySettings(context.name, data_dir / "checkpoints", mode, options.batch_ms)
        shutil.rmtree(of_all.checkpoints, ignore_errors=True)
        registry = Registry(transport)
        readers = readers_in(context.deployment, registry)
        aggregator = Aggregator(spark, transport, context.cluster, of_all, clock, readers)

        def add(name: OrdererName) -> None:
            aggregator.add(fragment_of(name, registry, transport.names))

        for name in fragments:
            add(name)
        commanded: SimpleQueue[Callable[[], None]] = SimpleQueue()
        deferral = Deferral()

        def remove(name: OrdererName) -> None:
            deferral.remove(name)
            aggregator.remove(name)

        if options.commands:
            later = {ADD: lambda name: deferral.add(name, clock.monotonic_us()), REMOVE: remove}
            start_following(sys.stdin.buffer, partial(_command, commanded, later))
        while not context.stopping.wait(_LOOK_S):
            while not commanded.empty():
                commanded.get()()
            if deferral:
                for name in deferral.due(clock.monotonic_us(), _running(listener)):
                    add(name)
            aggregator.look()
            aggregator.send_again(listener.holes())
            ready = aggregator.ready and not deferral
            sender.update(ready=ready, states=aggregator.states, detail=aggregator.detail)


def _command(
    commanded: SimpleQueue[Callable[[], None]],
    verbs: Mapping[str, Callable[[OrdererName], None]],
    verb: str,
    fragment: str,
) -> Callable[[], None] | None:
    """Return an action that queues a command for the main thread, the only one that calls Spark.

    None if it is not a command.
    """
    try:
        name = OrdererName.parse(fragment)
    except UsageError:
        return None
    return partial(commanded.put, partial(verbs[verb], name)) if verb in verbs else None


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.startswith("spark.") or not equals:
        raise UsageError(f"--conf {text}: write --conf spark.NAME=VALUE")
    return name, value


def _running(listener: HeartbeatListener) -> set[str]:
    """Return the fragments that aggregators report as running."""
    return {
        fragment
        for process, beat in listener.all().items()
        if kind_of(process) == AGGREGATOR
        for fragment, state in beat.states.items()
        if state == "STABLE"
    }


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fragments", required=True, help="names, as in climate.0.a,climate.1.a")
    parser.add_argument("--commands", action="store_true", help="read commands from standard input")
    parser.add_argument("--master", default=LOCAL_MASTER, help="a Spark master")
    parser.add_argument(
        "--conf", action="append", default=[], help="a Spark setting, as in spark.cores.max=8"
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
        help="the cluster's shared secret; without it processes do not authenticate",
    )
    parser.add_argument(
        "--mode", choices=("real-time", "micro-batch"), help="execution mode of queries"
    )
    parser.add_argument(
        "--short-run", action="store_true", help="start faster, at twice the CPU per reading"
    )
    parser.add_argument("--batch-ms", type=int, default=3_600_000, help="length of a batch, ms")


if __name__ == "__main__":
    run(AGGREGATOR, main, add_arguments=_add_arguments)
