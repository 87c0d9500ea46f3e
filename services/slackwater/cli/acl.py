"""``slackwater acl``: prints the Kafka ACLs of a role, for the cluster's administrator.

From the file alone, each query has its own topics, a superset if queries share. Registered queries
may read the children of a query that was removed from the file, which only the registry contains.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from slackwater.cli.common import emit, reach_kafka
from slackwater.deployment.parse import load_deployment
from slackwater.model.deployment import Deployment
from slackwater.model.errors import UsageError
from slackwater.registration.registration import Registration
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.security.acl import rules, to_commands, to_json
from slackwater.runtime.security.credentials import Role


def print_acl(
    deployment: Path,
    role: Role,
    principal: str,
    format_: str,
    bootstrap: str | None = None,
    kafka_config: Path | None = None,
    site: str | None = None,
) -> None:
    """Print a role's ACLs; read the registry if a cluster is given."""
    if format_ not in {"text", "json"}:
        raise UsageError(f"--format {format_}: choose text or json")
    if not re.fullmatch(r"\w+:.+", principal):
        raise UsageError(f"--principal {principal}: write TYPE:NAME, as in User:{role}")
    loaded = load_deployment(deployment, site=site)
    if (bootstrap, kafka_config) != (None, None):
        loaded = _as_registered(loaded, deployment, bootstrap, kafka_config)
    found = rules(role, loaded)
    if format_ == "json":
        emit(json.dumps(to_json(role, found, principal), indent=2))
    else:
        for line in to_commands(found, principal):
            emit(line)


def _as_registered(
    loaded: Deployment, path: Path, bootstrap: str | None, kafka_config: Path | None
) -> Deployment:
    """Return the deployment with the children that its queries read, or will read under ``up``."""
    cluster = reach_kafka(bootstrap, kafka_config, role=Role.ADMIN)
    return Registration(KafkaTransport(cluster, loaded.names), loaded, path).share()
