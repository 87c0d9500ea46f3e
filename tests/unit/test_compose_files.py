"""compose/ says what is there: services are the deployment's processes, and each is kept in bounds.

What needs no engine to be checked; tests/e2e runs the stack.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from ruamel.yaml import YAML

from slackwater.exporter.metrics import ResultMetrics, heartbeat_metrics
from slackwater.runtime.deployment import load_deployment
from slackwater.runtime.layout import process_names

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
ONE_SHOT = {"topics"}
SPARK = {"spark-master", "spark-worker-1", "spark-worker-2"}


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(path)
    return loaded


STACK = load(COMPOSE / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = STACK["services"]


def process(service: dict[str, Any]) -> str | None:
    """The process that a service runs, by the name that status prints."""
    command = service.get("command", [])
    return f"{command[1]}/{command[2]}" if command[:1] == ["fragment"] else None


@pytest.mark.parametrize("file", ["deployment.yaml", "cluster-deployment.yaml"])
def test_the_services_are_the_processes_of_the_deployment(file: str) -> None:
    deployment = load_deployment(COMPOSE / file)
    run = sorted(name for service in SERVICES.values() if (name := process(service)))
    beside = ["exporter/0", "registrar/0"]

    assert run == sorted([*process_names(deployment, broker=False), *beside])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_kept_in_bounds(name: str) -> None:
    service = SERVICES[name]
    ours = service["image"].startswith("${SLACKWATER_SERVICES") or "AGGREGATOR" in service["image"]

    assert "container_name" not in service
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))
    # Our images bring their own health check; all others have one here.
    assert name in ONE_SHOT or (ours and name not in SPARK) or "test" in service["healthcheck"]
    assert service["logging"]["options"]["max-size"]
    if ours:
        assert service["init"]
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]


def test_every_variable_is_explained() -> None:
    used = set(re.findall(r"\$\{(SLACKWATER_\w+)", (COMPOSE / "compose.yaml").read_text()))
    cluster = set(re.findall(r"^(\w+)=", (COMPOSE / "cluster.env").read_text(), re.MULTILINE))
    example = (COMPOSE / ".env.example").read_text()
    explained = set(re.findall(r"^#(\w+)=", example, re.MULTILINE)) | cluster

    assert used <= explained


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    deployment = load_deployment(COMPOSE / "deployment.yaml")
    registry = CollectorRegistry()
    ResultMetrics(registry, deployment)
    named = {metric.name for metric in [*registry.collect(), *heartbeat_metrics({}, {}, 0)]}
    dashboard = json.loads((COMPOSE / "observe/grafana/dashboards/slackwater.json").read_text())
    asked = {
        re.sub(r"_(total|bucket|count|sum)$", "", metric)
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for metric in re.findall(r"slackwater_\w+", target["expr"])
    }

    assert asked == named


@pytest.mark.parametrize("path", sorted(COMPOSE.rglob("*.yml")), ids=str)
def test_the_provisioning_is_yaml(path: Path) -> None:
    assert load(path)
