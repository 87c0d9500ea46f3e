"""Sensor proxy: the process that writes one stream's source log.

    python -m slackwater.proxy STREAM --deployment F --bootstrap B --data-dir D
        [--input FILE [--end-at US] [--end-boundary US] [--silence AT_S:FOR_S]...]
        [--sensor FILE] [--spool-bytes-max N]

Three kinds of input. A stream with ``topic`` reads that topic. With ``--input`` a file is replayed,
paced by the deployment's event clock: ``--end-at`` is the event time (us) up to which it is sent,
``--end-boundary`` the event time (us) that its boundary goes to at its end (R24). Otherwise the
proxy speaks for sensors that come and go: what is spooled is sent, and boundaries follow the clock.
``--sensor`` is such a one: a file, taken in as by ``slackwater ingest --as-now``, once over all
restarts.

``--silence`` keeps the source log untouched for a time of a rehearsal: wall seconds after the
anchor, and for how long. It is given at the start, so that a proxy which is killed meanwhile keeps
it; a message at the right moment would have to find a process that is there to hear it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import UsageError
from slackwater.proxy.quarantine import Quarantine
from slackwater.proxy.replaying import ReplayInput
from slackwater.proxy.sensors import SensorInput, hand_over
from slackwater.proxy.shell import Context, Input, Shell, Silence
from slackwater.proxy.spool import Spool, bytes_default_max
from slackwater.proxy.topic import TopicInput
from slackwater.runtime import entry
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.heartbeats import HeartbeatListener, HeartbeatSender
from slackwater.runtime.topics import ensure_topics, topics_for

spool_bytes_min = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Beside those that all processes share."""
    parser.add_argument("--input", type=Path, help="a CSV or CSV.gz file to replay")
    parser.add_argument(
        "--sensor", type=Path, help="a file that plays a sensor: its first reading is now"
    )
    parser.add_argument("--end-at", type=int, metavar="US", help="event time: send no later ones")
    parser.add_argument("--end-boundary", type=int, metavar="US", help="boundary at the end")
    parser.add_argument(
        "--silence",
        type=parse_silence,
        action="append",
        default=[],
        metavar="AT_S:FOR_S",
        help="append nothing from AT_S after the anchor, for FOR_S (wall seconds)",
    )
    parser.add_argument(
        "--spool-bytes-max", type=parse_spool_bytes, default=bytes_default_max, metavar="N"
    )


def parse_silence(text: str) -> Silence:
    """``5:8`` or ``0.5:1.25``, in seconds."""
    try:
        at_s, for_s = map(float, text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not AT_S:FOR_S, like 5:8") from None
    if not 0 <= at_s < 1e9 or not 0 <= for_s < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds cannot be negative")
    return Silence(round(at_s * 1e6), round(for_s * 1e6))


def parse_spool_bytes(text: str) -> int:
    """Room for a few records at least, else nothing would ever fit."""
    if not text.isdecimal() or int(text) < spool_bytes_min:
        raise argparse.ArgumentTypeError(f"{text!r}: at least {spool_bytes_min}")
    return int(text)


def main() -> None:
    """The entry point."""
    entry.run("proxy", run, add_arguments=add_arguments)


def run(started: entry.Context) -> None:
    """Run one proxy until it is told to stop."""
    deployment = started.load_deployment()
    spec = deployment.streams.get(started.name)
    if spec is None:
        raise UsageError(f"{started.deployment_path} has no stream {started.name!r}")
    arguments = started.arguments
    failures: list[str] = []
    transport, clock = started.transport(), SystemClock()
    ensure_topics(started.bootstrap, topics_for([spec.name], []))
    writer = transport.writer(failures.append)
    spool_path = started.data_dir / "proxy" / f"{spec.name}.sqlite"
    context = Context(
        spec=spec,
        deployment=deployment,
        transport=transport,
        bootstrap=started.bootstrap,
        writer=writer,
        quarantine=Quarantine(writer, spec.name),
        spool=Spool(spool_path, arguments.spool_bytes_max),
        clock=clock,
        stop=started.stopping,
        silences=tuple(arguments.silence),
    )
    source = make_input(context, spec, arguments)
    sender = HeartbeatSender(started.bootstrap, started.process, clock=clock).start()
    listener = HeartbeatListener(transport).start()
    try:
        Shell(context, source, sender, listener, failures).run()
    finally:
        writer.close(timeout_s=0.5)
        source.close()
        sender.stop()


def make_input(context: Context, spec: StreamSpec, arguments: argparse.Namespace) -> Input:
    """The kind of input that the declaration and the options ask for."""
    if arguments.input is not None:
        if spec.topic is not None:
            raise UsageError(f"stream {spec.name} is fed by topic {spec.topic.name}, not by a file")
        return ReplayInput(
            context,
            arguments.input,
            end_at_us=arguments.end_at,
            end_boundary_us=arguments.end_boundary,
        )
    if spec.topic is not None:
        return TopicInput(context, spec.topic)
    if arguments.sensor is not None:
        hand_over(context.spool.path.parent.parent, spec.name, "sensor", arguments.sensor)
    return SensorInput(context)
