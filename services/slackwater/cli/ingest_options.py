"""``slackwater ingest`` and ``slackwater backfill``: their arguments and options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.common import (
    BootstrapOption,
    DataDirOption,
    KafkaConfigOption,
    StartedFileOption,
    data_dir,
    parse_bindings,
)


def ingest(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="STREAM FILE | STREAM=FILE...",
            help="Files of CSV, Parquet or JSON. Several are shifted by --as-now together.",
        ),
    ],
    deployment: StartedFileOption = None,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            help="Speed, as a multiple of the readings' own times. Default: 1 with --as-now; all"
            " readings at once without it.",
        ),
    ] = None,
    as_now: Annotated[
        bool,
        typer.Option("--as-now", help="Shift all times so that the first is the current time."),
    ] = False,
    stop: Annotated[
        bool,
        typer.Option("--stop", help="Read the files of these streams no further."),
    ] = False,
    data_dir_: DataDirOption = None,
) -> None:
    """Send the readings of files into streams of a running deployment.

    The stream's proxy reads them: the command ends at once, and `slackwater status` shows how many
    lines have been read. With --stop and names of streams it reads no further.

    Example: slackwater ingest room-1=monday-1.csv room-2=monday-2.csv.gz --as-now
    """
    from slackwater.cli.ingest import run_ingest, stop_ingesting

    if stop:
        stop_ingesting(data_dir(data_dir_), [each.partition("=")[0] for each in inputs])
        return

    if len(inputs) == 2 and "=" not in inputs[0]:
        inputs = ["=".join(inputs)]
    files = parse_bindings("", inputs)
    run_ingest(data_dir(data_dir_), files, deployment, speed, as_now)


def backfill(
    file: Annotated[Path, typer.Argument(help="The deployment file.")],
    query: Annotated[str, typer.Argument(help="The query; those that it reads run, too.")],
    from_: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="STREAM=FILE|beginning",
            help="For each stream of the query: CSV, Parquet or JSON, several times or as a"
            " pattern ('lab=2024-*.csv') for several files; beginning: all that its topic holds.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file of the rows. Default: QUERY.jsonl."),
    ] = None,
    data_dir_: Annotated[
        Path | None,
        typer.Option("--data-dir", help="A new folder, which is kept. Default: a temporary one."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Compare the results with a batch computation over the same files, by readers of"
            " its own; exit code 1 if they differ.",
        ),
    ] = False,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Run files or topics of any length through a query as fast as it can be computed, and end.

    Example: slackwater backfill rooms.yaml climate --from room-1=2024.csv --from room-2=2024-2.csv
    """
    from slackwater.cli.backfill import BackfillOptions, run_backfill
    from slackwater.cli.backfill_inputs import parse_inputs

    inputs = parse_inputs(from_)
    out = Path(f"{query}.jsonl") if out is None else out
    options = BackfillOptions(file, query, inputs, out, data_dir_, bootstrap, kafka_config, check)
    run_backfill(options)
