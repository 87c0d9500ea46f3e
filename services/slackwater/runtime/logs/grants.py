"""Creates access control lists in a Kafka cluster: the rules that ``slackwater acl`` prints.

It requires the right to alter ACLs. Rules are added and never removed, since the cluster may have
rules of other programs. Kafka's controller stores a rule, and the brokers' authorizers receive it a
moment later, so ``allow`` waits until a rule is in effect.
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
    """Add the rules for this principal and wait until they are in effect; repeatable.

    Raises:
        EnvironmentProblem: a rule is refused, or not in effect after ``GRANT_S_MAX``.
    """
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
        raise EnvironmentProblem(f"the ACLs of {principal} cannot be created: {why}")
    give_up = time.monotonic() + GRANT_S_MAX
    while not set(bindings) <= _allowed(admin, principal):
        if time.monotonic() > give_up:
            raise EnvironmentProblem(f"ACLs of {principal} have no effect in {GRANT_S_MAX:g} s")
        time.sleep(0.1)


def _allowed(admin: Admin, principal: str) -> set[AclBinding]:
    """Return the rules that a broker's authorizer has for this principal."""
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
        raise EnvironmentProblem(f"the ACLs of {principal} cannot be read: {why}")
    return set(answers.given[principal])
