"""``slackwater gateway``: the live page and its API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.common import (
    BootstrapOption,
    DataDirOption,
    KafkaConfigOption,
    PrefixOption,
    data_dir,
    emit,
    find_kafka,
    find_names,
)
from slackwater.cli.controls import (
    ControllersOption,
    SecretFileOption,
    TlsDirOption,
    find_controllers,
)
from slackwater.model.errors import UsageError


def gateway(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address of the page.")
    ] = "127.0.0.1:8090",
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="File with a line `view TOKEN` for each token; required if other machines reach"
            " the address.",
        ),
    ] = None,
    no_tokens: Annotated[
        bool,
        typer.Option(
            "--no-tokens",
            help="Serve such an address without tokens, to requests that name localhost: for a"
            " container whose port is published on loopback only.",
        ),
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="Certificate chain (PEM), for HTTPS."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Its private key (PEM).")
    ] = None,
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
) -> None:
    """Serve a live page of queries, streams and machines, and an API with the same, until Ctrl-C.

    It reads only, and goes on when a Kafka that is away is back. Without --tokens it answers this
    machine only.

    Example: slackwater gateway
    """
    from slackwater.cli.control_status import Controls
    from slackwater.deployment.listening import parse_address
    from slackwater.gateway.access import Access, read_access
    from slackwater.gateway.main import run_gateway
    from slackwater.gateway.server import Listen, check_listening
    from slackwater.runtime.security.credentials import Role

    try:
        host, port = parse_address(listen)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from None
    if (certificate is None) != (key is None):
        raise UsageError("--certificate and --key: give both, or none")
    if no_tokens and tokens is not None:
        raise UsageError("--no-tokens excludes --tokens")
    where = Listen(host, port, certificate, key)
    access = Access(is_open=True) if no_tokens else read_access(tokens)
    check_listening(where, access)
    # The page says if Kafka does not answer, and goes on when it does.
    cluster, _ = find_kafka(bootstrap, kafka_config, data_dir_, Role.GATEWAY)
    names = find_names(prefix, bootstrap, data_dir_)
    reach = find_controllers(controllers, secret_file, tls_dir, data_dir(data_dir_), cluster)
    run_gateway(where, access, cluster, names, Controls(reach), emit)
