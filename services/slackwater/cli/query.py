"""The commands ``slackwater query``: show the registered queries, and change them at run time."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.common import (
    BootstrapOption,
    DataDirOption,
    KafkaConfigOption,
    PrefixOption,
    SiteOption,
    data_dir,
    emit,
    find_names,
    reach_kafka,
)
from slackwater.cli.controls import (
    ControllersOption,
    SecretFileOption,
    TlsDirOption,
    reach_controllers,
)
from slackwater.model.errors import EnvironmentProblem

query_app = typer.Typer(
    help="List, change, pause and delete registered queries.\n\nExample: slackwater query list",
    no_args_is_help=True,
)


@query_app.command("list")
def query_list(
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
) -> None:
    """List the registered queries; with --controllers those that they have recorded.

    Example: slackwater query list
    """
    if controllers is not None:
        from slackwater.cli.query_changes import print_recorded

        print_recorded(reach_controllers(controllers, secret_file, tls_dir, None))
        return
    from slackwater.cli.show import print_queries

    cluster = reach_kafka(bootstrap, kafka_config, data_dir_)
    names = find_names(prefix, bootstrap, data_dir_)
    print_queries(cluster, names)


@query_app.command("show")
def query_show(
    name: Annotated[str, typer.Argument(help="The query's name.")],
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
) -> None:
    """Show a registered query in full, as JSON; with --controllers what they have recorded.

    Example: slackwater query show climate
    """
    if controllers is not None:
        from slackwater.cli.query_changes import print_recorded_query

        print_recorded_query(reach_controllers(controllers, secret_file, tls_dir, None), name)
        return
    from slackwater.cli.show import print_query

    cluster = reach_kafka(bootstrap, kafka_config, data_dir_)
    names = find_names(prefix, bootstrap, data_dir_)
    print_query(cluster, names, name)


@query_app.command("apply")
def query_apply(
    file: Annotated[Path, typer.Argument(help="A deployment file.")],
    query: Annotated[
        list[str] | None,
        typer.Option("--query", help="Apply this query only. May be repeated."),
    ] = None,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="now|beginning|TIME",
            help="Where event time starts: at the next window, at the first reading that the source"
            " logs hold, or at a time.",
        ),
    ] = "now",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the queries run.")] = False,
    data_dir_: DataDirOption = None,
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    site: SiteOption = None,
) -> None:
    """Start the queries of a file that do not run, and change those whose definition differs.

    A changed query continues its results as a new generation, from the first window that has no
    stable answer when the new generation is ready. So does one that has not taken in all partitions
    of a topic with `partitions: fixed`.

    Example: slackwater query apply rooms.yaml --wait
    """
    from slackwater.cli.query_changes import apply_queries, parse_start, queries_of, wait_ready
    from slackwater.runtime.logs.kafka import KafkaTransport
    from slackwater.runtime.service.registry import Registry

    deployment, wanted = queries_of(file, query or [], site)
    start, directory = parse_start(from_), data_dir(data_dir_)
    reach = reach_controllers(controllers, secret_file, tls_dir, directory)

    @cache
    def transport() -> KafkaTransport:
        names = deployment.names if reach.has_nodes else find_names(None, None, directory)
        return KafkaTransport(reach_kafka(bootstrap, kafka_config, directory), names)

    knows_kafka = not reach.has_nodes or bootstrap is not None
    find = (lambda: Registry(transport())) if knows_kafka else None
    accepted = apply_queries(reach, deployment, wanted, start, find)
    if wait and accepted:
        wait_ready(transport().cluster, transport().names, accepted)


@query_app.command("delete")
def query_delete(
    name: Annotated[str, typer.Argument(help="The query's name.")],
    data_dir_: DataDirOption = None,
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
) -> None:
    """End a query. Its results stay in their topics.

    A query of this name that is applied later continues them.

    Example: slackwater query delete climate
    """
    from slackwater.cli.query_changes import request_each
    from slackwater.control.control_object import DeleteQuery

    reach = reach_controllers(controllers, secret_file, tls_dir, data_dir(data_dir_))
    request_each(reach, DeleteQuery, name)
    emit(f"query {name} is deleted; its results stay in their topics")


@query_app.command("pause")
def query_pause(
    name: Annotated[str, typer.Argument(help="The query's name.")],
    data_dir_: DataDirOption = None,
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
    bootstrap: BootstrapOption = None,
    prefix: PrefixOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Stop computing a query, and keep its positions.

    Readings that retention deletes from the source logs before it is resumed are reported as gaps.
    The command prints how long they are kept; with --controllers only if --bootstrap is given.

    Example: slackwater query pause climate
    """
    from slackwater.cli.query_changes import request_each
    from slackwater.cli.show import kept_for
    from slackwater.control.control_object import PauseQuery

    directory = data_dir(data_dir_)
    reach = reach_controllers(controllers, secret_file, tls_dir, directory)
    request_each(reach, PauseQuery, name)
    emit(f"query {name} is paused; `slackwater query resume {name}` continues it")
    if not reach.has_nodes or bootstrap is not None:
        with suppress(EnvironmentProblem):  # without Kafka only this line is missing
            cluster = reach_kafka(bootstrap, kafka_config, directory)
            emit(kept_for(cluster, find_names(prefix, bootstrap, directory), name))


@query_app.command("resume")
def query_resume(
    name: Annotated[str, typer.Argument(help="The query's name.")],
    data_dir_: DataDirOption = None,
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
) -> None:
    """Continue a paused query where it was paused.

    Example: slackwater query resume climate
    """
    from slackwater.cli.query_changes import request_each
    from slackwater.control.control_object import ResumeQuery

    reach = reach_controllers(controllers, secret_file, tls_dir, data_dir(data_dir_))
    request_each(reach, ResumeQuery, name)
    emit(f"query {name} is resumed")
