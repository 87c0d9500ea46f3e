"""The command ``slackwater sql``: statements from the command line, a file, a pipe or a prompt."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.common import (
    BootstrapOption,
    DataDirOption,
    KafkaConfigOption,
    data_dir,
    emit,
    find_names,
    reach_kafka,
    warn,
)
from slackwater.cli.controls import (
    ControllersOption,
    SecretFileOption,
    TlsDirOption,
    reach_controllers,
)
from slackwater.model.errors import UsageError
from slackwater.model.names import Names
from slackwater.runtime.service.settings import settings


def sql(
    execute: Annotated[
        list[str] | None,
        typer.Option("--execute", "-e", metavar="TEXT", help="Statements. May be repeated."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="A file of statements.")
    ] = None,
    to_yaml: Annotated[
        bool,
        typer.Option(
            "--to-yaml", help="Print the deployment file that is equal to the statements; run none."
        ),
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", metavar="table|jsonl|csv", help="Output format of rows.")
    ] = "table",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the queries that are created run.")
    ] = False,
    data_dir_: DataDirOption = None,
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Create, change, explain and read queries of a running deployment in SQL.

    Without -e and -f statements are read from standard input; on a terminal there is a prompt. All
    statements of a text are checked before the first one is run.

    Example: slackwater sql -e "SELECT * FROM climate EMIT FINAL"
    """
    from slackwater.cli.statements.output import RowOutput
    from slackwater.cli.statements.run import StatementRunner
    from slackwater.cli.statements.running import Surroundings, file_of_up
    from slackwater.runtime.logs.kafka import KafkaTransport
    from slackwater.runtime.service.registry import Registry

    output, directory = RowOutput(format_), data_dir(data_dir_)
    text = _text(execute or [], file)
    if to_yaml:
        if text is None:
            raise UsageError("--to-yaml needs statements: -e TEXT, -f FILE or standard input")
        print_yaml(*text)
        return

    cluster = cache(lambda: reach_kafka(bootstrap, kafka_config, directory))

    def registry(of: Names) -> Registry:
        return Registry(KafkaTransport(cluster(), of))

    where = Surroundings(
        reach=cache(lambda: reach_controllers(controllers, secret_file, tls_dir, directory)),
        cluster=cluster,
        names=lambda: find_names(None, bootstrap, directory),
        registry=registry if controllers is None or bootstrap is not None else None,
        data_dir=directory,
        file=cache(lambda: file_of_up(directory) if controllers is None else None),
        micro_batch=settings().aggregator_mode == "micro-batch",
    )
    runner = StatementRunner(where, output, waits=wait, keeps_streams=text is None)
    if text is not None:
        runner.run(*text)
        return
    from slackwater.cli.statements.prompt import run_prompt

    run_prompt(runner, directory)


def print_yaml(text: str, where: str) -> None:
    """Print the deployment file that is equal to the statements.

    Raises:
        DeploymentError: the statements are no deployment.
    """
    from slackwater.sql.document import parse_deployment_sql
    from slackwater.sql.printer import yaml_text

    micro_batch = settings().aggregator_mode == "micro-batch"
    declared = parse_deployment_sql(text, where, micro_batch=micro_batch)
    for warning in declared.warnings:
        warn(f"warning: {warning}")
    emit(yaml_text(declared.content).rstrip())


def _text(execute: list[str], file: Path | None) -> tuple[str, str] | None:
    """Return the statements and their name in messages; None: a prompt is wanted."""
    if execute and file is not None:
        raise UsageError("-e and -f: give one of them")
    if execute:
        return "\n;\n".join(execute), "-e"
    if file is not None:
        try:
            return file.read_bytes().decode("utf-8-sig"), str(file)
        except OSError as error:
            raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{file}: is not UTF-8 text: save it as UTF-8") from error
    if sys.stdin.isatty():
        return None
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig"), "<stdin>"
    except UnicodeDecodeError as error:
        raise UsageError("standard input is not UTF-8 text") from error
