"""Sensor proxy: the process that writes the source logs of some streams.

    python -m slackwater.proxy STREAM [STREAM ...] --deployment F --bootstrap B --data-dir D
        [--input [STREAM=]FILE]... [--end-at US] [--end-boundary US]
        [--silence [STREAM=]AT_S:FOR_S]... [--until [STREAM=]OFFSETS]... [--spool-bytes-max N]
        [--commands]

There are three kinds of input. A stream with ``topic`` reads that topic, with ``--until`` up to an
offset of each partition. With ``--input`` a file is
replayed, paced by the deployment's event clock: ``--end-at`` is the event time (us) up to which the
file is sent, ``--end-boundary`` the event time (us) of the final boundary (trace-24). Otherwise the
input is the spool of sensors that connect and disconnect: spooled readings are sent, and boundaries
follow the clock.

``--silence`` suspends writes to the source log during a rehearsal, given as wall seconds after the
anchor and a duration. It is an option and not a message, so that it also applies to a proxy that is
killed and restarted during the silence.

Objects created before the streams are served are exempt from garbage collection.

If a stream has several proxies (``topic.proxies``), STREAM is the first and STREAM.1 the second.

The process ends when it is stopped, or when none of its streams can be served (a file without a
declared column, a missing topic); the exit code is then that of the error. If only some streams
fail, their heartbeats report the errors. If another process writes a stream, this process is its
standby.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from slackwater.formats.dead_letters import Faults
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import EnvironmentProblem, SlackwaterError, UsageError
from slackwater.model.names import ProxyName
from slackwater.proxy.inputs import StreamOptions, add_arguments, options_of, own_topics
from slackwater.proxy.registered import RegistryWatch
from slackwater.proxy.serving import (
    IN_FLIGHT_BYTES_MAX,
    STREAM_IN_FLIGHT_BYTES_MAX,
    ProxyShared,
    Serving,
)
from slackwater.runtime.logs.cluster import cluster_of
from slackwater.runtime.logs.described import TopicObserver
from slackwater.runtime.logs.topics import ensure_topics
from slackwater.runtime.service import entry
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import keep_prefix
from slackwater.runtime.service.heartbeats import (
    PATIENT_GATHER_MS,
    HeartbeatListener,
    HeartbeatSender,
)
from slackwater.runtime.service.own_address import reachable_at
from slackwater.runtime.service.owntopics import OwnTopics
from slackwater.runtime.service.parts import HTTP_AT, PartBeat, of_parts, start_following
from slackwater.runtime.service.registry import Registry

GC_OBJECTS: Final = 50_000
"""New objects before a garbage collection. A client returns thousands of messages at once; with
Python's default of 700, most of the reading time was spent on collections without effect."""

if TYPE_CHECKING:
    from slackwater.proxy.http.server import HttpServer


def main() -> None:
    """Run the sensor proxy process."""
    entry.run("proxy", run, add_arguments=add_arguments, serves="STREAM")


def run(started: entry.ProcessContext) -> None:
    """Serve the streams until stopped."""
    names = _names(started)
    specs = [started.deployment.streams[name.stream] for name in names]
    options = options_of(started.arguments, tuple(dict.fromkeys(name.stream for name in names)))

    def look() -> None:
        if all(serving.is_over for serving in servings):
            started.stopping.set()

    def lost(name: str, error: SlackwaterError) -> None:
        for serving in servings:
            if serving.name == name:
                serving.lost(error)

    shared = _shared(started, specs, lost)
    servings = [
        Serving(shared, spec, name, options[spec.name], look)
        for spec, name in zip(specs, names, strict=True)
    ]
    server = _http_server(started, options, servings, shared)
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 10, 10)
    shared.listener.start()
    try:
        for serving in servings:
            serving.start()
        if server is not None:
            server.start()
        if started.arguments.commands:
            start_following(
                sys.stdin.buffer, of_parts({each.name: each.verbs for each in servings})
            )
        started.stopping.wait()
        codes = [serving.error.exit_code for serving in servings if serving.error is not None]
        is_over = all(serving.is_over for serving in servings)
        if server is not None:
            server.stop()
        for serving in servings:
            serving.control.stop()
        for serving in servings:
            serving.join()
        if codes and is_over:
            sys.exit(codes[0])  # the error has been logged
    finally:
        shared.producer.close()


def _http_server(
    started: entry.ProcessContext,
    options: Mapping[str, StreamOptions],
    servings: Sequence[Serving],
    shared: ProxyShared,
) -> HttpServer | None:
    """Return the server of the streams with ``http`` that replay no file; None if there are none.

    Its port is bound now, so that a port in use is an error at the start.
    """
    streams = started.deployment.streams
    posted = {
        serving.stream: (spec, serving.requests)
        for serving in servings
        if (spec := streams[serving.stream]).http is not None and options[spec.name].input is None
    }
    if not posted:
        return None
    # Imported only if needed: the server takes time and memory to load.
    from slackwater.proxy.http.server import serve

    others = {
        name: spec.http
        for name, spec in streams.items()
        if spec.http is not None and name not in options
    }

    def address(stream: str) -> str | None:
        process = ProxyName(stream).process
        beat = shared.listener.latest(process)
        if beat is None or not shared.listener.ready(process):
            return None
        found = (at.removeprefix(HTTP_AT) for at in beat.detail if at.startswith(HTTP_AT))
        return next(found, None)

    return serve(
        started.deployment.http,
        posted,
        started.deployment_path.parent,
        shared.clock.now_us,
        started.stopping.set,
        others,
        address,
    )


def _names(started: entry.ProcessContext) -> list[ProxyName]:
    streams, names = started.deployment.streams, list(map(ProxyName.parse, started.names))
    for at, name in enumerate(names):
        if name.stream not in streams:
            raise UsageError(f"{started.deployment_path} has no stream {name.stream!r}")
        if name not in streams[name.stream].proxy_names:
            proxies = len(streams[name.stream].proxy_names)
            raise UsageError(
                f"{started.deployment_path}: stream {name.stream} has {proxies}"
                f" {'proxy' if proxies == 1 else 'proxies'} (topic.proxies): there is no {name}"
            )
        if name in names[:at]:
            raise UsageError(f"stream {name} is named twice")
    return names


def _shared(
    started: entry.ProcessContext,
    specs: Sequence[StreamSpec],
    lost: Callable[[str, SlackwaterError], None],
) -> ProxyShared:
    deployment, transport, clock = started.deployment, started.transport(), SystemClock()
    names = deployment.names
    keep_prefix(started.data_dir, names)
    faults = Faults.open(started.data_dir / "proxy", started.names[0])
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
        made = False  # the stream that lacks the topic reports the error
    is_posted = any(spec.http is not None for spec in specs)
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
        topics=TopicObserver(started.cluster),
        own_topics=OwnTopics(registry, names, partial(TopicObserver, started.cluster), lost),
        make_topics=make_topics,
        topics_made=made,
        http_at=reachable_at(deployment.http, cluster_of(started.cluster).bootstrap)
        if is_posted
        else "",
    )
