"""Each role has the rights that it needs, and no others."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slackwater.cli import acl
from slackwater.cli.app import app
from slackwater.deployment.parse import load_deployment
from slackwater.deployment.sharing import share
from slackwater.model.deployment import Deployment
from slackwater.proxy.inputs import own_topics
from slackwater.registration.registration import Registration
from slackwater.registration.topics import topic_specs
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.security.acl import Rule, rules
from slackwater.runtime.security.credentials import Role

FILE = """
apiVersion: slackwater/v1
clock: wall
prefix: plant-7.
streams:
  room: {key: {column: node}, time: {column: ts, unit: ms}, fields: [t]}
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [t]
    expect_every: 5s
queries:
  climate:
    from: [room, lab]
    window: {size: 1m}
    aggregate: [avg]
    bound: 2s
  daily:
    from: [climate]
    select: {mean: t_avg}
    window: {size: 1h}
    aggregate: [max]
    bound: 2s
alerts:
  hot: {query: climate, when: t_avg > 26}
  mute: {stream: lab, missing: 30s}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "d.yaml"
    found.write_text(FILE)
    return found


@pytest.fixture
def deployment(path: Path) -> Deployment:
    return load_deployment(path)


def may(role: Role, operation: str, deployment: Deployment) -> set[str]:
    """Return the topics, of the deployment and the user, on which a role may do this."""
    topics = {spec.name for spec in topic_specs(deployment, {"lab": 2})} | {"lab-readings"}
    return {
        topic
        for topic in topics
        for rule in rules(role, deployment)
        if rule.resource == "topic" and operation in rule.operations and applies(rule, topic)
    }


def applies(rule: Rule, name: str) -> bool:
    return name.startswith(rule.name) if rule.pattern == "prefixed" else name == rule.name


def kinds(topics: set[str]) -> set[str]:
    return {topic.removeprefix("plant-7.sw.").split(".")[0] for topic in topics}


@pytest.mark.parametrize(
    ("role", "written"),
    [
        (Role.PROXY, {"source", "quarantine", "heartbeats", "registry"}),
        (Role.HOST, {"ordered", "state", "panes", "results", "alerts", "registry", "heartbeats"}),
        (Role.AGGREGATOR, {"deltas", "heartbeats"}),
        (Role.CLIENT, set()),
        (Role.EXPORTER, {"heartbeats"}),
        (Role.NOTIFIER, {"heartbeats"}),
        (Role.ADMIN, {"registry", "heartbeats", "alerts"}),
    ],
)
def test_what_a_role_may_write(deployment: Deployment, role: Role, written: set[str]) -> None:
    assert kinds(may(role, "Write", deployment)) == written


def test_a_query_with_mergers_has_rules_for_merged_panes(deployment: Deployment) -> None:
    climate = replace(deployment.queries["climate"], mergers=2)
    deployment = replace(deployment, queries={**deployment.queries, "climate": climate})
    assert "merged" in kinds(may(Role.HOST, "Write", deployment))
    assert "merged" in kinds(may(Role.ADMIN, "Delete", deployment))
    assert "merged" not in kinds(may(Role.AGGREGATOR, "Read", deployment))


def test_every_log_has_one_role_that_writes_it(deployment: Deployment) -> None:
    topics = {spec.name for spec in topic_specs(deployment, {"lab": 2})}
    shared = {deployment.names.registry, deployment.names.heartbeats}
    for topic in topics - shared:
        writers = [r for r in Role if topic in may(r, "Write", deployment)]
        if kinds({topic}) == {"alerts"}:
            writers.remove(Role.ADMIN)  # who deletes a query ends its alerts, behind the fence
        assert len(writers) == 1, topic


def test_only_the_admin_makes_changes_and_truncates(deployment: Deployment) -> None:
    for operation in ("Alter", "Delete"):
        able = [role for role in Role if may(role, operation, deployment)]
        assert able == [Role.ADMIN]
    able = [role for role in Role if may(role, "Create", deployment)]
    assert able == [Role.PROXY, Role.ADMIN]
    lab = deployment.names.source("lab")
    assert may(Role.PROXY, "Create", deployment) == {f"{lab}.0", f"{lab}.1"}, (
        "the logs of partitions that are added to the stream's topic"
    )
    assert kinds(may(Role.ADMIN, "Delete", deployment)) == {"ordered", "deltas", "panes"}


def test_the_users_topic_is_read_by_its_proxy_alone(deployment: Deployment) -> None:
    assert [r for r in Role if "lab-readings" in may(r, "Read", deployment)] == [Role.PROXY]


def test_what_was_set_aside_is_read_by_clients_and_the_gateway(deployment: Deployment) -> None:
    for stream in deployment.streams:
        topic = deployment.names.quarantine(stream)
        readers = [r for r in Role if topic in may(r, "Read", deployment)]
        assert readers == [Role.CLIENT, Role.GATEWAY]
    for operation in ("Write", "Create", "Delete", "Alter"):
        assert not may(Role.GATEWAY, operation, deployment)
    assert kinds(may(Role.CLIENT, "Read", deployment)) == {
        "results",
        "quarantine",
        "alerts",
        "heartbeats",
        "registry",
    }


def test_alerts_are_written_by_the_evaluator_and_by_who_deletes_their_query_behind_one_fence(
    deployment: Deployment,
) -> None:
    topic = deployment.names.alerts("climate")
    writers = [role for role in Role if topic in may(role, "Write", deployment)]
    assert writers == [Role.HOST, Role.ADMIN]
    readers = {role for role in Role if topic in may(role, "Read", deployment)}
    assert readers == {Role.ADMIN, Role.HOST, Role.CLIENT, Role.GATEWAY, Role.NOTIFIER}
    assert kinds(may(Role.NOTIFIER, "Read", deployment)) == {"alerts", "heartbeats", "registry"}
    fence = deployment.names.delivery_id("climate")
    holders = [
        role
        for role in Role
        for rule in rules(role, deployment)
        if rule.resource == "transactional-id" and applies(rule, fence)
    ]
    assert holders == [Role.HOST, Role.ADMIN]
    assert len([r for r in rules(Role.ADMIN, deployment) if r.resource == "transactional-id"]) == 1


def test_no_role_needs_a_group_of_its_own(deployment: Deployment) -> None:
    """Logs are assigned: the right to a group is for an id that a client library requires."""
    for role in Role:
        groups = {rule.name for rule in rules(role, deployment) if rule.resource == "group"}
        spark = {"plant-7.sw-aggregator-"} if role is Role.AGGREGATOR else set()
        assert groups == {"plant-7.slackwater-assigned"} | spark, role


def test_everything_carries_the_prefix(deployment: Deployment) -> None:
    for role in Role:
        for rule in rules(role, deployment):
            assert rule.name == "lab-readings" or rule.name.startswith("plant-7."), rule


def test_the_command_prints_kafkas_own_command_lines(path: Path) -> None:
    options = ["acl", "--role", "proxy", "--principal", "User:p q", "--deployment", str(path)]
    emitted = CliRunner().invoke(app, options)
    assert emitted.exit_code == 0, emitted.output
    lines = [shlex.split(line) for line in emitted.output.splitlines()]
    assert all(line[0] == "kafka-acls.sh" for line in lines)
    assert all(line[line.index("--allow-principal") + 1] == "User:p q" for line in lines)
    (source,) = (line for line in lines if "plant-7.sw.source.lab." in line)
    assert source[-1] == "prefixed"
    printed = json.loads(CliRunner().invoke(app, [*options, "--format", "json"]).output)
    assert printed["principal"] == "User:p q"
    assert len(printed["rules"]) == len(lines)
    wrong = ["acl", "--role", "proxy", "--principal", "p", "--deployment", str(path)]
    assert "write TYPE:NAME" in str(CliRunner().invoke(app, wrong).exception)


def test_a_proxy_wants_no_topic_that_nobody_has_made(deployment: Deployment) -> None:
    """It may not create one: a missing topic that only it requires would end it."""
    made = {spec.name for spec in topic_specs(deployment, {"lab": 2})}
    for stream in deployment.streams.values():
        assert {spec.name for spec in own_topics(stream, deployment.names)} <= made


def test_a_proxy_may_record_what_it_has_learned_of_silence(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    posted = FILE.replace("topic: {name: lab-readings, format: json}", "http: {}")
    fixed = load_deployment(_written(path, posted))
    learning = load_deployment(
        _written(path, posted.replace("expect_every: 5s", "expect_every: auto"))
    )
    registry = learning.names.registry
    assert registry not in may(Role.PROXY, "Write", fixed)
    assert registry in may(Role.PROXY, "Write", learning)


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


WITHOUT_DAILY = FILE.partition("  daily:")[0]
SHARED = WITHOUT_DAILY + "  hourly:" + WITHOUT_DAILY.partition("  climate:")[2]


def test_registered_queries_have_the_children_that_they_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if these are named after a query that was removed from the file."""
    path = tmp_path / "d.yaml"
    both = share(load_deployment(_written(path, SHARED)))
    assert both.queries["hourly"].child_query == "climate"
    left = replace(both, queries={"hourly": both.queries["hourly"]})
    topics = {"ordered.climate.0", "ordered.hourly.g", "state.climate", "state.hourly"}
    topics |= {"panes.hourly", "panes.hourly.g"}
    written = may_write(rules(Role.HOST, left)) - {"registry", "heartbeats"}
    assert {name for name in written if not name.startswith("results")} == topics
    deltas = {"deltas.climate.0", "deltas.hourly.g"}
    assert may_write(rules(Role.AGGREGATOR, left)) == deltas | {"heartbeats"}

    monkeypatch.setattr(acl, "reach_kafka", lambda *_, **__: Cluster("kafka:9092"))
    monkeypatch.setattr(Registration, "share", lambda _: left)
    options = ["acl", "--role", "aggregator", "--principal", "User:a", "--deployment", str(path)]
    of_file = CliRunner().invoke(app, options).output
    registered = CliRunner().invoke(app, [*options, "--bootstrap", "kafka:9092"]).output
    assert "sw.deltas.hourly.0" in of_file
    assert "sw.deltas.hourly.0" not in registered
    assert "sw.deltas.climate.0" in registered


def may_write(of_role: list[Rule]) -> set[str]:
    wanted = (rule for rule in of_role if rule.resource == "topic" and "Write" in rule.operations)
    return {rule.name.removeprefix("plant-7.sw.") for rule in wanted}
