"""Writes access control lists into a Kafka: what ``slackwater acl`` prints, for who may do it here.

Rights are added and never removed, since other rights may have been granted independently. The
controller has them first; a broker's own authorizer receives them a moment later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.security.acl import Rule

GRANT_S_MAX: Final = 30.0
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


def allow(cluster: Cluster, principal: str, rules: Iterable[Rule]) -> None:
    """As ``kafka-acls.sh --add`` does, by who is in ``cluster``; may be repeated."""
    bindings = [
        AclBinding(
            _RESOURCES[rule.resource],
            rule.name,
            ResourcePatternType[rule.pattern.upper()],
            principal,
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for rule in rules
        for operation in rule.operations
    ]
    admin = Admin(cluster)
    answers = admin.ask(lambda client: client.create_acls(bindings), GRANT_S_MAX)
    for why in (*answers.refused.values(), *answers.missing.values()):
        raise EnvironmentProblem(f"no rights can be given to {principal}: {why}")
    give_up = time.monotonic() + GRANT_S_MAX
    while not set(bindings) <= _allowed(admin, principal):
        if time.monotonic() > give_up:
            raise EnvironmentProblem(f"the rights of {principal} were given and do not appear")
        time.sleep(0.1)


def _allowed(admin: Admin, principal: str) -> set[AclBinding]:
    """Rights of this principal according to a broker."""
    wanted = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        principal,
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    answers = admin.ask(lambda client: {principal: client.describe_acls(wanted)}, GRANT_S_MAX)
    for why in (*answers.refused.values(), *answers.missing.values()):
        raise EnvironmentProblem(f"the rights of {principal} cannot be read: {why}")
    return set(answers.given[principal])
