"""``slackwater controller``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.controls import TlsDirOption


def controller(
    name: Annotated[str, typer.Option("--name", help="This controller's name.")],
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where controllers and clients connect. An address that other machines can reach"
            " needs --tls-dir or --secret-file.",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="Directory for its state; not shared."),
    ],
    peers: Annotated[
        str,
        typer.Option(
            "--peers",
            metavar="NAME=HOST:PORT,...",
            help="All controllers, with this one; the same list for each of them.",
        ),
    ] = "",
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file",
            metavar="FILE",
            envvar="SLACKWATER_SECRET_FILE",
            help="File with a secret of at least 16 bytes that controllers and clients share.",
        ),
    ] = None,
    tls_dir: TlsDirOption = None,
) -> None:
    """Run one controller of the replicated record of queries, nodes and placement, until Ctrl-C.

    Controllers agree on what is recorded and keep it through crashes and network splits.
    `slackwater node` runs what they place on a machine; `slackwater query apply` and `slackwater
    node` with --controllers change it.

    Example: slackwater controller --name a --listen 127.0.0.1:7101 --data a
    --peers a=127.0.0.1:7101,b=127.0.0.1:7102,c=127.0.0.1:7103
    """
    from slackwater.control.admission import why_refused_of_client
    from slackwater.control.recorded import fragment_specs
    from slackwater.controller.app import run_controller

    run_controller(
        name, listen, peers, data, secret_file, tls_dir, why_refused_of_client, fragment_specs
    )
