"""The options of ``slackwater node`` for its processes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.support.definitions import apply
from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.control.applied import from_text
from slackwater.machine.background import Background
from slackwater.machine.layout import aggregator_spec
from slackwater.machine.processes import Processes
from slackwater.node import place as node_place
from slackwater.node.machine import NodeMachine
from slackwater.runtime.service.entry import argument_parser
from slackwater_spark.app import _add_arguments

NODE = ["node", "--name", "n1", "--controllers", "127.0.0.1:9", "--bootstrap", "127.0.0.1:9"]


def test_the_aggregators_get_the_options_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines: list[NodeMachine] = []
    monkeypatch.setattr(
        "slackwater.node.app.run_node", lambda config, machine, last: machines.append(machine)
    )
    monkeypatch.chdir(tmp_path)
    options = ["--spark-master", "spark://m:7077", "--spark-secret-file", "spark.secret"]
    options += ["--spark-workers-alike", "--spark-conf", "spark.cores.max=8"]
    options += ["--spark-conf", "spark.executor.memory=512m"]
    for given in ([], options):
        done = CliRunner().invoke(app, [*NODE, "--data-dir", str(tmp_path / "d"), *given])
        assert done.exit_code == 0, done.output
    local, clustered = (parsed(machine, monkeypatch) for machine in machines)
    assert (local.master, local.secret_file, local.conf) == ("local[4096]", None, [])
    assert not local.workers_alike
    assert clustered.master == "spark://m:7077"
    assert clustered.secret_file == tmp_path / "spark.secret"
    assert clustered.conf == ["spark.cores.max=8", "spark.executor.memory=512m"]
    assert clustered.workers_alike


def parsed(machine: NodeMachine, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """What an aggregator of this node reads on its command line."""
    monkeypatch.setattr(f"{node_place.__name__}.KafkaTransport", Mock())
    monkeypatch.setattr(Processes, "watch", Mock())
    applied = from_text("q", apply("q").definition)
    launch = machine._place.begin(applied.deployment, Background()).launch
    spec = aggregator_spec("aggregator/n1-0", ["q.0.a"], launch)
    parser = argument_parser("aggregator")
    _add_arguments(parser)
    return parser.parse_args(spec.command[3:])


def test_a_setting_of_spark_has_a_name_and_a_value() -> None:
    done = CliRunner().invoke(app, [*NODE, "--spark-conf", "cores=8"])
    assert "--spark-conf 'cores=8': write" in str(done.exception)
