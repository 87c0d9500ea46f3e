"""The files that the secured stack of compose creates at its first start, without containers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from slackwater.deployment.parse import load_deployment
from slackwater.gateway.access import read_access
from slackwater.machine import secured_stack
from slackwater.machine.broker_security import BrokerSecurity
from slackwater.machine.secured_stack import (
    INSIDE,
    OUTSIDE,
    PRODUCER,
    TOKENS,
    main,
    rights,
    users_of,
)
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.security.acl import AT_SITES
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.security.security_file import read_kafka_file

DEPLOYMENT = Path(__file__).parents[3] / "compose" / "deployment.yaml"
OUT = "127.0.0.1:19999"
ROLES = {*Role} - AT_SITES


@pytest.fixture(name="made")
def _made(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    assert main(["make", str(folder), "--outside", OUT, "--broker-group", str(os.getgid())]) == 0
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_each_role_has_a_user_and_each_container_the_users_that_it_needs(made: Path) -> None:
    passwords = {}
    for name, file in users_of(made).items():
        login = read_kafka_file(file, Role.CLIENT).security.login
        assert login is not None
        assert login.username == name
        passwords[name] = login.password
    assert len(set(passwords.values())) == len(ROLES) + 1
    may_hold = {
        "node": ROLES - {Role.EXPORTER},
        "admin": {Role.ADMIN},
        "worker": {Role.AGGREGATOR},
        "exporter": {Role.EXPORTER},
        "gateway": {Role.GATEWAY},
        "notifier": {Role.NOTIFIER},
        "sensor": {PRODUCER},
        OUTSIDE: {Role.CLIENT, PRODUCER},
        "broker": set(),
    }
    assert {each.name for each in made.iterdir()} == may_hold.keys() == {*INSIDE, OUTSIDE, "broker"}
    for place, users in may_hold.items():
        found = b"".join(contents(made / place).values())
        held = {name for name, password in passwords.items() if password.encode() in found}
        assert held == {str(user) for user in users}, place


def test_only_the_owner_reads_them_and_the_brokers_their_own(made: Path) -> None:
    modes = {
        str(path.relative_to(made)): path.stat().st_mode & 0o777
        for path in made.rglob("*")
        if path != made
    }
    broker = {name: mode for name, mode in modes.items() if name.startswith("broker")}
    assert broker == {"broker": 0o750, "broker/ca.pem": 0o640, "broker/broker.pem": 0o640}
    others = {mode for name, mode in modes.items() if name not in broker}
    assert others == {0o700, 0o600}


def test_a_role_finds_its_way_in_and_trusts_the_brokers_authority(made: Path) -> None:
    trusted = (made / "broker" / "ca.pem").read_text()
    inside = read_kafka_file(made / "node", Role.PROXY)
    assert inside.bootstrap == "kafka-1:19092,kafka-2:19092,kafka-3:19092"
    assert inside.security.authorities_pem == trusted
    for name in (Role.CLIENT, PRODUCER):
        outside = read_kafka_file(made / OUTSIDE / f"{name}.properties", Role.CLIENT)
        kcat = read_kafka_file(made / OUTSIDE / f"{name}.kcat", Role.CLIENT)
        assert (outside.bootstrap, kcat.bootstrap) == (OUT, OUT)
        assert outside.security.confluent() == kcat.security.confluent()
    own = x509.load_pem_x509_certificate((made / "broker" / "broker.pem").read_bytes())
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "kafka-1", "kafka-2", "kafka-3"]


def test_what_is_there_stays_and_what_is_lost_is_made_again(made: Path) -> None:
    before = contents(made)
    assert main(["make", str(made), "--outside", OUT]) == 0
    assert contents(made) == before
    (made / "exporter" / "exporter.properties").unlink()
    assert main(["make", str(made), "--outside", OUT]) == 0
    changed = {name for name, content in contents(made).items() if before[name] != content}
    assert changed == {"exporter/exporter.properties"}


def test_the_page_has_a_token_that_may_view_and_is_made_once(made: Path) -> None:
    access = read_access(made / TOKENS)
    assert access.digests is not None
    assert [*access.digests.values()] == ["view"]
    found = contents(made)
    token = found[str(TOKENS)].split()[1]
    assert [name for name, content in found.items() if token in content] == [str(TOKENS)]
    assert main(["make", str(made), "--outside", OUT]) == 0
    assert contents(made) == found


def test_rights_are_those_of_the_roles_and_none_is_for_everybody() -> None:
    found = rights(load_deployment(DEPLOYMENT))
    assert found.keys() == {*map(str, ROLES), PRODUCER}
    assert {(rule.name, rule.operations) for rule in found[PRODUCER]} == {
        (f"{name}-readings", ("Describe", "Write"))
        for name in ("lab", "room-1", "room-2", "room-3", "room-4")
    }
    names = {rule.name for allowed in found.values() for rule in allowed}
    assert not names & {"", "*"}
    writes = [rule for rule in found[Role.CLIENT] if "Write" in rule.operations]
    assert writes == []


def test_users_precede_their_rights_and_an_error_is_reported(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    emitted: list[Any] = []

    def write_users(self: Any, inside: Cluster) -> None:
        emitted.append((inside.bootstrap, inside.security.protocol, set(self.users)))

    monkeypatch.setattr(BrokerSecurity, "write_users", write_users)
    monkeypatch.setattr(secured_stack, "allow", lambda cluster, user, rules: emitted.append(user))
    command = ["grant", str(made), "--brokers", "kafka-1:19093", "--deployment"]
    assert main([*command, str(DEPLOYMENT)]) == 0
    names = {*map(str, ROLES), PRODUCER}
    assert emitted[0] == ("kafka-1:19093", "SSL", names)
    assert emitted[1:] == [f"User:{name}" for name in rights(load_deployment(DEPLOYMENT))]
    assert main([*command, str(made / "none.yaml")]) == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err
