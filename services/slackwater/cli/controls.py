"""Finds the controllers of a command: those of ``--controllers``, or that of a running `up`.

All commands import this module for its options, so it imports the code of controllers in functions.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.model.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from slackwater.controller.address import Address
    from slackwater.controller.client import ControlClient
    from slackwater.controller.tls import LinkTls
    from slackwater.runtime.logs.cluster import Cluster
    from slackwater.status.asking import ControllersAsked

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
        from slackwater.controller.client import connect

        return connect(self.addresses, self.secret, name, tls=self.tls)

    def all(self, name: str) -> ControllersAsked:
        """Return connections to all of them, each of which is made when it is first needed."""
        from slackwater.status.asking import ControllersAsked

        return ControllersAsked(self.addresses, name, self.secret, self.tls)


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
    from slackwater.controller.app import parse_addresses, read_secret
    from slackwater.controller.tls import read_tls
    from slackwater.stack.local_control import where

    if controllers is not None:
        secret = b"" if secret_file is None else read_secret(secret_file)
        addresses = parse_addresses(controllers)
        tls = None if tls_dir is None else read_tls(tls_dir)
        return Reach(
            addresses,
            "is `slackwater controller` running there, with the same secret and TLS?",
            True,
            secret,
            tls,
        )
    for option, given in (("--secret-file", secret_file), ("--tls-dir", tls_dir)):
        if given is not None:
            raise UsageError(f"{option} needs --controllers")
    if data_dir is None:
        raise UsageError("--controllers is missing: HOST:PORT of the controllers")
    address, secret = where(data_dir)
    return Reach((address,), "is `slackwater up` running?", False, secret)


def find_controllers(
    controllers: str | None,
    secret_file: Path | None,
    tls_dir: Path | None,
    data_dir: Path,
    cluster: Cluster,
) -> Reach | None:
    """Return the controllers of the options, else that of the `slackwater up` of this Kafka.

    None: no option is given, and no `slackwater up` with this data directory uses this Kafka. If
    the controller of `up` does not run, there are no addresses, and the advice gives the reason.

    Raises:
        UsageError: an option is wrong.
    """
    from slackwater.runtime.service.datadir import is_running, read_run
    from slackwater.stack.local_control import where

    if controllers is None and secret_file is None and tls_dir is None:
        try:
            run = read_run(data_dir)
        except EnvironmentProblem:
            return None  # ``status`` reports a damaged file when it reads the processes from it
        if run is None or run.bootstrap != cluster.bootstrap or not is_running(data_dir):
            return None
        try:
            where(data_dir)
        except EnvironmentProblem:
            return Reach((), "it starts, or has failed; the reason is in its log", False)
    return reach_controllers(controllers, secret_file, tls_dir, data_dir)
