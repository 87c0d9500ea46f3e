"""Credentials of a secured stack of containers: certificates, passwords and access rules.

    python -m slackwater.machine.secured_stack make FOLDER
    python -m slackwater.machine.secured_stack grant FOLDER --deployment FILE \
        --brokers HOST:PORT

``make`` creates what is missing: below FOLDER a directory for the brokers, one for each kind of
container (``INSIDE``), and ``outside`` for programs on the host. Each is a volume that is mounted
only where it is needed. The authority's key is never written. ``grant`` authenticates with the
broker's certificate, and creates the users in Kafka with the rules of ``slackwater acl``; all else
is denied. Both are idempotent, so each `docker compose up` runs them: rules of a new deployment
file are added, old ones stay.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker_security import (
    PASSWORD_BYTES,
    BrokerSecurity,
    client_properties,
    kcat_conf,
)
from slackwater.model.deployment import Deployment
from slackwater.model.errors import SlackwaterError
from slackwater.runtime.logs.grants import allow
from slackwater.runtime.security.acl import AT_SITES, READ, Rule, rules
from slackwater.runtime.security.credentials import Login, Role
from slackwater.runtime.security.private import make_private, write_atomically
from slackwater.runtime.security.security_file import read_kafka_file

BROKER: Final = "broker"
OUTSIDE: Final = "outside"
PRODUCER: Final = "producer"
"""User and name of the program that writes readings to the input topics of streams."""
INSIDE: Final[Mapping[str, Sequence[str]]] = {
    # The node starts processes of all these roles, and commands in its container read results,
    # serve the page or send alerts.
    "node": (
        *(Role.ADMIN, Role.PROXY, Role.HOST, Role.AGGREGATOR),
        *(Role.CLIENT, Role.GATEWAY, Role.NOTIFIER),
    ),
    "admin": (Role.ADMIN,),
    # The workers of a Spark cluster read and write for the aggregators.
    "worker": (Role.AGGREGATOR,),
    "exporter": (Role.EXPORTER,),
    "gateway": (Role.GATEWAY,),
    "notifier": (Role.NOTIFIER,),
    "sensor": (PRODUCER,),
}
"""The users whose files each kind of container has."""
AUTHORITIES: Final = Path("ca.pem")
TOKENS: Final = Path("gateway", "tokens")
"""The file with the token of the page, which may view."""
TOKEN_BYTES: Final = 32
GROUPS: Final = "client-"
"""Prefix of the client's consumer groups."""

_HOSTS: Final = ("kafka-1", "kafka-2", "kafka-3")
_INSIDE: Final = ",".join(f"{host}:19092" for host in _HOSTS)


def users_of(folder: Path) -> dict[str, Path]:
    """Return each user's file of client settings inside the stack, the first of several."""
    found: dict[str, Path] = {}
    for place, names in INSIDE.items():
        for name in names:
            found.setdefault(str(name), folder / place / f"{name}.properties")
    return found


def make(folder: Path, *, outside: str, broker_group: int | None = None) -> None:
    """Create missing files; ``outside`` is the broker's address for programs on the host."""
    logins = {
        name: _login(file) or Login(name, secrets.token_urlsafe(PASSWORD_BYTES))
        for name, file in users_of(folder).items()
    }
    broker = BrokerSecurity(folder / BROKER, "", {}, _HOSTS)
    broker.prepare()
    if broker_group is not None:
        _share(broker.folder, broker_group)
    trusted = broker.authorities.read_text()
    for kind, names in INSIDE.items():
        for name in names:
            text = client_properties(_INSIDE, logins[name], AUTHORITIES)
            _write(folder / kind, f"{name}.properties", text)
        _write(folder / kind, AUTHORITIES.name, trusted)
    if not (folder / TOKENS).exists():
        token = secrets.token_urlsafe(TOKEN_BYTES)
        _write(folder / TOKENS.parent, TOKENS.name, f"view {token}\n")
    place = folder / OUTSIDE
    for name in (Role.CLIENT, PRODUCER):
        text = client_properties(outside, logins[name], AUTHORITIES)
        _write(place, f"{name}.properties", text)
        _write(place, f"{name}.kcat", kcat_conf(outside, logins[name], AUTHORITIES))
    _write(place, AUTHORITIES.name, trusted)


def rights(deployment: Deployment) -> dict[str, list[Rule]]:
    """Return the access rules of each user; no site connects to this stack."""
    found = {str(role): rules(role, deployment) for role in Role if role not in AT_SITES}
    found[Role.CLIENT] += [Rule("group", GROUPS, READ, "prefixed")]
    topics = [s.topic.name for s in deployment.streams.values() if s.topic is not None]
    return found | {PRODUCER: [Rule("topic", topic, ("Describe", "Write")) for topic in topics]}


def grant(folder: Path, deployment: Deployment, brokers: str) -> None:
    """Create the users with their rights.

    ``brokers`` is the address of the listener that accepts a broker's certificate.
    """
    logins = {name: _login(file) for name, file in users_of(folder).items()}
    users = {name: login.password for name, login in logins.items() if login is not None}
    security = BrokerSecurity(folder / BROKER, "", users)
    inside = security.inside(brokers)
    security.write_users(inside)
    for name, allowed in rights(deployment).items():
        allow(inside, f"User:{name}", allowed)


def _login(file: Path) -> Login | None:
    """Return a user's login; None if it has not been created."""
    if not file.exists():
        return None
    return read_kafka_file(file, Role.CLIENT).security.login


def _write(place: Path, name: str, text: str) -> None:
    make_private(place)
    file = place / name
    if not file.exists() or file.read_text() != text:
        write_atomically(file, text)


def _share(place: Path, group: int) -> None:
    """Make the certificate and its key readable for the brokers, which run as another user."""
    for path, mode in ((place, 0o750), *((file, 0o640) for file in place.iterdir())):
        os.chown(path, -1, group)
        path.chmod(mode)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m slackwater.machine.secured_stack")
    commands = parser.add_subparsers(required=True, dest="command")
    making = commands.add_parser("make")
    making.add_argument("folder", type=Path)
    making.add_argument("--outside", default="127.0.0.1:9092", metavar="HOST:PORT,...")
    making.add_argument("--broker-group", type=int, metavar="GID")
    granting = commands.add_parser("grant")
    granting.add_argument("folder", type=Path)
    granting.add_argument("--deployment", type=Path, required=True, metavar="FILE")
    granting.add_argument("--brokers", required=True, metavar="HOST:PORT,...")
    given = parser.parse_args(arguments)
    try:
        if given.command == "make":
            make(given.folder, outside=given.outside, broker_group=given.broker_group)
        else:
            grant(given.folder, load_deployment(given.deployment), given.brokers)
    except SlackwaterError as error:
        print(f"error: {error.message}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
