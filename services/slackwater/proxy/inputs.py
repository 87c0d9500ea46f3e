"""Selects a stream's input from its declaration and the options of its process.

An option of one stream names it (``--input room-1=FILE``). The name may be omitted if the process
serves a single stream.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slackwater.formats.localtimes import local_times
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import UsageError
from slackwater.model.names import Names
from slackwater.proxy.mqtt.client import BrokerClient
from slackwater.proxy.mqtt.input import MqttInput
from slackwater.proxy.mqtt.link import Link
from slackwater.proxy.pushed import PushedInput
from slackwater.proxy.replaying import ReplayInput
from slackwater.proxy.sensors import SensorInput, inbox_of
from slackwater.proxy.shell import Input, InputContext, Silence
from slackwater.proxy.spool import BYTES_DEFAULT_MAX
from slackwater.proxy.topic.bounded import ALL, Bounded
from slackwater.proxy.topic.input import TopicInput
from slackwater.runtime.logs.topics import TopicLayout, topics_for

SPOOL_BYTES_MIN: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of one stream."""

    input: Path | None = None
    silences: tuple[Silence, ...] = ()
    end_at_us: int | None = None
    end_boundary_us: int | None = None
    spool_bytes_max: int = BYTES_DEFAULT_MAX
    until: tuple[int, ...] | None = None
    """The offsets before which the partitions of a topic are read; None: without end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that are specific to the proxy."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[STREAM=]FILE",
        help="a file of CSV, Parquet or JSON to replay",
    )
    parser.add_argument(
        "--commands",
        action="store_true",
        help="accept `kill`, `pause` and `resume` of single streams on standard input",
    )
    parser.add_argument("--end-at", type=int, metavar="US", help="last event time sent")
    parser.add_argument(
        "--end-boundary", type=int, metavar="US", help="event time of the final boundary"
    )
    parser.add_argument(
        "--silence",
        action="append",
        default=[],
        metavar="[STREAM=]AT_S:FOR_S",
        help="append nothing from AT_S after the anchor, for FOR_S (wall seconds)",
    )
    parser.add_argument(
        "--until",
        action="append",
        default=[],
        metavar="[STREAM=]OFFSETS",
        help="read a topic up to these offsets of its partitions 0, 1, ..., as in 1200,1317",
    )
    parser.add_argument(
        "--spool-bytes-max",
        type=parse_spool_bytes,
        default=BYTES_DEFAULT_MAX,
        metavar="N",
        help="maximum size of the spool of each stream",
    )


def parse_silence(text: str) -> Silence:
    """Parse ``5:8`` or ``0.5:1.25``, in seconds."""
    try:
        at_s, for_s = map(float, text.split(":"))
    except ValueError:
        raise UsageError(f"--silence: {text!r} is not AT_S:FOR_S, like 5:8") from None
    if not 0 <= at_s < 1e9 or not 0 <= for_s < 1e9:
        raise UsageError(f"--silence {text!r}: seconds cannot be negative")
    return Silence(round(at_s * 1e6), round(for_s * 1e6))


def parse_until(text: str) -> tuple[int, ...]:
    """Parse ``1200,1317``, the end offsets of a topic's partitions."""
    offsets = text.split(",")
    if not all(each.isdecimal() for each in offsets):
        raise UsageError(f"--until {text!r}: write one offset for each partition, as in 1200,1317")
    return tuple(map(int, offsets))


def parse_spool_bytes(text: str) -> int:
    """Parse a spool size; it must have room for at least a few records."""
    if not text.isdecimal() or int(text) < SPOOL_BYTES_MIN:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be a number of bytes, at least {SPOOL_BYTES_MIN}"
        )
    return int(text)


def options_of(
    arguments: argparse.Namespace, streams: tuple[str, ...]
) -> Mapping[str, StreamOptions]:
    """Return the options of each stream; ``UsageError`` if one names no stream of the process."""
    inputs = _by_stream("--input", arguments.input, streams)
    silences = _by_stream("--silence", arguments.silence, streams)
    untils = _by_stream("--until", arguments.until, streams)
    return {
        stream: StreamOptions(
            input=_file("--input", stream, inputs[stream]),
            silences=tuple(map(parse_silence, silences[stream])),
            end_at_us=arguments.end_at,
            end_boundary_us=arguments.end_boundary,
            spool_bytes_max=arguments.spool_bytes_max,
            until=parse_until(untils[stream][-1]) if untils[stream] else None,
        )
        for stream in streams
    }


def make_input(context: InputContext, options: StreamOptions) -> Input:
    """Create the input for the declaration and the options."""
    spec = context.spec
    if spec.time.zone is not None:
        local_times(spec.time.zone, spec.time.fold)  # a missing zone is an error of the start
    if options.input is not None:
        if spec.topic is not None:
            raise UsageError(f"stream {spec.name} is fed by topic {spec.topic.name}, not by a file")
        if spec.mqtt is not None:
            raise UsageError(f"stream {spec.name} is fed by {spec.mqtt.address}, not by a file")
        if spec.time.from_ is not None:
            reason = f"stream {spec.name} has times of {spec.time.from_}, which a file has not"
            raise UsageError(reason)
        return ReplayInput(
            context,
            options.input,
            end_at_us=options.end_at_us,
            end_boundary_us=options.end_boundary_us,
        )
    if spec.topic is not None:
        bounded = ALL
        if options.until is not None:
            inbox = inbox_of(context.spool.path.parent.parent, spec.name)
            bounded = Bounded(options.until, inbox)
        return TopicInput(context, spec.topic, bounded)
    if spec.mqtt is not None:
        link = Link(spec.mqtt.in_flight)
        client = BrokerClient(spec.name, spec.mqtt, link, context.clock)
        return MqttInput(context, link, client)
    if spec.http is not None:
        assert context.requests is not None
        return PushedInput(context, context.requests)
    return SensorInput(context)


def own_topics(spec: StreamSpec, names: Names) -> list[TopicLayout]:
    """Return the topics needed at the start; a topic's source logs are known only once it is read.

    A proxy without the right to create topics finds these existing and must need no others.
    """
    unknown = () if spec.topic is None else (names.source(spec.name),)
    return [topic for topic in topics_for([spec.name], [], names) if topic.name not in unknown]


def _by_stream(
    option: str, given: Iterable[str], streams: tuple[str, ...]
) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {stream: [] for stream in streams}
    for text in given:
        name, equals, value = text.partition("=")
        if equals and name in found:
            found[name].append(value)
        elif len(streams) == 1:
            found[streams[0]].append(text)
        else:
            raise UsageError(f"{option} {text}: write STREAM=..., one of {', '.join(streams)}")
    return found


def _file(option: str, stream: str, given: list[str]) -> Path | None:
    if len(given) > 1:
        raise UsageError(f"{option}: stream {stream} has two files, {' and '.join(given)}")
    return Path(given[0]) if given else None
