"""What several commands share: where the broker is, and how things are asked and said."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.runtime.settings import settings

RUN_FILE: Final = "run.json"
answer_s_max: Final = 5.0
"""How long a command waits for the broker before it says that there is none."""

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Where Kafka answers. Default: SLACKWATER_BOOTSTRAP, else what run.json in the data"
        " directory says.",
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
DeploymentOption = Annotated[
    Path, typer.Option("--deployment", metavar="FILE", help="The deployment file (YAML).")
]


def data_dir(given: Path | None) -> Path:
    """The data directory: the option, else SLACKWATER_DATA_DIR, else .slackwater."""
    return settings().data_dir if given is None else given


def find_bootstrap(given: str | None, directory: Path | None = None) -> str:
    """Where the broker is, and that it answers; else one sentence and exit code 3."""
    from slackwater.runtime.broker import answers

    bootstrap, said_by = _bootstrap(given, data_dir(directory))
    host, _, port = bootstrap.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{said_by} says {bootstrap!r}: write host:port")
    if not answers(bootstrap, answer_s_max):
        raise EnvironmentProblem(
            f"no broker answers at {bootstrap} (from {said_by}) within {answer_s_max:g} s:"
            " is `slackwater up` running?"
        )
    return bootstrap


def _bootstrap(given: str | None, directory: Path) -> tuple[str, str]:
    """The address and who named it."""
    if given is not None:
        return given, "--bootstrap"
    if (named := settings().bootstrap) is not None:
        return named, "SLACKWATER_BOOTSTRAP"
    path = directory / RUN_FILE
    try:
        return str(json.loads(path.read_text())["bootstrap"]), str(path)
    except FileNotFoundError:
        raise EnvironmentProblem(
            f"no broker is known: {path} is not there. Start `slackwater up`, or give --bootstrap"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentProblem(f"{path} cannot be read: {error}") from error


def say(text: str) -> None:
    """A line for the user, at once, also into a pipe."""
    typer.echo(text)
    sys.stdout.flush()


def warn(text: str) -> None:
    """A line beside the output."""
    typer.echo(text, err=True)


def parse_bindings(option: str, values: list[str]) -> dict[str, Path]:
    """``NAME=FILE`` options as a dictionary."""
    bindings: dict[str, Path] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not name or not equals or not path:
            raise UsageError(f"{option} {value!r}: write {option} STREAM=FILE")
        if name in bindings:
            raise UsageError(f"{option} {name} is given twice")
        bindings[name] = Path(path)
    return bindings


def parse_duration(option: str, text: str) -> int:
    """A duration option in us; ``UsageError`` names the option."""
    from slackwater.model.durations import parse_duration_us

    try:
        return parse_duration_us(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
