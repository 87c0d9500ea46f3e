"""Commands for one stream, source or query: ``init``, ``quarantine``, ``send`` and ``watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.common import (
    BootstrapOption,
    DataDirOption,
    KafkaConfigOption,
    PrefixOption,
    SiteOption,
    StartedFileOption,
    data_dir,
    find_names,
    parse_duration,
    reach_kafka,
)
from slackwater.model.errors import UsageError


def init(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|TOPIC",
            help="Files of CSV or JSON, packed with gzip or not, or topics that have messages.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A new file. Default: print it."),
    ] = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
) -> None:
    """Draft a deployment file from the readings of files or topics; each guess has its reason.

    Guessed are columns, key, unit or format of the time, and what stands for a missing value;
    measured are disorder and spacing. An existing file is not overwritten.

    Example: slackwater init monday-1.csv.gz monday-2.csv.gz --output rooms.yaml
    """
    from slackwater.cli.drafting.command import run_init

    run_init(sources, output, lambda: reach_kafka(bootstrap, kafka_config, data_dir_))


StreamArgument = Annotated[str, typer.Argument(help="The stream's name.")]


def quarantine(
    stream: StreamArgument,
    json_: Annotated[bool, typer.Option("--json", help="The same as JSON, for programs.")] = False,
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
) -> None:
    """Show which readings were refused: why, how many, an example each, and the nearest repair.

    Example: slackwater quarantine lab
    """
    from slackwater.cli.quarantine import print_quarantine

    cluster = reach_kafka(bootstrap, kafka_config, data_dir_)
    names = find_names(prefix, bootstrap, data_dir_)
    print_quarantine(cluster, names, data_dir(data_dir_), stream, is_json=json_)


def send(
    stream: StreamArgument,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="D", help="Time between two readings. Default: 1s."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", help="Readings per second, in place of --every."),
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="D", help="Length. Default: until Ctrl-C.")
    ] = None,
    silence: Annotated[
        str | None,
        typer.Option(
            "--silence",
            metavar="FROM..TO",
            help="Send nothing in this time, as in 10s..20s; its readings follow afterwards.",
        ),
    ] = None,
    keys: Annotated[int, typer.Option("--keys", metavar="N", help="Number of devices.")] = 1,
    values: Annotated[
        Path | None,
        typer.Option(
            "--values",
            metavar="FILE",
            help="A CSV file, packed with gzip or not, with the values of the fields, row by row,"
            " and again from its beginning. Its times are not used.",
        ),
    ] = None,
    deployment: StartedFileOption = None,
    site: SiteOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
) -> None:
    """Send generated readings to a stream that is fed by a topic, over HTTP or by MQTT.

    Example: slackwater send lab --every 1s --silence 10s..20s
    """
    from slackwater.cli.send import (
        KEYS_MAX,
        RATE_MAX,
        SendingSchedule,
        find_stream,
        parse_silence,
        run_send,
    )

    if every is not None and rate is not None:
        raise UsageError("--rate is in place of --every: give one of them")
    if rate is not None and not 0 < rate <= RATE_MAX:
        raise UsageError(f"--rate {rate:g}: must be above 0 and at most {RATE_MAX:g}")
    if not 1 <= keys <= KEYS_MAX:
        raise UsageError(f"--keys {keys}: must be between 1 and {KEYS_MAX}")
    every_us = 1e6 / rate if rate is not None else parse_duration("--every", every or "1s")
    if every_us < 1e6 / RATE_MAX:
        raise UsageError(f"--every {every}: at most {RATE_MAX:g} readings per second are sent")
    schedule = SendingSchedule(
        every_us,
        None if for_ is None else parse_duration("--for", for_),
        None if silence is None else parse_silence(silence),
    )
    if site is not None and deployment is None:
        raise UsageError("--site is of a file: give --deployment too")
    found = find_stream(stream, deployment, data_dir(data_dir_), site)
    run_send(found, reach_kafka(bootstrap, kafka_config, data_dir_), schedule, keys, values)


def watch(
    query: Annotated[str, typer.Argument(help="The query's name.")],
    figure: Annotated[
        str,
        typer.Option(
            "--figure",
            metavar="FIELD.AGGREGATE",
            help="The figure that is shown, as in temperature.max. Default: the first average.",
        ),
    ] = "",
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="A key to show; repeatable. Default: the first."),
    ] = None,
    from_: Annotated[
        str, typer.Option("--from", metavar="beginning|end", help="Where to start reading.")
    ] = "end",
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
) -> None:
    """Show a query's windows as a live table: tentative, undone, exact; until Ctrl-C.

    Example: slackwater watch climate
    """
    from slackwater.cli.watch import run_watch

    cluster = reach_kafka(bootstrap, kafka_config, data_dir_)
    names = find_names(prefix, bootstrap, data_dir_)
    run_watch(cluster, names, query, figure, key or [], from_)
