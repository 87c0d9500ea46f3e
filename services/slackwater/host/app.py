"""Starts a host: the process that runs orderers and roots, its fragments.

    python -m slackwater.host N --fragments FRAGMENT[,FRAGMENT...] --deployment F --bootstrap B
        --data-dir D [--commands] [--own] [--placements FILE]

``N`` is the number of the host. Fragments have the names that ``slackwater status`` prints
(``orderer/climate.0.a``, ``root/climate.0``). The caller decides which of them share a host:
replicas of one child and copies of one part never do (``machine.layout``).

A host may start without fragments (``--fragments ''``). It then sends a heartbeat of its own until
it has a fragment.

With ``--commands`` each line of standard input is a command: ``kill``, ``pause``, ``resume`` or
``remove FRAGMENT`` for a fragment of this host, ``resign FRAGMENT`` for a copy of a part, in whose
place the other copy is to answer, ``add FRAGMENT`` for another one. ``--own`` marks a host that was
started for one fragment whose turns were too long for its previous host; the fragment's heartbeat
reports this.

``--placements`` names a node's file of placement numbers (``runtime.service.placements``).

The objects loaded before the first fragment starts, some 100,000, stay until the process ends, so
they are exempt from garbage collection. A full collection that includes them takes 50 ms, in which
no fragment takes a turn.

On a stop request the roots let those of their other copies take over that could answer at once
(rule-27), and the host ends. It also ends when its live consumer fails. The failure of a single
fragment is reported in the fragment's heartbeat, and the fragment is restarted alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from slackwater.host import delivery, merger, orderer, root, uplink
from slackwater.host.faust_worker import LiveConsumer, run_consumer
from slackwater.host.fragment import Fragment
from slackwater.host.host import IN_FLIGHT_BYTES_MAX, Host, HostShared
from slackwater.host.known import RegistryView
from slackwater.host.wake_signal import WakeSignal
from slackwater.model.deployment import Deployment
from slackwater.model.errors import UsageError
from slackwater.model.kinds import is_hosted, parsed, query_of
from slackwater.model.names import DELIVERY, MERGER, ORDERER, ROOT, UPLINK, kind_of, own_name
from slackwater.runtime.logs.described import TopicObserver
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.entry import ProcessContext
from slackwater.runtime.service.heartbeats import (
    GATHER_MS,
    INTERVAL_S,
    REPLICA_INTERVAL_S,
    REPLICAS_GATHER_MS,
    HeartbeatListener,
    HeartbeatSender,
)
from slackwater.runtime.service.owntopics import OwnTopics
from slackwater.runtime.service.parts import (
    ADD,
    OWN_HOST,
    REMOVE,
    RESIGN,
    Commands,
    PartBeat,
    start_following,
)
from slackwater.runtime.service.placements import Placements
from slackwater.runtime.service.registry import Registry

_log = logging.getLogger(__name__)

THREADS_MAX: Final = 16
"""Threads for the broker requests of starting fragments."""
Make = Mapping[str, Callable[[str, RegistryView, KafkaTransport], Fragment]]
"""Factories of fragments, by kind."""
MAKE: Final[Make] = {
    ORDERER: orderer.make,
    MERGER: merger.make,
    UPLINK: uplink.make,
    ROOT: root.make,
    DELIVERY: delivery.make,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the host."""
    parser.add_argument(
        "--fragments", required=True, help="full names of the fragments, separated by commas"
    )
    parser.add_argument("--commands", action="store_true", help="read commands from standard input")
    parser.add_argument(
        "--own", action="store_true", help="the host is for one fragment whose turns are too long"
    )
    parser.add_argument("--placements", type=Path, help="file of a node's placement numbers")


def main(context: ProcessContext, make: Make = MAKE) -> None:
    """Run the fragments until a stop is requested."""
    names = _names(context.arguments.fragments)
    run = partial(_run, context, names, make)
    run_consumer(context.process, context.cluster, run, context.stopping)


def _names(given: str) -> tuple[str, ...]:
    names = tuple(given.split(",")) if given else ()
    for at, full in enumerate(names):
        _check(full)
        if full in names[:at]:
            raise UsageError(f"fragment {full} is named twice")
    return names


def _check(full: str) -> None:
    if not is_hosted(full):
        kinds = ", ".join(f"{kind}/NAME" for kind in MAKE)
        raise UsageError(f"{full}: not a fragment of a host; use {kinds}")
    parsed(full)


def _make(
    make: Make,
    known: RegistryView,
    transport: KafkaTransport,
    heartbeats: tuple[HeartbeatSender, HeartbeatListener],
    own: OwnTopics,
    full: str,
) -> Fragment:
    own.use(full, {transport.names.registry})  # else a lost registry would be waited for
    fragment = make[kind_of(full)](own_name(full), known, transport)

    def close() -> None:
        own.leave(full)
        fragment.close()

    try:
        own.use(full, fragment.topics)
    except BaseException:
        close()
        raise
    spec = known.query(query_of(full)).spec
    if max(spec.replicas, spec.copies) > 1:
        # The query may have been applied after the start of this host.
        sender, listener = heartbeats
        sender.shorten_interval(REPLICA_INTERVAL_S)
        if kind_of(full) == ROOT:
            listener.shorten_gather(REPLICAS_GATHER_MS)
    return replace(fragment, close=close)


def _beat(sender: HeartbeatSender, lasting: Mapping[str, int], name: str) -> PartBeat:
    beat = PartBeat(sender, name, owner_updates=True)
    beat.keep_reporting(lasting)
    return beat


async def _run(
    context: ProcessContext, names: Sequence[str], make: Make, live: LiveConsumer
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="requests"))
    deployment, transport, turns = context.deployment, context.transport(), WakeSignal()
    has_replicas = _has_replicas(deployment, names)
    has_root = any(kind_of(name) == ROOT for name in names)
    sender = HeartbeatSender(
        context.cluster,
        context.process,
        names=deployment.names,
        interval_s=REPLICA_INTERVAL_S if has_replicas else INTERVAL_S,
        carries=True,
        before=lambda: host.look(),  # noqa: PLW0108 -- the host is created later
    )
    listener = HeartbeatListener(
        transport,
        lambda: host.wake_listeners(),  # noqa: PLW0108 -- the host is created later
        gather_ms=REPLICAS_GATHER_MS if has_replicas and has_root else GATHER_MS,
    )
    given = context.arguments.placements
    placements = None if given is None else Placements(given)
    registry = Registry(transport)
    known = RegistryView(registry, deployment, placements)
    own = OwnTopics(
        registry,
        transport.names,
        partial(TopicObserver, context.cluster),
        lambda name, error: _soon(loop, partial(host.lost, name, error)),
    )
    shared = HostShared(
        transport=transport,
        producer=transport.producer(in_flight_bytes_max=IN_FLIGHT_BYTES_MAX),
        listener=listener,
        sender=partial(_beat, sender, {OWN_HOST: 1} if context.arguments.own else {}),
        make=partial(_make, make, known, transport, (sender, listener), own),
    )
    host = Host(shared, live, turns)
    live.on_gone, live.before_stop = host.logs.gone, host.resign
    gc.freeze()  # see the module's docstring
    sender.update(ready=not names)
    sender.start()
    listener.start()
    for name in names:
        host.take_on(name)
    if context.arguments.commands:
        start_following(sys.stdin.buffer, commands_of(host, loop))
    await host.run()


def commands_of(host: Host, loop: asyncio.AbstractEventLoop) -> Commands:
    """Return the parser of the host's commands; a parsed command runs in ``loop``."""
    acts: dict[str, Callable[[str], object]] = {
        "kill": host.kill,
        "pause": host.pause,
        "resume": host.resume,
        ADD: host.take_on,
        REMOVE: host.remove,
        RESIGN: host.hand_over,
    }

    def carry_out(verb: str, name: str) -> None:
        if (verb == ADD) == (name in host.fragments):
            state = "already runs" if verb == ADD else "does not run"
            _log.warning("ignoring command %s: %s %s in this host", verb, name, state)
        else:
            acts[verb](name)

    def command(verb: str, name: str) -> Callable[[], None] | None:
        try:
            _check(name)
        except UsageError:
            return None
        if verb not in acts:
            return None
        return partial(_soon, loop, partial(carry_out, verb, name))

    return command


def _soon(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(act)


def _has_replicas(deployment: Deployment, names: Sequence[str]) -> bool:
    """Return whether the query of any fragment may have replicas; without names: of any query.

    A query that is not in the deployment has been applied, and may have.
    """
    queries = [query_of(full) for full in names] or deployment.queries
    specs = [deployment.queries.get(query) for query in queries]
    return any(spec is None or max(spec.replicas, spec.copies) > 1 for spec in specs)
