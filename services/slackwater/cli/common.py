"""Code shared by commands: the broker's address, option parsing and output."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from slackwater import __version__
from slackwater.cli.tables import visible
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.model.names import Names, why_no_prefix
from slackwater.runtime.logs.cluster import Cluster, find_cluster
from slackwater.runtime.security.credentials import PLAINTEXT, Role
from slackwater.runtime.security.security_file import read_kafka_file
from slackwater.runtime.service.settings import settings

if TYPE_CHECKING:
    from slackwater.runtime.service.datadir import RunFile

ANSWER_S_MAX: Final = 5.0
"""Maximum wait for the broker before it is reported as unavailable."""

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Address of Kafka. Default: SLACKWATER_BOOTSTRAP, else that of run.json in the data"
        " directory.",
    ),
]
KafkaConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kafka-config",
        metavar="FILE",
        help="Kafka's client properties, for a cluster with TLS or SASL; or a folder with one file"
        " for each role. Default: SLACKWATER_KAFKA_CONFIG, else that of run.json.",
    ),
]
SiteOption = Annotated[
    str | None,
    typer.Option(
        "--site",
        metavar="NAME",
        help="What runs at this site of the file, which has a Kafka of its own. Default: what runs"
        " at the centre.",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The data directory of `slackwater up`. Default: .slackwater",
    ),
]
StartedFileOption = Annotated[
    Path | None,
    typer.Option(
        "--deployment",
        metavar="FILE",
        help="The deployment file. Default: the one `slackwater up` was started with.",
    ),
]
PrefixOption = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        metavar="PREFIX",
        help="The deployment's prefix, as in plant-7. Default: SLACKWATER_PREFIX, else that of"
        " run.json in the data directory, if it has the same broker.",
    ),
]
DeploymentOption = Annotated[
    Path, typer.Option("--deployment", metavar="FILE", help="The deployment file (YAML).")
]


FileArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The deployment file (YAML).")
]
FileOption = Annotated[
    Path | None, typer.Option("--deployment", metavar="FILE", help="The same, as an option.")
]


def one_file(argument: Path | None, option: Path | None, command: str) -> Path:
    """Return the deployment file, which is named once: as an argument or as an option."""
    if argument is not None and option is not None:
        raise UsageError(f"{argument} and --deployment {option}: name one deployment file")
    found = argument or option
    if found is None:
        raise UsageError(f"name the deployment file, as in: slackwater {command} rooms.yaml")
    return found


def print_version(is_asked: bool) -> None:
    """Print the version and end, if it is asked for."""
    if is_asked:
        emit(f"slackwater {__version__}")
        raise typer.Exit


def data_dir(given: Path | None) -> Path:
    """Return the data directory: the option, else SLACKWATER_DATA_DIR, else .slackwater."""
    return settings().data_dir if given is None else given


def reach_kafka(
    bootstrap: str | None,
    kafka_config: Path | None,
    directory: Path | None = None,
    role: Role = Role.CLIENT,
) -> Cluster:
    """Return the cluster if Kafka answers; else raise a one-sentence error, exit code 3."""
    from slackwater.machine.broker import why_no_answer

    cluster, origin = find_kafka(bootstrap, kafka_config, directory, role)
    why = why_no_answer(cluster, ANSWER_S_MAX)
    if why is not None:
        raise EnvironmentProblem(
            f"no broker answers at {cluster} (from {origin}) within {ANSWER_S_MAX:g} s ({why}):"
            " is `slackwater up` running?"
        )
    return cluster


def find_kafka(
    bootstrap: str | None, kafka_config: Path | None, directory: Path | None, role: Role
) -> tuple[Cluster, str]:
    """Return the cluster, which may not answer, and the origin of its address."""
    cluster, origin = _cluster(bootstrap, kafka_config, data_dir(directory), role)
    check_address(cluster.bootstrap, origin)
    return cluster, origin


def check_address(bootstrap: str, origin: str) -> None:
    """Raise ``UsageError`` unless all addresses are HOST:PORT, since retries would be useless."""
    if not all(map(_is_address, bootstrap.split(","))):
        raise UsageError(f"{origin} has {bootstrap!r}: write host:port")


def find_names(given: str | None, bootstrap: str | None, directory: Path | None = None) -> Names:
    """Return the deployment's topic names; ``bootstrap`` is the option, or None."""
    from slackwater.runtime.service.datadir import read_run

    origin = "--prefix"
    if given is None:
        given, origin = settings().prefix, "SLACKWATER_PREFIX"
    if given is None:
        address = settings().bootstrap if bootstrap is None else bootstrap
        # Without an address run.json must exist; with one it is optional.
        run = read_run(data_dir(directory)) if address is None else _run_at(address, directory)
        return Names() if run is None else run.names
    if (reason := why_no_prefix(given)) is not None:
        raise UsageError(f"{origin}: {reason}")
    return Names(given)


def _run_at(address: str, directory: Path | None) -> RunFile | None:
    """Return run.json if its deployment is on this broker."""
    from slackwater.runtime.service.datadir import read_run

    try:
        run = read_run(data_dir(directory))
    except EnvironmentProblem:
        return None
    return run if run is not None and run.bootstrap == address else None


def _is_address(text: str) -> bool:
    found = re.fullmatch(r"\s*(?:[\w.-]+|\[[\da-fA-F:.]+\]):(\d{1,5})\s*", text, re.ASCII)
    return found is not None and 0 < int(found[1]) < 65_536


def _cluster(
    bootstrap: str | None, kafka_config: Path | None, directory: Path, role: Role
) -> tuple[Cluster, str]:
    """Return the cluster and the origin of its address: option, environment or run.json."""
    from slackwater.runtime.service.datadir import RUN_FILE, read_run

    config = kafka_config or settings().kafka_config
    found = None if config is None else read_kafka_file(config, role)
    in_file = None if found is None else found.bootstrap
    named = [
        (bootstrap, "--bootstrap"),
        (in_file if kafka_config else None, str(kafka_config)),
        (settings().bootstrap, "SLACKWATER_BOOTSTRAP"),
        (in_file, str(config)),
    ]
    for address, origin in named:
        if address is not None:
            return Cluster(address, PLAINTEXT if found is None else found.security), origin
    path, run = directory / RUN_FILE, read_run(directory)
    if run is None:
        raise EnvironmentProblem(
            f"no broker is known: {path} does not exist. Start `slackwater up`, or add --bootstrap"
        )
    if config is None and run.kafka_config is not None:
        config = Path(run.kafka_config)
    return find_cluster(run.bootstrap, config, role), str(path)


def emit(text: str, *, is_json: bool = False) -> None:
    """Print lines and flush, also into a pipe; JSON is printed unchanged."""
    typer.echo(text if is_json else visible(text, kept="\n\t"))
    sys.stdout.flush()


def warn(text: str) -> None:
    """Print lines to standard error; without it (a full disk) the exit code is all that is left."""
    with contextlib.suppress(OSError):
        typer.echo(visible(text, kept="\n\t"), err=True)


def parse_bindings(option: str, values: list[str]) -> dict[str, Path]:
    """Parse ``NAME=FILE`` options into a dictionary; arguments have no ``option``."""
    bindings: dict[str, Path] = {}
    option = f"{option} " if option else ""
    for value in values:
        name, equals, path = value.partition("=")
        if not name or not equals or not path:
            raise UsageError(f"{option}{value!r}: write {option}STREAM=FILE")
        if name in bindings:
            raise UsageError(f"{option}{name} is given twice")
        bindings[name] = Path(path)
    return bindings


def parse_duration(option: str, text: str) -> int:
    """Parse a duration option to us; ``UsageError`` names the option."""
    from slackwater.model.durations import parse_duration_us

    try:
        return parse_duration_us(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
