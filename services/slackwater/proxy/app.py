"""Sensor proxy: the process that writes the source logs of some streams.

    python -m slackwater.proxy STREAM [STREAM ...] --deployment F --bootstrap B --data-dir D
        [--input [STREAM=]FILE]... [--end-at US] [--end-boundary US] [--sensor [STREAM=]FILE]...
        [--silence [STREAM=]AT_S:FOR_S]... [--spool-bytes-max N] [--commands]

Three kinds of input. A stream with ``topic`` reads that topic. With ``--input`` a file is replayed,
paced by the deployment's event clock: ``--end-at`` is the event time (us) up to which it is sent,
``--end-boundary`` the event time (us) that its boundary goes to at its end (trace-24). Otherwise
the proxy speaks for sensors that come and go: what is spooled is sent, and boundaries follow the
clock. ``--sensor`` is such a one: a file, taken in as by ``slackwater ingest --as-now``, once over
all restarts.

``--silence`` keeps the source log untouched for a time of a rehearsal: wall seconds after the
anchor, and for how long. It is given at the start, so that a proxy which is killed meanwhile keeps
it; a message at the right moment would have to find a process that is there to take it.

The process ends when it is told to, when others write all its streams, and when none of them can
ever be served (a file without the columns that were declared, a topic that is not there): then with
the exit code of that error. What befalls a stream while others go on is told by its heartbeat.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.proxy.dead_letters import Faults
from slackwater.proxy.inputs import add_arguments, options_of, own_topics
from slackwater.proxy.registered import RegistryWatch
from slackwater.proxy.serving import (
    IN_FLIGHT_BYTES_MAX,
    STREAM_IN_FLIGHT_BYTES_MAX,
    ProxyShared,
    Serving,
)
from slackwater.runtime.local.datadir import keep_prefix
from slackwater.runtime.logs.topics import ensure_topics
from slackwater.runtime.service import entry
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeats import (
    PATIENT_GATHER_MS,
    HeartbeatListener,
    HeartbeatSender,
)
from slackwater.runtime.service.parts import PartBeat, of_parts, start_following
from slackwater.runtime.service.registry import Registry


def main() -> None:
    """The entry point."""
    entry.run("proxy", run, add_arguments=add_arguments, serves="STREAM")


def run(started: entry.ProcessContext) -> None:
    """Serve the streams until told to stop."""
    specs = _specs(started)
    options = options_of(started.arguments, started.names)
    shared = _shared(started, specs)

    def look() -> None:
        if all(serving.is_over for serving in servings):
            started.stopping.set()

    servings = [Serving(shared, spec, options[spec.name], look) for spec in specs]
    shared.listener.start()
    try:
        for serving in servings:
            serving.start()
        if started.arguments.commands:
            start_following(
                sys.stdin.buffer, of_parts({each.name: each.verbs for each in servings})
            )
        started.stopping.wait()
        codes = [serving.error.exit_code for serving in servings if serving.error is not None]
        is_over = all(serving.is_over for serving in servings)
        for serving in servings:
            serving.rein.stop()
        for serving in servings:
            serving.join()
        if codes and is_over:
            sys.exit(codes[0])  # the error has been logged
    finally:
        shared.producer.close()


def _specs(started: entry.ProcessContext) -> list[StreamSpec]:
    known = started.deployment.streams
    for at, name in enumerate(started.names):
        if name not in known:
            raise UsageError(f"{started.deployment_path} has no stream {name!r}")
        if name in started.names[:at]:
            raise UsageError(f"stream {name} is named twice")
    return [known[name] for name in started.names]


def _shared(started: entry.ProcessContext, specs: Sequence[StreamSpec]) -> ProxyShared:
    deployment, transport, clock = started.deployment, started.transport(), SystemClock()
    names = deployment.names
    keep_prefix(started.data_dir, names)
    faults = Faults.open(started.data_dir / "proxy", specs[0].name)
    faults.watch()
    registry = Registry(transport)
    heartbeats = HeartbeatSender(
        started.cluster, started.process, names=names, clock=clock, carries=True
    ).start()

    def make_topics(streams: Sequence[StreamSpec]) -> None:
        ensure_topics(started.cluster, [t for spec in streams for t in own_topics(spec, names)])

    try:
        make_topics(specs)
        made = True
    except EnvironmentProblem:
        made = False  # one that cannot be made is the business of its stream alone
    each = min(STREAM_IN_FLIGHT_BYTES_MAX, IN_FLIGHT_BYTES_MAX // len(specs))
    return ProxyShared(
        deployment=deployment,
        cluster=started.cluster,
        data_dir=started.data_dir,
        transport=transport,
        producer=transport.producer(in_flight_bytes_max=each * len(specs)),
        in_flight_bytes_max=each,
        clock=clock,
        listener=HeartbeatListener(transport, gather_ms=PATIENT_GATHER_MS),
        registry=registry,
        watch=RegistryWatch(registry),
        faults=faults,
        sender=partial(PartBeat, heartbeats),
        make_topics=make_topics,
        topics_made=made,
    )
