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
    suspect_after: Annotated[
        str,
        typer.Option(
            "--suspect-after",
            metavar="DURATION",
            help="A node without heartbeats is suspected, and its fragments are placed elsewhere,"
            " not before this time.",
        ),
    ] = "2s",
    suspect_phi: Annotated[
        float,
        typer.Option(
            "--suspect-phi",
            metavar="PHI",
            help="And not before a silence as long has a probability of 10^-PHI, by the node's"
            " earlier heartbeats. Larger where nodes are busy.",
        ),
    ] = 8.0,
) -> None:
    """Run one controller of the replicated record of queries, nodes and placement, until Ctrl-C.

    Controllers agree on what is recorded and keep it through crashes and network splits.
    `slackwater node` runs what they place on a machine; `slackwater query apply` and `slackwater
    node` with --controllers change it.

    Example: slackwater controller --name a --listen 127.0.0.1:7101 --data a
    --peers a=127.0.0.1:7101,b=127.0.0.1:7102,c=127.0.0.1:7103
    """
    from slackwater.cli.common import parse_duration
    from slackwater.control.admission import why_refused_of_client
    from slackwater.control.placing import Suspicion
    from slackwater.control.recorded import fragment_specs
    from slackwater.controller.app import run_controller

    suspicion = Suspicion(parse_duration("--suspect-after", suspect_after), suspect_phi)
    run_controller(
        name,
        listen,
        peers,
        data,
        secret_file,
        tls_dir,
        why_refused_of_client,
        fragment_specs,
        suspicion,
    )
