"""The command line: one function per command, and one place that maps errors to exit codes.

0 success; 1 a check failed; 2 a user error (file, field, fault, option); 3 an environment error
(Java, jars, port, broker, topic, disk). An error is printed as one sentence; a traceback indicates
a bug. Each command imports the modules it needs, to keep ``--help`` fast.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.alerts import alerts, notify
from slackwater.cli.common import (
    BootstrapOption,
    DataDirOption,
    DeploymentOption,
    FileArgument,
    FileOption,
    KafkaConfigOption,
    PrefixOption,
    SiteOption,
    StartedFileOption,
    data_dir,
    emit,
    find_names,
    one_file,
    parse_bindings,
    parse_duration,
    print_version,
    reach_kafka,
    warn,
)
from slackwater.cli.controller import controller
from slackwater.cli.controls import (
    ControllersOption,
    SecretFileOption,
    TlsDirOption,
    find_controllers,
)
from slackwater.cli.gateway import gateway
from slackwater.cli.help_sections import SectionedGroup
from slackwater.cli.ingest_options import backfill, ingest
from slackwater.cli.node import node_app
from slackwater.cli.query import query_app
from slackwater.cli.source_commands import init, quarantine, send, watch
from slackwater.cli.sql import sql
from slackwater.cli.surroundings import what_to_do
from slackwater.cli.web import WebCommand, WebOption
from slackwater.model.errors import CheckFailed, EnvironmentProblem, SlackwaterError, UsageError
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.service.settings import settings

app = typer.Typer(
    name="slackwater",
    cls=SectionedGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(query_app, name="query")
app.add_typer(node_app, name="node")


def main() -> None:
    """Entry point of ``slackwater``."""
    if not faulthandler.is_enabled():
        faulthandler.enable()
    logging.basicConfig(level=logging.WARNING, format="slackwater: %(message)s")
    # A Kafka client logs every lost connection, and a rehearsal loses connections on purpose.
    logging.getLogger("slackwater.runtime.logs.kafka.client").setLevel(logging.CRITICAL)
    try:
        app()
    except SlackwaterError as error:
        warn(f"slackwater: {error.message}")
        sys.exit(error.exit_code)
    except OSError as error:
        if (sentence := what_to_do(error)) is None:
            raise
        warn(f"slackwater: {sentence}")
        sys.exit(EnvironmentProblem.exit_code)


@app.callback()
def common(
    _: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=print_version, help="Print the version."),
    ] = False,
) -> None:
    """Windows over sensor streams: a first answer within a bound, the exact answer later.

    Start with: slackwater demo
    """


@app.command(cls=WebCommand)
def up(
    file: FileArgument = None,
    deployment: FileOption = None,
    data_dir_: DataDirOption = None,
    port: Annotated[
        int | None, typer.Option("--port", help="The embedded broker's port. Default: a free one.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            metavar="HOST:PORT",
            help="Use this Kafka cluster instead of an embedded one.",
        ),
    ] = None,
    kafka_config: KafkaConfigOption = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Run the embedded broker with TLS and a password, which is written to"
            " client.properties in the data directory.",
        ),
    ] = False,
    web: WebOption = None,
    notify: Annotated[
        bool,
        typer.Option(
            "--notify",
            help="Also send alerts, to the receivers of SLACKWATER_ALERTMANAGER_URL and"
            " SLACKWATER_WEBHOOK_URL (see `slackwater notify`).",
        ),
    ] = False,
    site: SiteOption = None,
) -> None:
    """Run a deployment on this machine until Ctrl-C.

    Example: slackwater up rooms.yaml
    """
    from slackwater.cli.up import run_up

    kafka_config = kafka_config or settings().kafka_config
    if port is not None and (bootstrap, kafka_config) != (None, None):
        raise UsageError(
            "--port is for the embedded broker and excludes --bootstrap and --kafka-config"
        )
    if secure and (bootstrap, kafka_config) != (None, None):
        raise UsageError(
            "--secure is for the embedded broker and excludes --bootstrap and --kafka-config"
        )
    if port is not None and not 0 < port < 65_536:
        raise UsageError(f"--port {port}: must be between 1 and 65535")
    run_up(
        one_file(file, deployment, "up"),
        data_dir(data_dir_),
        port,
        bootstrap,
        kafka_config,
        secure=secure,
        web=web,
        notify=notify,
        site=site,
    )


@app.command()
def topics(
    deployment: DeploymentOption,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    inputs: Annotated[
        int | None,
        typer.Option(
            "--inputs",
            metavar="PARTITIONS",
            help="Also create missing input topics of streams, with this many partitions.",
        ),
    ] = None,
    site: SiteOption = None,
) -> None:
    """Create the missing topics of a deployment in a Kafka cluster.

    For deployments that are not started by `slackwater up`, which creates topics itself.

    Example: slackwater topics --deployment rooms.yaml --bootstrap kafka:9092
    """
    from slackwater.cli.up import make_topics

    if inputs is not None and inputs < 1:
        raise UsageError(f"--inputs {inputs}: must be at least 1")
    make_topics(deployment, reach_kafka(bootstrap, kafka_config, role=Role.ADMIN), inputs, site)


@app.command()
def results(
    query: Annotated[str, typer.Argument(help="The query's name.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further results, until Ctrl-C.")
    ] = False,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="KINDS",
            help="Kinds, separated by commas: stable, tentative, boundary, undo, rec_done, gap."
            " Default: all but boundary for a table, all for jsonl.",
        ),
    ] = "",
    format_: Annotated[
        str, typer.Option("--format", metavar="table|jsonl", help="Output format.")
    ] = "table",
    from_: Annotated[
        str, typer.Option("--from", metavar="beginning|end", help="Where to start reading.")
    ] = "beginning",
    by_window: Annotated[
        bool,
        typer.Option(
            "--by-window",
            help="Merge the parts: a window is printed when all parts have answered it, and"
            " corrections after the last window before them.",
        ),
    ] = False,
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
) -> None:
    """Print a query's results: stable, tentative and corrections as one sequence.

    Example: slackwater results climate --follow --kind stable,undo --format jsonl
    """
    from slackwater.cli.show import print_results

    kinds = {k.strip() for k in kind.split(",") if k.strip()}
    cluster = reach_kafka(bootstrap, kafka_config, data_dir_)
    names = find_names(prefix, bootstrap, data_dir_)
    print_results(cluster, names, query, follow, kinds, format_, from_, by_window=by_window)


@app.command()
def status(
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="table|json", help="Output format.")
    ] = "table",
    json_: Annotated[
        bool, typer.Option("--json", help="Everything as one JSON object: for programs.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Each process with its counters.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every 2 s, until Ctrl-C.")] = False,
) -> None:
    """Show whether all is well: queries, streams, what is late or missing and why, processes.

    With controllers also the nodes, and where each fragment runs.

    Exit code 1 if a process is missing, no copy of a stage is ready, a query's answers exceed their
    bound, a fragment does not run on its node, or a node reports a problem, such as a clock that is
    off by too much.

    Example: slackwater status --watch
    """
    from slackwater.cli.control_status import Controls
    from slackwater.cli.show import print_status

    cluster = reach_kafka(bootstrap, kafka_config, data_dir_)
    names = find_names(prefix, bootstrap, data_dir_)
    directory = data_dir(data_dir_)
    controls = Controls(find_controllers(controllers, secret_file, tls_dir, directory, cluster))
    print_status(
        *(cluster, names, directory, format_),
        watch=watch,
        verbose=verbose,
        everything=json_,
        controls=controls,
    )


@app.command()
def audit(
    query: Annotated[str, typer.Argument(help="The query's name.")],
    deployment: StartedFileOption = None,
    input_: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="STREAM=FILE",
            help="A file that was ingested: each of its readings must be in the log or quarantine.",
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
) -> None:
    """Recompute a query's stable results from the source logs, as a Spark batch job, and compare.

    With --input a file that was ingested (not with --as-now, which changes its times) is compared
    with the source log, reading by reading. It is read by the judge's own reader.

    Example: slackwater audit climate --input room-1=a.csv
    """
    from slackwater.cli.audit import print_audit

    directory = data_dir(data_dir_)
    cluster = reach_kafka(bootstrap, kafka_config, directory, Role.ADMIN)
    inputs = parse_bindings("--input", input_ or [])
    print_audit(cluster, directory, query, deployment, inputs)


@app.command()
def acl(
    deployment: DeploymentOption,
    role: Annotated[Role, typer.Option("--role", help="Role of the client; see docs/security.md.")],
    principal: Annotated[
        str, typer.Option("--principal", metavar="TYPE:NAME", help="As in User:plant-7-proxy.")
    ],
    format_: Annotated[
        str, typer.Option("--format", metavar="text|json", help="Command lines, or JSON.")
    ] = "text",
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    site: SiteOption = None,
) -> None:
    """Print the access control lists that a role needs in a secured Kafka; changes nothing.

    With a cluster, for the topics of the queries as they are registered; else by the file alone.

    Example: slackwater acl --role proxy --principal User:proxy --deployment rooms.yaml
    """
    from slackwater.cli.acl import print_acl

    print_acl(deployment, role, principal, format_, bootstrap, kafka_config, site)


@app.command()
def plan(
    deployment: Annotated[Path, typer.Argument(metavar="FILE", help="The deployment file (YAML).")],
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Readings per second of each stream.")
    ] = 100.0,
    keys: Annotated[int, typer.Option("--keys", metavar="N", help="Keys per window.")] = 100,
    format_: Annotated[
        str, typer.Option("--format", metavar="text|json", help="Output format.")
    ] = "text",
    data_dir_: DataDirOption = None,
    site: SiteOption = None,
) -> None:
    """Estimate what a deployment needs of this machine: processes, memory, CPU, topics, disk.

    Computed from measured figures; starts nothing. Exit code 1, with advice, if it does not fit.

    Example: slackwater plan rooms.yaml --rate 500 --keys 40
    """
    from slackwater.cli.plan import print_plan
    from slackwater.machine.plan import PlannedLoad

    if rate < 0 or keys < 1:
        raise UsageError("--rate must be at least 0, and --keys at least 1")
    if format_ not in {"text", "json"}:
        raise UsageError(f"--format {format_}: choose text or json")
    print_plan(deployment, PlannedLoad(rate, keys), data_dir(data_dir_), format_, site)


@app.command()
def doctor(data_dir_: DataDirOption = None) -> None:
    """Check Java, jars, ports, disk and memory; prints how to repair each problem.

    Example: slackwater doctor
    """
    from slackwater.cli.doctor import examine

    failed = 0
    for finding in examine(data_dir(data_dir_)):
        emit(f"{'ok  ' if finding.ok else 'BAD '} {finding.subject:<12} {finding.text}")
        if not finding.ok:
            failed += 1
            if finding.repair:
                emit(f"     {'':<12} -> {finding.repair}")
    if failed:
        raise EnvironmentProblem(f"{failed} of the checks failed")


@app.command()
def rehearse(
    input_: Annotated[
        list[str],
        typer.Option(
            "--input", metavar="STREAM=FILE", help="A file for a stream: CSV, Parquet, JSON."
        ),
    ],
    file: FileArgument = None,
    deployment: FileOption = None,
    out: Annotated[Path, typer.Option("--out", help="File for the results, as JSON lines.")] = Path(
        "results.jsonl"
    ),
    speed: Annotated[
        float, typer.Option("--speed", help="Speed, as a multiple of the readings' own times.")
    ] = 1.0,
    duration: Annotated[
        str | None,
        typer.Option("--duration", metavar="D", help="Length of the replay. Default: all input."),
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", metavar="D", help="Maximum wait for the last results.")
    ] = "120s",
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="FAULT",
            help='"at=5s silence STREAM for 8s", "at=5s kill KIND[/NAME]",'
            ' "at=5s stop KIND[/NAME]" (an orderly end) or "at=5s pause KIND[/NAME] for 2s";'
            " kinds: proxy, orderer, aggregator, root, host, broker.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of all random choices.")] = 0,
    report: Annotated[
        Path | None, typer.Option("--report", help="File for the report, as JSON.")
    ] = None,
    data_dir_: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Directory for logs and spools. Default: a temporary directory, removed at the"
            " end unless the rehearsal failed.",
        ),
    ] = None,
) -> None:
    """Replay your own files through the real pipeline, with failures, and check the results.

    Starts all processes on this machine, replays the files, injects the faults, waits until all
    results are stable, compares them with a batch computation, and stops all processes. Exit code 0
    only if all results are equal and every first answer came within its bound (plus 250 ms) while a
    copy of each stage was up.

    Example: slackwater rehearse rooms.yaml --input room-1=a.csv --input room-2=b.csv.gz
    --speed 60 --fault "at=5s silence room-2 for 8s"
    """
    from slackwater.cli.rehearse import run_rehearse

    run_rehearse(
        deployment=one_file(file, deployment, "rehearse"),
        paths=parse_bindings("--input", input_),
        out=out,
        speed=speed,
        duration_us=None if duration is None else parse_duration("--duration", duration),
        wait_us=parse_duration("--wait", wait),
        faults=fault or [],
        seed=seed,
        report=report,
        data_dir=data_dir_,
    )


@app.command(cls=WebCommand)
def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep results and report in this directory."),
    ] = None,
    web: WebOption = None,
) -> None:
    """Show four rooms, one of which falls silent: tentative answers, their undo, exact answers.

    Example: slackwater demo
    """
    from slackwater.cli.demo import run_demo

    if not run_demo(keep, web):
        raise CheckFailed("the demo's results failed the check; see the findings above")


app.command()(alerts)
app.command()(notify)
app.command()(controller)
app.command()(gateway)
app.command()(init)
app.command()(quarantine)
app.command()(send)
app.command()(sql)
app.command()(watch)
app.command()(ingest)
app.command()(backfill)


if __name__ == "__main__":
    main()
