"""The commands ``slackwater node``: run a machine's agent; list, drain and remove machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.common import (
    BootstrapOption,
    DataDirOption,
    KafkaConfigOption,
    data_dir,
    emit,
)
from slackwater.cli.controls import (
    ControllersOption,
    SecretFileOption,
    TlsDirOption,
    reach_controllers,
)
from slackwater.model.errors import UsageError

ROOM_FRAGMENTS: int = 100

node_app = typer.Typer(help="Machines that run the fragments that controllers place on them.")


@node_app.callback(invoke_without_command=True)
def node(
    context: typer.Context,
    name: Annotated[str | None, typer.Option("--name", help="This node's name.")] = None,
    controllers: ControllersOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    data_dir_: DataDirOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
    room: Annotated[
        int, typer.Option("--room", min=0, help="Maximum fragments on this node.")
    ] = ROOM_FRAGMENTS,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label. May be repeated."),
    ] = None,
    spark_master: Annotated[
        str | None,
        typer.Option(
            "--spark-master",
            metavar="URL",
            help="The Spark master of the aggregators, as in spark://host:7077. Default: a local"
            " one in each aggregator.",
        ),
    ] = None,
    spark_secret_file: Annotated[
        Path | None,
        typer.Option(
            "--spark-secret-file",
            metavar="FILE",
            help="The secret that the processes of the Spark cluster share.",
        ),
    ] = None,
    spark_workers_alike: Annotated[
        bool,
        typer.Option(
            "--spark-workers-alike",
            help="The workers of the Spark cluster have this installation, at the same paths.",
        ),
    ] = False,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            "--spark-conf",
            metavar="NAME=VALUE",
            help="A setting of the aggregators' Spark, as in spark.cores.max=8. May be repeated.",
        ),
    ] = None,
) -> None:
    """Run the fragments that the controllers place on this machine, until Ctrl-C.

    Example: slackwater node --name n1 --controllers 127.0.0.1:7101,127.0.0.1:7102
    --bootstrap 127.0.0.1:9092 --data-dir n1
    """
    if context.invoked_subcommand is not None:
        return
    from slackwater.node.app import NodeConfig, run_node
    from slackwater.node.last_record import LastRecord
    from slackwater.node.machine import NodeMachine
    from slackwater.node.place import NodePlace
    from slackwater.runtime.logs.cluster import find_cluster
    from slackwater.runtime.security.credentials import Role
    from slackwater.runtime.service.settings import settings

    if name is None or controllers is None:
        raise UsageError("--name and --controllers are required")
    reach = reach_controllers(controllers, secret_file, tls_dir, None)
    labels = dict(_label(text) for text in label or [])
    config = kafka_config or settings().kafka_config
    cluster = find_cluster(bootstrap or settings().bootstrap, config, Role.ADMIN)
    directory = data_dir(data_dir_)
    node_config = NodeConfig(name, reach.addresses, room, labels, reach.secret, reach.tls)
    options = [
        *([] if spark_master is None else [f"--master={spark_master}"]),
        *([] if spark_secret_file is None else [f"--secret-file={spark_secret_file.resolve()}"]),
        *(["--workers-alike"] if spark_workers_alike else []),
        *(f"--conf={_setting(text)}" for text in spark_conf or []),
    ]
    machine = NodeMachine(NodePlace(name, cluster, directory, options))
    run_node(node_config, machine, LastRecord(directory))


def _setting(text: str) -> str:
    name, equals, _ = text.partition("=")
    if not name.startswith("spark.") or not equals:
        raise UsageError(f"--spark-conf {text!r}: write --spark-conf spark.NAME=VALUE")
    return text


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"--label {text!r}: write --label KEY=VALUE")
    return key, value


@node_app.command("list")
def node_list(
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
) -> None:
    """Show the controllers of the current view, the nodes, and where each fragment runs.

    Example: slackwater node list --controllers 127.0.0.1:7101
    """
    from slackwater.cli.node_changes import print_nodes

    print_nodes(reach_controllers(controllers, secret_file, tls_dir, None))


@node_app.command("drain")
def node_drain(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until its fragments run elsewhere.")
    ] = False,
) -> None:
    """Move a node's fragments to other nodes. Starting the node again ends the drain.

    Example: slackwater node drain n1 --wait --controllers 127.0.0.1:7101
    """
    from slackwater.cli.node_changes import wait_drained
    from slackwater.cli.query_changes import request
    from slackwater.control.control_object import DrainNode

    reach = reach_controllers(controllers, secret_file, tls_dir, None)
    request(reach, DrainNode(name))
    emit(f"node {name} is draining")
    if wait:
        wait_drained(reach, name)


@node_app.command("leave")
def node_leave(
    name: Annotated[str, typer.Argument(help="The name of the node, or of the controller.")],
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
    is_controller: Annotated[
        bool, typer.Option("--controller", help="NAME is a controller that has been stopped.")
    ] = False,
) -> None:
    """Remove a node for good; its fragments are placed elsewhere.

    With --controller: remove a stopped controller for good. Until then the others keep the entries
    of deleted queries for it.

    Example: slackwater node leave n1 --controllers 127.0.0.1:7101
    """
    from slackwater.cli.query_changes import request
    from slackwater.control.control_object import LeaveController, LeaveNode

    reach = reach_controllers(controllers, secret_file, tls_dir, None)
    request(reach, LeaveController(name) if is_controller else LeaveNode(name))
    emit(f"{'controller' if is_controller else 'node'} {name} has left")


@node_app.command("move")
def node_move(
    fragment: Annotated[str, typer.Argument(help="A fragment, as in root/climate.0.")],
    node: Annotated[str, typer.Argument(help="The node that is to run it.")],
    controllers: ControllersOption = None,
    secret_file: SecretFileOption = None,
    tls_dir: TlsDirOption = None,
) -> None:
    """Move one fragment to a node.

    Example: slackwater node move root/climate.0 n2 --controllers 127.0.0.1:7101
    """
    from slackwater.cli.node_changes import move

    move(reach_controllers(controllers, secret_file, tls_dir, None), fragment, node)
    emit(f"{fragment} is placed on {node}")
