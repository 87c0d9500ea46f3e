"""Finds the controllers of a command: those of ``--controllers``, or that of a running `up`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.local_control import where
from slackwater.controller.app import parse_address, read_secret
from slackwater.controller.client import ControlClient, connect
from slackwater.controller.server import Address
from slackwater.controller.tls import LinkTls, read_tls
from slackwater.model.errors import UsageError

ControllersOption = Annotated[
    str | None,
    typer.Option(
        "--controllers",
        metavar="HOST:PORT,...",
        envvar="SLACKWATER_CONTROLLERS",
        help="Controllers of nodes; the first that answers is used. Default: that of the running"
        " `slackwater up`.",
    ),
]
SecretFileOption = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        envvar="SLACKWATER_SECRET_FILE",
        help="File with the secret that the controllers have.",
    ),
]
TlsDirOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-dir",
        metavar="DIR",
        envvar="SLACKWATER_TLS_DIR",
        help="Directory with ca.pem, cert.pem and key.pem, for TLS between controllers, nodes and"
        " commands.",
    ),
]


@dataclass(frozen=True)
class Reach:
    """Addresses of controllers, and the advice that is printed if none of them answers."""

    addresses: tuple[Address, ...]
    advice: str
    has_nodes: bool
    secret: bytes = field(default=b"", repr=False)
    tls: LinkTls | None = None

    def connect(self, name: str) -> AbstractAsyncContextManager[ControlClient]:
        """Connect to the first controller that accepts."""
        return connect(self.addresses, self.secret, name, tls=self.tls)


def reach_controllers(
    controllers: str | None,
    secret_file: Path | None,
    tls_dir: Path | None,
    data_dir: Path | None,
) -> Reach:
    """Return the controllers of the options; without ``--controllers`` that of `slackwater up`.

    Raises:
        UsageError: an option is wrong.
        EnvironmentProblem: no deployment runs from the data directory.
    """
    if controllers is not None:
        secret = b"" if secret_file is None else read_secret(secret_file)
        addresses = parse_addresses(controllers)
        tls = None if tls_dir is None else read_tls(tls_dir)
        return Reach(addresses, "is `slackwater controller` running?", True, secret, tls)
    for option, given in (("--secret-file", secret_file), ("--tls-dir", tls_dir)):
        if given is not None:
            raise UsageError(f"{option} needs --controllers")
    if data_dir is None:
        raise UsageError("--controllers is missing: HOST:PORT of the controllers")
    address, secret = where(data_dir)
    return Reach((address,), "is `slackwater up` running?", False, secret)


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Parse HOST:PORT,HOST:PORT; names before an equals sign, as in --peers, are allowed."""
    items = [item.rpartition("=")[2] for item in text.split(",") if item]
    if not items:
        raise UsageError("--controllers is empty: write HOST:PORT,...")
    return tuple(dict.fromkeys(parse_address("--controllers", item) for item in items))
