"""Host: the process that runs orderers and roots.

    python -m slackwater.host N --fragments FRAGMENT[,FRAGMENT...] --deployment F --bootstrap B
        --data-dir D [--commands]

``N`` is its number; fragments have the names that ``slackwater status`` prints
(``orderer/climate.0.a``, ``root/climate.0``). Which of them share a host is for whoever starts it
to say: replicas of one child and copies of one part never do (``runtime.layout``).

It ends when it is told to, at once, and when its consumer cannot read any more. What befalls a
fragment while the others go on is told by its heartbeat.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from slackwater.host.host import IN_FLIGHT_BYTES_MAX, Host, Shared
from slackwater.model.deployment import Deployment
from slackwater.model.errors import UsageError
from slackwater.model.names import FragmentName, OrdererName, RootName
from slackwater.orderer import fragment as orderer
from slackwater.root import fragment as root
from slackwater.runtime.entry import Context
from slackwater.runtime.faust_worker import LiveConsumer, run_consumer
from slackwater.runtime.fragment import Fragment
from slackwater.runtime.heartbeats import (
    HeartbeatListener,
    HeartbeatSender,
    gather_ms,
    interval_s,
    replica_interval_s,
    replicas_gather_ms,
)
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.known import Known
from slackwater.runtime.parts import PartBeat, start_following
from slackwater.runtime.registry import Registry
from slackwater.runtime.turns import Turns

THREADS_MAX: Final = 16
"""That wait for the broker's answers to what fragments ask when they begin."""
MAKE: Final[Mapping[str, Callable[[str, Known, KafkaTransport], Fragment]]] = {
    "orderer": orderer.make,
    "root": root.make,
}
NAMES: Final[Mapping[str, Callable[[str], FragmentName]]] = {
    "orderer": OrdererName.parse,
    "root": RootName.parse,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The host's own."""
    parser.add_argument(
        "--fragments", required=True, help="their full names, with commas between them"
    )
    parser.add_argument(
        "--commands", action="store_true", help="follow commands on the standard input"
    )


def main(context: Context) -> None:
    """Run the fragments until told to stop."""
    names = _names(context.arguments.fragments)
    run_consumer(context.process, context.cluster, partial(_run, context, names), context.stopping)


def _names(given: str) -> tuple[str, ...]:
    names = tuple(given.split(","))
    for at, full in enumerate(names):
        kind, _, name = full.partition("/")
        if kind not in NAMES:
            raise UsageError(f"{full}: a host runs orderer/NAME and root/NAME")
        NAMES[kind](name)
        if full in names[:at]:
            raise UsageError(f"fragment {full} is named twice")
    return names


def _make(known: Known, transport: KafkaTransport, full: str) -> Fragment:
    kind, _, name = full.partition("/")
    return MAKE[kind](name, known, transport)


async def _run(context: Context, names: Sequence[str], live: LiveConsumer) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="asking"))
    deployment, transport, turns = context.deployment, context.transport(), Turns()
    are_replicas = _chooses(deployment, names)
    sender = HeartbeatSender(
        context.cluster,
        context.process,
        names=deployment.names,
        interval_s=replica_interval_s if are_replicas else interval_s,
        carries=True,
    ).start()
    listener = HeartbeatListener(
        transport,
        lambda: host.wake_listeners(),  # noqa: PLW0108 -- the host is made of it
        gather_ms=replicas_gather_ms if are_replicas else gather_ms,
    )
    known = Known(Registry(transport), deployment)
    shared = Shared(
        transport=transport,
        producer=transport.producer(in_flight_bytes_max=IN_FLIGHT_BYTES_MAX),
        listener=listener,
        sender=partial(PartBeat, sender, owner_speaks=True),
        make=partial(_make, known, transport),
    )
    host = Host(shared, live, turns)
    live.on_gone = host.logs.gone
    listener.start()
    for name in names:
        host.take_on(name)
    if context.arguments.commands:
        start_following(sys.stdin.buffer, {name: _verbs(host, name, loop) for name in names})
    await host.run()


def _verbs(host: Host, name: str, loop: asyncio.AbstractEventLoop) -> dict[str, Callable[[], None]]:
    """What can be done to a fragment from outside: as a signal does to a process."""
    acts = {"kill": host.kill, "pause": host.pause, "resume": host.resume}

    def soon(act: Callable[[str], None]) -> None:
        loop.call_soon_threadsafe(act, name)

    return {verb: partial(soon, act) for verb, act in acts.items()}


def _chooses(deployment: Deployment, names: Sequence[str]) -> bool:
    """Is any of them a replica, or chooses between replicas?"""
    of = [full.partition("/") for full in names]
    queries = {NAMES[kind](name).query for kind, _, name in of} & deployment.queries.keys()
    return any(deployment.queries[query].replicas > 1 for query in queries)
