"""``slackwater acl``: prints the Kafka ACLs of a role, for the cluster's administrator."""

from __future__ import annotations

import json
import re
from pathlib import Path

from slackwater.cli.common import emit
from slackwater.deployment.parse import load_deployment
from slackwater.model.errors import UsageError
from slackwater.runtime.security.acl import rules, to_commands, to_json
from slackwater.runtime.security.credentials import Role


def print_acl(deployment: Path, role: Role, principal: str, format_: str) -> None:
    """Print a role's ACLs, without connecting to Kafka."""
    if format_ not in {"text", "json"}:
        raise UsageError(f"--format {format_}: choose text or json")
    if not re.fullmatch(r"\w+:.+", principal):
        raise UsageError(f"--principal {principal}: write TYPE:NAME, as in User:{role}")
    found = rules(role, load_deployment(deployment))
    if format_ == "json":
        emit(json.dumps(to_json(role, found, principal), indent=2))
    else:
        for line in to_commands(found, principal):
            emit(line)
